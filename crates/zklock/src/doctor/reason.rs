//! Owns [`Reason`]: why a host gives no session, and what to do about it. The client returns no reason, so each host is tried
//! here: its name, its port, and what is spoken there.

use std::borrow::Cow;
use std::fmt;
use std::io::ErrorKind;
use std::time::Duration;

use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use crate::port::answer;

/// Types of messages of TLS.
const ALERT: u8 = 0x15;
const HANDSHAKE: u8 = 0x16;

/// Why a host gives no session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// Its name has no address.
    Name(String),
    /// Nothing listens on its port.
    Refused,
    /// It does not answer at all.
    NoAnswer,
    /// It cannot be reached for another reason.
    Unreachable(String),
    /// A connection is accepted, and then nothing is answered.
    Silent,
    /// The port belongs to a server of HTTP.
    Http,
    /// TLS on the wrong port, or with wrong certificates.
    Tls(&'static str),
    /// It runs, and has no majority of its ensemble.
    NotServing,
    /// It answers, and gives us no session.
    NoSession(String),
}

impl Reason {
    pub(crate) fn id(&self) -> &'static str {
        match self {
            Self::Name(_) => "unknown-name",
            Self::Refused => "refused",
            Self::NoAnswer | Self::Unreachable(_) => "no-answer",
            Self::Silent => "silent",
            Self::Http => "http",
            Self::Tls(_) => "tls",
            Self::NotServing => "not-serving",
            Self::NoSession(_) => "no-session",
        }
    }

    /// The reason with what to do about it.
    pub(crate) fn with_advice(&self) -> String {
        let advice = match self {
            Self::Name(_) => "correct it in the list of hosts, or add it to the DNS",
            Self::Refused => "start the server, or correct its port in the list of hosts",
            Self::NoAnswer | Self::Unreachable(_) => {
                "check that its machine runs, and the network and firewalls between"
            }
            Self::Silent => "its process hangs or is stopped, or it is no ZooKeeper: look at it, and restart it",
            Self::NotServing => "start the other servers",
            Self::NoSession(_) => "look into its log, and at maxClientCnxns",
            // They have it.
            Self::Http | Self::Tls(_) => return self.to_string(),
        };
        format!("{self}; {advice}")
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Name(why) | Self::Unreachable(why) => Cow::from(why),
            Self::Refused => "connection refused".into(),
            Self::NoAnswer => "no answer".into(),
            Self::Silent => "accepts connections, and answers nothing".into(),
            Self::Http => "speaks HTTP on this port: give its clientPort, which is 2181 by default".into(),
            Self::Tls(why) => (*why).into(),
            Self::NotServing => "runs, and has no majority of its ensemble".into(),
            Self::NoSession(why) if why.is_empty() => "answers, and gives no session".into(),
            Self::NoSession(why) => format!("answers, and gives no session: {why}").into(),
        };
        f.write_str(&text)
    }
}

/// Connects to an address once. The client would try for a whole session timeout.
pub(crate) async fn knock(address: &str, limit: Duration) -> Result<TcpStream, Reason> {
    let connected = async {
        let addresses =
            lookup_host(address).await.map_err(|error| Reason::Name(format!("name does not resolve: {error}")))?;
        let mut reason = Reason::Name("name has no address".to_owned());
        for address in addresses {
            reason = match TcpStream::connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => Reason::Refused,
                Err(error) => Reason::Unreachable(error.to_string()),
            };
        }
        Err(reason)
    };
    timeout(limit, connected).await.unwrap_or(Err(Reason::NoAnswer))
}

/// What else is spoken on a port without TLS that answers no word of ZooKeeper.
pub(crate) async fn foreign(address: &str, limit: Duration) -> Option<Reason> {
    // To ZooKeeper both are requests that are too long.
    let (tls, http) = (client_hello(), b"GET / HTTP/1.0\r\n\r\n");
    let (tls, http) = tokio::join!(answer(address, &tls, limit), answer(address, http, limit));
    let (tls, http) = (tls.unwrap_or_default(), http.unwrap_or_default());
    // Some servers of HTTP refuse what is not encrypted in plain text.
    if matches!(tls.first(), Some(&(ALERT | HANDSHAKE))) {
        return Some(Reason::Tls("speaks TLS on this port: write tcp+tls:// before the host"));
    }
    http.starts_with(b"HTTP/").then_some(Reason::Http)
}

/// TLS 1.2 with one cipher, and without extensions (RFC 5246, section 7.4.1.2).
fn client_hello() -> Vec<u8> {
    let (version, random, session_id, ciphers, compressions) =
        ([3, 3], [0x5a; 32], [0], [0, 2, 0xc0, 0x2f], [1, 0]);
    let hello = [&version[..], &random, &session_id, &ciphers, &compressions].concat();
    let length = |extra: usize| u8::try_from(hello.len() + extra).expect("it is short");
    [&[HANDSHAKE, 3, 1, 0, length(4), 1, 0, 0, length(0)], &hello[..]].concat()
}
