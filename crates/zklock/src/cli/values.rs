//! Owns the values of options and variables: which are valid, and what they mean.

use std::time::Duration;

/// A lock path.
pub(crate) fn lock_path(text: &str) -> Result<String, String> {
    match zookeeper_recipes::path::validate(text) {
        Ok(()) => Ok(text.to_owned()),
        Err(zookeeper_recipes::Error::InvalidInput { reason, .. }) => Err(reason),
        Err(error) => Err(error.to_string()),
    }
}

/// A node with locks below it, which may be the root.
pub(crate) fn parent(text: &str) -> Result<String, String> {
    if text == "/" { Ok(text.to_owned()) } else { lock_path(text) }
}

/// A chroot, as services read it: the root is none.
pub(crate) fn chroot(text: &str) -> Result<String, String> {
    match text {
        "" | "/" => Ok(String::new()),
        text => lock_path(text),
    }
}

/// A time: a number with decimals, and a unit. Without a unit it is in seconds.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let units = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86_400.0)];
    let of_unit = units.iter().find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, *seconds)));
    let (number, unit) = of_unit.unwrap_or((text, 1.0));
    // Not everything that is a number to Rust is one here: `inf`, `NaN`, `-1`, `1e9`.
    let well_formed = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let number = number.parse::<f64>().ok().filter(|_| well_formed);
    let number =
        number.ok_or("it should be a time, such as 2, 0.5, 500ms, 30s, 5m or 2h; without a unit, in seconds")?;
    // A clock can add a century to its time.
    Duration::try_from_secs_f64(number * unit)
        .ok()
        .filter(|seconds| *seconds <= Duration::from_secs(3_153_600_000))
        .ok_or_else(|| "it is too long; a century is the most".to_owned())
}

/// A session timeout.
pub(crate) fn session(text: &str) -> Result<Duration, String> {
    bearable(time(text)?).ok_or_else(|| "it should be from 0.1 s to a day".to_owned())
}

/// A session timeout in milliseconds, from the variable of services, with the limits of `--session`.
pub(crate) fn session_ms(text: &str) -> Result<Duration, String> {
    text.trim()
        .parse()
        .ok()
        .map(Duration::from_millis)
        .and_then(bearable)
        .ok_or_else(|| "ZK_SESSION_TIMEOUT_MS should be a number of milliseconds, from 100 to 86400000".to_owned())
}

fn bearable(session: Duration) -> Option<Duration> {
    let limits = Duration::from_millis(100)..=Duration::from_secs(24 * 60 * 60);
    limits.contains(&session).then_some(session)
}

/// Yes or no, as services read it.
pub(crate) fn truth(text: &str) -> Result<bool, String> {
    text.trim().parse().map_err(|_| "ZK_CREATE_CHROOT should be true or false".to_owned())
}

/// The number of a shard.
pub(crate) fn shard(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| "it should be the number of a shard, from 0 on".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_plain_numbers_with_a_unit() {
        for (text, milliseconds) in [
            ("0.5", 500),
            ("0", 0),
            ("500ms", 500),
            ("5s", 5000),
            ("2m", 120_000),
            ("1.5h", 5_400_000),
            ("1d", 86_400_000),
        ] {
            assert_eq!(time(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        for odd in
            ["", ".", "-1", "inf", "NaN", "1e3", "+1", "s", "5 s", "5S", "1.2.3", "99999999999", "99999999d"]
        {
            assert!(time(odd).is_err(), "{odd}");
        }
    }

    #[test]
    fn session_timeouts_of_services_are_milliseconds() {
        assert_eq!(session_ms(" 6000"), Ok(Duration::from_secs(6)));
        for odd in ["", "6s", "99", "-1", "0.5", "86400001"] {
            assert!(session_ms(odd).is_err(), "{odd}");
        }
    }
}
