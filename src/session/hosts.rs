//! Owns the list of servers that a session connects to: what it may look like, and the chroot at its end.
//!
//! The client takes what cannot be meant, such as a space, for a part of a host's name, and then looks for that host
//! for ever, or works with the other servers alone. So the list is checked before the client sees it.

use crate::error::{Error, Result};
use crate::path::LockPath;

/// What is right, for whoever gave something else.
pub(super) const FORM: &str = "it should look like host:2181,host:2181/chroot";

/// The list without white space around its elements.
pub(super) fn normalize(hosts: &str) -> Result<String> {
    let elements: Vec<_> = hosts.split(',').map(str::trim).collect();
    for (index, element) in elements.iter().enumerate() {
        check(element, index + 1 == elements.len())
            .map_err(|reason| Error::invalid("hosts", format!("{hosts:?}: {reason}; {FORM}")))?;
    }
    Ok(elements.join(","))
}

fn check(element: &str, is_last: bool) -> Result<(), String> {
    if element.is_empty() {
        return Err("a host is missing".to_owned());
    }
    let address =
        ["tcp://", "tcp+tls://"].iter().find_map(|scheme| element.strip_prefix(scheme)).unwrap_or(element);
    let (host, chroot) = address.split_at(address.find('/').unwrap_or(address.len()));
    if !chroot.is_empty() && !is_last {
        return Err(format!("{element:?} has a /, but a chroot comes once, after the last host"));
    }
    if let Some(c) = host.chars().find(|&c| is_odd(c)) {
        return Err(format!("the host {host:?} has the character {c:?}"));
    }
    if matches!(chroot, "" | "/") {
        return Ok(());
    }
    match LockPath::new(chroot) {
        Ok(path) if path.is_the_servers() => Err("/zookeeper belongs to the servers, and is no chroot".to_owned()),
        Ok(_) => Ok(()),
        Err(Error::InvalidInput { reason, .. }) => Err(format!("the chroot cannot be used: {reason}")),
        Err(error) => Err(error.to_string()),
    }
}

/// Whether it is part of no name, no address and no port. (`_` and `%` are: of names in some networks, and of zones.)
fn is_odd(c: char) -> bool {
    c.is_whitespace() || c.is_control() || (c.is_ascii_punctuation() && !"-_.:%[]".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_around_elements_is_left_out() {
        for (given, normalized) in [
            ("zk1", "zk1"),
            (" zk1:2181 ,\tzk2:2181\n", "zk1:2181,zk2:2181"),
            ("zk1, tcp+tls://zk2:2281/a b/c ", "zk1,tcp+tls://zk2:2281/a b/c"),
            ("[fe80::1%eth0]:2181,10.0.0.7:2181,zk_3.example", "[fe80::1%eth0]:2181,10.0.0.7:2181,zk_3.example"),
            ("bücher.example/", "bücher.example/"),
            ("zk1/zookeepers", "zk1/zookeepers"),
        ] {
            assert_eq!(normalize(given).expect(given), normalized);
        }
    }

    #[test]
    fn refusals_say_what_is_wrong() {
        for (hosts, text) in [
            ("", "a host is missing"),
            ("zk1,,zk2", "a host is missing"),
            ("zk1 zk2", "the host \"zk1 zk2\" has the character ' '"),
            ("zk1;zk2", "has the character ';'"),
            ("zk1/a,zk2/a", "\"zk1/a\" has a /, but a chroot comes once"),
            ("zk1/a/", "the chroot cannot be used: \"/a/\" ends with /"),
            ("zk1/zookeeper", "belongs to the servers"),
            ("zk1/zookeeper/quota", "belongs to the servers"),
        ] {
            let error = normalize(hosts).expect_err(hosts).to_string();
            assert!(error.starts_with(&format!("invalid hosts: {hosts:?}: ")), "{error}");
            assert!(error.contains(text) && error.ends_with(FORM), "{error}");
        }
    }
}
