//! The subtle parts, on the pure servers.

use std::time::Duration;

use crate::code::Code;
use crate::message::{Connect, Event, EventKind, Message, Reply, Request, SetWatches, Write};
use crate::{Acl, Config, ConnectionId, Ensemble, Identity, Output, Stat, Version};

const TIMEOUT: Duration = Duration::from_secs(10);

/// An ensemble, and what its clients were sent.
struct World {
    ensemble: Ensemble,
    now: Duration,
    sent: Vec<Output>,
    last: ConnectionId,
}

impl World {
    fn new(servers: usize) -> Self {
        Self::with(Config { servers, ..Config::default() })
    }

    fn of(version: Version) -> Self {
        Self::with(Config { version, ..Config::default() })
    }

    fn with(config: Config) -> Self {
        let ensemble = Ensemble::new(config);
        Self { ensemble, now: Duration::from_secs(1_000_000), sent: Vec::new(), last: 0 }
    }

    fn connect(&mut self, server: usize, request: &Connect) -> (ConnectionId, Message) {
        self.last += 1;
        let outputs = self.ensemble.connect(self.now, server, self.last, request);
        self.sent.extend(outputs);
        (self.last, self.take(self.last).remove(0))
    }

    /// A new session, on its own connection.
    fn session(&mut self, server: usize) -> (ConnectionId, Connect) {
        let (connection, message) = self.connect(server, &Connect::new(TIMEOUT));
        let Message::Connected(connected) = message else { panic!("{message:?}") };
        let again =
            Connect { session: connected.session, password: connected.password.to_vec(), ..Connect::new(TIMEOUT) };
        (connection, again)
    }

    fn take(&mut self, connection: ConnectionId) -> Vec<Message> {
        let (mine, others) = self.sent.drain(..).partition(|output| output.connection == connection);
        self.sent = others;
        Vec::into_iter(mine).map(|output: Output| output.message).collect()
    }

    fn events(&mut self, connection: ConnectionId) -> Vec<(EventKind, String)> {
        let events = self.take(connection).into_iter().map(|message| match message {
            Message::Event(Event { kind, path, .. }) => (kind, path),
            other => panic!("{other:?}"),
        });
        events.collect()
    }

    /// The answer, which is the last that the client is sent. What it was sent before remains.
    fn ask(&mut self, connection: ConnectionId, request: Request) -> Result<Reply, Code> {
        let outputs = self.ensemble.handle(self.now, connection, 7, request);
        self.sent.extend(outputs);
        let is_answer = |output: &Output| {
            output.connection == connection && matches!(output.message, Message::Reply { xid: 7, .. })
        };
        let index = self.sent.iter().rposition(is_answer).expect("an answer");
        match self.sent.remove(index).message {
            Message::Reply { result, .. } => result,
            other => panic!("{other:?}"),
        }
    }

    fn create(&mut self, connection: ConnectionId, path: &str, flags: i32) -> Result<Reply, Code> {
        self.ask(connection, Request::Write(create(path, flags)))
    }

    fn delete(&mut self, connection: ConnectionId, path: &str) -> Result<Reply, Code> {
        self.ask(connection, Request::Write(delete(path)))
    }

    fn stat(&mut self, connection: ConnectionId, path: &str) -> Result<Stat, Code> {
        match self.ask(connection, Request::Exists { path: path.to_owned(), watch: false })? {
            Reply::Exists(stat) => Ok(stat),
            other => panic!("{other:?}"),
        }
    }

    fn watch_all(&mut self, connection: ConnectionId, path: &str) {
        let path = path.to_owned();
        self.ask(connection, Request::GetData { path: path.clone(), watch: true }).expect("read");
        self.ask(connection, Request::GetChildren { path, watch: true }).expect("read");
    }

    fn tick(&mut self, elapsed: Duration) {
        self.now += elapsed;
        let outputs = self.ensemble.tick(self.now);
        self.sent.extend(outputs);
    }
}

fn create(path: &str, flags: i32) -> Write {
    Write::Create { path: path.to_owned(), data: Vec::new(), acl: Acl::open(), flags, with_stat: false }
}

fn delete(path: &str) -> Write {
    Write::Delete { path: path.to_owned(), version: -1 }
}

fn created(path: &str) -> Result<Reply, Code> {
    Ok(Reply::Create(path.to_owned()))
}

#[test]
fn stats_show_the_wall_clock_by_which_no_session_ends() {
    let mut world = World::new(1);
    let (client, _) = world.session(0);
    let hours = Duration::from_secs(7_200);
    world.ensemble.set_wall_ahead(hours);
    world.create(client, "/a", 0).expect("created");
    let stat = world.stat(client, "/a").expect("there");
    assert_eq!(u128::try_from(stat.ctime), Ok((world.now + hours).as_millis()));
    world.ensemble.set_wall_ahead(2 * hours);
    world.tick(TIMEOUT / 2);
    world.stat(client, "/a").expect("its session lives");
}

#[test]
fn counter_stays_at_its_end_but_within_a_transaction_goes_on() {
    let mut world = World::new(1);
    let (client, _) = world.session(0);
    world.create(client, "/q", 0).expect("created");
    world.ensemble.set_counter("/q", i32::MAX - 1);
    assert_eq!(world.create(client, "/q/a", 2), created("/q/a2147483646"));
    assert_eq!(world.create(client, "/q/a", 2), created("/q/a2147483647"));
    assert_eq!(world.create(client, "/q/a", 2), Err(Code::NodeExists));
    let parts = vec![create("/q/b", 2), create("/q/b", 2), create("/q/b", 2)];
    let names = ["/q/b2147483647", "/q/b-2147483648", "/q/b-2147483647"];
    assert_eq!(world.ask(client, Request::Multi(parts)), Ok(Reply::Multi(names.map(created).to_vec())));
    assert_eq!(world.create(client, "/q/c", 2), created("/q/c2147483647"));
}

#[test]
fn containers_go_when_they_had_children_and_have_none() {
    let mut world = World::new(1);
    let (client, _) = world.session(0);
    for path in ["/new", "/full", "/left"] {
        world.create(client, path, 4).expect("created");
    }
    for path in ["/full/x", "/left/x"] {
        world.create(client, path, 0).expect("created");
    }
    world.delete(client, "/left/x").expect("deleted");
    let outputs = world.ensemble.reap(world.now);
    world.sent.extend(outputs);
    assert_eq!(world.stat(client, "/left"), Err(Code::NoNode));
    assert!(world.stat(client, "/new").is_ok() && world.stat(client, "/full").is_ok());
    assert_eq!(world.stat(client, "/full").expect("a stat").ephemeral_owner, 0);
}

#[test]
fn multi_that_fails_changes_nothing_and_names_the_part() {
    let mut world = World::new(1);
    let (client, _) = world.session(0);
    let parts = vec![create("/a", 0), create("/a/b", 1), delete("/none"), create("/c", 0)];
    let answers = [Code::Ok, Code::Ok, Code::NoNode, Code::RuntimeInconsistency].map(Err).to_vec();
    assert_eq!(world.ask(client, Request::Multi(parts)), Ok(Reply::Multi(answers)));
    assert_eq!(world.stat(client, "/a"), Err(Code::NoNode));
    world.create(client, "/a", 0).expect("created");
    // The session has one transaction, the multi another.
    assert_eq!(world.stat(client, "/a").expect("a stat").czxid, 3);
}

#[test]
fn parts_of_a_multi_build_on_each_other() {
    let mut world = World::new(1);
    let (client, _) = world.session(0);
    let parts = vec![create("/a", 0), create("/a/b", 0), delete("/a/b"), delete("/a"), create("/a", 1)];
    let replies = [created("/a"), created("/a/b"), Ok(Reply::Delete), Ok(Reply::Delete), created("/a")];
    assert_eq!(world.ask(client, Request::Multi(parts)), Ok(Reply::Multi(replies.to_vec())));
    assert_eq!(world.create(client, "/a/x", 0), Err(Code::NoChildrenForEphemerals));
}

#[test]
fn deletion_is_one_event_to_a_watcher_of_data_and_children_and_comes_before_that_of_the_parent() {
    let mut world = World::new(1);
    let (client, _) = world.session(0);
    world.create(client, "/a", 0).expect("created");
    world.create(client, "/a/b", 0).expect("created");
    world.watch_all(client, "/a");
    world.watch_all(client, "/a/b");
    world.delete(client, "/a/b").expect("deleted");
    let deleted = (EventKind::NodeDeleted, "/a/b".to_owned());
    assert_eq!(world.events(client), [deleted, (EventKind::NodeChildrenChanged, "/a".to_owned())]);
    world.create(client, "/a/b", 0).expect("created");
    assert_eq!(world.events(client), []);
}

#[test]
fn event_comes_before_the_answer_to_the_write_that_caused_it() {
    let mut world = World::new(1);
    let (client, _) = world.session(0);
    world.ask(client, Request::Exists { path: "/a".to_owned(), watch: true }).expect_err("there is none");
    let outputs = world.ensemble.handle(world.now, client, 1, Request::Write(create("/a", 0)));
    assert!(matches!(outputs[0].message, Message::Event(Event { kind: EventKind::NodeCreated, .. })));
    assert!(matches!(outputs[1].message, Message::Reply { xid: 1, .. }));
}

#[test]
fn watches_that_are_set_again_report_what_changed_meanwhile() {
    let mut world = World::new(1);
    let (other, _) = world.session(0);
    for path in ["/a", "/b", "/c"] {
        world.create(other, path, 0).expect("created");
    }
    let (client, again) = world.session(0);
    let since = world.stat(client, "/c").expect("a stat").czxid;
    world.ensemble.disconnect(client);
    world.delete(other, "/a").expect("deleted");
    world.create(other, "/b/x", 0).expect("created");
    world.create(other, "/d", 0).expect("created");
    let (client, _) = world.connect(0, &again);
    let paths = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect();
    let one_shot = [paths(&["/a", "/c"]), paths(&["/d", "/e"]), paths(&["/b", "/c"])];
    let request = SetWatches { since, one_shot, ..SetWatches::default() };
    world.ask(client, Request::SetWatches(request)).expect("set");
    let expected =
        [(EventKind::NodeDeleted, "/a"), (EventKind::NodeCreated, "/d"), (EventKind::NodeChildrenChanged, "/b")];
    assert_eq!(world.events(client), expected.map(|(kind, path)| (kind, path.to_owned())));
    world.create(other, "/e", 0).expect("created");
    assert_eq!(world.events(client), [(EventKind::NodeCreated, "/e".to_owned())]);
}

#[test]
fn session_expires_after_its_timeout_and_at_most_a_tick() {
    let mut world = World::new(1);
    let ((client, _), (other, _)) = (world.session(0), world.session(0));
    world.create(client, "/a", 1).expect("created");
    world.tick(TIMEOUT / 2);
    world.ask(other, Request::Ping).expect("answered");
    world.tick(TIMEOUT / 2);
    assert!(world.stat(other, "/a").is_ok());
    world.tick(Config::default().tick);
    assert_eq!(world.take(client), [Message::Close]);
    assert_eq!(world.stat(other, "/a"), Err(Code::NoNode));
}

#[test]
fn session_moves_with_its_password_only() {
    let mut world = World::new(2);
    let (first, again) = world.session(0);
    let wrong = Connect { password: vec![0; 16], ..again.clone() };
    let Message::Connected(refused) = world.connect(1, &wrong).1 else { panic!("no answer") };
    assert_eq!(refused.session, 0);
    let (second, _) = world.connect(1, &again);
    assert_eq!(world.create(second, "/a", 1), created("/a"));
    let outputs = world.ensemble.handle(world.now, first, 1, Request::Write(create("/b", 0)));
    assert_eq!(outputs, [Output { connection: first, message: Message::Close }]);
    assert_eq!(world.stat(second, "/b"), Err(Code::NoNode));
}

#[test]
fn server_that_lags_answers_reads_from_the_past_but_knows_the_writes_of_its_clients() {
    let mut world = World::new(2);
    let ((leading, _), (lagging, again)) = (world.session(0), world.session(1));
    world.ensemble.lag(1, true);
    world.create(leading, "/a", 0).expect("created");
    assert_eq!(world.stat(lagging, "/a"), Err(Code::NoNode));
    assert_eq!(world.create(lagging, "/a", 0), Err(Code::NodeExists));
    assert!(world.stat(lagging, "/a").is_ok());
    world.create(leading, "/b", 0).expect("created");
    world.ask(lagging, Request::Sync("/".to_owned())).expect("synced");
    assert!(world.stat(lagging, "/b").is_ok());
    world.create(leading, "/c", 0).expect("created");
    let ahead = Connect { last_zxid: world.stat(leading, "/c").expect("a stat").czxid, ..again };
    assert_eq!(world.connect(1, &ahead).1, Message::Close);
    world.ensemble.lag(1, false);
    assert!(world.stat(lagging, "/c").is_ok());
}

#[test]
fn nodes_of_a_creator_need_its_password() {
    let mut world = World::new(1);
    let ((ann, _), (other, _)) = (world.session(0), world.session(0));
    let acl = vec![Acl::new(31, Identity::new("auth", ""))];
    let write = |path: &str| {
        let (path, acl) = (path.to_owned(), acl.clone());
        Request::Write(Write::Create { path, data: Vec::new(), acl, flags: 0, with_stat: false })
    };
    assert_eq!(world.ask(ann, write("/a")), Err(Code::InvalidAcl));
    let auth = Request::Auth { scheme: "digest".to_owned(), credentials: b"ann:secret".to_vec() };
    world.ask(ann, auth.clone()).expect("known");
    world.ask(ann, write("/a")).expect("created");
    let read = Request::GetData { path: "/a".to_owned(), watch: false };
    assert_eq!(world.ask(other, read.clone()), Err(Code::NoAuth));
    let path = "/a".to_owned();
    world.ask(other, Request::Exists { path: path.clone(), watch: true }).expect("servers ask for no permission");
    let change = Write::SetData { path, version: -1, data: Vec::new() };
    world.ask(ann, Request::Write(change)).expect("changed");
    assert_eq!(world.events(other), []);
    world.ask(other, auth).expect("known");
    world.ask(other, read).expect("read");
}

#[test]
fn paths_are_checked_as_servers_do() {
    let mut world = World::new(1);
    let (client, _) = world.session(0);
    for path in ["a", "/a//b", "/a/", "/a/../b", "/.", "/a\u{1}", "/\u{1f600}"] {
        let error = world.create(client, path, 0).expect_err(path);
        assert!(matches!(error, Code::BadArguments | Code::NoNode), "{path}: {error:?}");
    }
    assert_eq!(world.delete(client, "/zookeeper"), Err(Code::BadArguments));
    assert_eq!(world.create(client, "/...", 0), created("/..."));
}

#[test]
fn create_within_a_multi_returns_a_stat_since_3_9_and_of_a_container_always() {
    for (version, has_stat) in [(Version::V3_6, false), (Version::V3_8, false), (Version::V3_9, true)] {
        let mut world = World::of(version);
        let (client, _) = world.session(0);
        let part = |(path, flags): (&str, i32)| Write::Create {
            path: path.to_owned(),
            data: Vec::new(),
            acl: Acl::open(),
            flags,
            with_stat: true,
        };
        let parts = [("/a", 0), ("/b", 4)].map(part).to_vec();
        let Ok(Reply::Multi(answers)) = world.ask(client, Request::Multi(parts)) else { panic!("{version:?}") };
        let stats: Vec<_> = answers.iter().map(|answer| matches!(answer, Ok(Reply::Create2(..)))).collect();
        assert_eq!(stats, [has_stat, true], "{version:?}");
    }
}

#[test]
fn client_that_may_not_read_learns_less_from_version_to_version() {
    let versions = [(Version::V3_6, true, true), (Version::V3_8, false, true), (Version::V3_9, false, false)];
    for (version, gets_events, may_exist) in versions {
        let mut world = World::of(version);
        let ((ann, _), (other, _)) = (world.session(0), world.session(0));
        let path = "/a".to_owned();
        world.create(ann, &path, 0).expect("created");
        world.watch_all(other, &path);
        let auth = Request::Auth { scheme: "digest".to_owned(), credentials: b"ann:secret".to_vec() };
        world.ask(ann, auth).expect("known");
        let acl = vec![Acl::new(31, Identity::new("auth", ""))];
        world.ask(ann, Request::Write(Write::SetAcl { path: path.clone(), acl, version: -1 })).expect("changed");
        let change = Write::SetData { path: path.clone(), version: -1, data: Vec::new() };
        world.ask(ann, Request::Write(change)).expect("changed");
        assert_eq!(!world.events(other).is_empty(), gets_events, "{version:?}");
        let exists = world.stat(other, &path);
        assert!(if may_exist { exists.is_ok() } else { exists == Err(Code::NoAuth) }, "{version:?}: {exists:?}");
    }
}

#[test]
fn event_names_its_transaction_since_3_9() {
    for (version, expected) in [(Version::V3_6, -1), (Version::V3_8, -1), (Version::V3_9, 2)] {
        let mut world = World::of(version);
        let (client, _) = world.session(0);
        let path = "/a".to_owned();
        world.ask(client, Request::Exists { path: path.clone(), watch: true }).expect_err("there is none");
        world.create(client, &path, 0).expect("created");
        let created = Event { kind: EventKind::NodeCreated, path, zxid: expected };
        assert_eq!(world.take(client), [Message::Event(created)], "{version:?}");
    }
}

#[test]
fn who_a_client_is_closes_its_connection_to_3_6() {
    for (version, is_known) in [(Version::V3_6, false), (Version::V3_8, true), (Version::V3_9, true)] {
        let mut world = World::of(version);
        let (client, _) = world.session(0);
        assert_eq!(world.ask(client, Request::WhoAmI).is_ok(), is_known, "{version:?}");
        assert_eq!(world.take(client).contains(&Message::Close), !is_known, "{version:?}");
    }
}
