//! Candidates that stand only while they may.

use tokio::sync::watch;
use zookeeper_recipes::{Election, HoldState};

use super::candidate::Candidate;
use crate::support::{World, until};

/// The same election in two sessions.
async fn elections(world: &World) -> [Election; 2] {
    let sessions = [world.session.clone(), world.other().await];
    sessions.map(|session| Election::new(&session, &world.path).expect("an election"))
}

/// A candidate whose term waits to be asked to end, and what decides whether it may stand.
fn stand(election: &Election, may: bool) -> (Candidate, watch::Sender<bool>) {
    let (send, receive) = watch::channel(may);
    let candidate =
        Candidate::new(election.eligible(receive), |term| async move { term.revoke_requested().await });
    (candidate, send)
}

fn leads(election: &Election) -> bool {
    election.current_term().is_some_and(|term| term.state() == HoldState::Held)
}

#[tokio::test]
async fn candidate_is_in_the_queue_only_while_it_may_stand() {
    let world = World::with_path().await;
    let [first, second] = elections(&world).await;
    let (leader, _always) = stand(&first, true);
    until("a leader", || leads(&first)).await;
    let (candidate, may) = stand(&second, false);
    for is_eligible in [true, false, true] {
        may.send_replace(is_eligible);
        world.wait_children(1 + usize::from(is_eligible)).await;
    }
    leader.drop();
    until("the second", || leads(&second)).await;
    candidate.stop().await.expect("stopped");
    world.wait_empty().await;
}

#[tokio::test]
async fn leader_that_may_not_stand_any_more_resigns_and_queues_again_at_the_end() {
    let world = World::with_path().await;
    let [first, second] = elections(&world).await;
    let (one, may) = stand(&first, true);
    until("the first", || leads(&first)).await;
    let (other, always) = stand(&second, true);
    world.wait_children(2).await;
    may.send_replace(false);
    until("the second", || leads(&second) && !leads(&first)).await;
    world.wait_children(1).await;
    may.send_replace(true);
    world.wait_children(2).await;
    assert!(leads(&second));
    // What it said last counts.
    drop(always);
    other.drop();
    until("the first again", || leads(&first)).await;
    one.stop().await.expect("stopped");
    world.wait_empty().await;
}

/// How a leadership goes to a named candidate: all others may not stand until it leads.
#[tokio::test]
async fn named_candidate_leads_next_when_the_others_may_not_stand() {
    let world = World::with_path().await;
    let (mut candidates, mut elections) = (Vec::new(), Vec::new());
    for count in 1..=3 {
        let election = Election::new(&world.other().await, &world.path).expect("an election");
        candidates.push(stand(&election, true));
        world.wait_children(count).await;
        elections.push(election);
    }
    let token = |at: usize| elections[at].current_term().expect("it leads").fencing_token();
    let mut tokens = vec![token(0)];
    for (_, may) in &candidates[..2] {
        may.send_replace(false);
    }
    until("the third", || leads(&elections[2])).await;
    tokens.push(token(2));
    for (count, (_, may)) in candidates[..2].iter().enumerate() {
        may.send_replace(true);
        world.wait_children(count + 2).await;
    }
    for (at, next) in [(2, 0), (0, 1)] {
        candidates[at].1.send_replace(false);
        until("the next", || leads(&elections[next])).await;
        tokens.push(token(next));
    }
    assert!(tokens.is_sorted_by(|one, other| one < other), "{tokens:?}");
    for (candidate, _) in candidates {
        candidate.stop().await.expect("stopped");
    }
    world.wait_empty().await;
}
