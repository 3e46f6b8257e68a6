//! The faults of one round. They come in streams that overlap: one for each session, one of servers, one of the operator.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use fastrand::Rng;
use futures_util::future::try_join_all;
use futures_util::future::try_join3;
use testbed::Ensemble;
use testbed::history::{Journal, now};
use testbed::nemesis::{Kind, Struck};
use testbed::proxy::{Closing, Cut, Proxy, Verdict};
use tokio::time::{sleep, timeout};
use zookeeper_recipes::{Mutex, Session};

use super::peer::{Habit, Peer};
use super::{Result, SESSION, objects};
use crate::line::{Mark, What};
use crate::operator::Deletion;
use crate::workload::path;

/// How long a deletion by hand may take.
const PATIENCE: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(2);

/// The faults until an instant.
pub(super) struct Storm {
    pub(super) hosts: String,
    pub(super) journal: Journal,
    pub(super) ends: Instant,
}

impl Storm {
    /// Carries out faults. When it returns all are over, but a server may still be joining the others.
    pub(super) async fn rage(
        &self,
        ensemble: &mut Ensemble,
        peers: &[Peer],
        operator: &Session,
        random: &mut Rng,
    ) -> Result<()> {
        let sessions = peers.iter().map(|peer| self.disturb(peer, random.fork())).collect::<Vec<_>>();
        let (servers, nodes) = (random.fork(), random.fork());
        try_join3(try_join_all(sessions), self.servers(ensemble, servers), self.operator(operator, nodes)).await?;
        Ok(())
    }

    /// A random part of this many session timeouts, but not beyond the end.
    fn some(&self, random: &mut Rng, timeouts: f64) -> Duration {
        SESSION.mul_f64(timeouts * random.f64()).min(self.ends.saturating_duration_since(Instant::now()))
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.ends
    }

    fn over(&self, kind: Kind, target: &str, client: Option<&str>, begin: u64) -> Result<()> {
        let clients = client.map(str::to_owned).into_iter().collect();
        Ok(self.journal.write(&Struck::new(kind, target, clients, begin))?)
    }

    /// Faults of one session: of its connections and of its thread.
    async fn disturb(&self, peer: &Peer, mut random: Rng) -> Result<()> {
        let is_idle = peer.habit != Habit::Busy;
        let record = peer.record.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some((name, _)) = record else { return Ok(()) };
        loop {
            // An idle session is left alone for longer, or it would never be idle.
            sleep(self.some(&mut random, if is_idle { 0.5 } else { 0.8 })).await;
            if self.is_over() {
                return Ok(());
            }
            let begin = now();
            let closing = if random.bool() { Closing::Fin } else { Closing::Reset };
            peer.proxies.iter().for_each(|proxy| proxy.close_by(closing));
            let kind = match random.u8(0..if is_idle { 24 } else { 14 }) {
                0..3 => {
                    peer.proxies.iter().for_each(Proxy::cut_now);
                    Kind::Flapping
                }
                3..5 => {
                    peer.proxies.iter().for_each(Proxy::refuse);
                    self.outage(peer, &mut random, 1.2).await;
                    Kind::ClientPartition
                }
                5..7 => {
                    peer.proxies.iter().for_each(Proxy::black_hole);
                    self.outage(peer, &mut random, 1.2).await;
                    Kind::ClientPartition
                }
                7..9 => {
                    let by = self.some(&mut random, 0.1);
                    peer.proxies.iter().for_each(|proxy| proxy.hold_answers(by));
                    self.outage(peer, &mut random, 0.5).await;
                    peer.proxies.iter().for_each(|proxy| proxy.hold_answers(Duration::ZERO));
                    Kind::ClientPartition
                }
                9..11 => {
                    let longest = if random.bool() { 0.1 } else { 1.3 };
                    let time = self.some(&mut random, longest);
                    peer.stall(time);
                    self.maybe_delete(peer, &mut random).await;
                    sleep(time.min(self.ends.saturating_duration_since(Instant::now()))).await;
                    if time > SESSION { Kind::LongClientPause } else { Kind::ClientPause }
                }
                _ => {
                    self.cut_at_a_frame(peer, &mut random).await;
                    Kind::ClientPartition
                }
            };
            peer.proxies.iter().for_each(Proxy::heal);
            self.over(kind, &name, Some(&name), begin)?;
        }
    }

    /// Waits for a part of this many timeouts, in which its nodes may be deleted by hand.
    async fn outage(&self, peer: &Peer, random: &mut Rng, timeouts: f64) {
        let time = self.some(random, timeouts);
        let ends = Instant::now() + time;
        sleep(time.mul_f64(random.f64() / 2.0)).await;
        self.maybe_delete(peer, random).await;
        sleep(ends.saturating_duration_since(Instant::now())).await;
    }

    /// Closes the connection at a frame, and refuses others for a moment, in which its nodes may be deleted by hand. The thread
    /// may stand still meanwhile, so that it finds the answers and the end of the connection at once.
    async fn cut_at_a_frame(&self, peer: &Peer, random: &mut Rng) {
        let at = random.usize(1..5);
        let cut = match random.u8(0..6) {
            0 => Cut::BeforeRequest(at),
            1 => Cut::AfterRequest(at),
            2 => Cut::BeforeAnswer(at),
            _ => Cut::AfterAnswer(at),
        };
        let stands_still = random.u8(0..3) > 0;
        let still = Duration::from_millis(random.u64(20..120));
        for proxy in &*peer.proxies {
            proxy.reset();
            proxy.cut(cut);
            if stands_still {
                let stall = peer.staller();
                let last = random.usize(1..=at);
                proxy.on_request(move |request| {
                    if request.number == last {
                        stall(still);
                    }
                    Verdict::Forward
                });
            }
        }
        let fired = async {
            while !peer.proxies.iter().any(Proxy::cut_fired) {
                sleep(POLL).await;
            }
        };
        let limit = self.some(random, if peer.habit != Habit::Busy { 3.0 } else { 0.5 });
        let has_fired = timeout(limit, fired).await.is_ok();
        for proxy in &*peer.proxies {
            proxy.on_request(|_| Verdict::Forward);
            if has_fired {
                proxy.refuse();
            }
        }
        if has_fired {
            self.outage(peer, random, 0.2).await;
        }
    }

    async fn maybe_delete(&self, peer: &Peer, random: &mut Rng) {
        if random.u8(0..4) > 0 {
            let all: Vec<_> = objects().map(path).collect();
            let deletion = self.deletion(String::new(), random);
            // Without servers nothing is deleted, which is no fault of anybody.
            let _ = timeout(PATIENCE, deletion.delete_nodes_of(peer.present().0, &all)).await;
        }
    }

    fn deletion(&self, path: String, random: &mut Rng) -> Deletion {
        Deletion { hosts: self.hosts.clone(), journal: self.journal.clone(), path, random: random.fork() }
    }

    /// Kills and pauses servers, one at a time.
    async fn servers(&self, ensemble: &mut Ensemble, mut random: Rng) -> Result<()> {
        loop {
            sleep(self.some(&mut random, 1.5)).await;
            if self.is_over() {
                return Ok(());
            }
            let begin = now();
            let leaders = ensemble.leaders_within(Duration::from_millis(250)).await;
            let (i, dies) = (random.usize(0..ensemble.len()), random.bool());
            if dies {
                ensemble.server_mut(i).kill()
            } else {
                ensemble.server(i).pause()
            }
            sleep(self.some(&mut random, 1.2)).await;
            if dies {
                ensemble.server_mut(i).restart().await?
            } else {
                ensemble.server(i).resume()
            }
            let kind = match dies {
                true if leaders.contains(&i) => Kind::LeaderKill,
                true => Kind::FollowerKill,
                false => Kind::ServerPause,
            };
            self.over(kind, &format!("server {i}"), None, begin)?;
        }
    }

    /// Deletes nodes of holders and of waiters, and breaks locks.
    async fn operator(&self, operator: &Session, mut random: Rng) -> Result<()> {
        let objects: Vec<_> = objects().collect();
        loop {
            sleep(self.some(&mut random, 0.2)).await;
            if self.is_over() {
                return Ok(());
            }
            let object = random.choice(&objects).expect("there are locks");
            // Unreachable servers and vanishing nodes are expected.
            if random.u8(0..3) > 0 {
                let _ = timeout(PATIENCE, self.deletion(path(object), &mut random).delete_node()).await;
            } else {
                let mutexes = ["mutex", "fleeting", "again", "election", "quiet"];
                let lock = path(random.choice(mutexes).expect("there are some"));
                let _ = timeout(PATIENCE, self.break_lock(operator, &lock, &mut random)).await;
            }
        }
    }

    async fn break_lock(&self, operator: &Session, path: &str, random: &mut Rng) -> Result<()> {
        let mutex = Mutex::new(operator, path)?;
        let all = mutex.contenders().await?;
        let Some(first) = all.first() else { return Ok(()) };
        let one = if random.bool() { first } else { random.choice(&all).unwrap_or(first) };
        let (node, token, at) = (format!("{}/{}", one.path(), one.name()), one.token().get(), now());
        let write = |what| self.journal.write(&Mark { at, process: "operator".into(), what });
        write(What::Deleting { node: node.clone(), token })?;
        let result = match mutex.break_lock(one).await {
            Ok(true) => "deleted".to_owned(),
            Ok(false) => "NoNode".to_owned(),
            Err(error) => format!("{error:?}"),
        };
        Ok(write(What::Deleted { node, token, result, done: Some(now()) })?)
    }
}
