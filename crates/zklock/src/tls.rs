//! Owns the four letter words over TLS, and why TLS fails: the client of the library only logs that.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::client::WebPkiServerVerifier;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName};
use rustls::{CertificateError, ClientConfig, ClientConnection, Error, RootCertStore, StreamOwned};

use crate::cli::Connection;
use crate::exit::Failure;
use crate::files::{read, unusable};
use crate::port::{MOST, Silence};

const UNTRUSTED: &str = "has a TLS certificate of an authority that is not trusted here: check the CA file";
const NO_TLS: &str = "does not speak TLS on this port: use its secureClientPort, or leave out tcp+tls://";
const NO_CLIENT: &str =
    "refuses us in the TLS handshake: give it a client certificate of an authority that it trusts";
const OTHER_NAME: &str =
    "has a TLS certificate for another name: connect by a name that is in it, or issue another";

/// With which certificates a host is connected, or why it is not.
#[derive(Clone, Debug)]
pub(crate) struct Tls {
    config: Result<Arc<ClientConfig>, &'static str>,
    name: Option<ServerName<'static>>,
}

impl Tls {
    /// To a host with these certificates, as the client has them.
    pub(crate) fn to(connection: &Connection, address: &str) -> Result<Self, Failure> {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(host.to_owned()).ok();
        Ok(Self { config: config(connection)?, name })
    }

    pub(crate) async fn ask(
        &self,
        address: String,
        word: &'static str,
        limit: Duration,
    ) -> Result<String, Silence> {
        let config = self.config.clone().map_err(Silence::Tls)?;
        let name = self.name.clone().ok_or(Silence::Tls(OTHER_NAME))?;
        let asked = tokio::task::spawn_blocking(move || ask(config, name, &address, word, limit));
        match asked.await {
            Ok(answered) => answered,
            Err(_) => Err(Silence::None),
        }
    }
}

/// The certificates that are read, or why they are not used.
fn config(connection: &Connection) -> Result<Result<Arc<ClientConfig>, &'static str>, Failure> {
    let tls = &connection.tls;
    let Some(ca) = &tls.tls_ca else { return Ok(Err("was not tried: it needs --tls-ca")) };
    let pem = read(ca)?;
    let mut roots = RootCertStore::empty();
    // As the client does: what is no authority is skipped.
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(pem.as_bytes()).flatten());
    let revoked: Vec<_> = CertificateRevocationListDer::pem_slice_iter(pem.as_bytes()).flatten().collect();
    let verifier = WebPkiServerVerifier::builder(Arc::new(roots)).with_crls(revoked).build();
    let builder = ClientConfig::builder().with_webpki_verifier(verifier.map_err(|error| unusable(ca, &error))?);
    let (Some(cert), Some(key)) = (&tls.tls_cert, &tls.tls_key) else {
        return Ok(Ok(Arc::new(builder.with_no_client_auth())));
    };
    let chain = CertificateDer::pem_slice_iter(read(cert)?.as_bytes()).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|error| unusable(cert, &error))?;
    let secret = PrivateKeyDer::from_pem_slice(read(key)?.as_bytes()).map_err(|error| unusable(key, &error))?;
    let config = builder.with_client_auth_cert(chain, secret).map(Arc::new);
    Ok(config.map_err(|_| "was not tried: our key does not belong to our TLS certificate"))
}

/// Blocks for about twice the limit at most.
fn ask(
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    address: &str,
    word: &str,
    limit: Duration,
) -> Result<String, Silence> {
    let deadline = Instant::now() + limit;
    let socket = connect(address, limit).ok_or(Silence::None)?;
    let connection = ClientConnection::new(config, name).map_err(|_| Silence::None)?;
    let mut stream = StreamOwned::new(connection, socket);
    let mut answer = Vec::new();
    let read = stream.write_all(word.as_bytes()).and_then(|()| {
        let mut part = [0; 4096];
        loop {
            match stream.read(&mut part) {
                Ok(0) => return Ok(()),
                Ok(count) => answer.extend_from_slice(&part[..count]),
                // Servers close the connection without a word of TLS.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof && !answer.is_empty() => return Ok(()),
                Err(error) => return Err(error),
            }
            if answer.len() as u64 > MOST || Instant::now() > deadline {
                return Err(ErrorKind::TimedOut.into());
            }
        }
    });
    match read {
        Ok(()) => Ok(String::from_utf8_lossy(&answer).into_owned()),
        Err(error) => Err(reason(&error, stream.conn.is_handshaking())),
    }
}

fn connect(address: &str, limit: Duration) -> Option<TcpStream> {
    let socket = address.to_socket_addrs().ok()?.find_map(|to| TcpStream::connect_timeout(&to, limit).ok())?;
    socket.set_read_timeout(Some(limit)).ok()?;
    socket.set_write_timeout(Some(limit)).ok()?;
    Some(socket)
}

/// Why the connection failed, in the handshake or after it.
fn reason(error: &io::Error, in_handshake: bool) -> Silence {
    use CertificateError as Cert;
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    let reason = match tls {
        Some(Error::InvalidCertificate(certificate)) => match certificate {
            Cert::NotValidForName | Cert::NotValidForNameContext { .. } => OTHER_NAME,
            Cert::NotValidYet | Cert::NotValidYetContext { .. } => {
                "has a TLS certificate that is not valid yet: check its dates, and the clock here"
            }
            Cert::Expired | Cert::ExpiredContext { .. } => {
                "has a TLS certificate that has expired: renew it, or check the clock here"
            }
            Cert::Revoked => "has a TLS certificate that was revoked: issue another",
            // The latter is of an authority with the name of one that is trusted.
            Cert::UnknownIssuer | Cert::BadSignature => UNTRUSTED,
            _ => "has a TLS certificate that cannot be used: issue another",
        },
        Some(Error::InvalidMessage(_)) => NO_TLS,
        Some(Error::AlertReceived(_)) => NO_CLIENT,
        Some(_) => "fails in the TLS handshake: check which versions of TLS it allows",
        None => match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => return Silence::None,
            // A server without TLS takes the first message for a request that is too long.
            _ if in_handshake => NO_TLS,
            _ => NO_CLIENT,
        },
    };
    Silence::Tls(reason)
}
