//! Candidates elect a leader that serves, and an observer reports its address. When a leader is killed, another takes
//! over. In the end all candidates stop, leaders and followers alike.
//!
//! ```console
//! $ zk-docker/run cargo run --example leader
//! ```

mod common;

use std::future::pending;
use std::ops::ControlFlow;
use std::process::ExitCode;

use tokio::sync::watch;
use tokio::task::JoinSet;
use zookeeper_recipes::{Contender, Election, Error, Observer, Session, Term};

use common::{Result, end_session, ensure, name};

const ADDRESSES: [&str; 3] = ["10.0.0.1:8080", "10.0.0.2:8080", "10.0.0.3:8080"];

#[tokio::main]
async fn main() -> ExitCode {
    common::show(run()).await
}

async fn run() -> Result<()> {
    let (stop, stopped) = watch::channel(false);
    let (mut sessions, mut candidates) = (Vec::new(), JoinSet::new());
    for address in ADDRESSES {
        let session = common::session("a candidate").await?;
        candidates.spawn(campaign(session.clone(), address, stopped.clone()));
        sessions.push(session);
    }
    let session = common::session("the observer").await?;
    let mut observer = Election::new(&session, &common::path())?.observe();

    // One term more than there are candidates: a killed candidate campaigns again.
    let mut tokens = Vec::new();
    loop {
        let leader = next_address(&mut observer).await?;
        tokens.push(leader.token());
        if tokens.len() > ADDRESSES.len() {
            break;
        }
        let victim = sessions.iter().find(|session| session.id() == leader.session_id());
        println!("the session of {} is killed", name(&leader));
        end_session(victim.ok_or("an unknown session leads")?).await?;
    }
    ensure(tokens.is_sorted_by(|token, next| token < next), "tokens must grow")?;

    println!("all are asked to stop");
    stop.send_replace(true);
    let mut terms = 0;
    while let Some(candidate) = candidates.join_next().await {
        terms += candidate??;
    }
    while let Some(leader) = observer.changed().await? {
        println!("observer: {} leads", name(&leader));
    }
    println!("observer: nobody leads, after {terms} terms");
    ensure(terms == tokens.len(), "a follower did not stop before it had led")?;
    common::close(sessions.iter().chain([&session])).await
}

/// Campaigns and leads until a signal to stop; returns how many terms it has led.
async fn campaign(session: Session, address: &str, mut stopped: watch::Receiver<bool>) -> Result<usize> {
    let election = Election::new(&session, &common::path())?;
    let mut terms = 0;
    let led = election.lead(|term| {
        terms += 1;
        serve(term, address)
    });
    tokio::select! {
        biased;
        // As a program would on SIGTERM. Dropping `lead` resigns or withdraws in the background, and
        // `Session::close` waits for that.
        _ = stopped.wait_for(|stopped| *stopped) => {}
        failed = led => return Err(failed?.into()),
    }
    Ok(terms)
}

/// A term of a leader. It is dropped at an `await` when the leadership is lost, or when `lead` is dropped.
async fn serve(term: Term, address: &str) -> ControlFlow<Error> {
    match term.proclaim(address).await {
        Ok(()) => {
            println!("{address} serves, with token {}", term.fencing_token());
            pending().await
        }
        // A refused request may be the first sign of the loss.
        Err(Error::Lost(_)) => ControlFlow::Continue(()),
        Err(error) => ControlFlow::Break(error),
    }
}

/// Waits for a leader that has proclaimed its address.
async fn next_address(observer: &mut Observer) -> Result<Contender> {
    loop {
        match observer.changed().await? {
            Some(leader) if ADDRESSES.map(str::as_bytes).contains(&leader.identifier()) => {
                println!("observer: {} leads", name(&leader));
                return Ok(leader);
            }
            Some(leader) => println!("observer: {} leads, and has not proclaimed its address yet", name(&leader)),
            None => println!("observer: nobody leads"),
        }
    }
}
