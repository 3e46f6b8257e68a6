//! TLS with client certificates and SASL DIGEST-MD5 against real servers, which the tests start with files of their own.

mod certificates;
mod refusals;
mod sasl;
mod servers;
mod tls;
