//! The nemesis on three servers, and on idle clients.

use std::process::Command;
use std::time::Duration;

use testbed::Ensemble;
use testbed::history::now;
use testbed::nemesis::{Accomplice, Client, Kind, Nemesis, Plan, Struck};

const SESSION: Duration = Duration::from_millis(500);

#[derive(Default)]
struct Witness {
    deletions: usize,
    faults: Vec<Struck>,
}

impl Accomplice for Witness {
    fn aim(&mut self) -> Option<usize> {
        Some(1)
    }

    fn delete(&mut self, _: Kind, _: u64) {
        self.deletions += 1;
    }

    fn over(&mut self, struck: Struck) {
        self.faults.push(struck);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_faults_are_healed_when_the_plan_is_done() {
    let mut ensemble = Ensemble::start(3).await.unwrap_or_else(|error| panic!("{error}"));
    let servers: Vec<_> = (0..3).map(|i| ensemble.server(i).hosts()).collect();
    let mut clients = Vec::new();
    for name in ["a", "b"] {
        // `cat` ends with its input, as clients do.
        clients.push(Client::start(name, &servers, |_, _| Command::new("cat")).await.expect("it runs"));
    }
    let plan = Plan::random(5, &Kind::ALL, Duration::from_secs(12), SESSION);
    let mut witness = Witness::default();
    let begin = now();
    Nemesis::new(&mut ensemble, &mut clients, &mut witness).carry_out(&plan).await.expect("all can be started");

    ensemble.settled().await.expect("settles");
    for client in &mut clients {
        client.ask_to_end();
        let ended = client.ended(Duration::from_secs(10)).await;
        assert!(ended.is_some_and(|status| status.success()), "{client:?}: {ended:?}");
        assert!(client.crashes().is_empty(), "{:?}", client.crashes());
    }
    assert_eq!(witness.faults.len(), plan.faults().len());
    assert!(witness.faults.iter().all(|struck| begin <= struck.begin && struck.begin <= struck.end));
    let of = |kind| witness.faults.iter().filter(move |struck| struck.fault == kind);
    assert_eq!(of(Kind::NodeDeletion).count() + of(Kind::PathDeletion).count(), witness.deletions);
    let aimed = of(Kind::LongClientPause).all(|struck| struck.target.starts_with("b."));
    assert!(aimed, "{:?}", witness.faults);
    let kills = of(Kind::ClientKill).count();
    let names: Vec<_> = clients.iter().map(Client::name).collect();
    let incarnations = names.iter().filter_map(|name| name.split_once('.')?.1.parse::<usize>().ok());
    assert_eq!(incarnations.sum::<usize>(), names.len() + kills, "{names:?}");
}
