//! This crate's mutex on ZooKeeper.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lab::servers::zookeeper::ZooKeeper;
use lab::servers::{Server as _, Setup};
use zookeeper_recipes::{Mutex, Session};

use crate::Outcome;
use crate::contender::{Client, Contender, Server};

pub(crate) async fn start() -> Outcome<Contender> {
    let server = ZooKeeper::start(&Setup::default()).await?;
    Ok(Contender {
        name: "this crate, on ZooKeeper",
        version: format!("{}, in a Java of 256 MiB that compiles its code quickly and not well", server.version()),
        durability: "each lock and release is on the disk before its answer".to_owned(),
        not_promised: "work stops while the servers have no majority; after a crash the next holder waits for a session \
                       timeout",
        server: Box::new(server),
        clients: Vec::new(),
    })
}

impl Server for ZooKeeper {
    fn connect(&self, number: usize) -> BoxFuture<'_, Outcome<Box<dyn Client>>> {
        async move {
            let session = Session::connect(&self.address().to_string()).await?;
            let client: Box<dyn Client> = Box::new(Mutex::new(&session, &format!("/others/{number}"))?);
            Ok(client)
        }
        .boxed()
    }
}

impl Client for Mutex {
    fn cycle(&mut self) -> BoxFuture<'_, Outcome> {
        async { Ok(self.lock().await?.release().await?) }.boxed()
    }
}
