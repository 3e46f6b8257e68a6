//! Redisson's locks, on real servers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lab::Outcome;
use lab::servers::redis::Redis;
use lab::servers::{Disk, Server as _, Setup};
use lab::site::Site;
use lab::ways::{Kind, LEASE, Place, find};
use tokio::time::timeout;
use zookeeper_recipes::{DistributedLock, LockGuard};

/// Much longer than a lock takes that is free, much shorter than the lease.
const SOON: Duration = Duration::from_millis(500);

async fn servers(number: usize) -> Outcome<(Vec<Redis>, Place)> {
    let mut servers = Vec::new();
    for _ in 0..number {
        servers.push(Redis::start(&Setup::default()).await?);
    }
    let mut place = Place::default();
    place.addresses = servers.iter().map(|server| server.address()).collect();
    place.lock = "a-lock".to_owned();
    Ok((servers, place))
}

async fn connect(way: &str, place: &Place) -> Outcome<Arc<dyn DistributedLock>> {
    (find(way)?.connect)(place.clone(), Default::default()).await
}

async fn lock(lock: &dyn DistributedLock, limit: Duration) -> Option<Box<dyn LockGuard>> {
    timeout(limit, lock.lock()).await.ok()?.ok()
}

const ALL: [(&str, usize); 3] = [("redisson-lock", 1), ("redis-watchdog", 1), ("redisson-multi", 3)];

#[tokio::test(flavor = "multi_thread")]
async fn live_owner_keeps_the_lock_past_its_lease() -> Outcome {
    for (way, number) in ALL {
        let (_servers, place) = servers(number).await?;
        let [one, other] = [connect(way, &place).await?, connect(way, &place).await?];
        let held = lock(&*one, SOON).await.expect(way);
        assert!(lock(&*other, LEASE * 2).await.is_none(), "{way}: a live owner keeps it");
        held.release().await?;
        assert!(lock(&*other, SOON).await.is_some(), "{way}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn waiter_is_woken_by_the_release() -> Outcome {
    for (way, number) in ALL {
        let (_servers, place) = servers(number).await?;
        let [one, other] = [connect(way, &place).await?, connect(way, &place).await?];
        let held = lock(&*one, SOON).await.expect(way);
        let waiting = tokio::spawn(async move { lock(&*other, LEASE).await.map(|_| Instant::now()) });
        // It waits by then: it would otherwise be granted the lock at once.
        assert!(lock(&*connect(way, &place).await?, SOON / 2).await.is_none(), "{way}");
        let released = Instant::now();
        held.release().await?;
        let granted = waiting.await?.expect(way);
        assert!(granted.duration_since(released) < SOON, "{way}: {:?}", granted.duration_since(released));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn last_of_its_releases_frees_a_lock() -> Outcome {
    for (way, number) in ALL {
        let (_servers, place) = servers(number).await?;
        let [one, other] = [connect(way, &place).await?, connect(way, &place).await?];
        let first = lock(&*one, SOON).await.expect(way);
        let second = lock(&*one, SOON).await.expect(way);
        second.release().await?;
        assert!(lock(&*other, SOON).await.is_none(), "{way}: it is still held once");
        first.release().await?;
        assert!(lock(&*other, LEASE).await.is_some(), "{way}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn live_owner_keeps_the_lock_over_a_restart() -> Outcome {
    for (way, number) in ALL {
        let mut setup = Setup::default();
        setup.durable = true;
        let mut server = Redis::start(&setup).await?;
        let (_others, mut place) = servers(number - 1).await?;
        place.addresses.insert(0, server.address());
        let one = connect(way, &place).await?;
        let held = lock(&*one, SOON).await.expect(way);
        server.kill();
        server.restart(Disk::Kept).await?;
        let other = connect(way, &place).await?;
        assert!(lock(&*other, LEASE * 2).await.is_none(), "{way}: the watchdog has connected again");
        held.release().await?;
        assert!(lock(&*other, LEASE).await.is_some(), "{way}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn multi_lock_waits_until_it_has_all_of_its_locks() -> Outcome {
    let (_servers, place) = servers(3).await?;
    let (all, of_first) = (connect("redisson-multi", &place).await?, connect_to(0, &place).await?);
    let held = lock(&*connect_to(2, &place).await?, SOON).await.expect("the third is free");
    let waiting = tokio::spawn(async move { lock(&*all, LEASE * 2).await });
    // It has the first while it waits for the third. Until then this contender may be faster.
    let has_first = async {
        while let Some(free) = lock(&*of_first, SOON).await {
            free.release().await?;
        }
        Outcome::Ok(())
    };
    timeout(LEASE, has_first).await??;
    assert!(!waiting.is_finished());
    held.release().await?;
    assert!(waiting.await?.is_some());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn multi_lock_releases_what_it_has_when_a_server_is_away() -> Outcome {
    let (mut servers, place) = servers(3).await?;
    let (all, of_first) = (connect("redisson-multi", &place).await?, connect_to(0, &place).await?);
    servers[2].kill();
    assert!(timeout(LEASE, all.lock()).await.is_ok_and(|locked| locked.is_err()));
    assert!(lock(&*of_first, SOON).await.is_some());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn outage_lasts_for_as_long_as_it_should() -> Outcome {
    let mut site = Site::start(Kind::Redis, &Setup::default()).await?;
    let away = site.restart(Disk::Kept, LEASE).await?;
    assert!(away >= LEASE, "{away:?}");
    let at_once = site.restart(Disk::Kept, Duration::ZERO).await?;
    assert!(at_once < away, "{at_once:?}");
    Ok(())
}

/// A plain lock on one of the servers.
async fn connect_to(number: usize, place: &Place) -> Outcome<Arc<dyn DistributedLock>> {
    let mut one = place.clone();
    one.addresses = vec![place.addresses[number]];
    connect("redisson-lock", &one).await
}
