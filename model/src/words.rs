//! Owns the words: a counterexample as a list of steps that a reader can follow.

use std::fmt::Write;

use crate::log::{NOBODY, Node, Zxid};
use crate::model::Action;
use crate::order::Kind;
use crate::state::{Phase, Request, State};

const SESSIONS: [&str; 3] = ["A", "B", "C"];

/// The steps of a path, numbered.
pub(crate) fn story(path: &[(State, Option<Action>)]) -> String {
    let mut text = String::new();
    for (index, pair) in path.windows(2).enumerate() {
        let ((before, action), (after, _)) = (&pair[0], &pair[1]);
        let action = action.as_ref().expect("only the last state has no action");
        let mut line = step(before, *action);
        for change in changes(before, after) {
            write!(line, "; {change}").expect("a String takes everything");
        }
        writeln!(text, "  {:2}. {line}.", index + 1).expect("a String takes everything");
    }
    text
}

fn task(state: &State, s: usize, t: usize) -> String {
    let many = state.sessions[s].tasks.len() > 1;
    if many { format!("{}{}", SESSIONS[s], t + 1) } else { SESSIONS[s].to_owned() }
}

fn name(state: &State, node: Zxid) -> String {
    state.log.node(node).map_or_else(|| "a node that is gone".to_owned(), |node| named(state, node))
}

fn named(state: &State, node: &Node) -> String {
    let owner = match node.owner {
        NOBODY => "the operator".to_owned(),
        owner => task(state, usize::from(owner), usize::from(node.task)),
    };
    let kind = match node.kind {
        Kind::Read => "READ",
        Kind::Write => "WRIT",
        _ => "lock",
    };
    let path = if node.path > 0 { " of the new path" } else { "" };
    format!("{kind}-{} ({owner}'s){path}", node.number)
}

fn request(state: &State, s: usize, request: Request) -> String {
    match request {
        Request::Create { task: t, .. } => format!("{}'s create", task(state, s, usize::from(t))),
        Request::List { task: t, .. } => format!("{}'s listing", task(state, s, usize::from(t))),
        Request::Barrier { task: t, .. } => format!("{}'s barrier", task(state, s, usize::from(t))),
        Request::Find { task: t, late, .. } => {
            let second = if late { "second search" } else { "search" };
            format!("{}'s {second}", task(state, s, usize::from(t)))
        }
        Request::WatchPredecessor { task: t, node, .. } => {
            format!("{}'s watch on {}", task(state, s, usize::from(t)), name(state, node))
        }
        Request::WatchOwn { task: t, node, .. } => {
            format!("{}'s watch on its own {}", task(state, s, usize::from(t)), name(state, node))
        }
        Request::WatchPath { task: t, .. } => format!("{}'s watch on the path", task(state, s, usize::from(t))),
        Request::Delete { node } => format!("{}'s delete of {}", SESSIONS[s], name(state, node)),
        Request::Downgrade { task: t, .. } => format!("{}'s downgrade", task(state, s, usize::from(t))),
    }
}

fn next_write(state: &State, s: usize) -> String {
    let next = state.sessions[s].flight.iter().find(|one| one.committed.is_none());
    next.map_or_else(String::new, |one| request(state, s, one.request))
}

fn shown(state: &State, s: usize) -> String {
    let seen = state.sessions[s].seen;
    let nodes = state.log.nodes.iter().filter(|node| node.stands_at(seen));
    let nodes: Vec<_> = nodes.map(|node| named(state, node)).collect();
    if nodes.is_empty() { "no node".to_owned() } else { nodes.join(", ") }
}

fn applied(state: &State, at: Zxid) -> String {
    let nodes = &state.log.nodes;
    let made = nodes.iter().filter(|node| node.created == at);
    let gone = nodes.iter().filter(|node| node.deleted == at);
    let made = made.map(|node| format!("the create of {}", named(state, node)));
    let gone = gone.map(|node| format!("the deletion of {}", named(state, node)));
    let path = state.log.remakes.iter().filter(|remake| remake.at == at).map(|_| "the path made again".to_owned());
    let all: Vec<_> = made.chain(gone).chain(path).collect();
    if all.is_empty() { "a transaction".to_owned() } else { all.join(" and ") }
}

fn step(state: &State, action: Action) -> String {
    let order = |backwards: bool| if backwards { ", the events in reverse" } else { "" };
    let unseen = |unseen: bool| if unseen { " takes READ from it, then" } else { "" };
    match action {
        Action::Start(s, t) => format!("{} wants the lock and sends its create", task(state, s, t)),
        Action::Release(s, t) => format!("{} releases and sends its delete", task(state, s, t)),
        Action::Cancel(s, t) => format!("{} gives up its place", task(state, s, t)),
        Action::Downgrade(s, t) => format!("{} sends its downgrade", task(state, s, t)),
        Action::EnterMemory(s, t) => format!("{} enters the register", task(state, s, t)),
        Action::Arm(s, t) => format!("{} sends a watch on the path", task(state, s, t)),
        Action::Commit(s) => format!("{} is committed", next_write(state, s)),
        Action::Refuse(s) => format!("{} is refused", next_write(state, s)),
        Action::Advance { session, backwards } => {
            let at = state.sessions[session].seen + 1;
            format!("{}'s server applies {}{}", SESSIONS[session], applied(state, at), order(backwards))
        }
        Action::Answer(s) => {
            let first = state.sessions[s].flight.first();
            let request = first.map_or_else(String::new, |one| request(state, s, one.request));
            format!("{request} is answered, by a server that shows {}", shown(state, s))
        }
        Action::Cut(s) => format!("{}'s connection breaks", SESSIONS[s]),
        Action::Reconnect { session, to, backwards } => {
            let lag = state.log.end - to;
            let behind = if lag > 0 { format!(", {lag} transactions behind") } else { String::new() };
            format!("{} is connected again{behind}{}", SESSIONS[session], order(backwards))
        }
        Action::LateWrite { session, applied: true } => {
            let late = state.sessions[session].ghosts.first();
            let late = late.map_or_else(String::new, |late| request(state, session, *late));
            format!("{late}, of the lost connection, is applied late")
        }
        Action::LateWrite { session, .. } => {
            format!("what {} sent on the lost connection is lost", SESSIONS[session])
        }
        Action::SecondSearch(s) => format!("{} searches a second time", SESSIONS[s]),
        Action::EndTrust(s) => format!("{}'s session is not heard of for as long as it is trusted", SESSIONS[s]),
        Action::Expire(s) => format!("the servers end {}'s session", SESSIONS[s]),
        Action::CloseByOther(s) => format!("somebody else closes {}'s session", SESSIONS[s]),
        Action::Replace(s) => {
            format!("{} is connected again, with a new session, and does not notice", SESSIONS[s])
        }
        Action::ExpireOrphan(s) => format!("the servers end {}'s old session", SESSIONS[s]),
        Action::DeleteByHand { node, unseen: blind } => {
            format!("an operator{} deletes {}", unseen(blind), name(state, node))
        }
        Action::Remake { unseen: blind } => {
            format!("an operator{} deletes the empty path and makes it again", unseen(blind))
        }
        Action::CreateByHand { number } => format!("an operator creates lock-{number}"),
    }
}

fn changes(before: &State, after: &State) -> Vec<String> {
    let mut changes = Vec::new();
    for (s, session) in after.sessions.iter().enumerate() {
        for (t, now) in session.tasks.iter().enumerate() {
            let was = before.sessions[s].tasks[t];
            let who = task(after, s, t);
            if was.phase == now.phase {
                continue;
            }
            changes.push(match now.phase {
                Phase::Idle if now.left > was.left => format!("{who} queues again"),
                Phase::Idle => format!("{who} is done"),
                Phase::Entering => continue,
                Phase::Searching => format!("{who} does not know whether its node was created"),
                Phase::Listing => format!("{who} looks"),
                Phase::Missing => format!("{who} misses its node and searches"),
                Phase::Watching => format!("{who} waits behind {}", name(after, now.predecessor)),
                Phase::Waiting => format!("{who} sleeps"),
                Phase::AwaitingOwn | Phase::HandOver => format!("{who} waits for the answer about its own node"),
                Phase::Deciding => format!("{who} finds a neighbour ahead"),
                Phase::InMemory => format!("{who} waits in memory"),
                Phase::Proving => format!("{who} is first, and has its session proved"),
                Phase::Holding => format!("{who} HOLDS {}", name(after, now.own)),
                Phase::Releasing => continue,
            });
        }
    }
    changes
}
