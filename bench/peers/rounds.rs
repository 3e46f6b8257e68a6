//! The rounds of a workload, in which the contenders take turns.

use std::time::{Duration, Instant};

use testbed::Server;

use crate::Outcome;
use crate::contenders::{Absence, Contender, Field};
use crate::sample::Sample;
use crate::summary::Summary;
use crate::workloads::Workload;

/// On a busy machine a cycle of all workers can fill more than a round; then there are fewer rounds, but not fewer than
/// these.
const FEWEST: u32 = 3;

/// How long this takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// These are not measured. They make connections and paths, run code that is not compiled yet, and show how many
    /// cycles fill a round.
    pub(crate) warm_ups: u32,
    pub(crate) rounds: u32,
    /// For one workload.
    pub(crate) time: Duration,
}

/// A workload, and what each contender did.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) workload: &'static Workload,
    cells: Vec<Cell>,
}

#[derive(Debug)]
pub(crate) enum Cell {
    /// One sample a round.
    Measured(Vec<Sample>),
    Absent(Absence),
    Failed(String),
}

impl Row {
    /// With a cell for each contender.
    pub(crate) fn new(workload: &'static Workload, cells: Vec<Cell>) -> Self {
        Self { workload, cells }
    }

    pub(crate) fn cell(&self, contender: Contender) -> &Cell {
        &self.cells[contender as usize]
    }

    /// The samples of a contender; none if it was not measured.
    pub(crate) fn samples(&self, contender: Contender) -> &[Sample] {
        match self.cell(contender) {
            Cell::Measured(samples) => samples,
            Cell::Absent(_) | Cell::Failed(_) => &[],
        }
    }

    pub(crate) fn summary(&self, contender: Contender, value: fn(&Sample) -> f64) -> Option<Summary> {
        Summary::of(self.samples(contender).iter().map(value))
    }

    /// What one contender needs in units of what another needs in the same round. Other work on the machine changes both.
    pub(crate) fn ratio(&self, of: Contender, to: Contender, value: fn(&Sample) -> f64) -> Option<Summary> {
        let (of, to) = (self.samples(of), self.samples(to));
        Summary::of(of.iter().zip(to).map(|(of, to)| value(of) / value(to)))
    }
}

/// Does the same cycles with each contender, round by round. Each round begins with another one.
///
/// All have the same time, so a faster one does more cycles: otherwise the slowest would leave the others too little time
/// for a number that means something.
pub(crate) async fn measure(
    server: &Server,
    field: &mut Field,
    workload: &'static Workload,
    pace: Pace,
) -> Outcome<Row> {
    let path = |contender| format!("/peers/{}/{}", workload.name.replace([' ', ','], "-"), contender as usize);
    let mut entries = Vec::new();
    let mut cells = Vec::new();
    for contender in Contender::ALL {
        let entry = field.enter(contender, workload, &path(contender)).await?;
        let (entry, cell) = match entry {
            Ok(entry) => (Some(entry), Cell::Measured(Vec::new())),
            Err(absence) => (None, Cell::Absent(absence)),
        };
        entries.push(entry);
        cells.push(cell);
    }
    let present = entries.iter().flatten().count();
    // The first round is a single cycle.
    let share = pace.time.as_secs_f64() / f64::from(pace.rounds + pace.warm_ups - 1) / present as f64;
    // Of each worker.
    let mut cycles = [1; Contender::ALL.len()];
    let began = Instant::now();
    for round in 0..pace.warm_ups + pace.rounds {
        if round >= pace.warm_ups + FEWEST && began.elapsed() > pace.time {
            break;
        }
        let mut turns = Contender::ALL;
        turns.rotate_left(round as usize % Contender::ALL.len());
        for contender in turns {
            let Some(entry) = &mut entries[contender as usize] else { continue };
            let (cell, cycles) = (&mut cells[contender as usize], &mut cycles[contender as usize]);
            field.prepare(workload, &path(contender), *cycles).await?;
            let before = received(server).await?;
            match (field.time(entry, workload, *cycles).await, contender.peer()) {
                (Ok((elapsed, cpu)), _) => {
                    // The question is itself counted.
                    let requests = received(server).await?.saturating_sub(before + 1);
                    if let (Cell::Measured(samples), true) = (cell, round >= pace.warm_ups) {
                        samples.push(Sample { cycles: *cycles * workload.workers, elapsed, cpu, requests });
                    }
                    *cycles = ((*cycles as f64 * share / elapsed.as_secs_f64()).round() as usize).max(1);
                }
                (Err(error), Some(client)) => {
                    *cell = Cell::Failed(error.to_string());
                    entries[contender as usize] = None;
                    field.start(client).await?;
                }
                (Err(error), None) => {
                    return Err(format!("{}, {}: {error}", contender.name(), workload.name).into());
                }
            }
        }
    }
    Ok(Row::new(workload, cells))
}

/// How many requests the server has received so far.
async fn received(server: &Server) -> Outcome<u64> {
    let counters = server.four_letter_word("mntr").await?;
    let count = counters.lines().find_map(|line| line.strip_prefix("zk_packets_received\t"));
    Ok(count.ok_or("mntr has no zk_packets_received")?.trim().parse()?)
}
