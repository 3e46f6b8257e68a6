//! Owns the question why a host gives no session. The client returns no reason, so each host is tried here: its name, its
//! port, and what is spoken there. Why TLS fails the client only logs, so another client tries the host, and its log is read.

use std::fmt::{self, Write as _};
use std::io::ErrorKind;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tracing::field::{Field, Visit};
use tracing::instrument::WithSubscriber;
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use zookeeper_recipes::zookeeper_client::{Connector, Error as ZkError};

/// Types of messages of TLS.
const ALERT: u8 = 0x15;
const HANDSHAKE: u8 = 0x16;

const NO_SESSION: &str = "accepts connections, but gives no session";

/// Parts of the client's text, and what to report. The first that is found counts.
const REASONS: [(&str, &str); 11] = [
    ("invalid client private key", "was not tried: our key does not belong to our TLS certificate"),
    (
        "NotValidForName",
        "has a TLS certificate for another name: connect by a name that is in it, or issue another",
    ),
    ("NotValidYet", "has a TLS certificate that is not valid yet: check its dates, and the clock here"),
    ("Expired", "has a TLS certificate that has expired: renew it, or check the clock here"),
    ("UnknownIssuer", UNTRUSTED),
    // Of an authority with the name of one that is trusted.
    ("BadSignature", UNTRUSTED),
    ("InvalidContentType", NO_TLS),
    ("UnexpectedEof", NO_TLS),
    ("AlertReceived", NO_CLIENT),
    ("fatal alert", NO_CLIENT),
    ("connection to server has lost", NO_CLIENT),
];
const UNTRUSTED: &str = "has a TLS certificate of an authority that is not trusted here: check the CA file";
const NO_TLS: &str = "does not speak TLS on this port: use its secureClientPort, or leave out tcp+tls://";
const NO_CLIENT: &str =
    "refuses us in the TLS handshake: give it a client certificate of an authority that it trusts";

/// Connects to an address once. The client would try for a whole session timeout.
pub(crate) async fn knock(address: &str, limit: Duration) -> Result<TcpStream, String> {
    let connected = async {
        let addresses = lookup_host(address).await.map_err(|error| format!("name does not resolve: {error}"))?;
        let mut reason = "name has no address".to_owned();
        for address in addresses {
            reason = match TcpStream::connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => "connection refused".to_owned(),
                Err(error) => error.to_string(),
            };
        }
        Err(reason)
    };
    timeout(limit, connected).await.unwrap_or_else(|_| Err("no answer".to_owned()))
}

/// Why a host that accepts connections gives no session, as far as that is found out within `limit`.
pub(crate) async fn of(connector: Connector, host: &str, address: &str, limit: Duration) -> String {
    if host.starts_with("tcp+tls://") {
        let reason = over_tls(connector, host, limit).await;
        return reason.unwrap_or_else(|| format!("{NO_SESSION}; check its TLS certificate"));
    }
    match timeout(limit, speaks_tls(address, limit)).await {
        Ok(true) => "speaks TLS on this port: write tcp+tls:// before the host".to_owned(),
        Ok(false) | Err(_) => NO_SESSION.to_owned(),
    }
}

/// Whether the answer to the first message of a TLS client is a message of TLS, be it a refusal. To ZooKeeper, that message
/// is a request that is too long.
async fn speaks_tls(address: &str, limit: Duration) -> bool {
    let Ok(mut stream) = knock(address, limit).await else { return false };
    let is_sent = stream.write_all(&client_hello()).await.is_ok();
    is_sent && matches!(stream.read_u8().await, Ok(ALERT | HANDSHAKE))
}

/// TLS 1.2 with one cipher, and without extensions (RFC 5246, section 7.4.1.2).
fn client_hello() -> Vec<u8> {
    let (version, random, session_id, ciphers, compressions) =
        ([3, 3], [0x5a; 32], [0], [0, 2, 0xc0, 0x2f], [1, 0]);
    let hello = [&version[..], &random, &session_id, &ciphers, &compressions].concat();
    let length = |extra: usize| u8::try_from(hello.len() + extra).expect("it is short");
    [&[HANDSHAKE, 3, 1, 0, length(4), 1, 0, 0, length(0)], &hello[..]].concat()
}

/// Why this host, `tcp+tls://host:port`, gives no session.
async fn over_tls(connector: Connector, host: &str, limit: Duration) -> Option<String> {
    let log = Log::default();
    let connected = connector.with_fail_eagerly().connect(host).with_subscriber(log.clone());
    let text = match timeout(limit, connected).await {
        // The next try succeeds, too.
        Ok(Ok(_)) => return None,
        Ok(Err(ZkError::Custom(error))) => error.to_string(),
        Ok(Err(_)) | Err(_) => log.reason()?,
    };
    let found = REASONS.iter().find(|(part, _)| text.contains(part));
    Some(found.map_or_else(|| format!("fails over TLS: {text}"), |(_, reason)| (*reason).to_owned()))
}

/// The last reason that a client logged for a failed connection.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Option<String>>>);

impl Log {
    fn reason(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
            && *metadata.level() <= Level::DEBUG
            && metadata.target().starts_with("zookeeper_client")
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::DEBUG)
    }

    fn event(&self, event: &Event<'_>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        if let Some((_, reason)) = message.0.split_once(" due to ").filter(|(what, _)| what.starts_with("fails "))
        {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason.to_owned());
        }
    }

    // No span is enabled.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            write!(self.0, "{value:?}").expect("a string takes all text");
        }
    }
}
