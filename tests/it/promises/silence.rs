//! How long a hold survives without an answer from the servers, and how soon its trust is back.
//!
//! `TRUST_CUTS=60 zk-docker/run cargo test --test it silence:: -- --nocapture --test-threads 1` prints how many locks
//! were lost. By default a few cuts show that none is.

#[cfg(not(virtual_time))]
mod election;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use testbed::proxy::Proxy;
use testbed::{Server, next_look};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::unbounded_channel;
use uuid::Uuid;
use zookeeper_recipes::{HoldState, Mutex, MutexGuard, Servers, Session};

use crate::support::{ROUND_TRIP, at_most, connect_for, exact_or, hosts, pass, soon};

const T: Duration = Duration::from_secs(6);

/// How many holds meet each kind of cut, where the tables are wanted: in virtual time, too, where they cost nothing.
fn wanted() -> Option<usize> {
    let cuts = std::env::var("TRUST_CUTS").ok().map(|cuts| cuts.parse().expect("a number of cuts"));
    cuts.or(exact_or(Some(12), None))
}

/// A session with a hold.
struct Holder {
    session: Session,
    id: String,
    guard: MutexGuard,
}

impl Holder {
    async fn new(hosts: &str, timeout: Duration) -> Self {
        let session = connect_for(hosts, timeout).await;
        let mutex = Mutex::new(&session, &format!("/it-{}/lock", Uuid::new_v4().simple())).expect("a mutex");
        let guard = mutex.lock().await.expect("free");
        Self { id: format!("{:?}", session.id()), session, guard }
    }

    fn is_lost(&self) -> bool {
        matches!(self.guard.state(), HoldState::Lost(_))
    }

    /// Whether its session has ended as well.
    fn has_ended(&self) -> bool {
        format!("{:?}", self.session.id()) != self.id
    }
}

/// Holders behind a proxy, each in a session of its own, which renew their trust at different moments.
async fn holders(proxy: &Proxy, timeout: Duration, count: usize) -> Vec<Holder> {
    let (mut random, hosts) = (fastrand::Rng::with_seed(44), proxy.hosts());
    let holders = (0..count).map(|_| {
        let (moment, hosts) = (timeout.mul_f64(random.f64()), &hosts);
        async move {
            pass(moment).await;
            Holder::new(hosts, timeout).await
        }
    });
    let holders = join_all(holders).await;
    // The creation of a session is trusted for longer than a renewal.
    pass(timeout.mul_f64(1.2)).await;
    holders
}

#[derive(Clone, Copy, Debug)]
enum Cut {
    /// Nothing comes through, and then the connection is closed.
    Silent,
    /// Connections are closed, and new ones refused.
    Refused,
}

impl Cut {
    fn begin(self, proxy: &Proxy) {
        match self {
            Self::Silent => proxy.black_hole(),
            Self::Refused => proxy.refuse(),
        }
    }
}

/// What became of the holds of one kind of cut.
#[derive(Debug, Default)]
struct Outcome {
    lost: usize,
    ended: usize,
    /// How long the holds had no connection, from the beginning of the cut.
    silent: Vec<Duration>,
    /// From the reconnect until trust is back, but for the silence and an eighth of the timeout.
    back: Vec<Option<Duration>>,
}

/// Follows a holder from the end of a cut. Nothing looks at it during the cut, as in a program that is busy.
async fn follow(holder: &Holder, began: Instant, timeout: Duration, outcome: &mut Outcome) {
    let mut connected = None;
    let healed = Instant::now();
    let mut beat = tokio::time::interval(Duration::from_millis(2));
    while healed.elapsed() < timeout {
        beat.tick().await;
        if holder.is_lost() {
            outcome.lost += 1;
            outcome.ended += usize::from(holder.has_ended());
            return;
        }
        if connected.is_none() && holder.session.state().is_connected() {
            connected = Some(Instant::now());
        }
        let Some(connected) = connected else { continue };
        let silent = connected.duration_since(began);
        if holder.guard.valid_for() + connected.elapsed() + silent + timeout / 8 >= timeout {
            outcome.silent.push(silent);
            return outcome.back.push(Some(connected.elapsed()));
        }
    }
    outcome.back.push(None);
}

async fn cut(kind: Cut, timeout: Duration, length: Duration, count: usize) -> Outcome {
    let hosts = hosts();
    let proxy = Proxy::start(hosts.split(',').next().expect("a host")).await.expect("a proxy");
    let holders = holders(&proxy, timeout, count).await;
    let began = Instant::now();
    kind.begin(&proxy);
    pass(length).await;
    proxy.heal();
    let outcomes = holders.iter().map(|holder| async {
        let mut outcome = Outcome::default();
        follow(holder, began, timeout, &mut outcome).await;
        outcome
    });
    join_all(outcomes).await.into_iter().fold(Outcome::default(), |mut all, one| {
        (all.lost, all.ended) = (all.lost + one.lost, all.ended + one.ended);
        all.silent.extend(one.silent);
        all.back.extend(one.back);
        all
    })
}

fn millis(times: impl Iterator<Item = Duration>) -> String {
    let mut times: Vec<_> = times.map(|time| time.as_millis()).collect();
    times.sort_unstable();
    match times.as_slice() {
        [] => "-".to_owned(),
        times => format!("{} / {}", times[times.len() / 2], times[times.len() - 1]),
    }
}

fn report(kind: Cut, timeout: Duration, length: Duration, count: usize, outcome: &Outcome) {
    let Outcome { lost, ended, silent, back } = outcome;
    let never = back.iter().filter(|one| one.is_none()).count();
    println!(
        "| {} s | {:.1} s, {kind:?} | {lost} of {count}, {ended} sessions ended | {} | {}{} |",
        timeout.as_secs(),
        length.as_secs_f64(),
        millis(silent.iter().copied()),
        millis(back.iter().flatten().copied()),
        if never > 0 { format!(", {never} not within T") } else { String::new() }
    );
}

#[cfg(feature = "scenes")]
#[tokio::test(flavor = "multi_thread")]
async fn hold_survives_a_cut_of_a_second() {
    let length = Duration::from_secs(1);
    let Some(count) = wanted() else {
        let outcome = cut(Cut::Silent, T, length, 12).await;
        report(Cut::Silent, T, length, 12, &outcome);
        assert_eq!(outcome.lost, 0, "{outcome:?}");
        return;
    };
    println!("| T | cut | holds lost | silent, ms, median / most | trust back after the reconnect, ms |");
    let mut rows = Vec::new();
    for (kind, length) in [
        (Cut::Silent, 300),
        (Cut::Silent, 1_000),
        (Cut::Silent, 2_000),
        (Cut::Refused, 1_000),
        (Cut::Refused, 2_000),
    ] {
        let length = Duration::from_millis(length);
        for (timeout, outcome) in
            join_all([T, 2 * T].map(|timeout| async move { (timeout, cut(kind, timeout, length, count).await) }))
                .await
        {
            report(kind, timeout, length, count, &outcome);
            rows.push((kind, timeout, length, outcome));
        }
    }
    for (kind, timeout, length, outcome) in &rows {
        if matches!(kind, Cut::Silent) && *length <= Duration::from_secs(1) {
            assert_eq!(outcome.lost, 0, "{timeout:?}, {length:?}");
            let late = outcome.back.iter().filter(|back| back.is_none_or(|back| back > *timeout / 8)).count();
            assert_eq!(late, 0, "{timeout:?}, {length:?}: trust is back late, {:?}", outcome.back);
        }
    }
}

/// Each is over before the trust of the hold is, but not much earlier.
#[cfg(feature = "scenes")]
#[tokio::test(flavor = "multi_thread")]
async fn hold_survives_cuts_that_repeat() {
    let (count, cuts) = wanted().map_or((4, 5), |count| (count, 19));
    let hosts = hosts();
    // After a refusal the client pauses, so the hold has half a second left of the shorter one. A busy machine needs more.
    let refused = if wanted().is_some() { T } else { 2 * T };
    let lost = join_all([(Cut::Silent, T), (Cut::Refused, refused)].map(|(kind, timeout)| {
        let hosts = hosts.clone();
        async move {
            let proxy = Proxy::start(hosts.split(',').next().expect("a host")).await.expect("a proxy");
            let holders = holders(&proxy, timeout, count).await;
            for _ in 0..cuts {
                kind.begin(&proxy);
                pass(Duration::from_secs(1)).await;
                proxy.heal();
                pass(Duration::from_millis(2_200)).await;
            }
            let lost = holders.iter().filter(|holder| holder.is_lost()).count();
            let ended = holders.iter().filter(|holder| holder.has_ended()).count();
            println!("{cuts} cuts of 1 s each 3.2 s, {kind:?}, T = {timeout:?}: {lost} of {count} lost, {ended} sessions ended");
            lost
        }
    }));
    assert_eq!(lost.await, [0, 0]);
}

/// What happens to the host that a holder is connected to.
#[derive(Clone, Copy, Debug)]
enum Own {
    /// Its connection is closed once.
    Cut,
    /// It hangs as well.
    Hangs,
}

/// How many holds are lost if some of the hosts accept connections and never answer, as a server that is stopped or frozen.
async fn lost_by_hung_hosts(own: Own, hung: usize, of: usize, count: usize) -> usize {
    let mut random = fastrand::Rng::with_seed(45);
    let holds = (0..count).map(|_| {
        let moment = T.mul_f64(random.f64());
        async move {
            let server = hosts();
            let server = server.split(',').next().expect("a host");
            let proxies = join_all((0..of).map(|_| Proxy::start(server))).await;
            let proxies: Vec<_> = proxies.into_iter().map(|proxy| proxy.expect("a proxy")).collect();
            let list = proxies.iter().map(Proxy::hosts).collect::<Vec<_>>().join(",");
            let holder = Holder::new(&list, T).await;
            pass(T.mul_f64(1.2) + moment).await;
            let (its, others): (Vec<_>, Vec<_>) = proxies.iter().partition(|proxy| proxy.connections() > 0);
            others.iter().take(hung).for_each(|proxy| proxy.black_hole());
            its.iter().for_each(|proxy| match own {
                Own::Cut => proxy.cut_now(),
                Own::Hangs => proxy.black_hole(),
            });
            pass(T).await;
            holder.is_lost()
        }
    });
    join_all(holds).await.into_iter().filter(|is_lost| *is_lost).count()
}

/// The client tries one host after another. So the time that it gives to each decides how many may hang.
#[cfg(feature = "scenes")]
#[tokio::test(flavor = "multi_thread")]
async fn hold_survives_hosts_that_accept_connections_and_never_answer() {
    let count = wanted().unwrap_or(12);
    let cases = [(Own::Cut, 1, 3), (Own::Cut, 2, 5), (Own::Hangs, 0, 3), (Own::Hangs, 1, 5)];
    let mut rows = Vec::new();
    for (own, hung, of) in cases {
        let lost = lost_by_hung_hosts(own, hung, of, count).await;
        println!("| {own:?}, and {hung} of {of} hosts hang | {lost} of {count} lost |");
        rows.push(lost);
    }
    assert_eq!(rows[..3], [0, 0, 0], "{rows:?}");
}

/// Forwards to a server, whose every answer is late, also the first of a connection. Returns its address, and the number of
/// connections so far.
async fn late_server(server: String, by: Duration) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let connections = Arc::<AtomicUsize>::default();
    let count = connections.clone();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::Relaxed);
            let Ok(upstream) = TcpStream::connect(&server).await else { return };
            let (mut requests, mut to_client) = client.into_split();
            let (mut answers, mut to_server) = upstream.into_split();
            tokio::spawn(async move { tokio::io::copy(&mut requests, &mut to_server).await });
            let (send, mut late) = unbounded_channel();
            tokio::spawn(async move {
                let mut buffer = [0; 4096];
                while let Ok(length @ 1..) = answers.read(&mut buffer).await {
                    let _ = send.send((Instant::now() + by, buffer[..length].to_vec()));
                }
            });
            tokio::spawn(async move {
                while let Some((at, answer)) = late.recv().await {
                    pass(at.saturating_duration_since(Instant::now())).await;
                    if to_client.write_all(&answer).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, connections)
}

/// The time that the client gives to a host is long enough for servers that barely serve a hold.
#[cfg(feature = "scenes")]
#[tokio::test]
async fn session_and_its_hold_survive_servers_whose_answers_are_late() {
    let server = hosts();
    for part in [10, 8, 7, 6, 5, 4] {
        let (late, connections) =
            late_server(server.split(',').next().expect("a host").to_owned(), T / part).await;
        let servers = Servers::new(&late).with_session_timeout(T);
        let row = match Session::connect(servers).await {
            Ok(session) => {
                let mutex =
                    Mutex::new(&session, &format!("/it-{}/lock", Uuid::new_v4().simple())).expect("a mutex");
                let guard = mutex.lock().await.expect("free");
                pass(3 * T).await;
                format!("{:?}", guard.state())
            }
            Err(error) => error.kind().to_string(),
        };
        println!("| each answer T/{part} late | {row}, {} connections |", connections.load(Ordering::Relaxed));
        assert!(row == "Held" || part < 8, "T/{part}: {row}");
    }
}

#[cfg(feature = "scenes")]
#[tokio::test(flavor = "multi_thread")]
async fn trust_stays_above_a_third_of_the_timeout_while_servers_answer() {
    // With the longer one, a busy machine may answer more than a second late.
    let (timeouts, rounds, wanted_least) =
        if wanted().is_some() { (vec![T, 2 * T], 5.0, 0.38) } else { (vec![3 * T], 1.0, 0.33) };
    for least in join_all(timeouts.into_iter().map(|timeout| least_trust(timeout, rounds))).await {
        assert!(least >= wanted_least, "{least:.3} T");
    }
}

async fn least_trust(timeout: Duration, rounds: f64) -> f64 {
    let holder = Holder::new(&hosts(), timeout).await;
    pass(timeout.mul_f64(1.2)).await;
    let (began, mut least) = (Instant::now(), timeout);
    let mut beat = tokio::time::interval(Duration::from_millis(5));
    while began.elapsed() < timeout.mul_f64(rounds) {
        beat.tick().await;
        least = least.min(holder.guard.valid_for());
    }
    let least = least.as_secs_f64() / timeout.as_secs_f64();
    println!("least trust at T = {timeout:?}: {least:.3} T");
    least
}

/// A session that has waited or done nothing has let its trust lapse. After an election it is the same: see `election`.
#[cfg(feature = "scenes")]
#[tokio::test]
async fn free_lock_is_granted_a_third_of_the_timeout_after_an_outage_at_the_latest() {
    for timeout in [T, 2 * T] {
        let mut server = Server::start().await.expect("a server");
        let session = connect_for(&server.hosts(), timeout).await;
        let mutex = Mutex::new(&session, "/outage/lock").expect("a mutex");
        pass(timeout * 9 / 8).await;
        server.kill();
        let granted = tokio::spawn(async move { mutex.lock().await.map(|guard| (Instant::now(), guard)) });
        pass(Duration::from_secs(2)).await;
        server.restart().await.expect("a server");
        let connected = async {
            while !session.state().is_connected() {
                next_look().await;
            }
            Instant::now()
        };
        let connected = soon("a connection", connected).await;
        let (granted, _guard) = soon("the lock", granted).await.expect("no panic").expect("free");
        let late = granted.saturating_duration_since(connected);
        println!("T = {timeout:?}: granted {late:.2?} after the connection");
        // Of the pair of answers, the first is to a request that is sent again after a pause of 20 ms.
        let most = timeout / 3 + Duration::from_millis(20) + ROUND_TRIP;
        assert!(late <= at_most(most), "{late:?} of {timeout:?}");
    }
}
