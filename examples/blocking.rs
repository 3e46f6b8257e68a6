//! Without async: three threads count in a file that only one of them may change at a time, and one of them leads.
//!
//! ```console
//! $ zk-docker/run cargo run --example blocking
//! ```

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;
use std::{env, fs, thread};

use zookeeper_recipes::blocking::{Election, Mutex, Session, Term};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> Result<()> {
    let hosts = env::var("ZK_HOSTS").unwrap_or_else(|_| "localhost:2181".to_owned());
    let session = Session::connect(&hosts)?;
    let file = env::temp_dir().join(format!("counter-{}", std::process::id()));
    fs::write(&file, "0")?;
    let election = Election::new(&session, "/examples/blocking/leader")?;
    let leading = thread::spawn(move || election.run(lead));
    thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(|| count(&session, &file))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a thread"))
    })?;
    assert_eq!(fs::read_to_string(&file)?, "15", "no count was lost");
    fs::remove_file(&file)?;
    session.drain(Duration::from_secs(20))?;
    Ok(leading.join().expect("a thread")?)
}

fn lead(term: &Term) -> ControlFlow<()> {
    println!("this process leads, with token {}", term.fencing_token());
    while !term.wait_over_for(Duration::from_secs(1)) {
        println!("it still leads");
    }
    ControlFlow::Continue(())
}

fn count(session: &Session, file: &Path) -> Result<()> {
    let mutex = Mutex::new(session, "/examples/blocking/counter")?;
    for _ in 0..5 {
        let guard = mutex.lock()?;
        let count = fs::read_to_string(file)?.parse::<u32>()? + 1;
        fs::write(file, count.to_string())?;
        println!("{count}, by {:?}, with token {}", thread::current().id(), guard.fencing_token());
    }
    Ok(())
}
