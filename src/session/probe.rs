//! Owns the question why a host gives no session over TLS. The client returns no reason and only logs it, so another client
//! tries the host, and its log is read.

use std::fmt::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::timeout;
use tracing::field::{Field, Visit};
use tracing::instrument::WithSubscriber;
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use zookeeper_client::Connector;

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

/// Why this host, `tcp+tls://host:port`, gives no session, if that is found out within `limit`.
pub(super) async fn over_tls(connector: Connector, host: &str, limit: Duration) -> Option<String> {
    let log = Log::default();
    let connected = connector.with_fail_eagerly().connect(host).with_subscriber(log.clone());
    let text = match timeout(limit, connected).await {
        // The next try of the session succeeds, too.
        Ok(Ok(_)) => return None,
        Ok(Err(zookeeper_client::Error::Custom(error))) => error.to_string(),
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
