//! At the end numbers do not show who is next: every grant after a wait takes a listing there. Where nobody else is, the count of
//! the contenders shows it, as elsewhere.

use zookeeper_recipes::{Mutex, MutexGuard, Session};

use super::crowd::is_near_wrap;
use crate::counter::{PATH, number, server};
use crate::support::{admin_client, connect, soon, wait_children};
use crate::ways::Ways;

const MAX: i32 = i32::MAX;

fn mutex(session: &Session) -> Mutex {
    Mutex::new(session, PATH).expect("a mutex")
}

/// The number of the hold and how it was granted.
fn grants(ways: &Ways) -> Vec<(i32, String)> {
    ways.grants().into_iter().map(|(node, way)| (number(&node), way)).collect()
}

fn number_of(guard: &MutexGuard) -> i32 {
    number(&guard.nodes()[0])
}

#[tokio::test]
async fn contenders_are_counted_up_to_the_end_and_at_it() {
    let ways = Ways::new();
    let _listening = ways.listen();
    let server = server(&[PATH.to_owned()], MAX - 6).await;
    let session = connect(&server.hosts()).await;
    for _ in 0..12 {
        soon("the lock", mutex(&session).lock()).await.expect("held").release().await.expect("released");
    }
    let numbers = [MAX - 6, MAX - 5, MAX - 4, MAX - 3, MAX - 2, MAX - 1];
    let found = grants(&ways);
    assert_eq!(found.len(), 12);
    for (place, (number, way)) in found.iter().enumerate() {
        assert_eq!(way, if place == 0 { "Listed" } else { "Counted" }, "{found:?}");
        assert!(numbers.get(place).map_or(is_near_wrap(*number), |expected| expected == number), "{found:?}");
    }
}

#[tokio::test]
async fn contenders_are_counted_before_the_first_numbers_after_the_end_and_behind_them() {
    let ways = Ways::new();
    let _listening = ways.listen();
    let server = server(&[PATH.to_owned()], -4).await;
    let session = connect(&server.hosts()).await;
    for _ in 0..8 {
        soon("the lock", mutex(&session).lock()).await.expect("held").release().await.expect("released");
    }
    let found = grants(&ways);
    let numbers: Vec<_> = found.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, (-4..4).collect::<Vec<_>>());
    assert_eq!(found[0].1, "Listed", "{found:?}");
    assert!(found[1..].iter().all(|(_, way)| way == "Counted"), "{found:?}");
}

/// From a number on both sides, tasks of one session queue behind each other.
#[tokio::test]
async fn tasks_of_one_session_hand_over_outside_the_end_only() {
    for next in [MAX - 3, -3] {
        let ways = Ways::new();
        let _listening = ways.listen();
        let server = server(&[PATH.to_owned()], next).await;
        let admin = admin_client(&server.hosts()).await;
        let session = connect(&server.hosts()).await;
        let first = mutex(&session).lock().await.expect("held");
        let (mut tasks, mut tokens) = (Vec::new(), vec![first.fencing_token()]);
        for count in 2..=9 {
            let mutex = mutex(&session);
            tasks.push(tokio::spawn(async move { mutex.lock().await.expect("held") }));
            wait_children(&admin, PATH, count).await;
        }
        let mut before = number_of(&first);
        first.release().await.expect("released");
        for task in tasks {
            let guard = soon("a turn", task).await.expect("no panic");
            tokens.push(guard.fencing_token());
            let own = number_of(&guard);
            let (_, way) = grants(&ways).pop().expect("a grant");
            let expected = if is_near_wrap(before) || is_near_wrap(own) { "Listed" } else { "HandedOver" };
            assert_eq!(way, expected, "{before}, {own} from {next}");
            before = own;
            // The next has its own watch.
            session.client().expect("a client").check_stat("/").await.expect("asked");
            guard.release().await.expect("released");
        }
        assert!(tokens.is_sorted_by(|one, next| one < next), "in order");
        assert!(ways.count("HandedOver") > 0 && ways.count("Listed") > 3, "{}", ways.summary());
        wait_children(&admin, PATH, 0).await;
    }
}

/// From a number on both sides, two sessions take turns, each the only one ahead of the other.
#[tokio::test]
async fn deletion_of_the_only_one_ahead_admits_outside_the_end_only() {
    for next in [MAX - 4, -4] {
        let ways = Ways::new();
        let _listening = ways.listen();
        let server = server(&[PATH.to_owned()], next).await;
        let admin = admin_client(&server.hosts()).await;
        let sessions = [connect(&server.hosts()).await, connect(&server.hosts()).await];
        let mut held = mutex(&sessions[0]).lock().await.expect("held");
        for turn in 1..10 {
            let (before, token, session) = (number_of(&held), held.fencing_token(), &sessions[turn % 2]);
            let mut waiting = mutex(session).enqueue().await.expect("queued");
            tokio::select! {
                biased;
                _ = &mut waiting => panic!("there is another holder"),
                () = watched(&admin, session) => {}
            }
            held.release().await.expect("released");
            held = soon("a turn", waiting).await.expect("held");
            assert!(held.fencing_token() > token);
            let own = number_of(&held);
            let (_, way) = grants(&ways).pop().expect("a grant");
            let expected = if is_near_wrap(before) || is_near_wrap(own) { "Listed" } else { "Deleted" };
            assert_eq!(way, expected, "{before}, {own} from {next}");
        }
        assert!(ways.count("Deleted") > 0 && ways.count("Listed") > 3, "{}", ways.summary());
    }
}

/// Waits until the watches of a waiter of this session, which is being polled, are set.
async fn watched(admin: &zookeeper_recipes::zookeeper_client::Client, session: &Session) {
    let _ = admin.check_stat(PATH).await.expect("asked");
    let client = session.client().expect("a client");
    for _ in 0..3 {
        let _ = client.check_stat("/").await.expect("asked");
    }
}
