//! Waiting by watches.

use zookeeper_recipes::zookeeper_client::{Client, Error as ZkError};

/// Waits until there are `count` nodes in these folders together, and returns their paths.
pub(crate) async fn for_nodes(admin: &Client, dirs: &[String], count: usize) -> Vec<String> {
    'again: loop {
        let (mut all, mut watchers) = (Vec::new(), Vec::new());
        for dir in dirs {
            match admin.list_and_watch_children(dir).await {
                Ok((names, watcher)) => {
                    all.extend(names.into_iter().map(|name| format!("{dir}/{name}")));
                    watchers.push(watcher);
                }
                Err(ZkError::NoNode) => match admin.check_and_watch_stat(dir).await {
                    Ok((None, watcher)) => watchers.push(watcher),
                    // It was created since, and this watch would not report its children.
                    Ok((Some(_), _)) => continue 'again,
                    Err(error) => panic!("cannot watch {dir}: {error}"),
                },
                Err(error) => panic!("cannot list {dir}: {error}"),
            }
        }
        if all.len() == count {
            return all;
        }
        let watchers = watchers.into_iter().map(|watcher| Box::pin(watcher.changed()));
        futures_util::future::select_all(watchers).await;
    }
}
