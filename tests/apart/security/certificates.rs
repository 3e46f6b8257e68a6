//! Authorities and the certificates that they issue, made by `openssl` as PEM files in a temporary folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// A certificate and its key, or those of an authority.
#[derive(Clone)]
pub(crate) struct Certificate {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

pub(crate) struct Authority {
    folder: TempDir,
    own: Certificate,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let own = files(folder.path(), "authority");
        new_key(&["-x509", "-days", "30", "-subj", &format!("/CN={name}")], &own.key, &own.cert);
        Self { folder, own }
    }

    /// Its certificate, by which others trust those that it issues.
    pub(crate) fn trust(&self) -> &Path {
        &self.own.cert
    }

    /// Issues a certificate of this name to this host, `IP:…` or `DNS:…`. With no days it has expired a second later.
    pub(crate) fn issue(&self, name: &str, host: &str, days: u32) -> Certificate {
        let issued = files(self.folder.path(), name);
        let request = issued.cert.with_extension("request");
        let (subject, host) = (format!("/CN={name}"), format!("subjectAltName={host}"));
        new_key(&["-new", "-subj", &subject, "-addext", &host], &issued.key, &request);
        let [from, cert, key] = [&request, &self.own.cert, &self.own.key].map(|path| path.to_str().expect("text"));
        let by = ["x509", "-req", "-in", from, "-CA", cert, "-CAkey", key, "-CAcreateserial"];
        openssl(&[&by[..], &["-copy_extensions", "copy", "-days", &days.to_string()]].concat(), &issued.cert);
        issued
    }
}

impl Certificate {
    /// The key and the certificate in one text, as Java reads them.
    pub(crate) fn both(&self) -> String {
        [&self.key, &self.cert].map(|file| fs::read_to_string(file).expect("written")).concat()
    }
}

fn files(folder: &Path, name: &str) -> Certificate {
    Certificate { cert: folder.join(format!("{name}.pem")), key: folder.join(format!("{name}.key")) }
}

/// Makes a key, and a certificate or a request for one.
fn new_key(what: &[&str], key: &Path, out: &Path) {
    let kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
    openssl(&[&["req"], what, &kind, &["-keyout", key.to_str().expect("text")]].concat(), out);
}

fn openssl(args: &[&str], out: &Path) {
    let mut command = Command::new("openssl");
    let output = command.args(args).arg("-out").arg(out).output();
    let output = output.unwrap_or_else(|error| panic!("cannot run openssl; install the package openssl: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
