//! What the ACLs of a lock keep others from: another identity, and a neighbour that has one permission. `SECURITY.md` has the
//! table of the second.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use zookeeper_groups::KeptNode;
use zookeeper_recipes::zookeeper_client::{Acl, Acls, AuthId, Client, CreateMode, Error as ZkError, Permission};
use zookeeper_recipes::{Error, MultiLock, Mutex, MutexGuard, Options, Servers, Session};

use crate::family::FAMILY;
use crate::support::{PATIENCE, TIMEOUT, World, soon};

/// More requests than any call needs to learn that it is refused.
const REFUSED_SOON: usize = 10;

async fn identity(hosts: &str, credentials: &str) -> Session {
    let servers = Servers::new(hosts).with_session_timeout(TIMEOUT).with_auth("digest", credentials);
    Session::connect(servers).await.expect("connects")
}

/// Checks that a call was refused by the ACLs, after a few requests.
#[track_caller]
fn assert_denied<T>(world: &World, call: &str, result: Result<T, Error>) {
    let error = result.err().unwrap_or_else(|| panic!("{call} is allowed"));
    assert!(matches!(&error, Error::NoAuth { path } if path.starts_with(&world.path)), "{call}: {error:?}");
    let requests = world.proxy.requests();
    assert!(requests.len() <= REFUSED_SOON, "{call}: {} requests, {requests:?}", requests.len());
    world.proxy.reset();
}

#[tokio::test]
async fn another_identity_can_neither_read_nor_delete_nor_queue() {
    let world = World::new().await;
    let owner = identity(&world.hosts, "owner:secret").await;
    let stranger = identity(&world.proxy.hosts(), "stranger:secret").await;
    for kin in &FAMILY {
        let path = format!("{}/{}", world.path, kin.name.replace(' ', "-"));
        let of_owner = Options::new().with_acls(Acls::creator_all());
        let lock = (kin.make)(&owner, &path, of_owner).expect(kin.name);
        let guard = lock.hold().await.expect("held");
        let holder = lock.contenders().await.expect("listed").remove(0);

        let theirs = kin.lock(&stranger, &path);
        world.proxy.reset();
        assert_denied(&world, "contenders", soon(kin.name, theirs.contenders()).await);
        assert_denied(&world, "try_lock", soon(kin.name, theirs.try_hold()).await);
        assert_denied(&world, "lock", soon(kin.name, theirs.hold()).await);
        assert_denied(&world, "try_lock_for", soon(kin.name, theirs.try_hold_for(TIMEOUT)).await);
        match soon(kin.name, theirs.enqueue()).await {
            // A recipe without places.
            Ok(None) => {}
            enqueued => assert_denied(&world, "enqueue", enqueued),
        }
        assert_denied(&world, "break_lock", soon(kin.name, theirs.break_lock(&holder)).await);
        assert_denied(&world, "revoke", soon(kin.name, theirs.revoke(&holder)).await);

        guard.release().await.expect("it was not touched");
    }
}

/// What a neighbour can do that has one permission on a lock path and its nodes. It knows the names, as from a log.
const CAN: [(&str, Permission, &[&str]); 6] = [
    ("none", Permission::NONE, &[]),
    ("READ", Permission::READ, &["list", "read"]),
    ("CREATE", Permission::CREATE, &["block"]),
    ("DELETE", Permission::DELETE, &["break"]),
    ("WRITE", Permission::WRITE, &["revoke"]),
    ("ADMIN", Permission::ADMIN, &["open"]),
];

/// A lock of which others have one permission, and the node that holds it.
struct Shared {
    mutex: Mutex,
    guard: MutexGuard,
    node: String,
}

impl Shared {
    async fn new(owner: &Session, path: &str, permission: Permission) -> Self {
        let mut acls = vec![Acl::new(Permission::ALL, AuthId::authed())];
        if permission != Permission::NONE {
            acls.push(Acl::new(permission, AuthId::anyone()));
        }
        let options = Options::new().with_acls(Acls::new(&acls));
        let mutex = Mutex::with_options(owner, path, options).expect("a mutex");
        let guard = mutex.lock().await.expect("held");
        let node = guard.nodes()[0].clone();
        Self { mutex, guard, node }
    }
}

fn is_allowed<T>(result: Result<T, ZkError>) -> Option<T> {
    match result {
        Ok(done) => Some(done),
        Err(ZkError::NoAuth) => None,
        Err(error) => panic!("{error}"),
    }
}

/// Tries all that a neighbour may try; the list of what worked. What takes the lock from its holder comes last. A look whether
/// the node is there is left out: older servers let everyone do that.
async fn abilities(neighbour: &Client, lock: Shared, path: &str) -> Vec<&'static str> {
    let (mut can, node) = (Vec::new(), lock.node.as_str());
    can.extend(is_allowed(neighbour.list_children(path).await).map(|_| "list"));
    can.extend(is_allowed(neighbour.get_data(node).await).map(|_| "read"));
    if is_allowed(neighbour.set_data(node, b"__REVOKE__", None).await).is_some() {
        soon("the request", lock.guard.revoke_requested()).await;
        can.push("revoke");
    }
    let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
    let older = format!("{path}/older-lock--000000001");
    if is_allowed(neighbour.create(&older, b"", &open).await).is_some() {
        let contenders = lock.mutex.contenders().await.expect("listed");
        assert_eq!(contenders[0].name(), "older-lock--000000001", "{contenders:?}");
        assert!(lock.mutex.try_lock().await.expect("asked").is_none());
        can.push("block");
    }
    if is_allowed(neighbour.delete(node, None).await).is_some() {
        soon("the loss", lock.guard.lost()).await;
        can.push("break");
        return can;
    }
    if is_allowed(neighbour.set_acl(path, Acls::anyone_all().as_ref(), None).await).is_some() {
        neighbour.delete(node, None).await.expect("it has all permissions now");
        soon("the loss", lock.guard.lost()).await;
        can.push("open");
    }
    can
}

#[tokio::test]
async fn neighbour_with_one_permission_can_do_what_the_table_shows() {
    let world = World::new().await;
    let owner = identity(&world.hosts, "owner:secret").await;
    let security = include_str!("../../../SECURITY.md");
    for (name, permission, can) in CAN {
        let path = format!("{}/{name}", world.path);
        let lock = Shared::new(&owner, &path, permission).await;
        assert_eq!(abilities(&world.admin, lock, &path).await, can, "{name}");
        // What our own locks need is more than one of them.
        let queued = soon(name, Mutex::new(&world.session, &path).expect("a mutex").lock()).await;
        if can.contains(&"open") {
            queued.expect("it has opened the path").release().await.expect("released");
        } else {
            let error = queued.expect_err("not allowed");
            assert!(matches!(&error, Error::NoAuth { .. }), "{name}: {error:?}");
        }
        let can = if can.is_empty() { "nothing".to_owned() } else { can.join(", ") };
        let row = format!("| {name} | {can} |");
        assert!(security.contains(&row), "SECURITY.md does not have {row:?}");
    }
}

/// From 3.8.4 and 3.9.2 on, a look whether a node is there needs READ on its parent (ZOOKEEPER-2590).
#[tokio::test]
async fn ancestor_that_may_not_be_read_is_no_obstacle() {
    let world = World::new().await;
    let owner = identity(&world.hosts, "owner:secret").await;
    let owner = owner.client().expect("a client");
    let may_create = [Acl::new(Permission::ALL, AuthId::authed()), Acl::new(Permission::CREATE, AuthId::anyone())];
    let closed = CreateMode::Persistent.with_acls(Acls::new(&may_create));
    let hidden = format!("{}/hidden", world.path);
    owner.mkdir(&world.path, &CreateMode::Persistent.with_acls(Acls::anyone_all())).await.expect("created");
    owner.create(&hidden, b"", &closed).await.expect("created");
    for path in [format!("{hidden}/missing/lock"), format!("{hidden}/lock")] {
        for _ in 0..2 {
            let mutex = Mutex::new(&world.session, &path).expect("a mutex");
            let guard = soon(&path, mutex.lock()).await.expect("held");
            let chroot = Session::connect(&format!("{}{path}", world.hosts)).await.expect("connects");
            let other = Mutex::new(&chroot, "/other").expect("a mutex");
            soon("the other", other.lock()).await.expect("held").release().await.expect("released");
            guard.release().await.expect("released");
        }
    }
    let several = ["a/lock", "b/lock", "b/deep/lock"].map(|path| format!("{hidden}/{path}"));
    let multi_lock = MultiLock::new(&world.session, several).expect("a multi-lock");
    soon("the multi-lock", multi_lock.lock()).await.expect("held").release().await.expect("released");
    let kept = KeptNode::keep(&world.session, &format!("{hidden}/kept/deep/node"), b"").expect("a node");
    soon("the node", kept.created()).await.expect("made");
    soon("the end", kept.remove()).await.expect("removed");
}

#[tokio::test]
async fn neighbour_that_may_queue_and_not_delete_blocks_until_its_session_ends() {
    let world = World::new().await;
    let owner = identity(&world.hosts, "owner:secret").await;
    let lock = Shared::new(&owner, &world.path, Permission::READ | Permission::CREATE).await;
    let neighbour = world.other().await;
    // It queues before the owner leaves: servers remove an empty path, and its ACL with it.
    let waiting = Mutex::new(&neighbour, &world.path).expect("a mutex").enqueue().await.expect("queued");
    lock.guard.release().await.expect("released");
    let guard = soon("the lock", waiting).await.expect("held");
    let error = guard.release().await.expect_err("it may not delete its node");
    assert!(matches!(&error, Error::NoAuth { path } if *path == world.path), "{error:?}");
    assert!(lock.mutex.try_lock().await.expect("asked").is_none());
    // A client of the session would keep it open.
    drop(neighbour.close().await);
    drop(neighbour);
    soon("the end of its session", lock.mutex.lock()).await.expect("held").release().await.expect("released");
}

/// The four letter words need no credentials.
#[tokio::test]
async fn server_that_allows_the_word_dump_lists_every_lock_to_anyone() {
    let world = World::new().await;
    let owner = identity(&world.hosts, "owner:secret").await;
    let lock = Shared::new(&owner, &world.path, Permission::NONE).await;
    let mut stream = TcpStream::connect(world.hosts.split(',').next().expect("a host")).await.expect("connects");
    stream.write_all(b"dump").await.expect("sent");
    let mut dump = String::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_string(&mut dump));
    read.await.expect("an answer").expect("text");
    assert!(dump.contains(&lock.node), "{dump}");
}
