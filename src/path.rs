//! Lock paths: [`segment`](fn@segment) makes any key a part of a path, [`key`] turns it back, and [`validate`] checks a path.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use crate::error::{Error, Result};

/// The most bytes of a path. About 50 paths of this length fill a session. A path of a megabyte would exceed a request.
const MAX_BYTES: usize = 16 * 1024;

/// The servers' own node.
const SERVERS: &str = "/zookeeper";

/// Turns any text, such as an order number or a file name, into one segment of a path.
///
/// Characters that a path may not contain (`/`, control characters, U+E000 to U+F8FF, and everything from U+FFF0 on, such as
/// emoji), the names `.` and `..`, and `%` itself are written as `%` and two hexadecimal digits per byte. The empty key becomes
/// `%`. So different keys give different segments.
///
/// # Examples
///
/// ```
/// use zookeeper_recipes::path;
///
/// assert_eq!(path::segment("order-17"), "order-17");
/// assert_eq!(path::segment("eu/west"), "eu%2Fwest");
/// assert_eq!(path::segment(".."), "%2E%2E");
/// assert_eq!(path::segment("🔒"), "%F0%9F%94%92");
/// ```
#[must_use]
pub fn segment(key: &str) -> String {
    if key.is_empty() {
        // No other key gives a lone `%`, because `%` itself is escaped.
        return "%".to_owned();
    }
    let only_dots = key == "." || key == "..";
    let mut segment = String::with_capacity(key.len());
    for c in key.chars() {
        if c == '/' || c == '%' || is_forbidden(c) || only_dots {
            let mut bytes = [0; 4];
            for byte in c.encode_utf8(&mut bytes).bytes() {
                write!(segment, "%{byte:02X}").expect("a string takes every write");
            }
        } else {
            segment.push(c);
        }
    }
    segment
}

/// Returns the key from which [`segment`](fn@segment) makes this segment; `None` if there is no such key.
///
/// # Examples
///
/// ```
/// use zookeeper_recipes::path;
///
/// assert_eq!(path::key("eu%2Fwest").as_deref(), Some("eu/west"));
/// assert_eq!(path::key("eu%2fwest"), None, "segment() writes capital letters");
/// ```
#[must_use]
pub fn key(segment: &str) -> Option<String> {
    if segment == "%" {
        return Some(String::new());
    }
    let mut parts = segment.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    let key = String::from_utf8(bytes).ok()?;
    // Only the spelling that `segment` writes is accepted.
    (self::segment(&key) == segment).then_some(key)
}

/// Checks whether `path` can be a lock path, without a session. Use it for a path from a command line or a configuration,
/// before anything is connected.
///
/// Every recipe makes the same check. In a session without a chroot, recipes also refuse `/zookeeper` and its descendants.
///
/// # Errors
///
/// [`Error::InvalidInput`] with the reason.
///
/// # Examples
///
/// ```
/// use zookeeper_recipes::path;
///
/// assert!(path::validate("/locks/nightly-report").is_ok());
/// assert!(path::validate("locks/nightly-report").is_err());
/// ```
pub fn validate(path: &str) -> Result<()> {
    LockPath::new(path).map(drop)
}

/// A path that can be a lock path: absolute, not the root, not too long, and only with segments that the servers accept.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct LockPath(Arc<str>);

impl LockPath {
    pub(crate) fn new(path: &str) -> Result<Self> {
        let invalid = |reason: String| Err(Error::invalid("lock path", reason));
        if path.is_empty() {
            return invalid("it is empty; it should look like /locks/name".to_owned());
        }
        if path == "/" {
            return invalid("the root cannot be a lock; it should look like /locks/name".to_owned());
        }
        let Some(relative) = path.strip_prefix('/') else {
            return invalid(format!("{path:?} is relative; it should begin with /"));
        };
        if path.len() > MAX_BYTES {
            return invalid(format!("it has {} bytes; {MAX_BYTES} are the most", path.len()));
        }
        if path.ends_with('/') {
            return invalid(format!("{path:?} ends with /; leave the last / out"));
        }
        for segment in relative.split('/') {
            if segment.is_empty() {
                return invalid(format!("{path:?} has an empty segment (//)"));
            }
            if segment == "." || segment == ".." {
                return invalid(format!("{path:?} has the segment {segment:?}, which ZooKeeper does not resolve"));
            }
            if let Some(c) = segment.chars().find(|&c| is_forbidden(c)) {
                let escaped = self::segment(c.encode_utf8(&mut [0; 4]));
                return invalid(format!("{path:?} has the character {c:?}; write {escaped}"));
            }
        }
        Ok(Self(path.into()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether the path is `/zookeeper`, where the servers keep their configuration and quotas, or below it.
    pub(crate) fn is_the_servers(&self) -> bool {
        let below = self.0.strip_prefix(SERVERS);
        below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
    }

    /// Fails if the path belongs to the servers. Such a path can be a lock path only in a chroot.
    pub(crate) fn refuse_the_servers(&self) -> Result<()> {
        if !self.is_the_servers() {
            return Ok(());
        }
        let reason = format!("{self}: /zookeeper belongs to the servers; it should look like /locks/name");
        Err(Error::invalid("lock path", reason))
    }

    /// Returns the path of the child `name`.
    pub(crate) fn child(&self, name: &str) -> String {
        format!("{}/{name}", self.0)
    }

    /// Returns the paths from the topmost ancestor down to this path, itself included.
    pub(crate) fn lineage(&self) -> impl Iterator<Item = &str> {
        let ends = self.0.match_indices('/').skip(1).map(|(at, _)| at);
        ends.chain(std::iter::once(self.0.len())).map(|end| &self.0[..end])
    }
}

impl fmt::Debug for LockPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for LockPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns whether ZooKeeper refuses a character in a path (`PathUtils.validatePath`). ZooKeeper looks at UTF-16 and
/// refuses surrogates, so nothing beyond U+FFFF passes.
fn is_forbidden(c: char) -> bool {
    matches!(c, '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_what_the_server_takes() {
        for path in ["/a", "/a/b/c", "/a/.b/..c/d.", "/路径/ü", "/a b/%2F"] {
            assert_eq!(LockPath::new(path).expect(path).as_str(), path);
        }
    }

    #[test]
    fn refuses_what_the_server_refuses() {
        for path in [
            "",
            "/",
            "a",
            "a/b",
            "//",
            "/a//b",
            "/a/",
            "/a/./b",
            "/a/..",
            "/.",
            "/a\0b",
            "/\u{7f}",
            "/\u{f000}",
            "/\u{1f600}",
        ] {
            let error = LockPath::new(path).expect_err(path);
            assert!(matches!(error, Error::InvalidInput { what: "lock path", .. }), "{path:?}: {error}");
        }
        assert!(LockPath::new(&format!("/{}", "x".repeat(MAX_BYTES))).is_err());
    }

    #[test]
    fn knows_what_is_the_servers() {
        for (path, theirs) in [
            ("/zookeeper", true),
            ("/zookeeper/config", true),
            ("/zookeeper/quota/a", true),
            ("/zookeepers", false),
            ("/zookeeper-locks/a", false),
            ("/a/zookeeper", false),
            ("/Zookeeper", false),
        ] {
            assert_eq!(LockPath::new(path).expect(path).is_the_servers(), theirs, "{path}");
        }
    }

    #[test]
    fn lineage_runs_from_the_top_down() {
        let path = LockPath::new("/a/ü/c").expect("a path");
        assert_eq!(path.lineage().collect::<Vec<_>>(), ["/a", "/a/ü", "/a/ü/c"]);
        let path = LockPath::new("/a").expect("a path");
        assert_eq!(path.lineage().collect::<Vec<_>>(), ["/a"]);
    }

    #[test]
    fn segments_are_valid_and_distinct() {
        let keys =
            ["", "%", ".", "..", "...", "a", "a/b", "a%2Fb", "\0", "\u{7f}", "ü", "\u{f000}", "\u{1f600}", " "];
        let segments: std::collections::HashSet<_> = keys.iter().map(|key| segment(key)).collect();
        assert_eq!(segments.len(), keys.len());
        for segment in segments {
            LockPath::new(&format!("/locks/{segment}")).expect(&segment);
        }
    }
}
