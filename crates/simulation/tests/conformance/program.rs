//! Programs: what clients do, chosen before anything is sent, so that it is the same for every server.

use fastrand::Rng;

const STEPS: usize = 100;
/// Few, so that most of them exist. The first two do from the start.
const PATHS: [&str; 9] =
    ["/a", "/b", "/c", "/a/x", "/a/y", "/b/x", "/a/s0000000000", "/a/s0000000001", "/b/s0000000000"];

#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Persistent,
    Ephemeral,
    Sequential,
    EphemeralSequential,
    Container,
    Ttl,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Access {
    Open,
    ReadOnly,
    Creator,
}

#[derive(Clone, Debug)]
pub(crate) enum Write {
    Create { path: &'static str, kind: Kind, access: Access, data: usize },
    Delete { path: &'static str, version: Option<i32> },
    SetData { path: &'static str, version: Option<i32>, data: usize },
    Check { path: &'static str, version: i32 },
}

#[derive(Clone, Debug)]
pub(crate) enum Action {
    Write(Write),
    Multi(Vec<Write>),
    SetAcl {
        path: &'static str,
        access: Access,
        version: Option<i32>,
    },
    Exists {
        path: &'static str,
        watch: bool,
    },
    GetData {
        path: &'static str,
        watch: bool,
    },
    GetChildren {
        path: &'static str,
        watch: bool,
        stat: bool,
    },
    MultiRead(Vec<(&'static str, bool)>),
    GetAcl(&'static str),
    Count(&'static str),
    Ephemerals(&'static str),
    Sync(&'static str),
    Auth(&'static str),
    WhoAmI,
    /// Drops the watch that waits longest.
    Unwatch,
    Cut,
    Heal,
    /// Closes the session, and opens another.
    Renew,
}

#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) client: usize,
    pub(crate) action: Action,
}

/// The program of a seed: of one client, or of two.
pub(crate) fn random(seed: u64) -> Vec<Step> {
    let mut rng = Rng::with_seed(seed);
    let clients = rng.usize(1..=2);
    let folder = |path| Write::Create { path, kind: Kind::Persistent, access: Access::Open, data: 0 };
    let folders = Action::Multi(vec![folder("/a"), folder("/b")]);
    let mut steps = vec![Step { client: 0, action: folders }];
    let mut is_cut = [false; 2];
    while steps.len() < STEPS {
        let client = rng.usize(..clients);
        let action = match rng.u8(..100) {
            _ if is_cut[client] && rng.bool() => Action::Heal,
            0..4 => Action::Cut,
            4 => Action::Renew,
            _ => action(&mut rng),
        };
        match action {
            Action::Cut => is_cut[client] = true,
            Action::Heal => is_cut[client] = false,
            _ => {}
        }
        steps.push(Step { client, action });
    }
    steps
}

fn action(rng: &mut Rng) -> Action {
    let (path, watch) = (any_path(rng), rng.u8(..3) > 0);
    // The root of the program is listed, and neither written nor deleted.
    let folder = ["", "/a", "/b", "/c"][rng.usize(..4)];
    match rng.u8(..100) {
        0..44 => Action::Write(write(rng)),
        44..54 => Action::Multi((0..rng.usize(1..4)).map(|_| part(rng)).collect()),
        54..62 => Action::Exists { path, watch },
        62..70 => Action::GetData { path, watch },
        70..82 => Action::GetChildren { path: folder, watch, stat: rng.bool() },
        82..85 => Action::MultiRead((0..rng.usize(1..4)).map(|_| (any_path(rng), rng.bool())).collect()),
        85..87 => Action::SetAcl { path, access: access(rng), version: version(rng) },
        87..90 => Action::GetAcl(path),
        90..92 => Action::Count(folder),
        92..94 => Action::Ephemerals(folder),
        94 => Action::Sync(path),
        95..97 => Action::Auth(if rng.bool() { "ann:secret" } else { "bob:other:secret" }),
        97 => Action::WhoAmI,
        _ => Action::Unwatch,
    }
}

fn write(rng: &mut Rng) -> Write {
    let (path, version, data) = (any_path(rng), version(rng), rng.usize(..4));
    match rng.u8(..10) {
        0..5 => {
            use Kind::{Container, Ephemeral, EphemeralSequential, Persistent, Sequential, Ttl};
            let kinds = [
                Persistent,
                Persistent,
                Persistent,
                Ephemeral,
                Ephemeral,
                Sequential,
                EphemeralSequential,
                Container,
                Ttl,
            ];
            let kind = kinds[rng.usize(..kinds.len())];
            let is_sequential = matches!(kind, Sequential | EphemeralSequential);
            let path = if is_sequential { ["/c/s", "/a/s", "/b/s"][rng.usize(..3)] } else { path };
            Write::Create { path, kind, access: access(rng), data }
        }
        5..7 => Write::Delete { path, version },
        _ => Write::SetData { path, version, data },
    }
}

fn part(rng: &mut Rng) -> Write {
    if rng.u8(..4) == 0 { Write::Check { path: any_path(rng), version: rng.i32(-1..2) } } else { write(rng) }
}

fn any_path(rng: &mut Rng) -> &'static str {
    PATHS[rng.usize(..PATHS.len())]
}

fn version(rng: &mut Rng) -> Option<i32> {
    (rng.u8(..4) == 0).then(|| rng.i32(0..3))
}

fn access(rng: &mut Rng) -> Access {
    match rng.u8(..20) {
        0 => Access::ReadOnly,
        1 => Access::Creator,
        _ => Access::Open,
    }
}
