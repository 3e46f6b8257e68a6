//! Checks the form of a list of hosts.
//!
//! The client takes a mistake, such as a space, for a part of a host's name. It then looks for that host forever, or works
//! with the other hosts alone. So the list is checked before it is passed to the client.

use std::net::IpAddr;

use crate::error::{Error, Result};
use crate::path::LockPath;

/// The form that hosts should have, for error messages.
pub(super) const FORM: &str = "it should look like host:2181,host:2181/chroot";

/// Checks a list of hosts. Returns it without white space around its elements.
pub(crate) fn normalize(hosts: &str) -> Result<String> {
    let elements: Vec<_> = hosts.split(',').map(str::trim).collect();
    for (index, element) in elements.iter().enumerate() {
        check_host(element, index + 1 == elements.len())
            .map_err(|reason| Error::invalid("hosts", format!("{hosts:?}: {reason}; {FORM}")))?;
    }
    Ok(elements.join(","))
}

fn check_host(element: &str, is_last: bool) -> Result<(), String> {
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
    if element.starts_with("tcp+tls://") && !can_be_certified(host) {
        return Err(format!(
            "over TLS the host {host:?} has to be an address or a name that certificates can have"
        ));
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

/// Returns whether a character cannot be part of a host. Names of some networks contain `_`, and `%` precedes the zone of an
/// address.
fn is_odd(c: char) -> bool {
    c.is_whitespace() || c.is_control() || (c.is_ascii_punctuation() && !"-_.:%[]".contains(c))
}

/// Returns whether a certificate can name this host. When the client connects over TLS to any other host, it panics.
fn can_be_certified(host: &str) -> bool {
    let bracketed = host.strip_prefix('[').and_then(|rest| rest.split(']').next());
    let name = bracketed.unwrap_or_else(|| host.rsplit_once(':').map_or(host, |(name, _)| name));
    let labels: Vec<_> = name.strip_suffix('.').unwrap_or(name).split('.').collect();
    let is_label = |label: &&str| {
        let has_letters_only = label.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
        matches!(label.len(), 1..=63) && has_letters_only && !label.starts_with('-') && !label.ends_with('-')
    };
    let is_number = labels.last().is_some_and(|last| last.chars().all(|c| c.is_ascii_digit()));
    name.parse::<IpAddr>().is_ok() || (name.len() <= 253 && labels.iter().all(is_label) && !is_number)
}

/// Returns whether the hosts end in a chroot.
pub(crate) fn has_chroot(hosts: &str) -> bool {
    split_chroot(hosts).1.len() > "/".len()
}

/// Splits a list of hosts before its chroot, which begins with a slash or is empty.
pub(super) fn split_chroot(hosts: &str) -> (&str, &str) {
    let last = hosts.rfind(',').map_or(0, |comma| comma + 1);
    let host = hosts[last..].find("://").map_or(last, |scheme| last + scheme + "://".len());
    hosts.split_at(hosts[host..].find('/').map_or(hosts.len(), |slash| host + slash))
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
            (
                "tcp+tls://[::1]:2281,tcp+tls://zk_1.a-2,tcp+tls://10.0.0.7",
                "tcp+tls://[::1]:2281,tcp+tls://zk_1.a-2,tcp+tls://10.0.0.7",
            ),
        ] {
            assert_eq!(normalize(given).expect(given), normalized);
        }
    }

    #[test]
    fn refusals_name_the_fault() {
        for (hosts, text) in [
            ("", "a host is missing"),
            ("zk1,,zk2", "a host is missing"),
            ("zk1 zk2", "the host \"zk1 zk2\" has the character ' '"),
            ("zk1;zk2", "has the character ';'"),
            ("zk1/a,zk2/a", "\"zk1/a\" has a /, but a chroot comes once"),
            ("zk1/a/", "the chroot cannot be used: \"/a/\" ends with /"),
            ("zk1/zookeeper", "belongs to the servers"),
            ("zk1/zookeeper/quota", "belongs to the servers"),
            ("zk1,tcp+tls://127.1:2281", "over TLS the host \"127.1:2281\" has to be an address or a name"),
            ("tcp+tls://[fe80::1%eth0]:2281/a", "over TLS the host \"[fe80::1%eth0]:2281\""),
            ("tcp+tls://bücher.example", "over TLS the host \"bücher.example\""),
            ("tcp+tls://zk1-:2281", "over TLS the host \"zk1-:2281\""),
        ] {
            let error = normalize(hosts).expect_err(hosts).to_string();
            assert!(error.starts_with(&format!("invalid hosts: {hosts:?}: ")), "{error}");
            assert!(error.contains(text) && error.ends_with(FORM), "{error}");
        }
    }
}
