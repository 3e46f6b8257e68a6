//! Persistent watches are not set again after a reconnect; one-shot watches are.

use futures_util::FutureExt;
use testbed::proxy::Proxy;
use zookeeper_client::{Acls, AddWatchMode, Client, CreateMode, EventType, PersistentWatcher};

use crate::support::{Outcome, Result, UNHURRIED, block_on, connect, create_folder, reattached};

pub(crate) fn run(hosts: &str) -> Result<Outcome> {
    block_on(async {
        let proxy = Proxy::start(hosts).await?;
        let (client, other) = (connect(&proxy.hosts(), UNHURRIED).await?, connect(hosts, UNHURRIED).await?);
        let folder = create_folder(&other, "persistent-watch").await?;
        let nodes = ["persistent", "recursive", "one-shot"].map(|name| format!("{folder}/{name}"));
        for node in &nodes {
            other.create(node, b"", &CreateMode::Ephemeral.with_acls(Acls::anyone_all())).await?;
        }
        let [persistent, recursive, one_shot] = &nodes;
        let mut watchers = [
            client.watch(persistent, AddWatchMode::Persistent).await?,
            client.watch(recursive, AddWatchMode::PersistentRecursive).await?,
        ];
        let (_, _, watcher) = client.get_and_watch_data(one_shot).await?;

        let before = changes(&client, &other, &nodes, &mut watchers).await?;
        // That change has used the one-shot watch up.
        let used = watcher.changed().now_or_never().is_some();
        let (_, _, watcher) = client.get_and_watch_data(one_shot).await?;
        print("before a cut", before, used);

        reattached(&client, || proxy.cut_now()).await?;
        let after = changes(&client, &other, &nodes, &mut watchers).await?;
        let one_shot = watcher.changed().now_or_never().is_some();
        print("after a reconnect", after, one_shot);
        if before != [1, 1] || !used || !one_shot {
            return Err("the watches that must work do not".into());
        }
        Ok(Outcome::of(after != [1, 1]))
    })
}

fn print(when: &str, [persistent, recursive]: [usize; 2], one_shot: bool) {
    let one_shot = usize::from(one_shot);
    println!(
        "{when}, of one change each: persistent watch {persistent}, recursive {recursive}, one-shot {one_shot}"
    );
}

/// Changes the data of the nodes; returns how many changes each watcher has seen.
async fn changes(
    client: &Client,
    other: &Client,
    nodes: &[String; 3],
    watchers: &mut [PersistentWatcher; 2],
) -> Result<[usize; 2]> {
    for node in nodes {
        other.set_data(node, b"", None).await?;
    }
    // Servers send events before the answers to later requests, and the client passes them on in this order.
    client.sync("/").await?;
    client.check_stat("/").await?;
    Ok(watchers.each_mut().map(|watcher| {
        let mut seen = 0;
        while let Some(event) = watcher.changed().now_or_never() {
            seen += usize::from(event.event_type == EventType::NodeDataChanged);
        }
        seen
    }))
}
