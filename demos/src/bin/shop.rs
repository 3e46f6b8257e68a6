//! A shop sells its last item to one buyer if the store of its stock checks fencing tokens, otherwise to two.
//!
//! ```console
//! $ zk-docker/run cargo run -p demos --bin shop
//! ```
//!
//! A separate process serves each buyer. Under the lock it reads the stock from SQLite, charges the card, which no
//! transaction of SQLite can include, and writes the new stock. The process that sells the last item stops (SIGSTOP)
//! between its last check of the lock and its write. It resumes when another buyer was served.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use tokio::time::sleep;
use zookeeper_recipes::HoldState;

use demos::{Crew, Result, Worker, session};

const STOCK: usize = 3;
const BUYERS: usize = 5;
/// Buyers are served in the order of arrival, so this one finds the last item.
const STOPS: usize = STOCK - 1;
const CHARGING: Duration = Duration::from_millis(20);

#[tokio::main]
async fn main() -> ExitCode {
    demos::run(env!("CARGO_BIN_NAME"), supervise(), work).await
}

async fn supervise() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let unchecked = open(false, folder.path()).await?;
    let checked = open(true, folder.path()).await?;

    println!("{:<10}{:>9}{:>6}{:>10}", "tokens", "in stock", "sold", "oversold");
    for (tokens, sold) in [("unchecked", unchecked), ("checked", checked)] {
        let oversold = sold.saturating_sub(STOCK);
        println!("{tokens:<10}{STOCK:>9}{sold:>6}{oversold:>10}");
    }
    if unchecked <= STOCK {
        return Err("without a check no item was oversold; the last one should have been".into());
    }
    if checked > STOCK {
        return Err("with a check an item was sold twice".into());
    }
    Ok(())
}

/// Opens a shop with a new stock; returns how many items were sold.
async fn open(checks: bool, folder: &Path) -> Result<usize> {
    let mut crew = Crew::new(folder, checks, STOCK)?;
    println!("{BUYERS} buyers come for {STOCK} items, tokens {}", crew.tokens());
    let (mut come, mut stopped, mut sold) = (1, None, 0);
    crew.spawn()?;
    while let Some((number, line)) = crew.next_line().await {
        if line == "queues" {
            // The next buyer comes after this one.
            if come < BUYERS {
                crew.spawn()?;
                come += 1;
            }
            continue;
        }
        println!("  buyer {number} {line}");
        if line.starts_with("stops") {
            stopped = Some(number);
        } else if line.starts_with("has") {
            sold += 1;
        }
        // A later buyer was served, so the stopped one has lost the lock.
        if let Some(late) = stopped.take_if(|stopped| *stopped < number) {
            println!("  buyer {late} resumes");
            crew.resume(late)?;
        }
    }
    println!();
    crew.end().await?;
    Ok(sold)
}

/// Serves one buyer.
async fn work(worker: Worker) -> Result<()> {
    let store = worker.store()?;
    let session = session().await?;
    let place = worker.mutex(&session)?.enqueue().await?;
    println!("queues");
    let guard = place.await?;
    let token = guard.fencing_token();
    match store.read(token)? {
        None => println!("is sent away, because token {token} is too old"),
        Some(0) => println!("finds nothing left"),
        Some(left) => {
            sleep(CHARGING).await;
            if worker.number() == STOPS && guard.state() == HoldState::Held {
                println!("stops, with token {token}, after it read a stock of {left}");
                worker.stop()?;
            }
            match store.write(left - 1, token)? {
                true => println!("has bought one, with token {token}"),
                false => println!("is refused and gets a refund, because token {token} is too old"),
            }
        }
    }
    drop(guard);
    Ok(session.close().await?)
}
