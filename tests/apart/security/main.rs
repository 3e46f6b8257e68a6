//! TLS with client certificates and SASL DIGEST-MD5 against real servers, which the tests start with files of their own, and the
//! pages that set them up.

mod certificates;
/// The code of the pages, as it stands there.
#[allow(unreachable_pub)]
mod pages {
    pub(crate) mod acls;
    pub(crate) mod sasl;
}
mod refusals;
mod sasl;
mod servers;
mod setup;
mod tls;
