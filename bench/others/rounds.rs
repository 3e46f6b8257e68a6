//! The rounds, in which the contenders take turns.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::Outcome;
use crate::contender::{Client, Contender};
use crate::summary::Summary;

/// In these, code is compiled and files get their sizes.
const WARM_UPS: usize = 4;
const ROUNDS: usize = 15;

/// Of one contender in one round.
const TURN: Duration = Duration::from_millis(500);

/// What the contenders did with this number of clients.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) clients: usize,
    /// Cycles per second of all clients together, by contender and round.
    rates: Vec<Vec<f64>>,
}

impl Row {
    /// Cycles per second.
    pub(crate) fn rate(&self, contender: usize) -> Option<Summary> {
        Summary::of(self.rates[contender].iter().copied())
    }

    /// The rate in units of that of the first contender in the same round. Other work on the machine changes both.
    pub(crate) fn ratio(&self, contender: usize) -> Option<Summary> {
        Summary::of(self.rates[contender].iter().zip(&self.rates[0]).map(|(rate, first)| rate / first))
    }
}

/// Lets this number of clients of each contender do cycles, round by round. Each round begins with another contender.
pub(crate) async fn measure(contenders: &mut [Contender], clients: usize) -> Outcome<Row> {
    let mut rates = vec![Vec::new(); contenders.len()];
    for round in 0..WARM_UPS + ROUNDS {
        for turn in 0..contenders.len() {
            let number = (round + turn) % contenders.len();
            let contender = &mut contenders[number];
            contender.connect(clients).await?;
            let rate = rate(&mut contender.clients, clients).await;
            let rate = rate.map_err(|error| format!("{}: {error}", contender.name))?;
            if round >= WARM_UPS {
                rates[number].push(rate);
            }
        }
    }
    Ok(Row { clients, rates })
}

/// Lets the first clients do cycles at the same time.
async fn rate(all: &mut Vec<Box<dyn Client>>, clients: usize) -> Outcome<f64> {
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for mut client in all.drain(..clients) {
        tasks.spawn(async move {
            let mut cycles = 0_u32;
            while began.elapsed() < TURN {
                client.cycle().await?;
                cycles += 1;
            }
            Outcome::Ok((client, cycles, began.elapsed()))
        });
    }
    let mut rate = 0.0;
    while let Some(ended) = tasks.join_next().await {
        let (client, cycles, elapsed) = ended??;
        all.push(client);
        rate += f64::from(cycles) / elapsed.as_secs_f64();
    }
    Ok(rate)
}
