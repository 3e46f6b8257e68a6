//! Owns what a user gives to connect with: the hosts, and the connector, of which this crate bears only some settings.
//!
//! The client takes what cannot be meant, such as a space, for a part of a host's name, and then looks for that host
//! for ever, or works with the other servers alone. So the list is checked before the client sees it.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use zookeeper_client::Connector;

use crate::error::{Error, Result};
use crate::path::LockPath;

/// What hosts should look like.
pub(super) const FORM: &str = "it should look like host:2181,host:2181/chroot";

/// The list without white space around its elements.
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

/// Whether it is part of no name, no address and no port. (`_` and `%` are: of names in some networks, and of zones.)
fn is_odd(c: char) -> bool {
    c.is_whitespace() || c.is_control() || (c.is_ascii_punctuation() && !"-_.:%[]".contains(c))
}

/// Whether a certificate can be for this host; with another, the client panics once the host accepts a connection.
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

/// The client sends the session timeout as a signed 32-bit number of milliseconds, and reckoning with a long one it panics.
const LONGEST_MS: u32 = i32::MAX as u32;
/// The client replaces shorter timeouts.
const SHORTEST_MS: u32 = 8;

/// The session timeouts that can be asked for.
pub(crate) const TIMEOUTS_MS: RangeInclusive<u32> = SHORTEST_MS..=LONGEST_MS;

/// A field of a connector, by its Debug text: the client offers no other look at it.
///
/// A client whose text is another is not checked, and a test here fails.
fn field<'a>(debug_text: &'a str, name: &str) -> Option<&'a str> {
    // What comes before, TLS and SASL, may have texts of the user's in it.
    let own = &debug_text[debug_text.rfind(" session: ").unwrap_or_default()..];
    let (_, value) = own.rsplit_once(&format!(" {name}: "))?;
    value.split([',', ' ', '(']).next()
}

/// The client's own.
pub(super) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(6);

/// The session timeout that a connector asks for, as far as its text shows.
pub(super) fn session_timeout(connector: &Connector) -> Duration {
    let ms = field(&format!("{connector:?}"), "session_timeout").and_then(milliseconds).filter(|ms| *ms > 0.0);
    ms.map_or(DEFAULT_TIMEOUT, |ms| Duration::from_secs_f64(ms / 1000.0))
}

/// Whether paths begin below a node of the servers.
pub(crate) fn has_chroot(hosts: &str) -> bool {
    split_chroot(hosts).1.len() > "/".len()
}

/// Splits a list of hosts before its chroot, which begins with a slash, or is empty.
pub(super) fn split_chroot(hosts: &str) -> (&str, &str) {
    let last = hosts.rfind(',').map_or(0, |comma| comma + 1);
    let host = hosts[last..].find("://").map_or(last, |scheme| last + scheme + "://".len());
    hosts.split_at(hosts[host..].find('/').map_or(hosts.len(), |slash| host + slash))
}

/// Whether the names of the servers matter, and must not be replaced by addresses: to Kerberos they do.
pub(super) fn needs_names(connector: &Connector) -> bool {
    format!("{connector:?}").contains("Gssapi(")
}

/// Refuses hosts over TLS without options for it. The client would try them for ever, without a pause and without ever giving
/// its thread back.
pub(super) fn check_tls(connector: &Connector, hosts: &str) -> Result<()> {
    let is_over_tls = hosts.split(',').any(|host| host.starts_with("tcp+tls://"));
    if is_over_tls && !format!("{connector:?}").starts_with("Connector { tls: Some(") {
        let reason =
            "it has no TLS options, which hosts with tcp+tls:// need; set them by with_tls, of the feature `tls`";
        return Err(Error::invalid("connector", reason));
    }
    Ok(())
}

/// Refuses settings of a connector with which no lock would be safe, or which the client cannot bear.
pub(super) fn check(connector: &Connector) -> Result<()> {
    let text = format!("{connector:?}");
    let has = |name, value| field(&text, name) == Some(value);
    let refused = |reason: &str| Err(Error::invalid("connector", reason));
    if has("session", "Some") {
        return refused(
            "it carries the session of another client, which a renewal would present again; leave out with_session",
        );
    }
    if has("detached", "true") {
        return refused(
            "it is detached, so its session and all nodes would outlive close(); leave out with_detached",
        );
    }
    if has("readonly", "true") {
        return refused("it allows read-only servers, on which no lock can be taken; leave out with_readonly");
    }
    // A connection timeout that is too long for the session is left out by the client.
    for (name, timeout, most) in [
        ("session", "session_timeout", f64::from(LONGEST_MS)),
        ("connection", "connection_timeout", f64::INFINITY),
    ] {
        let Some((text, ms)) = field(&text, timeout).and_then(|text| Some((text, milliseconds(text)?))) else {
            continue;
        };
        let limit = match ms {
            // It stands for the default.
            0.0 => continue,
            ms if ms < f64::from(SHORTEST_MS) => format!("no less than {SHORTEST_MS} ms"),
            // Half a millisecond makes up for what is rounded, and the client cuts it off.
            ms if ms >= most + 0.5 => format!("no more than {LONGEST_MS} ms (24 days)"),
            _ => continue,
        };
        return refused(&format!("its {name} timeout is {text}, but the client can carry {limit}"));
    }
    Ok(())
}

/// The milliseconds in the Debug text of a duration.
fn milliseconds(text: &str) -> Option<f64> {
    let (number, unit) = text.split_at(text.find(char::is_alphabetic)?);
    let unit = match unit {
        "s" => 1e3,
        "ms" => 1.0,
        "µs" => 1e-3,
        "ns" => 1e-6,
        _ => return None,
    };
    number.parse::<f64>().ok().map(|number| number * unit)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use zookeeper_client::Client;

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

    /// The fields that are looked at, as the text of this connector has them.
    fn fields(connector: &Connector) -> [Option<String>; 5] {
        let text = format!("{connector:?}");
        ["session", "detached", "readonly", "session_timeout", "connection_timeout"]
            .map(|name| field(&text, name).map(str::to_owned))
    }

    #[test]
    fn debug_text_of_a_connector_has_its_settings() {
        let texts = |texts: [&str; 5]| texts.map(|text| Some(text.to_owned()));
        let connector = Client::connector();
        assert_eq!(fields(&connector), texts(["None", "false", "false", "0ns", "0ns"]), "{connector:?}");
        let connector = Client::connector()
            .with_detached()
            .with_readonly(true)
            .with_session_timeout(Duration::from_millis(2_500))
            .with_connection_timeout(Duration::from_micros(1_500));
        assert_eq!(fields(&connector), texts(["None", "true", "true", "2.5s", "1.5ms"]), "{connector:?}");
    }

    #[test]
    fn tls_needs_options() {
        let connector = Client::connector();
        let error = check_tls(&connector, "zk1,tcp+tls://zk2:2281").expect_err("no options").to_string();
        assert!(error.contains("with_tls"), "{error}");
        check_tls(&connector, "zk1,tcp://zk2/tcp+tls://").expect("no TLS");
    }

    #[test]
    fn text_of_a_duration_is_read_in_every_unit() {
        for duration in [
            Duration::ZERO,
            Duration::from_nanos(1),
            Duration::from_nanos(1_500),
            Duration::from_micros(7_999),
            Duration::from_millis(8),
            Duration::from_millis(i32::MAX as u64),
            Duration::from_secs(6),
            Duration::MAX,
        ] {
            let read = milliseconds(&format!("{duration:?}")).expect("a duration");
            let meant = duration.as_secs_f64() * 1e3;
            assert!((read - meant).abs() <= meant * 1e-9, "{duration:?}: {read}");
        }
        assert_eq!(milliseconds("6 fortnights"), None);
    }

    #[test]
    fn timeouts_at_the_edge_of_what_can_be_carried() {
        let edge = Duration::from_millis(i32::MAX as u64);
        for (timeout, carried) in [
            (Duration::ZERO, true),
            (Duration::from_nanos(1), false),
            (Duration::from_nanos(7_999_999), false),
            (Duration::from_millis(8), true),
            (edge, true),
            (edge + Duration::from_millis(1), false),
            (Duration::MAX, false),
        ] {
            let connector = Client::connector().with_session_timeout(timeout);
            assert_eq!(check(&connector).is_ok(), carried, "{timeout:?}");
        }
    }
}
