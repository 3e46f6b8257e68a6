//! Visitors of a room see their position in the queue. One gives up, and an operator asks the holder to leave.
//!
//! ```console
//! $ zk-docker/run cargo run --example waiting_room
//! ```
//!
//! A waiter updates its position when its predecessor leaves. So the position may be too large, and is never too small.

mod common;

use std::process::ExitCode;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;
use zookeeper_recipes::{Mutex, MutexGuard, Waiting};

use common::{Result, name};

const LOOK: Duration = Duration::from_millis(20);
const HOUR: Duration = Duration::from_secs(3600);
const MOMENT: Duration = Duration::from_millis(100);

#[derive(PartialEq)]
enum News {
    Ahead(&'static str, usize),
    Enters(&'static str),
}

#[tokio::main]
async fn main() -> ExitCode {
    common::show(run()).await
}

async fn run() -> Result<()> {
    let (send, mut news) = unbounded_channel();
    let (mut sessions, mut visitors) = (Vec::new(), Vec::new());
    for (ahead, who) in ["anna", "ben", "carla", "dora"].into_iter().enumerate() {
        let stay = if ahead == 0 { HOUR } else { MOMENT };
        let session = common::session(who).await?;
        let place = Mutex::new(&session, &common::path())?.enqueue().await?;
        sessions.push(session);
        visitors.push(tokio::spawn(visit(who, place, stay, send.clone())));
        let wanted = if ahead == 0 { News::Enters(who) } else { News::Ahead(who, ahead) };
        read_until(&mut news, wanted).await?;
    }

    println!("carla gives up");
    visitors.remove(2).abort();
    read_until(&mut news, News::Ahead("dora", 2)).await?;

    let session = common::session("operator").await?;
    let room = Mutex::new(&session, &common::path())?;
    let queue = room.contenders().await?;
    println!("the operator sees {:?}, and asks the first to leave", queue.iter().map(name).collect::<Vec<_>>());
    if !room.revoke(&queue[0]).await? {
        return Err("the holder had left before it could be asked".into());
    }
    // If dora entered first, this would time out.
    read_until(&mut news, News::Enters("ben")).await?;
    read_until(&mut news, News::Enters("dora")).await?;
    for visitor in visitors {
        visitor.await??;
    }
    common::close(sessions.iter().chain([&session])).await
}

/// Waits, enters, and stays until its time is up or the operator asks it to leave.
async fn visit(
    who: &'static str,
    mut place: Waiting<MutexGuard>,
    stay: Duration,
    news: UnboundedSender<News>,
) -> Result<()> {
    let mut shown = 0;
    let guard = loop {
        let ahead = place.position();
        if ahead != shown {
            println!("{who} waits, with {ahead} ahead");
            news.send(News::Ahead(who, ahead))?;
            shown = ahead;
        }
        // The position changes only while `place` is polled.
        if let Ok(guard) = timeout(LOOK, &mut place).await {
            break guard?;
        }
    };
    println!("{who} enters");
    news.send(News::Enters(who))?;
    match timeout(stay, guard.revoke_requested()).await {
        Ok(()) => println!("{who} is asked to leave, and leaves"),
        Err(_) => println!("{who} leaves"),
    }
    Ok(guard.release().await?)
}

async fn read_until(news: &mut UnboundedReceiver<News>, wanted: News) -> Result<()> {
    while news.recv().await.ok_or("all visitors have left")? != wanted {}
    Ok(())
}
