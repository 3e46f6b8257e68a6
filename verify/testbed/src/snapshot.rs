//! Writes a snapshot, the file from which a server starts: parents whose counters of children are not at 0.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use crate::frames::RecordWriter;

const MAGIC: i32 = i32::from_be_bytes(*b"ZKSN");
const VERSION: i32 = 2;
const DATABASE: i64 = -1;
/// The key of the ACL that allows everything to everybody; no cache contains it.
const OPEN_ACL: i64 = -1;
/// Nodes of every server, which it does not create when it starts from a snapshot.
const SYSTEM: [&str; 4] = ["", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"];

/// Writes a snapshot into the data folder of a server that has not started yet.
///
/// It has a persistent node at each of these paths, and all ancestors. The next sequential child of a node gets the
/// given number, and the next transaction the one after `last`. Servers of 3.6.3, 3.8.0 and 3.9.4 read it; others were not
/// tried.
pub(crate) fn write(data: &Path, counters: &[(String, i32)], last: i64) -> io::Result<()> {
    let folder = data.join("version-2");
    fs::create_dir_all(&folder)?;
    // The name contains the number of the last transaction.
    fs::write(folder.join(format!("snapshot.{last:x}")), bytes(counters))
}

fn bytes(counters: &[(String, i32)]) -> Vec<u8> {
    let mut record = RecordWriter::default();
    let (sessions, acls) = (0, 0);
    record.int(MAGIC).int(VERSION).long(DATABASE).int(sessions).int(acls);
    for (path, counter) in nodes(counters) {
        record.buffer(path.as_bytes()).buffer(b"").long(OPEN_ACL);
        let (created, modified, created_at, modified_at, children_modified) = (0, 0, 0, 0, 0);
        record.long(created).long(modified).long(created_at).long(modified_at);
        let (version, acl_version, owner) = (0, 0, 0);
        record.int(version).int(counter).int(acl_version).long(owner).long(children_modified);
    }
    // Two end marks, with the checksum of the bytes above between them.
    record.buffer(b"/");
    let checksum = adler32(record.bytes());
    record.long(checksum.into()).buffer(b"/");
    record.bytes().to_vec()
}

/// All paths with their counters, parents first.
fn nodes(counters: &[(String, i32)]) -> BTreeMap<String, i32> {
    let mut nodes: BTreeMap<_, _> = SYSTEM.into_iter().map(|path| (path.to_owned(), 0)).collect();
    for (path, counter) in counters {
        for (end, _) in path.match_indices('/').skip(1) {
            nodes.entry(path[..end].to_owned()).or_insert(0);
        }
        nodes.insert(path.clone(), *counter);
    }
    nodes
}

fn adler32(bytes: &[u8]) -> u32 {
    const MODULUS: u32 = 65_521;
    let (low, high) = bytes.iter().fold((1, 0), |(low, high), byte| {
        let low = (low + u32::from(*byte)) % MODULUS;
        (low, (high + low) % MODULUS)
    });
    high << 16 | low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_is_adlers() {
        assert_eq!(adler32(b""), 1);
        assert_eq!(adler32(b"Wikipedia"), 0x11e6_0398);
    }

    #[test]
    fn parents_come_first_and_keep_their_counters() {
        let nodes = nodes(&[("/a/b/c".to_owned(), 7), ("/a".to_owned(), 5)]);
        let nodes: Vec<_> = nodes.iter().filter(|(path, _)| path.starts_with("/a")).collect();
        assert_eq!(nodes, [(&"/a".to_owned(), &5), (&"/a/b".to_owned(), &0), (&"/a/b/c".to_owned(), &7)]);
    }
}
