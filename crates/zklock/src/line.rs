//! Owns [`Line`]: the way to one host, with or without TLS, by which a four letter word is asked.

use std::time::Duration;

use crate::cli::Connection;
use crate::exit::Failure;
use crate::port::{Silence, address, answer};
#[cfg(feature = "tls")]
use crate::tls::Tls;

/// The way to a host of the list.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// With the port.
    pub(crate) address: String,
    #[cfg(feature = "tls")]
    tls: Option<Tls>,
}

impl Line {
    /// To a host as the list names it.
    #[cfg_attr(not(feature = "tls"), expect(unused_variables, reason = "credentials are those of TLS"))]
    pub(crate) fn to(connection: &Connection, name: &str) -> Result<Self, Failure> {
        let (address, over_tls) = (address(name), name.starts_with("tcp+tls://"));
        Ok(Self {
            #[cfg(feature = "tls")]
            tls: if over_tls { Some(Tls::to(connection, &address)?) } else { None },
            address,
        })
    }

    /// Whether requests are sent over TLS.
    pub(crate) fn has_tls(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.tls.is_some();
        #[cfg(not(feature = "tls"))]
        false
    }

    /// Asks the server a word, and returns its whole answer.
    pub(crate) async fn ask(&self, word: &'static str, limit: Duration) -> Result<String, Silence> {
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            return tls.ask(self.address.clone(), word, limit).await;
        }
        let answer = answer(&self.address, word.as_bytes(), limit).await.ok_or(Silence::None)?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }
}
