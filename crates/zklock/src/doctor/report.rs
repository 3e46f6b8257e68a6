//! Owns [`Report`]: what was measured and found, and how it is printed: for people, or as JSON.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::time::Duration;

use serde_json::{Value, json};

use zookeeper_recipes::FencingToken;

use crate::cli::Doctor;
use crate::doctor::findings::{Finding, Level};
use crate::doctor::host::{Host, Latency};
use crate::exit::Failure;
use crate::json;
use crate::messages::count;
use crate::queue::plain;

#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) hosts: Vec<Host>,
    /// `None` if no lock was acquired.
    pub(crate) lock: Option<Trial>,
    /// What the lock path is, if there is one to look at.
    pub(crate) looked: Option<Looked>,
    pub(crate) findings: Vec<Finding>,
}

/// A lock that was taken to try it.
#[derive(Debug)]
pub(crate) struct Trial {
    pub(crate) acquired: Duration,
    /// `None` if it was lost.
    pub(crate) released: Option<Duration>,
    pub(crate) token: FencingToken,
    /// Who we are to the servers, if we have credentials that they know.
    pub(crate) identity: Option<String>,
}

/// What was seen of a lock path.
#[derive(Debug)]
pub(crate) enum Looked {
    Missing,
    Denied,
    Found { acl: Vec<String>, children: usize },
}

impl Report {
    pub(crate) fn of(hosts: Vec<Host>) -> Self {
        Self { hosts, lock: None, looked: None, findings: Vec::new() }
    }

    /// Prints what is not to be ignored, and returns the levels of its findings.
    pub(crate) fn print(&self, given: &Doctor) -> Result<Vec<Level>, Failure> {
        let is_ignored = |finding: &&Finding| given.ignore.iter().any(|id| id == finding.id);
        let (ignored, mut shown): (Vec<_>, Vec<_>) = self.findings.iter().partition(is_ignored);
        // What is wrong comes before what may be.
        shown.sort_by_key(|finding| finding.level == Level::Note);
        let mut ignored: Vec<_> = ignored.iter().map(|finding| finding.id).collect();
        ignored.sort_unstable();
        ignored.dedup();
        let mut out = io::stdout().lock();
        if given.json {
            json::print(&mut out, &self.to_json(given, &shown, &ignored))?;
        } else {
            out.write_all(self.to_text(given, &shown, &ignored).as_bytes())?;
        }
        out.flush()?;
        Ok(shown.iter().map(|finding| finding.level).collect())
    }

    fn to_text(&self, given: &Doctor, findings: &[&Finding], ignored: &[&str]) -> String {
        let mut text = String::new();
        for host in &self.hosts {
            describe(&mut text, host);
        }
        let serves = self.hosts.iter().any(|host| host.seen.is_ok());
        match &self.lock {
            Some(Trial { acquired, released, token, identity }) => {
                let released = match released {
                    Some(released) => format!("released in {released:.1?}; containers work"),
                    None => "and then lost".to_owned(),
                };
                let identity = identity.as_ref().map_or(String::new(), |identity| format!("; we are {identity}"));
                line(
                    &mut text,
                    "lock",
                    &format!("acquired in {acquired:.1?}, {released}; token {token}{identity}"),
                );
            }
            None if serves => line(&mut text, "lock", "not acquired"),
            None => {}
        }
        if let (Some(path), Some(looked)) = (&given.path, &self.looked) {
            let seen = match looked {
                Looked::Missing => "does not exist now; the first lock creates it".to_owned(),
                Looked::Denied => "its ACL does not let us look".to_owned(),
                Looked::Found { acl, children } => {
                    format!("{}; {}", acl.join(", "), count(*children, "child", "children"))
                }
            };
            line(&mut text, path, &seen);
        }
        text.push('\n');
        for finding in findings {
            text += &format!("{finding}\n");
        }
        match (findings.is_empty(), ignored.is_empty()) {
            (true, true) => text += "nothing to change\n",
            (_, false) => text += &format!("ignored: {}\n", ignored.join(", ")),
            (false, true) => {}
        }
        text
    }

    fn to_json(&self, given: &Doctor, findings: &[&Finding], ignored: &[&str]) -> Value {
        let lock = self.lock.as_ref().map(|lock| {
            json!({
                "acquired_ms": ms(lock.acquired),
                "released_ms": lock.released.map(ms),
                "token": lock.token.get(),
                "identity": lock.identity,
            })
        });
        let path = given.path.as_ref().zip(self.looked.as_ref()).map(|(path, looked)| match looked {
            Looked::Missing => json!({ "path": path, "exists": false, "acl": null, "children": 0 }),
            Looked::Denied => json!({ "path": path, "exists": true, "acl": null, "children": null }),
            Looked::Found { acl, children } => {
                json!({ "path": path, "exists": true, "acl": acl, "children": children })
            }
        });
        let finding = |finding: &&Finding| {
            let Finding { id, level, hosts, text } = finding;
            json!({ "id": id, "level": level.name(), "hosts": hosts, "text": text })
        };
        json!({
            "hosts": self.hosts.iter().map(host_to_json).collect::<Vec<_>>(),
            "lock": lock,
            "path": path,
            "findings": findings.iter().map(finding).collect::<Vec<_>>(),
            "ignored": ignored,
        })
    }
}

fn version(host: &Host) -> Option<String> {
    host.words.version.map(|(major, minor, patch)| format!("{major}.{minor}.{patch}"))
}

fn describe(report: &mut String, host: &Host) {
    let words = &host.words;
    let version = version(host).map_or("version unknown".to_owned(), |version| format!("version {version}"));
    let mode = words.mode.as_deref().map(|mode| plain(mode, 20)).unwrap_or("mode unknown".to_owned());
    let tick = words.tick.map(|tick| format!(", tick {tick:?}")).unwrap_or_default();
    line(report, &host.name, &format!("{version}, {mode}{tick}"));
    match &host.seen {
        Err(reason) => line(report, "", &format!("gives no session: {}", plain(&reason.to_string(), 200))),
        Ok(seen) => {
            let bound = |bound: Option<Duration>| bound.map_or("?".to_owned(), |bound| format!("{bound:?}"));
            let (shortest, longest) = (bound(seen.limits.0), bound(seen.limits.1));
            // One second was asked for, and so nothing shorter was seen.
            let shortest = if shortest == "1s" { "1s or less".to_owned() } else { shortest };
            line(report, "", &format!("session {:?}; the server grants {shortest} to {longest}", seen.granted));
            line(report, "", &format!("read {}; quorum write {}", shown(seen.reads), shown(seen.writes)));
        }
    }
}

fn shown(latency: Latency) -> String {
    format!("{:.1?} (99 %: {:.1?})", latency.median, latency.slow)
}

/// Adds a line with what it is about in a column of its own.
fn line(report: &mut String, about: &str, text: &str) {
    writeln!(report, "{about:<24}  {text}").expect("a string takes every write");
}

fn host_to_json(host: &Host) -> Value {
    let seen = host.seen.as_ref().ok();
    let latency = |latency: Latency| json!({ "median": ms(latency.median), "p99": ms(latency.slow) });
    json!({
        "host": host.name,
        "version": version(host),
        "mode": host.words.mode,
        "tick_ms": host.words.tick.map(ms),
        "session_ms": seen.map(|seen| ms(seen.granted)),
        "shortest_session_ms": seen.and_then(|seen| seen.limits.0).map(ms),
        "longest_session_ms": seen.and_then(|seen| seen.limits.1).map(ms),
        "read_ms": seen.map(|seen| latency(seen.reads)),
        "write_ms": seen.map(|seen| latency(seen.writes)),
        "error": host.seen.as_ref().err().map(ToString::to_string),
    })
}

/// Milliseconds, whole ones without a fraction.
fn ms(duration: Duration) -> Value {
    match u64::try_from(duration.as_millis()) {
        Ok(whole) if duration == Duration::from_millis(whole) => json!(whole),
        _ => json!(duration.as_secs_f64() * 1000.0),
    }
}
