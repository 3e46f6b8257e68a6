//! Plays a program to a server through the client.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::timeout;
use zookeeper_client::{
    Acl, Acls, AuthId, Client, CreateMode, CreateOptions, Error, MultiReadResult, MultiWriteResult,
    OneshotWatcher, Permission, SessionState,
};

use crate::program::{Access, Action, Kind, Step, Write};
use crate::relay::Relay;
use crate::transcript::Transcript;

const TIMEOUT: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(20);

/// An event, with the session that got it and the transaction that caused it.
type Seen = (i64, i64, String);

struct Player {
    root: String,
    relays: Vec<Relay>,
    clients: Vec<Client>,
    is_cut: Vec<bool>,
    /// Its session is of no program: it waits for what others have done.
    observer: Client,
    watches: VecDeque<JoinHandle<()>>,
    events: (mpsc::UnboundedSender<Seen>, mpsc::UnboundedReceiver<Seen>),
    seen: Transcript,
}

pub(crate) async fn play(server: &str, seed: u64, program: &[Step]) -> Vec<String> {
    let mut player = Player::start(server, seed, program.iter().map(|step| step.client).max().unwrap_or(0)).await;
    for (index, step) in program.iter().enumerate() {
        let mut line = player.step(index, step).await;
        let mut events = player.events().await;
        if matches!(step.action, Action::Heal | Action::Renew | Action::WhoAmI) {
            // The client sends watches, and servers delete nodes of a session, in no order.
            events.sort();
        }
        if !events.is_empty() {
            line = format!("{line}; events: {}", events.join(", "));
        }
        player.seen.lines.push(line);
    }
    player.seen.finish()
}

async fn connect(hosts: &str) -> Client {
    Client::connector().with_session_timeout(TIMEOUT).connect(hosts).await.expect("connects")
}

fn options(kind: Kind, access: Access) -> CreateOptions<'static> {
    let mode = match kind {
        Kind::Persistent | Kind::Ttl => CreateMode::Persistent,
        Kind::Ephemeral => CreateMode::Ephemeral,
        Kind::Sequential => CreateMode::PersistentSequential,
        Kind::EphemeralSequential => CreateMode::EphemeralSequential,
        Kind::Container => CreateMode::Container,
    };
    let options = mode.with_acls(acls(access));
    if matches!(kind, Kind::Ttl) { options.with_ttl(TIMEOUT) } else { options }
}

fn acls(access: Access) -> Acls<'static> {
    match access {
        Access::Open => Acls::anyone_all(),
        Access::ReadOnly => Acls::anyone_read(),
        Access::Creator => Acls::creator_all(),
    }
}

fn acl(access: Access) -> Vec<Acl> {
    match access {
        Access::Open => vec![Acl::new(Permission::ALL, AuthId::anyone())],
        Access::ReadOnly => vec![Acl::new(Permission::READ, AuthId::anyone())],
        Access::Creator => vec![Acl::new(Permission::ALL, AuthId::authed())],
    }
}

impl Player {
    async fn start(server: &str, seed: u64, last: usize) -> Self {
        let observer = connect(server).await;
        let root = format!("/conformance-{seed}-{}", fastrand::u64(..));
        observer.create(&root, b"", &options(Kind::Persistent, Access::Open)).await.expect("created");
        let (mut relays, mut clients, mut seen) = (Vec::new(), Vec::new(), Transcript::default());
        for _ in 0..=last {
            let relay = Relay::to(server.to_owned()).await;
            let client = connect(&relay.address).await;
            seen.name_session(client.session_id().0);
            relays.push(relay);
            clients.push(client);
        }
        let is_cut = vec![false; clients.len()];
        Self {
            root,
            relays,
            clients,
            is_cut,
            observer,
            watches: VecDeque::new(),
            events: mpsc::unbounded_channel(),
            seen,
        }
    }

    async fn step(&mut self, index: usize, Step { client, action }: &Step) -> String {
        if self.is_cut[*client] && !matches!(action, Action::Heal) {
            return "cut".to_owned();
        }
        match action {
            Action::Cut => self.cut(*client).await,
            Action::Heal => self.heal(*client).await,
            Action::Renew => self.renew(index, *client).await,
            Action::Unwatch => {
                if let Some(watch) = self.watches.pop_front() {
                    watch.abort();
                    yield_now().await;
                }
            }
            action => {
                let connected = self.clients[*client].clone();
                let mut states = connected.state_watcher();
                states.state();
                let request = self.request(index, &connected, action);
                let result = timeout(PATIENCE, request).await.expect("an answer in time");
                if matches!((action, &result), (Action::WhoAmI, Err(Error::Unimplemented))) {
                    // A server that does not know the request also closes the connection.
                    timeout(PATIENCE, states.changed()).await.expect("a closed connection in time");
                    self.wait_for(*client, SessionState::SyncConnected).await;
                }
                return Transcript::outcome(result);
            }
        }
        "done".to_owned()
    }

    async fn cut(&mut self, client: usize) {
        self.is_cut[client] = true;
        self.relays[client].cut();
        self.wait_for(client, SessionState::Disconnected).await;
    }

    async fn heal(&mut self, client: usize) {
        if std::mem::take(&mut self.is_cut[client]) {
            self.relays[client].heal();
            self.wait_for(client, SessionState::SyncConnected).await;
        }
    }

    async fn wait_for(&self, client: usize, wanted: SessionState) {
        let mut watcher = self.clients[client].state_watcher();
        let waiting = async {
            let mut state = watcher.state();
            while state != wanted {
                state = watcher.changed().await;
            }
        };
        timeout(PATIENCE, waiting).await.expect("a state in time");
    }

    /// Closes the session, waits until its nodes are gone, and opens another.
    async fn renew(&mut self, index: usize, client: usize) {
        let marker = format!("{}/marker-{index}", self.root);
        let create = options(Kind::Ephemeral, Access::Open);
        let is_marked = self.clients[client].create(&marker, b"", &create).await.is_ok();
        // Its watches end with an event of the session.
        self.clients[client] = self.observer.clone();
        while is_marked && self.observer.check_stat(&marker).await.expect("an answer").is_some() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        self.clients[client] = connect(&self.relays[client].address).await;
        self.seen.name_session(self.clients[client].session_id().0);
    }

    /// The events since the last step. A server sends those that it owes a client before it answers it.
    async fn events(&mut self) -> Vec<String> {
        for (client, is_cut) in self.clients.iter().zip(&self.is_cut) {
            if !is_cut {
                timeout(PATIENCE, client.check_stat("/")).await.expect("an answer in time").expect("an answer");
            }
        }
        for _ in 0..20 {
            yield_now().await;
        }
        let mut events: Vec<_> = std::iter::from_fn(|| self.events.1.try_recv().ok()).collect();
        // Those of two clients have no order, nor have the watches of one client that get the same event.
        events.sort_by_key(|(session, ..)| *session);
        let what =
            |(session, zxid, event): &Seen| (*session, *zxid, event.split(" of ").next().map(str::to_owned));
        events.chunk_by_mut(|one, next| what(one) == what(next)).for_each(<[_]>::sort);
        events.into_iter().map(|(_, zxid, event)| format!("{event} by {}", self.seen.zxid(zxid))).collect()
    }

    fn watch(&mut self, index: usize, client: &Client, watcher: OneshotWatcher) {
        let (events, root, of) = (self.events.0.clone(), self.root.clone(), client.session_id());
        self.watches.push_back(tokio::spawn(async move {
            let event = watcher.changed().await;
            let (path, zxid) = (event.path.replace(&root, ""), event.zxid);
            let event = format!("{} {path:?} {:?} of {index}", event.event_type, event.session_state);
            _ = events.send((of.0, zxid, event));
        }));
        self.watches.retain(|watch| !watch.is_finished());
    }

    async fn request(&mut self, index: usize, client: &Client, action: &Action) -> Result<String, Error> {
        let at = |path: &str| format!("{}{path}", self.root);
        match action {
            Action::Write(write) => self.write(client, write).await,
            Action::Multi(writes) => self.multi(client, writes).await,
            Action::SetAcl { path, access, version } => {
                let stat = client.set_acl(&at(path), &acl(*access), *version).await?;
                Ok(self.seen.stat(&stat))
            }
            Action::Exists { path, watch } => {
                let path = at(path);
                let stat = if *watch {
                    let (stat, watcher) = client.check_and_watch_stat(&path).await?;
                    self.watch(index, client, watcher);
                    stat
                } else {
                    client.check_stat(&path).await?
                };
                Ok(stat.map_or("nothing".to_owned(), |stat| self.seen.stat(&stat)))
            }
            Action::GetData { path, watch } => {
                let path = at(path);
                let (data, stat) = if *watch {
                    let (data, stat, watcher) = client.get_and_watch_data(&path).await?;
                    self.watch(index, client, watcher);
                    (data, stat)
                } else {
                    client.get_data(&path).await?
                };
                Ok(format!("{data:?} {}", self.seen.stat(&stat)))
            }
            Action::GetChildren { path, watch, stat } => {
                self.children(index, client, &at(path), *watch, *stat).await
            }
            Action::MultiRead(reads) => {
                let mut reader = client.new_multi_reader();
                for (path, data) in reads {
                    if *data { reader.add_get_data(&at(path))? } else { reader.add_get_children(&at(path))? }
                }
                let mut results = Vec::new();
                for result in reader.commit().await? {
                    results.push(match result {
                        MultiReadResult::Data { data, stat } => format!("{data:?} {}", self.seen.stat(&stat)),
                        MultiReadResult::Children { children } => format!("{:?}", sorted(children)),
                        MultiReadResult::Error { err } => format!("{err:?}"),
                        other => format!("{other:?}"),
                    });
                }
                Ok(format!("{results:?}"))
            }
            Action::GetAcl(path) => {
                let (acls, stat) = client.get_acl(&at(path)).await?;
                let acls = sorted(acls.iter().map(|acl| format!("{acl:?}")).collect());
                Ok(format!("{acls:?} {}", self.seen.stat(&stat)))
            }
            Action::Count(path) => Ok(client.count_descendants_number(&at(path)).await?.to_string()),
            Action::Ephemerals(path) => {
                let paths = client.list_ephemerals(&at(path)).await?;
                Ok(format!("{:?}", sorted(paths)).replace(&self.root, ""))
            }
            Action::Sync(path) => client.sync(&at(path)).await.map(|()| "synced".to_owned()),
            Action::Auth(user) => client.auth("digest", user.as_bytes()).await.map(|()| "known".to_owned()),
            Action::WhoAmI => {
                let users = client.list_auth_users().await?;
                Ok(format!("{:?}", sorted(users.iter().map(|user| format!("{user:?}")).collect())))
            }
            Action::Unwatch | Action::Cut | Action::Heal | Action::Renew => unreachable!("it is no request"),
        }
    }

    async fn children(
        &mut self,
        index: usize,
        client: &Client,
        path: &str,
        watch: bool,
        stat: bool,
    ) -> Result<String, Error> {
        let (names, stat, watcher) = match (watch, stat) {
            (false, false) => (client.list_children(path).await?, None, None),
            (false, true) => client.get_children(path).await.map(|(names, stat)| (names, Some(stat), None))?,
            (true, false) => {
                client.list_and_watch_children(path).await.map(|(names, watcher)| (names, None, Some(watcher)))?
            }
            (true, true) => {
                let (names, stat, watcher) = client.get_and_watch_children(path).await?;
                (names, Some(stat), Some(watcher))
            }
        };
        if let Some(watcher) = watcher {
            self.watch(index, client, watcher);
        }
        let stat = stat.map(|stat| self.seen.stat(&stat)).unwrap_or_default();
        Ok(format!("{:?} {stat}", sorted(names)))
    }

    async fn write(&mut self, client: &Client, write: &Write) -> Result<String, Error> {
        let at = |path: &str| format!("{}{path}", self.root);
        match write {
            Write::Create { path, kind, access, data } => {
                let created = client.create(&at(path), &vec![7; *data], &options(*kind, *access)).await;
                let (stat, sequence) = created?;
                let sequence = matches!(kind, Kind::Sequential | Kind::EphemeralSequential).then_some(sequence);
                Ok(format!("{} {sequence:?}", self.seen.stat(&stat)))
            }
            Write::Delete { path, version } => {
                client.delete(&at(path), *version).await.map(|()| "deleted".to_owned())
            }
            Write::SetData { path, version, data } => {
                let stat = client.set_data(&at(path), &vec![8; *data], *version).await?;
                Ok(self.seen.stat(&stat))
            }
            Write::Check { .. } => unreachable!("it is part of a multi"),
        }
    }

    async fn multi(&mut self, client: &Client, writes: &[Write]) -> Result<String, Error> {
        let at = |path: &str| format!("{}{path}", self.root);
        let mut writer = client.new_multi_writer();
        for write in writes {
            match write {
                Write::Create { path, kind, access, data } => {
                    writer.add_create(&at(path), &vec![7; *data], &options(*kind, *access))?;
                }
                Write::Delete { path, version } => writer.add_delete(&at(path), *version)?,
                Write::SetData { path, version, data } => {
                    writer.add_set_data(&at(path), &vec![8; *data], *version)?;
                }
                Write::Check { path, version } => writer.add_check_version(&at(path), *version)?,
            }
        }
        let results = match writer.commit().await {
            Ok(results) => results,
            // With the index of the part that failed.
            Err(error) => return Ok(format!("{error:?}")),
        };
        let mut lines = Vec::new();
        for result in results {
            lines.push(match result {
                MultiWriteResult::Check => "checked".to_owned(),
                MultiWriteResult::Delete => "deleted".to_owned(),
                MultiWriteResult::Create { path, stat } => {
                    format!("{} {}", path.replace(&self.root, ""), self.seen.stat(&stat))
                }
                MultiWriteResult::SetData { stat } => self.seen.stat(&stat),
                other => format!("{other:?}"),
            });
        }
        Ok(format!("{lines:?}"))
    }
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names
}
