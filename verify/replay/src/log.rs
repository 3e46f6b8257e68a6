//! The transaction logs of the servers: the order in which they have done what was asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;

use zookeeper_simulation::{Acl, Identity, Write};

/// A transaction, and who has asked for it.
#[derive(Clone, Debug)]
pub(crate) struct Transaction {
    pub(crate) session: i64,
    /// The number of its request.
    pub(crate) xid: i32,
    pub(crate) zxid: i64,
    /// In milliseconds.
    pub(crate) time: u64,
    pub(crate) what: What,
}

#[derive(Clone, Debug)]
pub(crate) enum What {
    /// With its timeout, in milliseconds.
    CreateSession(u64),
    CloseSession,
    /// It was refused, with this code.
    Error(i32),
    Writes(Vec<Write>),
}

/// The rest of a file, in the format of records: big-endian numbers, and buffers that begin with their length.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn int(&mut self) -> Option<i32> {
        Some(i32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    fn long(&mut self) -> Option<i64> {
        Some(i64::from_be_bytes(self.take(8)?.try_into().ok()?))
    }

    fn buffer(&mut self) -> Option<&'a [u8]> {
        let length = self.int()?;
        self.take(usize::try_from(length.max(0)).ok()?)
    }

    fn string(&mut self) -> Option<String> {
        String::from_utf8(self.buffer()?.to_vec()).ok()
    }

    fn acls(&mut self) -> Option<Vec<Acl>> {
        let count = self.int()?.max(0);
        (0..count).map(|_| Some(Acl::new(self.int()?, Identity::new(self.string()?, self.string()?)))).collect()
    }

    /// The next entry of a log: a checksum, its bytes, and a mark.
    fn entry(&mut self) -> Option<&'a [u8]> {
        let _checksum = self.long()?;
        let entry = self.buffer()?;
        (self.take(1)? == b"B").then_some(entry)
    }

    fn transaction(&mut self) -> Option<Transaction> {
        let (session, xid, zxid, time) = (self.long()?, self.int()?, self.long()?, self.long()?);
        let code = self.int()?;
        let what = match code {
            -10 => What::CreateSession(u64::try_from(self.int()?).ok()?),
            -11 => What::CloseSession,
            _ => self.writes(code)?.map_or_else(What::Error, What::Writes),
        };
        Some(Transaction { session, xid, zxid, time: u64::try_from(time).ok()?, what })
    }

    /// The writes of a transaction with this code, or with which code it was refused.
    fn writes(&mut self, code: i32) -> Option<Result<Vec<Write>, i32>> {
        const ANY: i32 = -1;
        const CONTAINER: i32 = 4;
        let write = match code {
            -1 => return Some(Err(self.int()?)),
            14 => {
                let count = self.int()?;
                let mut writes = Vec::new();
                for _ in 0..count {
                    let (code, bytes) = (self.int()?, self.buffer()?);
                    // A server that answers before its own log is written marks all parts of a refused transaction as refused,
                    // in the object that it then writes (`DataTree.processTxn`). Such a part still has the body of a write.
                    if code == -1 && bytes.len() != 4 {
                        continue;
                    }
                    match Rest(bytes).writes(code)? {
                        Ok(more) => writes.extend(more),
                        Err(code) => return Some(Err(code)),
                    }
                }
                return Some(Ok(writes));
            }
            1 | 15 | 19 => {
                let (path, data, acl) = (self.string()?, self.buffer()?.to_vec(), self.acls()?);
                let flags = if code == 19 { CONTAINER } else { i32::from(*self.take(1)?.first()?) };
                Write::Create { path, data, acl, flags, with_stat: false }
            }
            2 | 20 => Write::Delete { path: self.string()?, version: ANY },
            5 => Write::SetData { path: self.string()?, data: self.buffer()?.to_vec(), version: ANY },
            7 => Write::SetAcl { path: self.string()?, acl: self.acls()?, version: ANY },
            13 => Write::Check { path: self.string()?, version: ANY },
            _ => return None,
        };
        Some(Ok(vec![write]))
    }
}

/// Reads a file. `None` if it has another format.
fn read(bytes: &[u8]) -> Option<BTreeMap<i64, Transaction>> {
    let mut rest = Rest(bytes);
    if rest.take(4)? != b"ZKLG" {
        return None;
    }
    let (_version, _database) = (rest.int()?, rest.long()?);
    let mut all = BTreeMap::new();
    // The last entry may be incomplete, if its server was killed.
    while let Some(entry) = rest.entry() {
        let transaction = Rest(entry).transaction()?;
        all.insert(transaction.zxid, transaction);
    }
    Some(all)
}

/// What the servers have done.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// In their order. One that a majority does not have, in a log or a snapshot, was not done.
    pub(crate) transactions: Vec<Transaction>,
    /// The first transaction that a server has lost, and which: it has neither logged it, nor made a snapshot that has it, and has
    /// gone on. ZOOKEEPER-4394, -4646, -4785 and others are such faults.
    pub(crate) lost: Option<(i64, String)>,
}

/// A server: its log, and the last transactions of its snapshots.
#[derive(Debug, Default)]
struct Server {
    log: BTreeMap<i64, Transaction>,
    snapshots: BTreeSet<i64>,
}

impl Server {
    /// Whether it has the transaction: in its log, or in a snapshot, which a server may get from its leader in place of a log. Only
    /// a snapshot of the same epoch shows it: the servers of a later one may have gone on without the transaction.
    fn has(&self, zxid: i64) -> bool {
        self.log.contains_key(&zxid) || self.snapshots.range(zxid..=zxid | i64::from(u32::MAX)).next().is_some()
    }

    /// The first transaction that it has lost.
    fn lost(&self, all: &[Transaction]) -> Option<i64> {
        let is_there = |one: &Transaction| self.log.contains_key(&one.zxid);
        let mut rest = all;
        while let Some(first) = rest.iter().position(|one| !is_there(one)) {
            let missing = &rest[first..];
            // What is missing at the end may still come.
            let next = missing.iter().position(is_there)?;
            let (begin, last, after) = (missing[0].zxid, missing[next - 1].zxid, missing[next].zxid);
            if self.snapshots.range(last..=after).next().is_none() {
                return Some(begin);
            }
            rest = &missing[next..];
        }
        None
    }
}

/// Reads the logs of all servers, and the names of their snapshots.
pub(crate) fn history<'a>(files: impl Iterator<Item = &'a Path>) -> io::Result<History> {
    let mut servers = BTreeMap::<String, Server>::new();
    for file in files {
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, format!("{name} is no transaction log"));
        let mut parts = name.split('.');
        let server = servers.entry(parts.next().unwrap_or_default().to_owned()).or_default();
        match (parts.next(), parts.next().and_then(|zxid| i64::from_str_radix(zxid, 16).ok())) {
            (Some("log"), _) => server.log.extend(read(&fs::read(file)?).ok_or_else(wrong)?),
            (Some("snapshot"), Some(zxid)) => drop(server.snapshots.insert(zxid)),
            _ => return Err(wrong()),
        }
    }
    Ok(merged(&servers))
}

fn merged(servers: &BTreeMap<String, Server>) -> History {
    let majority = servers.len() / 2 + 1;
    let all: BTreeMap<i64, &Transaction> = servers
        .values()
        .flat_map(|server| server.log.iter().map(|(zxid, transaction)| (*zxid, transaction)))
        .collect();
    let is_done = |zxid: i64| servers.values().filter(|server| server.has(zxid)).count() >= majority;
    let transactions: Vec<Transaction> =
        all.into_iter().filter(|(zxid, _)| is_done(*zxid)).map(|(_, transaction)| transaction.clone()).collect();
    let lost = servers.iter().filter_map(|(name, server)| Some((server.lost(&transactions)?, name.clone()))).min();
    History { transactions, lost }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(code: i32, body: &[u8]) -> Vec<u8> {
        let mut record = Vec::new();
        record.extend(7_i64.to_be_bytes());
        record.extend(3_i32.to_be_bytes());
        record.extend([5_i64, 9].map(i64::to_be_bytes).concat());
        record.extend(code.to_be_bytes());
        record.extend(body);
        let length = i32::try_from(record.len()).expect("it is short");
        [&[0; 8][..], &length.to_be_bytes(), &record, b"B"].concat()
    }

    #[test]
    fn transactions_are_read() {
        let head = [&b"ZKLG"[..], &[0; 12]].concat();
        let delete = [&[0, 0, 0, 2][..], b"/a"].concat();
        let log = read(&[head.clone(), entry(2, &delete)].concat()).expect("a log");
        let one = &log[&5];
        assert_eq!((one.session, one.xid, one.time), (7, 3, 9));
        assert!(
            matches!(&one.what, What::Writes(writes) if matches!(&writes[..], [Write::Delete { path, .. }] if path == "/a"))
        );
        let refused = read(&[head.clone(), entry(-1, &[255; 4])].concat()).expect("a log");
        assert!(matches!(refused[&5].what, What::Error(-1)));
        let whole = [head.clone(), entry(2, &delete)].concat();
        let torn = [&whole[..], &entry(2, &delete)[..30]].concat();
        assert_eq!(read(&torn).map(|log| log.len()), Some(1), "its server was killed");
        assert!(read(&[head, entry(99, &[])].concat()).is_none() && read(b"ZKSN").is_none());
    }

    #[test]
    fn code_is_that_of_the_part_that_was_refused() {
        let part = |code: i32, body: &[u8]| {
            let length = i32::try_from(body.len()).expect("it is short");
            [&code.to_be_bytes()[..], &length.to_be_bytes(), body].concat()
        };
        let delete = [&[0, 0, 0, 2][..], b"/a"].concat();
        let refused = |first: i32| {
            let parts =
                [part(first, &delete), part(-1, &(-118_i32).to_be_bytes()), part(-1, &(-2_i32).to_be_bytes())];
            let body = [&3_i32.to_be_bytes()[..], &parts.concat()].concat();
            let log = read(&[&b"ZKLG"[..], &[0; 12], &entry(14, &body)].concat()).expect("a log");
            assert!(matches!(log[&5].what, What::Error(-118)), "{:?}", log[&5]);
        };
        refused(2);
        // From a server that was slower to write its log than to answer.
        refused(-1);
    }

    #[test]
    fn transaction_is_lost_if_its_server_goes_on_without_it() {
        let log = |zxids: &[i64]| {
            let one = |zxid: i64| Transaction { session: 1, xid: 1, zxid, time: 1, what: What::CloseSession };
            zxids.iter().map(|zxid| (*zxid, one(*zxid))).collect::<BTreeMap<_, _>>()
        };
        let servers = |second: &[i64], snapshots: &[i64]| {
            let whole = || Server { log: log(&[1, 2, 3, 4, 5]), ..Server::default() };
            let second = Server { log: log(second), snapshots: snapshots.iter().copied().collect() };
            BTreeMap::from([("a".to_owned(), whole()), ("b".to_owned(), second), ("c".to_owned(), whole())])
        };
        assert_eq!(merged(&servers(&[1, 4, 5], &[])).lost, Some((2, "b".to_owned())));
        assert_eq!(merged(&servers(&[1, 4, 5], &[3])).lost, None, "its snapshot has them");
        assert_eq!(merged(&servers(&[1, 4, 5], &[1])).lost, Some((2, "b".to_owned())));
        assert_eq!(merged(&servers(&[1, 2, 3], &[])).lost, None, "it lags");
        let only_one = merged(&servers(&[1, 2, 3, 4, 5, 6], &[]));
        assert_eq!(only_one.transactions.len(), 5, "no majority has logged the last");
    }

    #[test]
    fn snapshot_from_the_leader_counts_as_a_log() {
        let one = |zxid: i64| Transaction { session: 1, xid: 1, zxid, time: 1, what: What::CloseSession };
        let done = |snapshot: i64| {
            let leader = Server { log: BTreeMap::from([(5, one(5)), (6, one(6))]), ..Server::default() };
            let follower = Server { snapshots: BTreeSet::from([snapshot]), ..Server::default() };
            let away = Server { log: BTreeMap::from([(5, one(5))]), ..Server::default() };
            let servers =
                [("a", leader), ("b", follower), ("c", away)].map(|(name, server)| (name.to_owned(), server));
            merged(&BTreeMap::from(servers)).transactions.len()
        };
        assert_eq!(done(6), 2, "it has come in a snapshot");
        assert_eq!(done(5), 1, "the snapshot is older");
        assert_eq!(done((1 << 32) + 1), 1, "that of a later epoch may be without it");
    }
}
