//! The queues as each server shows them: whether the servers agree, and where each session stands.
//!
//! A server of ZooKeeper 3.8.0 can go on showing nodes that no other server has. No lock keeps its promises there.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use testbed::Ensemble;
use tokio::time::timeout;
use zookeeper_recipes::zookeeper_client::{Client, Error};

use super::{Result, SESSION, objects};
use crate::operator::dirs;
use crate::workload::path;

/// How long a server may take to list everything.
const PATIENCE: Duration = Duration::from_secs(10);

/// The nodes of each folder that one server shows, with the sessions that own them.
type View = BTreeMap<String, BTreeMap<String, i64>>;

/// Two looks at each server: at all servers in turn, and at all again.
#[derive(Debug)]
pub(super) struct Views {
    looks: [Vec<View>; 2],
}

impl Views {
    pub(super) async fn take(ensemble: &Ensemble) -> Result<Self> {
        let mut clients = Vec::new();
        for i in 0..ensemble.len() {
            clients.push(
                Client::connector().with_session_timeout(SESSION).connect(&ensemble.server(i).hosts()).await?,
            );
        }
        let mut looks = [Vec::new(), Vec::new()];
        for look in &mut looks {
            for client in &clients {
                look.push(timeout(PATIENCE, list(client)).await??);
            }
        }
        Ok(Self { looks })
    }

    /// A sentence for each node on which the servers disagree. No name is used twice, so a node that a server has shown in both
    /// looks was there between them, and a server that has not shown it in between disagrees.
    pub(super) fn differences(&self) -> Vec<String> {
        let [first, second] = &self.looks;
        let mut differences = Vec::new();
        for (dir, name) in self.nodes() {
            let shows = |view: &View| view.get(&dir).is_some_and(|nodes| nodes.contains_key(&name));
            let servers =
                |is_so: &dyn Fn(usize) -> bool| (0..first.len()).filter(|i| is_so(*i)).collect::<Vec<_>>();
            let with = servers(&|i| shows(&first[i]) && shows(&second[i]));
            // The look of server `j` that lies between the two of server `i`.
            let between = |i: usize, j: usize| if j > i { &first[j] } else { &second[j] };
            let without = servers(&|j| with.iter().any(|i| *i != j && !shows(between(*i, j))));
            if !without.is_empty() {
                differences.push(format!("{dir}/{name}: shown by the servers {with:?}, and not by {without:?}"));
            }
        }
        differences
    }

    /// The folders that have nodes, each with its queue: once, or by each server where they show different ones.
    pub(super) fn queues(&self, name_of: impl Fn(i64) -> String) -> Vec<String> {
        let [_, last] = &self.looks;
        let dirs: BTreeSet<_> = self.nodes().into_iter().map(|(dir, _)| dir).collect();
        let mut lines = Vec::new();
        for dir in &dirs {
            let queues: Vec<_> = last.iter().map(|view| queue(view, dir, &name_of)).collect();
            if queues.windows(2).all(|pair| pair[0] == pair[1]) {
                lines.extend(queues.into_iter().next().map(|queue| format!("{dir}: {queue}")));
            } else {
                let of = |(i, queue)| format!("{dir} by server {i}: {queue}");
                lines.extend(queues.into_iter().enumerate().map(of));
            }
        }
        lines
    }

    fn nodes(&self) -> BTreeSet<(String, String)> {
        let views = self.looks.iter().flatten();
        let dirs = views.flat_map(|view| view.iter());
        dirs.flat_map(|(dir, nodes)| nodes.keys().map(move |name| (dir.clone(), name.clone()))).collect()
    }
}

/// The nodes of a folder in their order, with the sessions that own them.
fn queue(view: &View, dir: &str, name_of: impl Fn(i64) -> String) -> String {
    let mut nodes: Vec<_> = view.get(dir).into_iter().flatten().collect();
    let sequence = |name: &str| name.get(name.len().saturating_sub(10)..).map(str::to_owned);
    nodes.sort_by_key(|(name, _)| sequence(name));
    let texts: Vec<_> = nodes.iter().map(|(name, owner)| format!("{name} of {}", name_of(**owner))).collect();
    if texts.is_empty() { "empty".to_owned() } else { texts.join(", ") }
}

/// Lists all queues, as the server shows them when it has all that was committed before.
async fn list(client: &Client) -> Result<View, Error> {
    client.sync("/").await?;
    let mut view = View::new();
    for object in objects() {
        // A path that is gone has no nodes.
        for dir in dirs(client, &path(object)).await.unwrap_or_default() {
            let names = match client.list_children(&dir).await {
                Err(Error::NoNode) => continue,
                names => names?,
            };
            let nodes = view.entry(dir.clone()).or_default();
            for name in names {
                if let Some(stat) = client.check_stat(&format!("{dir}/{name}")).await?
                    && stat.ephemeral_owner != 0
                {
                    nodes.insert(name, stat.ephemeral_owner);
                }
            }
        }
    }
    Ok(view)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: &str = "/chaos/mutex";
    const ONE: &str = "_c_b-lock-0000000001";
    const TWO: &str = "_c_a-lock-0000000002";

    fn view(names: &[&str]) -> View {
        View::from([(DIR.to_owned(), names.iter().map(|name| ((*name).to_owned(), 7)).collect())])
    }

    /// The looks at three servers, first and second.
    fn views(first: [&[&str]; 3], second: [&[&str]; 3]) -> Views {
        Views { looks: [first, second].map(|look| look.into_iter().map(view).collect()) }
    }

    #[test]
    fn servers_that_show_the_same_agree() {
        let same = views([&[ONE, TWO]; 3], [&[ONE, TWO]; 3]);
        assert_eq!(same.differences(), [""; 0]);
        assert_eq!(
            same.queues(|session| format!("c{session}")),
            [format!("{DIR}: {ONE} of c7, {TWO} of c7")],
            "in the order of their numbers"
        );
    }

    #[test]
    fn node_that_one_server_alone_shows_or_lacks_is_a_difference() {
        let ghost = views([&[TWO], &[ONE, TWO], &[TWO]], [&[TWO], &[ONE, TWO], &[TWO]]);
        assert_eq!(ghost.differences(), [format!("{DIR}/{ONE}: shown by the servers [1], and not by [0, 2]")]);
        let queues = ghost.queues(|_| "c0".to_owned());
        assert_eq!(queues[1], format!("{DIR} by server 1: {ONE} of c0, {TWO} of c0"));
        let lost = views([&[ONE], &[], &[ONE]], [&[ONE], &[], &[ONE]]);
        assert_eq!(lost.differences(), [format!("{DIR}/{ONE}: shown by the servers [0, 2], and not by [1]")]);
    }

    #[test]
    fn node_that_comes_or_goes_while_the_servers_are_listed_is_no_difference() {
        for nodes in [[&[ONE] as &[&str], &[], &[]], [&[ONE], &[ONE], &[]]] {
            assert_eq!(views(nodes, [&[]; 3]).differences(), [""; 0], "it went");
        }
        for nodes in [[&[] as &[&str], &[], &[ONE]], [&[], &[ONE], &[ONE]]] {
            assert_eq!(views(nodes, [&[ONE]; 3]).differences(), [""; 0], "it came");
        }
    }
}
