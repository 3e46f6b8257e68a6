//! Candidates elect a leader that serves, and an observer tells where. The session of the leader is killed, and another
//! takes over; in the end all stop.
//!
//! ```console
//! $ zk-docker/run cargo run --example leader
//! ```

mod common;

use std::ops::ControlFlow;
use std::process::ExitCode;

use tokio::sync::watch;
use tokio::task::JoinSet;
use zookeeper_recipes::{Contender, Election, Error, Leadership, Observer, Session};

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
        candidates.spawn(stand(session.clone(), address, stopped.clone()));
        sessions.push(session);
    }
    let session = common::session("the observer").await?;
    let mut observer = Election::new(&session, &common::path())?.observe();

    let first = next_address(&mut observer).await?;
    let victim = sessions.iter().find(|session| session.id() == first.session_id());
    println!("the session of {} is killed", name(&first));
    end_session(victim.ok_or("a stranger leads")?).await?;
    let second = next_address(&mut observer).await?;
    ensure(second.identifier() != first.identifier(), "the dead leader leads")?;
    ensure(second.token() > first.token(), "tokens must grow")?;

    println!("all are told to stop");
    stop.send_replace(true);
    let mut terms = 0;
    while let Some(candidate) = candidates.join_next().await {
        terms += candidate??;
    }
    while let Some(leader) = observer.changed().await? {
        println!("observer: {} leads", name(&leader));
    }
    println!("observer: nobody leads, after {terms} terms");
    // One of the three came back.
    ensure(terms > ADDRESSES.len(), "the dead leader did not stand again")?;
    common::close(sessions.iter().chain([&session])).await
}

/// Stands until it is told to stop as the leader; returns how many terms it has led.
async fn stand(session: Session, address: &str, stopped: watch::Receiver<bool>) -> Result<usize> {
    let election = Election::new(&session, &common::path())?;
    let mut terms = 0;
    let end = election.lead(|term| {
        terms += 1;
        let serving = serve(term, address, stopped.clone());
        async {
            match serving.await {
                // The loss may come to light by a refusal.
                Err(Error::Lost(_)) => ControlFlow::Continue(()),
                served => ControlFlow::Break(served),
            }
        }
    });
    end.await??;
    Ok(terms)
}

/// A term of a leader. It is cut off at an `await` when leadership is lost.
async fn serve(term: Leadership, address: &str, mut stopped: watch::Receiver<bool>) -> Result<(), Error> {
    term.proclaim(address).await?;
    println!("{address} serves, with token {}", term.fencing_token());
    // The sender lives in `run`.
    let _ = stopped.wait_for(|stopped| *stopped).await;
    term.resign().await
}

/// Waits until there is a leader who has proclaimed its address.
async fn next_address(observer: &mut Observer) -> Result<Contender> {
    loop {
        match observer.changed().await? {
            Some(leader) if ADDRESSES.map(str::as_bytes).contains(&leader.identifier()) => {
                println!("observer: {} leads", name(&leader));
                return Ok(leader);
            }
            Some(leader) => println!("observer: {} leads, and has told no address yet", name(&leader)),
            None => println!("observer: nobody leads"),
        }
    }
}
