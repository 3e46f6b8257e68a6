//! Processes of the service on one database and a real ZooKeeper: killed, stopped, and drained.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tempfile::TempDir;
use testbed::Server;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::{interval, timeout};
use uuid::Uuid;
use zookeeper_recipes::zookeeper_client::{Acls, Client, CreateMode};
use zookeeper_recipes::{Election, Mutex, Servers, Session};

/// Far longer than anything takes; a test that waits this long has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long the fleet is under load at least, in seconds.
const SECONDS: &str = "FLEET_SECONDS";

/// Orders that are under way at a time.
const CUSTOMERS: usize = 6;

/// Each order is requested so often at each process.
const REQUESTS: usize = 2;

/// A process of the service.
struct Service {
    process: Child,
    address: String,
}

impl Service {
    async fn start(hosts: &str, folder: &Path) -> Self {
        Self::start_with(hosts, folder, &[]).await
    }

    async fn start_with(hosts: &str, folder: &Path, arguments: &[&str]) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_service"))
            .args(["--listen", "127.0.0.1:0", "--hosts", hosts, "--session-timeout", "3", "--notice", "0.2"])
            .args(arguments)
            .arg("--database")
            .arg(folder.join("orders"))
            .env("NO_COLOR", "1")
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("it can be run");
        let mut lines = BufReader::new(process.stdout.take().expect("stdout is piped")).lines();
        let address = async {
            while let Some(line) = lines.next_line().await.expect("readable") {
                eprintln!("{line}");
                if let Some((_, address)) = line.split_once("listening address=") {
                    return address.trim_matches('"').to_owned();
                }
            }
            panic!("it has ended");
        };
        let address = timeout(PATIENCE, address).await.expect("it listens in time");
        let name = address.clone();
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                eprintln!("{name} {line}");
            }
        });
        Self { process, address }
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.process.id().expect("running").cast_signed()).expect("not 0")
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("running");
    }

    /// Returns when all of its threads have stopped.
    fn stop(&self) {
        self.signal(Signal::STOP);
        waitid(WaitId::Pid(self.pid()), WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT).expect("a child");
    }

    async fn terminate(mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        timeout(PATIENCE, self.process.wait()).await.expect("it ends in time").expect("a child")
    }

    /// The status of a page; 0 if there is no answer.
    async fn get(&self, page: &str) -> u16 {
        ask(&self.address, "GET", page).await.map_or(0, |(status, _)| status)
    }

    async fn serves(&self, page: &str, status: u16) {
        until(page, async || self.get(page).await == status).await;
    }
}

/// Waits for a condition.
async fn until(what: &str, mut is_met: impl AsyncFnMut() -> bool) {
    let met = async {
        let mut ticks = interval(Duration::from_millis(20));
        while !is_met().await {
            ticks.tick().await;
        }
    };
    timeout(PATIENCE, met).await.unwrap_or_else(|_| panic!("timed out: {what}"));
}

/// Sends one request.
async fn ask(address: &str, method: &str, page: &str) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address).await?;
    send(&mut stream, method, page).await?;
    receive(&mut stream).await
}

async fn send(stream: &mut TcpStream, method: &str, page: &str) -> io::Result<()> {
    let request = format!("{method} {page} HTTP/1.1\r\nhost: service\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await
}

/// The status and the body.
async fn receive(stream: &mut TcpStream) -> io::Result<(u16, String)> {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let status = answer.get(9..12).and_then(|status| status.parse().ok());
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
    status.zip(body).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

/// The server given to the suite with a fresh chroot, a session there, and a folder.
async fn world() -> (String, Session, TempDir) {
    let servers = std::env::var("ZK_HOSTS").expect("no ZK_HOSTS: run the suite as `zk-docker/run cargo test`");
    let chroot = format!("/service-{}", Uuid::new_v4().simple());
    let admin = Client::connect(&servers).await.expect("connects");
    let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
    admin.create(&chroot, b"", &open).await.expect("created");
    let hosts = servers + &chroot;
    let servers = Servers::new(&hosts).with_session_timeout(Duration::from_secs(20));
    let session = Session::connect(servers).await.expect("connects");
    (hosts, session, tempfile::tempdir().expect("a folder"))
}

#[tokio::test]
async fn serves_before_zookeeper_is_there_and_ends_when_it_is_gone() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut server = Server::start().await.unwrap();
    server.kill();
    let service = Service::start(&server.hosts(), folder.path()).await;
    assert_eq!(service.get("/live").await, 200);
    assert_eq!(service.get("/ready").await, 503);
    server.restart().await.unwrap();
    service.serves("/ready", 200).await;
    service.serves("/leads", 200).await;
    server.kill();
    service.serves("/leads", 503).await;
    assert!(service.terminate().await.success());

    let early = Service::start(&server.hosts(), folder.path()).await;
    assert!(early.terminate().await.success());
}

/// The processes that orders go to.
struct Shop {
    addresses: Vec<String>,
    closes: AtomicBool,
    /// By customer.
    shipped: [AtomicUsize; CUSTOMERS],
}

impl Shop {
    /// Orders one thing after the other; asks for each at all processes at once, until one has shipped it.
    async fn customer(self: Arc<Self>, name: usize, answers: UnboundedSender<(u16, String)>) {
        for number in 0.. {
            if self.closes.load(Ordering::Relaxed) {
                return;
            }
            // A key that is no segment of a path.
            let order = format!("/orders/{name}%2F{number}");
            while !self.ask_all("PUT", &order, 1, &answers).await {}
            let ship = format!("{order}/ship");
            while !self.ask_all("POST", &ship, REQUESTS, &answers).await {}
            self.shipped[name].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether one has succeeded. Returns with the first, or when none has for a while; the other requests go on.
    async fn ask_all(
        &self,
        method: &'static str,
        page: &str,
        times: usize,
        answers: &UnboundedSender<(u16, String)>,
    ) -> bool {
        let (send, mut receive) = unbounded_channel();
        for address in self.addresses.iter().flat_map(|address| std::iter::repeat_n(address, times)) {
            let (address, page, send, answers) = (address.clone(), page.to_owned(), send.clone(), answers.clone());
            tokio::spawn(async move {
                if let Ok(answer) = ask(&address, method, &page).await {
                    let _ = send.send(answer.0);
                    let _ = answers.send(answer);
                }
            });
        }
        drop(send);
        let first = async {
            while let Some(status) = receive.recv().await {
                if status == 200 {
                    return true;
                }
            }
            false
        };
        timeout(Duration::from_secs(1), first).await.unwrap_or(false)
    }

    /// Waits until each customer has received some more, so the orders of now are done; and for its share of a longer run.
    async fn ships_more(&self) {
        let seconds = std::env::var(SECONDS).map_or(0.0, |seconds| seconds.parse().expect("a number"));
        let until_then = Instant::now() + Duration::from_secs_f64(seconds / 6.0);
        let shipped = || self.shipped.each_ref().map(|shipped| shipped.load(Ordering::Relaxed));
        let before = shipped();
        until("each customer is served", async || {
            let has_more = |(shipped, before): (&usize, usize)| *shipped >= before + 3;
            Instant::now() >= until_then && shipped().iter().zip(before).all(has_more)
        })
        .await;
    }
}

/// Waits until one of them leads.
async fn take_leader(fleet: &mut Vec<Service>) -> Service {
    let mut leader = None;
    until("one leads", async || {
        for (number, service) in fleet.iter().enumerate() {
            if service.get("/leads").await == 200 {
                leader = Some(number);
            }
        }
        leader.is_some()
    })
    .await;
    fleet.remove(leader.expect("one leads"))
}

#[tokio::test]
async fn fleet_ships_each_order_once_while_processes_are_killed_stopped_and_drained() {
    let (hosts, session, folder) = world().await;
    let election = Election::new(&session, "/leader").expect("an election");
    let candidates = async || {
        let candidates = election.contenders().await.expect("listed").into_iter();
        candidates.map(|candidate| candidate.identifier_lossy().into_owned()).collect::<Vec<_>>()
    };
    let members = async || session.children_of("/members").await.expect("listed");
    let is_gone = async |service: &Service| !candidates().await.contains(&service.address);
    let mut fleet = Vec::new();
    for _ in 0..3 {
        fleet.push(Service::start(&hosts, folder.path()).await);
    }
    until("all stand for election", async || candidates().await.len() == 3).await;

    let addresses = fleet.iter().map(|service| service.address.clone()).collect();
    let shop = Arc::new(Shop { addresses, closes: AtomicBool::default(), shipped: Default::default() });
    let (send, mut receive) = unbounded_channel();
    let customers: Vec<_> =
        (0..CUSTOMERS).map(|name| tokio::spawn(shop.clone().customer(name, send.clone()))).collect();
    drop(send);

    shop.ships_more().await;
    let killed = take_leader(&mut fleet).await;
    killed.signal(Signal::KILL);
    until("its session has expired", async || is_gone(&killed).await).await;
    shop.ships_more().await;
    let paused = take_leader(&mut fleet).await;
    // Not within a transaction: without a server to end it, SQLite keeps all others waiting for the stopped process.
    let database = Connection::open(folder.path().join("orders")).expect("a database");
    database.busy_timeout(Duration::from_millis(300)).expect("set");
    until("it is stopped outside a transaction", async || {
        paused.stop();
        let is_outside = database.execute_batch("BEGIN IMMEDIATE; ROLLBACK").is_ok();
        if !is_outside {
            paused.signal(Signal::CONT);
        }
        is_outside
    })
    .await;
    until("its session has expired", async || is_gone(&paused).await).await;
    assert_eq!(members().await.len(), 1, "the stopped process is a member");
    shop.ships_more().await;
    paused.signal(Signal::CONT);
    until("it stands again", async || !is_gone(&paused).await).await;
    until("it is a member again", async || members().await.len() == 2).await;
    shop.ships_more().await;
    let drained = take_leader(&mut fleet).await;
    assert!(drained.terminate().await.success());
    paused.serves("/leads", 200).await;
    shop.ships_more().await;
    shop.closes.store(true, Ordering::Relaxed);
    for customer in customers {
        timeout(PATIENCE, customer).await.expect("in time").expect("served");
    }

    let mut answers = BTreeMap::<_, usize>::new();
    while let Some((status, body)) = timeout(PATIENCE, receive.recv()).await.expect("all have ended in time") {
        assert!([200, 409, 423, 503].contains(&status), "{status} {body}");
        *answers.entry((status, body)).or_default() += 1;
    }
    let count = |what: &str| {
        let count = |row: &rusqlite::Row<'_>| row.get::<_, usize>(0);
        database.query_row(&format!("SELECT {what}"), [], count).expect("a number")
    };
    let shipped = count("COUNT(*) FROM shipments");
    eprintln!("{shipped} shipments; {answers:#?}");
    assert_eq!(count("COUNT(DISTINCT id) FROM shipments"), shipped, "an order was shipped twice");
    assert_eq!(count("COUNT(*) FROM orders"), shipped, "an order was not shipped");
    assert!(answers.keys().any(|(status, _)| *status == 423), "no two requests met");
    until("the last leader reports", async || count("IFNULL(SUM(shipped), 0) FROM report") == shipped).await;

    assert!(paused.terminate().await.success());
    until("no node is left", async || {
        let mut nodes = candidates().await.len();
        for path in session.children_of("/orders").await.expect("listed") {
            nodes += Mutex::new(&session, &path).expect("a lock").contenders().await.expect("listed").len();
        }
        nodes == 0
    })
    .await;
    session.close().await.expect("closed");
}

#[tokio::test]
async fn request_in_flight_is_answered_after_sigterm() {
    let (hosts, session, folder) = world().await;
    let service = Service::start(&hosts, folder.path()).await;
    service.serves("/ready", 200).await;
    assert_eq!(ask(&service.address, "PUT", "/orders/7").await.expect("answered").0, 200);
    // Its store keeps the request waiting, for at most a second.
    let database = Connection::open(folder.path().join("orders")).expect("a database");
    database.execute_batch("BEGIN EXCLUSIVE").expect("locked");
    let address = service.address.clone();
    let waits = tokio::spawn(async move { ask(&address, "POST", "/orders/7/ship").await });
    let lock = Mutex::new(&session, "/orders/7").expect("a lock");
    until("it is at work", async || !lock.contenders().await.expect("listed").is_empty()).await;
    service.signal(Signal::TERM);
    service.serves("/ready", 0).await;
    database.execute_batch("ROLLBACK").expect("unlocked");
    assert!(service.terminate().await.success());
    let answer = waits.await.expect("no panic").expect("answered");
    assert!([200, 503].contains(&answer.0), "{answer:?}");
    assert_no_locks(&session).await;
    session.close().await.expect("closed");
}

/// No process is a contender any more. It is asked once: nothing is left to the end of a session.
async fn assert_no_locks(session: &Session) {
    let lock = Mutex::new(session, "/orders/7").expect("a lock");
    assert_eq!(lock.contenders().await.expect("listed"), [], "of the order");
    let election = Election::new(session, "/leader").expect("an election");
    assert_eq!(election.contenders().await.expect("listed"), [], "of the election");
}

#[tokio::test]
async fn lock_of_a_request_that_outlasts_the_drain_is_released_and_the_process_ends() {
    let (hosts, session, folder) = world().await;
    let service = Service::start_with(&hosts, folder.path(), &["--drain", "0.1"]).await;
    service.serves("/leads", 200).await;
    assert_eq!(ask(&service.address, "PUT", "/orders/7").await.expect("answered").0, 200);
    // Its store keeps the request waiting for a second, and it the lock.
    let database = Connection::open(folder.path().join("orders")).expect("a database");
    database.execute_batch("BEGIN EXCLUSIVE").expect("locked");
    let address = service.address.clone();
    let waits = tokio::spawn(async move { ask(&address, "POST", "/orders/7/ship").await });
    let lock = Mutex::new(&session, "/orders/7").expect("a lock");
    until("it is at work", async || !lock.contenders().await.expect("listed").is_empty()).await;
    assert!(service.terminate().await.success());
    assert_no_locks(&session).await;
    // It may be cut off with the process.
    if let Ok((status, body)) = waits.await.expect("no panic") {
        assert!([409, 503].contains(&status), "{status} {body}");
    }
    database.execute_batch("ROLLBACK").expect("unlocked");
    session.close().await.expect("closed");
}

#[tokio::test]
async fn requests_queued_while_the_leader_is_stopped_are_not_answered_leads() {
    let (hosts, session, folder) = world().await;
    let first = Service::start(&hosts, folder.path()).await;
    first.serves("/leads", 200).await;
    let second = Service::start(&hosts, folder.path()).await;
    second.serves("/ready", 200).await;
    let mut probes = Vec::new();
    for _ in 0..200 {
        probes.push(TcpStream::connect(&first.address).await.expect("connected"));
    }

    first.stop();
    for probe in &mut probes {
        send(probe, "GET", "/leads").await.expect("sent");
    }
    second.serves("/leads", 200).await;
    let leader = ask(&second.address, "GET", "/leader").await.expect("answered");
    assert!(leader.1.contains(&second.address), "{leader:?}");
    first.signal(Signal::CONT);
    let mut wrong = 0;
    for probe in &mut probes {
        let (status, body) = timeout(PATIENCE, receive(probe)).await.expect("in time").expect("answered");
        wrong += usize::from(body == "leads\n");
        assert!([200, 503].contains(&status), "{status} {body}");
    }
    assert_eq!(ask(&second.address, "GET", "/leader").await.expect("answered"), leader, "the second leads on");
    assert_eq!(wrong, 0, "answers of 200 that claim a leadership that another has");
    session.close().await.expect("closed");
}
