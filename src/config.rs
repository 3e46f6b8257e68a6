//! Owns [`Config`]: the settings of a deployment for a session, from the environment or from a document.
//!
//! 1. A setting that cannot be read, or contradicts another one, is refused at once. The error names the variable or the
//!    field. Each time a ZooKeeper session is made, the files that settings name are read, and credentials are checked.
//! 2. Neither errors nor `Debug` show credentials or the contents of files.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::future::ready;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::options::Options;
use crate::session::{Servers, has_chroot, normalize};

/// The settings of a deployment for a session: the servers, credentials, TLS, and our identity.
///
/// A config is read [from the environment](Self::from_env), or deserialized from a document with the feature `serde`.
/// Unknown fields of a document are errors.
///
/// | field | variable with the prefix `ZK` | |
/// |---|---|---|
/// | `hosts` | `ZK_HOSTS` | `zk1:2181,zk2:2181,zk3:2181`; required |
/// | `session_timeout_ms` | `ZK_SESSION_TIMEOUT_MS` | in milliseconds; 6000 by default, and for 0 |
/// | `chroot` | `ZK_CHROOT` | `/billing`: the node below which all paths begin, which must exist; none by default |
/// | `auth_file` | `ZK_AUTH_FILE` | a file with `user:password`, for the scheme `digest` |
/// | `auth` | `ZK_AUTH` | the same without a file |
/// | `tls_ca_file` | `ZK_TLS_CA_FILE` | PEM file of the authorities for the servers' certificates; hosts without `tcp://` are connected over TLS |
/// | `tls_cert_file`, `tls_key_file` | `ZK_TLS_CERT_FILE`, `ZK_TLS_KEY_FILE` | PEM files of our certificate and key, if the servers ask for one |
/// | `token_epoch` | `ZK_TOKEN_EPOCH` | the [epoch](Options::with_token_epoch) of fencing tokens, from 0 to 255; 0 by default |
/// | `unique_name` | `ZK_UNIQUE_NAME` | the name that [one process at a time](Servers::with_unique_name) has; none by default |
/// | `identifier` | `ZK_IDENTIFIER` | the data of our lock nodes; host name, process id and a random part by default |
///
/// [`Session::connect`](crate::Session::connect) and [`lazy`](crate::Session::lazy) take a `&Config`, and give the
/// session its [lock options](Self::lock_options). If a file cannot be read or used, they return
/// [`Error::InvalidInput`], with the path and the name of the variable or field. They also refuse credentials without
/// a colon, and a session timeout that cannot be sent. The first lock refuses an identifier that cannot be used.
///
/// Files are read whenever a session is made or renewed, so they can be replaced. Line breaks at the end of credentials
/// are cut off. The settings of TLS need the feature `tls`.
///
/// To add settings, call [`Servers`]'s methods on `Servers::from(&config)`. A session timeout set by
/// [`with_session_timeout`](Servers::with_session_timeout) replaces that of the configuration.
///
/// # Examples
///
/// ```no_run
/// # async fn example() -> Result<(), zookeeper_recipes::Error> {
/// use zookeeper_recipes::{Config, Mutex, Session};
///
/// let session = Session::connect(&Config::from_env("ZK")?).await?;
/// let mutex = Mutex::new(&session, "/locks/nightly-report")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize), serde(try_from = "Settings"))]
pub struct Config {
    settings: Settings,
    /// The prefix of the variables, if the settings were read from the environment.
    prefix: Option<String>,
    /// The hosts, with their protocols, and the chroot.
    hosts: String,
}

#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize), serde(deny_unknown_fields, default))]
struct Settings {
    hosts: String,
    session_timeout_ms: Option<u32>,
    chroot: Option<String>,
    auth: Option<Secret>,
    auth_file: Option<PathBuf>,
    tls_ca_file: Option<PathBuf>,
    tls_cert_file: Option<PathBuf>,
    tls_key_file: Option<PathBuf>,
    identifier: Option<String>,
    unique_name: Option<String>,
    token_epoch: Option<u8>,
}

impl Config {
    /// Reads the variables that begin with `prefix` and `_`, such as `ZK_HOSTS`. An empty variable counts as not set.
    ///
    /// Unknown variables are logged in one warning and not refused, because other programs may use the prefix. The warning
    /// leaves out `ZK_HOME`, which ZooKeeper's scripts use, and the variables that Kubernetes sets for a service `zk`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`], with the name of the variable, if a setting cannot be used or there are no hosts.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn example() -> Result<(), zookeeper_recipes::Error> {
    /// use zookeeper_recipes::Config;
    ///
    /// // Reads ZK_HOSTS and the others.
    /// let config = Config::from_env("ZK")?;
    /// println!("{config:?}"); // without the credentials
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_env(prefix: &str) -> Result<Self> {
        Self::from_variables(prefix, std::env::vars_os())
    }

    fn from_variables(prefix: &str, variables: impl IntoIterator<Item = (OsString, OsString)>) -> Result<Self> {
        let (mut settings, mut unknown) = (Settings::default(), Vec::new());
        for (name, value) in variables {
            let Some(name) = name.to_str() else { continue };
            let Some(setting) = name.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('_')) else {
                continue;
            };
            if !value.is_empty() && !settings.set(setting, name, &value)? && !is_of_others(setting) {
                unknown.push(name.to_owned());
            }
        }
        if !unknown.is_empty() {
            unknown.sort_unstable();
            tracing::warn!(variables = unknown.join(", "), "variables of the environment are no settings");
        }
        Self::checked(settings, Some(prefix.to_owned()))
    }

    fn checked(settings: Settings, prefix: Option<String>) -> Result<Self> {
        let mut this = Self { settings, prefix, hosts: String::new() };
        let Settings { hosts, chroot, auth, auth_file, .. } = &this.settings;
        if hosts.trim().is_empty() {
            return Err(this.invalid("hosts", "is not set, or empty; give it a list like zk1:2181,zk2:2181"));
        }
        if auth.is_some() && auth_file.is_some() {
            let reason = format!("and {} are both set; leave out one", this.name("auth_file"));
            return Err(this.invalid("auth", reason));
        }
        let is_over_tls = this.check_tls()?;
        let normalized = normalize(hosts).map_err(|error| this.of("hosts", error))?;
        this.hosts = if is_over_tls { over_tls(&normalized) } else { normalized };
        if let Some(chroot) = chroot.as_deref().filter(|chroot| !matches!(*chroot, "" | "/")) {
            if has_chroot(&this.hosts) {
                let reason = format!("is set, and {} ends with a chroot, too; leave out one", this.name("hosts"));
                return Err(this.invalid("chroot", reason));
            }
            if !chroot.starts_with('/') {
                return Err(this.invalid("chroot", format!("is {chroot:?}; it has to begin with /")));
            }
            let hosts = format!("{}{chroot}", this.hosts.trim_end_matches('/'));
            this.hosts = normalize(&hosts).map_err(|error| this.of("chroot", error))?;
        }
        Ok(this)
    }

    /// Checks the TLS settings. Returns whether the servers are connected over TLS.
    fn check_tls(&self) -> Result<bool> {
        let Settings { hosts, tls_ca_file, tls_cert_file, tls_key_file, .. } = &self.settings;
        let files =
            [("tls_ca_file", tls_ca_file), ("tls_cert_file", tls_cert_file), ("tls_key_file", tls_key_file)];
        let wanted = files.iter().find(|(_, file)| file.is_some()).map(|(field, _)| *field);
        let wanted = wanted.or(hosts.contains("tcp+tls://").then_some("hosts"));
        match (wanted, tls_ca_file, tls_cert_file, tls_key_file) {
            (None, ..) => Ok(false),
            (Some(field), ..) if !cfg!(feature = "tls") => {
                Err(self.invalid(field, "asks for TLS, which needs the feature `tls` of zookeeper-recipes"))
            }
            (Some(field), None, ..) => Err(self.missing("tls_ca_file", field, "asks for TLS")),
            (_, _, Some(_), None) => Err(self.missing("tls_key_file", "tls_cert_file", "is set")),
            (_, _, None, Some(_)) => Err(self.missing("tls_cert_file", "tls_key_file", "is set")),
            _ => Ok(true),
        }
    }

    /// Returns the servers, with their credentials, TLS options and session timeout. Each call reads the files again.
    fn servers(&self) -> Result<Servers> {
        let mut servers = Servers::new(&self.hosts);
        if let Some(ms) = self.settings.session_timeout_ms {
            servers = servers.with_session_timeout(Duration::from_millis(ms.into()));
        }
        if let Some(Secret(auth)) = &self.settings.auth {
            servers = servers.with_auth("digest", self.credentials("auth", auth.as_bytes())?);
        }
        if let Some(file) = &self.settings.auth_file {
            let read = self.read("auth_file", file)?;
            servers = servers.with_auth("digest", self.credentials("auth_file", &read)?);
        }
        #[cfg(feature = "tls")]
        if let Some(options) = self.tls()? {
            servers = servers.with_tls(options);
        }
        Ok(servers)
    }

    /// Returns the hosts to connect to, with the chroot, in the form of [`Servers::new`].
    #[must_use]
    pub fn hosts(&self) -> &str {
        &self.hosts
    }

    /// Returns the options for the locks of the session: the identifier and the epoch of tokens, if they are set.
    ///
    /// ACLs are not among them. A session with credentials logs one warning if it makes a lock without
    /// [ACLs](Options::with_acls), because everyone can use the nodes of such a lock.
    #[must_use]
    pub fn lock_options(&self) -> Options {
        let mut options = Options::new();
        options.credentials = self.has_credentials().then(|| Arc::new(Once::new()));
        if let Some(epoch) = self.settings.token_epoch {
            options = options.with_token_epoch(epoch);
        }
        let identifier = self.settings.identifier.as_ref();
        identifier.map_or(options.clone(), |identifier| options.with_identifier(identifier))
    }

    fn has_credentials(&self) -> bool {
        self.settings.auth.is_some() || self.settings.auth_file.is_some()
    }

    #[cfg(feature = "tls")]
    fn tls(&self) -> Result<Option<zookeeper_client::TlsOptions>> {
        let Settings { tls_ca_file, tls_cert_file, tls_key_file, .. } = &self.settings;
        let Some(ca_file) = tls_ca_file else { return Ok(None) };
        let ca = self.read_text("tls_ca_file", ca_file)?;
        let unusable =
            |field, file: &Path| self.invalid(field, format!("is {}, which has no valid PEM", file.display()));
        let options = zookeeper_client::TlsOptions::new().with_pem_ca(&ca);
        let mut options = options.map_err(|_| unusable("tls_ca_file", ca_file))?;
        if let (Some(cert_file), Some(key_file)) = (tls_cert_file, tls_key_file) {
            let cert = self.read_text("tls_cert_file", cert_file)?;
            let key = self.read_text("tls_key_file", key_file)?;
            let identified = options.with_pem_identity(&cert, &key);
            options = identified.map_err(|_| unusable("tls_key_file", key_file))?;
        }
        Ok(Some(options))
    }

    #[cfg(feature = "tls")]
    fn read_text(&self, field: &str, file: &Path) -> Result<String> {
        String::from_utf8(self.read(field, file)?)
            .map_err(|_| self.invalid(field, format!("is {}, which is not text", file.display())))
    }

    fn read(&self, field: &str, file: &Path) -> Result<Vec<u8>> {
        std::fs::read(file)
            .map_err(|error| self.invalid(field, format!("is {}, which cannot be read: {error}", file.display())))
    }

    /// Checks credentials, and returns them without the line breaks at their end.
    fn credentials<'a>(&self, field: &str, read: &'a [u8]) -> Result<&'a [u8]> {
        let end = read.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n')).map_or(0, |last| last + 1);
        let line = &read[..end];
        match line.iter().position(|&byte| byte == b':') {
            Some(user) if user > 0 && !line.contains(&b'\n') => Ok(line),
            _ => Err(self.invalid(field, "has to have one line, of the form user:password")),
        }
    }

    /// Returns the error for a set `field` that needs the missing setting `other`.
    fn missing(&self, other: &str, field: &str, why: &str) -> Error {
        self.invalid(field, format!("{why}; set {}, too", self.name(other)))
    }

    /// Returns an `InvalidInput` whose reason begins with the setting's name: that of the variable, or of the document's field.
    fn invalid(&self, field: &str, reason: impl fmt::Display) -> Error {
        Error::invalid("configuration", format!("{} {reason}", self.name(field)))
    }

    /// Adds the name of the setting `field` to an error from the check of the setting's value.
    fn of(&self, field: &str, error: Error) -> Error {
        match error {
            Error::InvalidInput { reason, .. } => self.invalid(field, format!("cannot be used: {reason}")),
            error => error,
        }
    }

    fn name(&self, field: &str) -> String {
        match &self.prefix {
            Some(prefix) => format!("{prefix}_{}", field.to_uppercase()),
            None => field.to_owned(),
        }
    }
}

impl From<&Config> for Servers {
    fn from(config: &Config) -> Self {
        let (options, name) = (config.lock_options(), config.settings.unique_name.clone());
        let config = config.clone();
        let first = config.servers();
        let servers = Self::from_fn(move || ready(config.servers().map_err(Error::into)));
        let servers = servers.configured(first, options);
        match name {
            Some(name) => servers.with_unique_name(&name),
            None => servers,
        }
    }
}

#[cfg(feature = "serde")]
impl TryFrom<Settings> for Config {
    type Error = Error;

    fn try_from(settings: Settings) -> Result<Self> {
        Self::checked(settings, None)
    }
}

impl Settings {
    /// Sets the field for a variable. Returns `false` if there is no such field. `setting`: the variable's name without
    /// the prefix.
    fn set(&mut self, setting: &str, variable: &str, value: &OsStr) -> Result<bool> {
        let invalid = |reason| Error::invalid("configuration", format!("{variable} {reason}"));
        let text = || value.to_str().map(str::to_owned).ok_or_else(|| invalid("is not UTF-8".to_owned()));
        let file = || Some(PathBuf::from(value));
        match setting {
            "HOSTS" => self.hosts = text()?,
            "SESSION_TIMEOUT_MS" => {
                let ms = text()?;
                let ms =
                    ms.trim().parse().map_err(|_| invalid(format!("is {ms:?}; give a number of milliseconds")))?;
                self.session_timeout_ms = Some(ms);
            }
            "CHROOT" => self.chroot = Some(text()?),
            "AUTH" => self.auth = Some(Secret(text()?)),
            "AUTH_FILE" => self.auth_file = file(),
            "TLS_CA_FILE" => self.tls_ca_file = file(),
            "TLS_CERT_FILE" => self.tls_cert_file = file(),
            "TLS_KEY_FILE" => self.tls_key_file = file(),
            "TOKEN_EPOCH" => {
                let epoch = text()?;
                let number = epoch.trim().parse();
                let wrong = || invalid(format!("is {epoch:?}; give a number from 0 to 255"));
                self.token_epoch = Some(number.map_err(|_| wrong())?);
            }
            "IDENTIFIER" => self.identifier = Some(text()?),
            "UNIQUE_NAME" => self.unique_name = Some(text()?),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Credentials, which `Debug` hides.
#[derive(Clone)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize), serde(from = "Text"))]
struct Secret(String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// A text in a document. The error for a value of another type does not show the value, which may be secret.
#[cfg(feature = "serde")]
#[derive(serde::Deserialize)]
#[serde(untagged, expecting = "expected text")]
enum Text {
    Text(String),
}

#[cfg(feature = "serde")]
impl From<Text> for Secret {
    fn from(Text::Text(text): Text) -> Self {
        Self(text)
    }
}

/// Returns whether a variable belongs to ZooKeeper's scripts or to Kubernetes. `setting`: its name without the prefix. For
/// a service `zk`, Kubernetes sets `ZK_SERVICE_HOST`, `ZK_PORT` and `ZK_PORT_2181_TCP`. For a service `zk-cs` it sets
/// `ZK_CS_SERVICE_HOST` and so on.
fn is_of_others(setting: &str) -> bool {
    setting == "HOME"
        || setting.ends_with("PORT")
        || ["SERVICE_HOST", "SERVICE_PORT", "PORT_"].iter().any(|part| setting.contains(part))
}

/// Returns the hosts, with the prefix of TLS for each host that names no protocol.
fn over_tls(hosts: &str) -> String {
    let over_tls = |host: &str| if host.contains("://") { host.to_owned() } else { format!("tcp+tls://{host}") };
    hosts.split(',').map(over_tls).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(variables: &[(&str, &str)]) -> Result<Config> {
        Config::from_variables("ZK", variables.iter().map(|(name, value)| (name.into(), value.into())))
    }

    /// Returns the error for these variables, with valid hosts.
    fn error(variables: &[(&str, &str)]) -> String {
        let mut all = vec![("ZK_HOSTS", "zk1:2181")];
        all.extend(variables);
        from(&all).and_then(|config| config.servers()).expect_err("refused").to_string()
    }

    #[test]
    fn variables_become_hosts_and_options() {
        let config = from(&[
            ("ZK_HOSTS", " zk1:2181, zk2:2181"),
            ("ZK_SESSION_TIMEOUT_MS", "10000"),
            ("ZK_CHROOT", "/billing/eu"),
            ("ZK_IDENTIFIER", "billing-7"),
            ("ZK_AUTH", ""),
            ("ZK_HOME", "/opt/zookeeper"),
            ("ZKX_HOSTS", "other:2181"),
            ("HOSTS", "other:2181"),
        ]);
        let config = config.expect("a configuration");
        assert_eq!(config.hosts(), "zk1:2181,zk2:2181/billing/eu");
        assert_eq!(config.lock_options().identifier(), b"billing-7");
        let servers = format!("{:?}", Servers::from(&config));
        assert!(servers.contains("session_timeout: 10s"), "{servers}");
    }

    #[test]
    fn root_is_no_chroot() {
        for chroot in ["", "/"] {
            let config = from(&[("ZK_HOSTS", "zk1:2181"), ("ZK_CHROOT", chroot)]).expect("a configuration");
            assert_eq!(config.hosts(), "zk1:2181");
        }
    }

    #[test]
    fn errors_name_the_variable() {
        for none in [from(&[]), from(&[("ZK_HOSTS", "")]), from(&[("ZK_HOSTS", " ")])] {
            let text = none.expect_err("no hosts").to_string();
            assert!(text.starts_with("invalid configuration: ZK_HOSTS is not set, or empty"), "{text}");
        }
        for (variables, text) in [
            (&[("ZK_HOSTS", "zk1;zk2")][..], "ZK_HOSTS cannot be used: \"zk1;zk2\": "),
            (
                &[("ZK_SESSION_TIMEOUT_MS", "10s")],
                "ZK_SESSION_TIMEOUT_MS is \"10s\"; give a number of milliseconds",
            ),
            (&[("ZK_SESSION_TIMEOUT_MS", "-1")], "ZK_SESSION_TIMEOUT_MS is \"-1\"; "),
            (&[("ZK_CHROOT", "billing")], "ZK_CHROOT is \"billing\"; it has to begin with /"),
            (&[("ZK_CHROOT", "/billing/")], "ZK_CHROOT cannot be used: "),
            (&[("ZK_CHROOT", "/zookeeper")], "ZK_CHROOT cannot be used: "),
            (
                &[("ZK_CHROOT", "/a"), ("ZK_HOSTS", "zk1/b")],
                "ZK_CHROOT is set, and ZK_HOSTS ends with a chroot, too",
            ),
            (&[("ZK_AUTH", "u:p"), ("ZK_AUTH_FILE", "/f")], "ZK_AUTH and ZK_AUTH_FILE are both set"),
            (&[("ZK_AUTH_FILE", "/no/such/file")], "ZK_AUTH_FILE is /no/such/file, which cannot be read: "),
            (&[("ZK_TOKEN_EPOCH", "256")], "ZK_TOKEN_EPOCH is \"256\"; give a number from 0 to 255"),
            (&[("ZK_TOKEN_EPOCH", "-1")], "ZK_TOKEN_EPOCH is \"-1\"; give a number from 0 to 255"),
        ] {
            let found = error(variables);
            assert!(found.starts_with(&format!("invalid configuration: {text}")), "{found}");
        }
    }

    #[test]
    fn epoch_of_tokens_is_an_option_of_locks() {
        let config = from(&[("ZK_HOSTS", "zk1"), ("ZK_TOKEN_EPOCH", " 7"), ("ZK_IDENTIFIER", "a")]);
        let options = config.expect("a configuration").lock_options();
        assert_eq!((options.token_epoch(), options.identifier()), (7, &b"a"[..]));
    }

    #[cfg(unix)]
    #[test]
    fn variable_that_is_no_text_is_refused_by_name() {
        use std::os::unix::ffi::OsStringExt;

        let value = OsString::from_vec(b"zk1\xff".to_vec());
        let error = Config::from_variables("ZK", [("ZK_HOSTS".into(), value)]).expect_err("no text");
        assert_eq!(error.to_string(), "invalid configuration: ZK_HOSTS is not UTF-8");
    }

    #[test]
    fn credentials_are_in_no_text() {
        let config = from(&[("ZK_HOSTS", "zk1"), ("ZK_AUTH", "billing:hunter2")]).expect("a configuration");
        for text in [format!("{config:?}"), format!("{:?}", Servers::from(&config))] {
            assert!(!text.contains("hunter2"), "{text}");
        }
        for wrong in ["hunter2", ":hunter2", "billing:hunter2\nhunter2"] {
            let text = error(&[("ZK_AUTH", wrong)]);
            assert!(text.ends_with("ZK_AUTH has to have one line, of the form user:password"), "{text}");
        }
    }

    #[test]
    fn variables_of_kubernetes_and_of_scripts_are_not_reported() {
        for of_others in [
            "HOME",
            "SERVICE_HOST",
            "SERVICE_PORT_CLIENT",
            "PORT",
            "PORT_2181_TCP_ADDR",
            "CS_SERVICE_HOST",
            "CS_PORT",
        ] {
            assert!(is_of_others(of_others), "{of_others}");
        }
        assert!(!["SESSION_TIMEOUT", "HOST", "CHROTT"].into_iter().any(is_of_others));
    }

    #[cfg(not(feature = "tls"))]
    #[test]
    fn settings_of_tls_need_its_feature() {
        for (variable, value) in [("ZK_TLS_CA_FILE", "/ca.pem"), ("ZK_HOSTS", "tcp+tls://zk1")] {
            let text = error(&[(variable, value)]);
            assert!(text.contains(variable) && text.contains("needs the feature `tls`"), "{text}");
        }
    }

    #[cfg(feature = "tls")]
    #[test]
    fn settings_of_tls_make_hosts_that_use_it() {
        let config =
            from(&[("ZK_HOSTS", "zk1,tcp+tls://zk2,tcp://zk3"), ("ZK_TLS_CA_FILE", "/a"), ("ZK_CHROOT", "/c")]);
        assert_eq!(config.expect("a configuration").hosts(), "tcp+tls://zk1,tcp+tls://zk2,tcp://zk3/c");
        for (variables, text) in [
            (&[("ZK_HOSTS", "tcp+tls://zk1")][..], "ZK_HOSTS asks for TLS; set ZK_TLS_CA_FILE, too"),
            (&[("ZK_TLS_KEY_FILE", "/k")], "ZK_TLS_KEY_FILE asks for TLS; set ZK_TLS_CA_FILE, too"),
            (
                &[("ZK_TLS_CA_FILE", "/a"), ("ZK_TLS_CERT_FILE", "/c")],
                "ZK_TLS_CERT_FILE is set; set ZK_TLS_KEY_FILE",
            ),
            (
                &[("ZK_TLS_CA_FILE", "/a"), ("ZK_TLS_KEY_FILE", "/k")],
                "ZK_TLS_KEY_FILE is set; set ZK_TLS_CERT_FILE",
            ),
            (&[("ZK_TLS_CA_FILE", "/no/such/file")], "ZK_TLS_CA_FILE is /no/such/file, which cannot be read: "),
        ] {
            let found = error(variables);
            assert!(found.starts_with(&format!("invalid configuration: {text}")), "{found}");
        }
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "not a certificate").expect("written");
        let path = file.path().to_str().expect("a path");
        assert_eq!(
            error(&[("ZK_TLS_CA_FILE", path)]),
            format!("invalid configuration: ZK_TLS_CA_FILE is {path}, which has no valid PEM")
        );
    }

    #[cfg(feature = "serde")]
    #[test]
    fn document_is_checked_and_has_no_unknown_fields() {
        let read = |text: &str| serde_json::from_str::<Config>(text);
        let config = read(r#"{"hosts": "zk1", "session_timeout_ms": 9000, "chroot": "/a", "auth": "u:hunter2"}"#);
        let config = config.expect("a configuration");
        assert_eq!(config.hosts(), "zk1/a");
        assert!(!format!("{config:?}").contains("hunter2"), "{config:?}");
        for (document, text) in [
            ("{}", "hosts is not set"),
            (r#"{"hosts": "zk1", "host": "zk2"}"#, "unknown field `host`"),
            (r#"{"hosts": "zk1", "auth": 2347}"#, "expected text"),
        ] {
            let error = read(document).expect_err(document).to_string();
            assert!(error.contains(text) && !error.contains("2347"), "{error}");
        }
    }
}
