//! The client takes requests from its queue and writes them in an order that depends on the address of its future.

use futures_util::future::try_join_all;

use crate::bursts::{HOLD, Subject, is_apart, ms};
use crate::support::{Outcome, Result, block_on};

/// In one of five orders the client takes all requests before it writes, so that both kinds of session are among this number
/// but once in thousands of runs.
const SESSIONS: usize = 40;

pub(crate) fn run(hosts: &str) -> Result<Outcome> {
    block_on(async {
        println!("two requests at once, answers after {}, in {SESSIONS} sessions of one process", ms(HOLD));
        let (mut subjects, mut pads) = (Vec::new(), Vec::new());
        for number in 0..SESSIONS {
            // So that the addresses differ by more than a fixed length.
            pads.push(vec![0_u8; 1024 + 16 * number]);
            subjects.push(Subject::connect(hosts).await?);
        }
        let gaps = try_join_all(subjects.iter().map(Subject::gap)).await?;
        let (mut apart, mut together): (Vec<_>, Vec<_>) = gaps.into_iter().partition(|gap| is_apart(*gap));
        for (what, gaps) in [("in one write", &mut together), ("each by itself", &mut apart)] {
            gaps.sort();
            let median = gaps.get(gaps.len() / 2).map_or_else(|| "-".to_owned(), |gap| ms(*gap));
            println!("{:>3} sessions write them {what}: median gap {median}", gaps.len());
        }
        Ok(Outcome::of(!together.is_empty() && !apart.is_empty()))
    })
}
