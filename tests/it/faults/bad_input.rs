//! Invalid arguments get a clear error or a defined answer. They never cause a panic, and nothing is left on the
//! server.

use std::time::Duration;

use zookeeper_groups::Members;
use zookeeper_recipes::zookeeper_client::{Acl, Acls, AuthId, Permission};
use zookeeper_recipes::{
    Election, Error, HoldState, MultiLock, Mutex, Options, ReentrantMutex, RwLock, Semaphore, Session,
};

use crate::family::FAMILY;
use crate::support::{World, children, soon};

/// Longer than any undelayed call takes.
const MOMENT: Duration = Duration::from_millis(500);

/// The error names what is wrong, and what to do.
#[track_caller]
fn assert_refused<T>(result: Result<T, Error>, argument: &str, texts: &[&str]) {
    let error = result.err().unwrap_or_else(|| panic!("{argument} was accepted: {texts:?}"));
    assert!(matches!(&error, Error::InvalidInput { what, .. } if *what == argument), "{error:?}");
    let text = error.to_string();
    assert!(text.starts_with(&format!("invalid {argument}: ")), "{text}");
    for part in texts {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
}

/// Nothing was sent, and nothing is left.
async fn assert_untouched(world: &World) {
    assert!(world.proxy.requests().is_empty(), "{:?}", world.proxy.requests());
    let root = world.path.rsplit_once('/').expect("two levels").0;
    assert!(children(&world.admin, root).await.is_empty());
}

#[tokio::test]
async fn semaphore_without_permits_is_refused() {
    let world = World::new().await;
    world.proxy.reset();
    assert_refused(Semaphore::new(&world.session, &world.path, 0), "permits", &["with none", "at least one"]);
    assert_untouched(&world).await;
}

#[tokio::test]
async fn impossible_number_of_permits_is_refused() {
    let world = World::new().await;
    world.proxy.reset();
    let semaphore = Semaphore::new(&world.session, &world.path, 3).expect("a semaphore");
    for (count, texts) in [
        (0, &["none would be acquired", "at least one"][..]),
        (4, &["4 are wanted", "only 3"]),
        (u32::MAX, &["4294967295 are wanted", "only 3"]),
    ] {
        assert_refused(semaphore.acquire_many(count).await, "permits", texts);
        assert_refused(semaphore.try_acquire_many(count).await, "permits", texts);
        for limit in [Duration::ZERO, MOMENT, Duration::MAX] {
            assert_refused(semaphore.try_acquire_many_for(count, limit).await, "permits", texts);
        }
        assert_refused(semaphore.enqueue(count).await, "permits", texts);
    }
    assert_untouched(&world).await;
}

#[tokio::test]
async fn more_permits_than_fit_into_a_request_are_refused() {
    let world = World::new().await;
    world.proxy.reset();
    let semaphore = Semaphore::new(&world.session, &world.path, u32::MAX).expect("a semaphore");
    for count in [100_000, u32::MAX] {
        let nodes = format!("{count} nodes");
        assert_refused(
            semaphore.acquire_many(count).await,
            "permits",
            &[&nodes, "1000000 are the most", "jute.maxbuffer"],
        );
    }
    // The identifier is in every node.
    let options = Options::new().with_identifier(vec![b'x'; 64 * 1024]);
    let verbose = Semaphore::with_options(&world.session, &world.path, 20, options).expect("a semaphore");
    assert_refused(verbose.acquire_many(20).await, "permits", &["20 nodes", "jute.maxbuffer"]);
    assert_untouched(&world).await;
    let permits = verbose.acquire_many(10).await.expect("held");
    assert_eq!(semaphore.available_permits().await.expect("counted"), u32::MAX - 10);
    permits.release().await.expect("released");
    let permit = semaphore.acquire().await.expect("held");
    permit.release().await.expect("released");
    assert!(semaphore.contenders().await.expect("listed").is_empty());
}

#[tokio::test]
async fn multi_lock_without_paths_is_refused() {
    let world = World::new().await;
    world.proxy.reset();
    assert_refused(MultiLock::new(&world.session, [""; 0]), "paths", &["there are none", "name at least one"]);
    assert_refused(MultiLock::builder(&world.session).build(), "paths", &["there are none", "name at least one"]);
    assert_untouched(&world).await;
}

#[tokio::test]
async fn multi_lock_that_would_wait_for_itself_is_refused() {
    let world = World::new().await;
    world.proxy.reset();
    let (path, other) = (world.path.as_str(), format!("{}-other", world.path));
    let twice = [path, "is named twice", "name it once"];
    assert_refused(MultiLock::new(&world.session, [path, &other, path]), "paths", &twice);
    let builder = || MultiLock::builder(&world.session);
    assert_refused(builder().read(path).read(&other).read(path).build(), "paths", &twice);
    assert_refused(builder().read(path).write(path).build(), "paths", &twice);
    assert_refused(builder().lock(path).read(path).build(), "paths", &twice);
    assert_untouched(&world).await;
}

#[tokio::test]
async fn multi_lock_of_a_path_and_its_child_can_be_held() {
    let world = World::new().await;
    let below = format!("{}/below", world.path);
    let both = MultiLock::new(&world.session, [&below, &world.path]).expect("a multi-lock");
    let guard = soon("both", both.lock()).await.expect("held");
    assert_eq!(guard.nodes().len(), 2);
    guard.release().await.expect("released");
    crate::support::wait_children(&world.admin, &below, 0).await;
}

#[tokio::test]
async fn multi_lock_that_does_not_fit_into_a_request_is_refused() {
    let world = World::new().await;
    world.proxy.reset();
    let paths = |count: usize| (0..count).map(|number| format!("{}/{number:08}", world.path));
    let texts = ["10000 nodes", "1000000 are the most", "jute.maxbuffer"];
    assert_refused(MultiLock::new(&world.session, paths(10_000)), "paths", &texts);
    let long = format!("{}/{}", world.path, "x".repeat(10_000));
    let long = (0..100).map(|number| format!("{long}{number}"));
    assert_refused(MultiLock::new(&world.session, long), "paths", &["100 nodes", "jute.maxbuffer"]);
    let options = Options::new().with_identifier(vec![b'x'; 64 * 1024]);
    let builder = MultiLock::builder(&world.session).options(options);
    let verbose = paths(20).fold(builder, |builder, path| builder.lock(&path)).build();
    assert_refused(verbose, "paths", &["20 nodes", "jute.maxbuffer"]);
    assert_untouched(&world).await;
}

#[tokio::test]
async fn largest_multi_lock_that_can_be_made_fits_into_a_request() {
    let world = World::new().await;
    let id = Options::new().with_identifier(vec![b'x'; 32 * 1024]);
    let of = |count: usize| {
        let builder = MultiLock::builder(&world.session).options(id.clone());
        (0..count).fold(builder, |builder, number| builder.lock(&format!("{}/{number}", world.path))).build()
    };
    let most = (1..).take_while(|&count| of(count).is_ok()).last().expect("one is not too many");
    assert!(most > 20, "{most}");
    let guard = soon("all", of(most).expect("a multi-lock").lock()).await.expect("held");
    assert_eq!((guard.nodes().len(), guard.state()), (most, HoldState::Held));
    guard.release().await.expect("released");
}

#[tokio::test]
async fn invalid_paths_are_refused_by_every_recipe() {
    let world = World::new().await;
    world.proxy.reset();
    let long = format!("/{}", "x".repeat(20_000));
    for (path, texts) in [
        ("", &["empty", "/locks/name"][..]),
        ("/", &["root", "/locks/name"]),
        ("relative", &["\"relative\" is relative", "begin with /"]),
        ("/a/", &["ends with /", "leave the last / out"]),
        ("//a", &["empty segment"]),
        ("/a/../b", &["\"..\"", "does not resolve"]),
        ("/a/./b", &["\".\"", "does not resolve"]),
        ("/a\0", &["'\\0'", "write %00"]),
        ("/a\u{f000}", &["'\\u{f000}'", "write %EF%80%80"]),
        ("/order-\u{1f600}", &["'\u{1f600}'", "write %F0%9F%98%80"]),
        ("/zookeeper", &["/zookeeper belongs to the servers", "/locks/name"]),
        ("/zookeeper/config", &["/zookeeper belongs to the servers", "/locks/name"]),
        (&long, &["20001 bytes", "are the most"]),
    ] {
        let session = &world.session;
        assert_refused(Mutex::new(session, path), "lock path", texts);
        assert_refused(ReentrantMutex::new(session, path), "lock path", texts);
        assert_refused(RwLock::new(session, path), "lock path", texts);
        assert_refused(Semaphore::new(session, path, 1), "lock path", texts);
        assert_refused(Election::new(session, path), "lock path", texts);
        assert_refused(MultiLock::new(session, ["/fine", path]), "lock path", texts);
        assert_refused(MultiLock::builder(session).read("/fine").write(path).build(), "lock path", texts);
    }
    // Only that exact name belongs to the servers.
    Mutex::new(&world.session, "/zookeepers/a").expect("it is ordinary");
    // Fits as it is, but not with the nodes of a semaphore below it.
    let nearly = format!("/{}", "x".repeat(16 * 1024 - 3));
    Mutex::new(&world.session, &nearly).expect("it fits");
    assert_refused(Semaphore::new(&world.session, &nearly, 1), "lock path", &["bytes", "are the most"]);
    assert_untouched(&world).await;
}

#[tokio::test]
async fn invalid_options_are_refused_by_every_recipe() {
    let world = World::new().await;
    let many = vec![Acl::new(Permission::ALL, AuthId::new("digest", "somebody:with-a-digest-of-28-chars")); 1_500];
    world.proxy.reset();
    for (options, argument, texts) in [
        (
            Options::new().with_identifier("__REVOKE__"),
            "identifier",
            ["__REVOKE__ asks a holder", "give another one"],
        ),
        (
            Options::new().with_identifier(vec![b'x'; 64 * 1024 + 1]),
            "identifier",
            ["65537 bytes", "65536 are the most"],
        ),
        (Options::new().with_stall_limit(Duration::ZERO), "stall_limit", ["zero", "give a longer one"]),
        (Options::new().with_start_limit(Duration::MAX), "start_limit", ["no stall limit", "give one"]),
        (Options::new().with_acls(Acls::new(&[])), "acls", ["there are none", "give at least one"]),
        (Options::new().with_acls(Acls::new(&many)), "acls", ["bytes", "are the most for one node"]),
    ] {
        for kin in &FAMILY {
            assert_refused((kin.make)(&world.session, &world.path, options.clone()), argument, &texts);
        }
        // As options of a session they are checked when a lock is made.
        let session: Session = world.session.clone().with_lock_options(options);
        assert_refused(Mutex::new(&session, &world.path), argument, &texts);
        assert_refused(MultiLock::new(&session, [&world.path]), argument, &texts);
    }
    assert_untouched(&world).await;
    for identifier in [&b""[..], b"__REVOKE__ ", &[0xff, 0]] {
        let options = Options::new().with_identifier(identifier);
        let mutex = Mutex::with_options(&world.session, &world.path, options).expect("a mutex");
        let guard = mutex.lock().await.expect("held");
        assert_eq!(mutex.contenders().await.expect("listed")[0].identifier(), identifier);
        guard.release().await.expect("released");
    }
    world.wait_empty().await;
}

#[tokio::test]
async fn invalid_proclamation_is_refused() {
    let world = World::new().await;
    let election = Election::with_options(&world.session, &world.path, Options::new().with_identifier("here"));
    let election = election.expect("an election");
    let term = election.campaign().await.expect("leads");
    world.proxy.reset();
    assert_refused(term.proclaim("__REVOKE__").await, "data", &["__REVOKE__ asks a holder", "give another one"]);
    let big = vec![b'x'; 64 * 1024 + 1];
    assert_refused(term.proclaim(big).await, "data", &["65537 bytes", "65536 are the most"]);
    assert!(world.proxy.requests().iter().all(|request| !request.is_write()));
    assert_eq!(election.leader().await.expect("asked").expect("a leader").identifier(), b"here");
    term.proclaim(vec![b'x'; 64 * 1024]).await.expect("proclaimed");
    assert_eq!(term.state(), HoldState::Held);
    term.resign().await.expect("resigned");
    world.wait_empty().await;
}

/// All processes of a group read the data of all members, and a server builds all answers at once.
#[tokio::test]
async fn data_of_a_member_is_small() {
    let world = World::new().await;
    let members = Members::new(&world.session, &world.path).expect("a path");
    let big = vec![b'x'; 4 * 1024 + 1];
    world.proxy.reset();
    assert_refused(members.join("a", &big).await, "data", &["4097 bytes", "4096 are the most"]);
    assert!(world.proxy.requests().iter().all(|request| !request.is_write()));
    let member = members.join("a", &big[1..]).await.expect("joined");
    assert_refused(member.set(&big).await, "data", &["4097 bytes", "4096 are the most"]);
    member.leave().await.expect("left");
}

#[tokio::test]
async fn clients_that_disagree_on_the_permits_each_keep_to_their_own_number() {
    let world = World::new().await;
    let many = Semaphore::new(&world.session, &world.path, 3).expect("a semaphore");
    let few = Semaphore::new(&world.other().await, &world.path, 1).expect("a semaphore");
    let permits = [many.acquire().await.expect("held"), many.acquire().await.expect("held")];
    assert_eq!(few.available_permits().await.expect("counted"), 0);
    assert!(few.try_acquire().await.expect("asked").is_none());
    assert!(few.try_acquire_for(4 * MOMENT).await.expect("asked").is_none());
    let given_up = async { while many.contenders().await.expect("listed").len() > 2 {} };
    soon("the end of its place", given_up).await;
    let third = many.try_acquire().await.expect("asked").expect("a third, within the larger number");
    third.release().await.expect("released");
    // The smaller number waits until no other permit is in use, and later waiters wait for its turn.
    let waiting = few.enqueue(1).await.expect("queued");
    assert_eq!(waiting.position(), 2);
    let behind = many.enqueue(1).await.expect("queued");
    assert_eq!(behind.position(), 1);
    assert!(many.try_acquire().await.expect("asked").is_none());
    let [one, other] = permits;
    one.release().await.expect("released");
    let mut waiting = std::pin::pin!(waiting);
    assert!(tokio::time::timeout(MOMENT, waiting.as_mut()).await.is_err(), "another is in use");
    other.release().await.expect("released");
    let only = soon("the only one", waiting).await.expect("held");
    let behind = soon("the waiter behind", behind).await.expect("held");
    assert_eq!(many.holders().await.expect("listed").len(), 2);
    assert_eq!((only.state(), behind.state()), (HoldState::Held, HoldState::Held));
    only.release().await.expect("released");
    behind.release().await.expect("released");
    assert!(many.contenders().await.expect("listed").is_empty());
}

/// An identifier set later does not open the nodes to the world.
#[tokio::test]
async fn options_of_a_session_are_laid_over_those_it_had() {
    let session = crate::support::connect(&crate::support::hosts()).await;
    let session = session.with_lock_options(Options::new().with_acls(Acls::creator_all()));
    let session = session.with_lock_options(Options::new().with_identifier("billing"));
    let options = Options::new().with_acls(Acls::creator_all()).with_identifier("billing");
    assert_eq!(format!("{:?}", session.lock_options()), format!("{options:?}"));
}

/// A limit for one lock does not open its nodes to the world.
#[tokio::test]
async fn options_of_a_lock_are_laid_over_those_of_its_session() {
    let world = World::new().await;
    let only_read = [Acl::new(Permission::READ | Permission::CREATE | Permission::DELETE, AuthId::anyone())];
    let of_session = Options::new().with_acls(Acls::new(&only_read)).with_identifier("the session");
    let session = world.session.clone().with_lock_options(of_session);
    let acls = async |node: &str| world.admin.get_acl(node).await.expect("readable").0;
    let acl_of = |acls: &[Acl]| acls.iter().map(|acl| acl.permission()).collect::<Vec<_>>();

    let of_lock = Options::new().with_stall_limit(Duration::from_secs(3600));
    let guard = Mutex::with_options(&session, &world.path, of_lock).expect("a mutex").lock().await.expect("held");
    assert!(guard.valid_for() < Duration::from_secs(3600));
    assert_eq!(acl_of(&acls(&guard.nodes()[0]).await), acl_of(&only_read));
    assert_eq!(world.admin.get_data(&guard.nodes()[0]).await.expect("read").0, b"the session");
    guard.release().await.expect("released");

    let of_lock = Options::new().with_identifier("the lock").with_parent_acls(Acls::anyone_all());
    let path = format!("{}/below", world.path);
    let guard = Mutex::with_options(&session, &path, of_lock).expect("a mutex").lock().await.expect("held");
    assert_eq!(world.admin.get_data(&guard.nodes()[0]).await.expect("read").0, b"the lock");
    assert_eq!(acl_of(&acls(&guard.nodes()[0]).await), acl_of(&only_read));
    assert_eq!(acl_of(&acls(&path).await), acl_of(&Acls::anyone_all()), "ancestors have their own");
    guard.release().await.expect("released");
}
