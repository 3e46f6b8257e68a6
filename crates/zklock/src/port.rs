//! Owns [`answer`]: what a port answers, and the address of a port.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The longest answer that is read.
pub(crate) const MOST: u64 = 256 * 1024;

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Silence {
    /// The host cannot be reached, or is silent.
    None,
    /// TLS fails, for this reason.
    #[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "nothing is asked over TLS"))]
    Tls(&'static str),
}

/// What is answered on a port, without TLS, until the connection is closed or the time is over.
pub(crate) async fn answer(address: &str, request: &[u8], limit: Duration) -> Option<Vec<u8>> {
    let mut answer = Vec::new();
    let asked = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(request).await?;
        stream.take(MOST).read_to_end(&mut answer).await
    };
    match timeout(limit, asked).await {
        Ok(Ok(_)) => Some(answer),
        // What others answer is not always ended.
        _ => Some(answer).filter(|answer| !answer.is_empty()),
    }
}

/// The address of a host as the list names it.
pub(crate) fn address(name: &str) -> String {
    with_port(name.strip_prefix("tcp+tls://").or_else(|| name.strip_prefix("tcp://")).unwrap_or(name))
}

/// An address that a stream can connect to.
fn with_port(host: &str) -> String {
    let has_port = host.rsplit_once(':').is_some_and(|(before, _)| !before.contains(':') || before.ends_with(']'));
    if has_port { host.to_owned() } else { format!("{host}:2181") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_have_the_port_of_the_client() {
        for (host, address) in
            [("zk1", "zk1:2181"), ("zk1:1", "zk1:1"), ("[::1]", "[::1]:2181"), ("[::1]:1", "[::1]:1")]
        {
            assert_eq!(with_port(host), address);
        }
    }
}
