//! Whether a server has lost transactions: ZOOKEEPER-4394, -4646 and -4785 are such faults of 3.8.0. No lock keeps its promises
//! on servers that disagree.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

/// The transactions in the log of a server, and the last one of each of its snapshots.
#[derive(Debug, Default)]
struct Server {
    log: BTreeSet<i64>,
    snapshots: BTreeSet<i64>,
}

impl Server {
    fn read(folder: &Path) -> io::Result<Self> {
        let mut server = Self::default();
        for entry in folder.read_dir()? {
            let (path, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
            match name.to_str().and_then(|name| name.split_once('.')) {
                Some(("log", _)) => server.log.extend(transactions(&fs::read(&path)?)),
                Some(("snapshot", zxid)) => server.snapshots.extend(i64::from_str_radix(zxid, 16)),
                _ => {}
            }
        }
        Ok(server)
    }

    /// Whether it has the transaction: in its log, or in a snapshot, which a server may get from its leader in place of a log.
    /// Only a snapshot of the same epoch shows it: the servers of a later one may have gone on without the transaction.
    fn has(&self, zxid: i64) -> bool {
        self.log.contains(&zxid) || self.snapshots.range(zxid..=zxid | i64::from(u32::MAX)).next().is_some()
    }

    /// The first transaction that it has neither logged nor in a snapshot, although it has gone on.
    fn lost(&self, all: &[i64]) -> Option<i64> {
        let mut rest = all;
        while let Some(first) = rest.iter().position(|zxid| !self.log.contains(zxid)) {
            let missing = &rest[first..];
            // What is missing at the end may still come.
            let next = missing.iter().position(|zxid| self.log.contains(zxid))?;
            if self.snapshots.range(missing[next - 1]..=missing[next]).next().is_none() {
                return Some(missing[0]);
            }
            rest = &missing[next..];
        }
        None
    }
}

/// The numbers of the transactions in a log. The last entry may be incomplete, and zeros are behind it.
fn transactions(log: &[u8]) -> Vec<i64> {
    // The file begins with 16 bytes. An entry has a checksum, its length, its bytes, and a mark; the number is behind
    // the session and the number of the request.
    const HEADER: usize = 16;
    const ZXID: usize = 12;
    let (mut rest, mut all) = (log.get(HEADER..).unwrap_or_default(), Vec::new());
    while let Some((length, bytes)) = rest.get(8..).and_then(<[u8]>::split_first_chunk) {
        let length = usize::try_from(i32::from_be_bytes(*length)).unwrap_or(0);
        let Some((entry, [b'B', end @ ..])) = bytes.split_at_checked(length) else { break };
        all.extend(entry.get(ZXID..).and_then(<[u8]>::first_chunk).map(|zxid| i64::from_be_bytes(*zxid)));
        rest = end;
    }
    all
}

/// The first transaction that a server has lost, and the number of that server. `folders`: those with their logs.
pub(crate) fn transaction<'a>(folders: impl Iterator<Item = &'a Path>) -> io::Result<Option<(i64, usize)>> {
    let servers: Vec<_> = folders.map(Server::read).collect::<io::Result<_>>()?;
    Ok(lost(&servers))
}

fn lost(servers: &[Server]) -> Option<(i64, usize)> {
    let logged: BTreeSet<i64> = servers.iter().flat_map(|server| server.log.iter().copied()).collect();
    // One that a majority does not have was not done.
    let is_done = |zxid: &i64| servers.iter().filter(|server| server.has(*zxid)).count() > servers.len() / 2;
    let done: Vec<_> = logged.into_iter().filter(is_done).collect();
    servers.iter().enumerate().find_map(|(number, server)| Some((server.lost(&done)?, number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(log: &[i64], snapshots: &[i64]) -> Server {
        Server { log: log.iter().copied().collect(), snapshots: snapshots.iter().copied().collect() }
    }

    #[test]
    fn log_is_read_up_to_its_last_whole_entry() {
        let entry = |zxid: i64| {
            let body = [&[0; 12][..], &zxid.to_be_bytes(), &[7; 5]].concat();
            [&[0; 8][..], &25_i32.to_be_bytes(), &body, b"B"].concat()
        };
        let whole = [b"ZKLG".to_vec(), vec![0; 12], entry(5), entry(6)].concat();
        assert_eq!(transactions(&[&whole[..], &[0; 40]].concat()), [5, 6]);
        assert_eq!(transactions(&whole[..whole.len() - 1]), [5]);
    }

    #[test]
    fn transaction_is_lost_where_its_server_has_gone_on_without_it() {
        let others = || [server(&[1, 2, 3, 4], &[]), server(&[1, 2, 3, 4], &[])];
        let with = |third| lost(&others().into_iter().chain([third]).collect::<Vec<_>>());
        assert_eq!(with(server(&[1, 4], &[])), Some((2, 2)));
        assert_eq!(with(server(&[1, 4], &[3])), None, "it was given a snapshot");
        assert_eq!(with(server(&[1, 2], &[])), None, "the rest may still come");
        assert_eq!(
            lost(&[server(&[1, 3], &[]), server(&[1, 3], &[]), server(&[1, 2, 3], &[])]),
            None,
            "it was not done"
        );
    }
}
