//! Owns what the servers show of a session's connection: its address, its timeout, and when it was last heard. It is from the
//! four letter word `cons`, which the configuration of a server has to allow.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::future::join_all;
use zookeeper_recipes::Session;
use zookeeper_recipes::zookeeper_client::SessionId;

use crate::cli::Connection;
use crate::connect::{close, hosts, servers, split};
use crate::exit::Failure;
use crate::line::Line;
use crate::queue::Entry;

/// How long a server has for an answer. Over TLS, a busy one takes longer for a handshake.
const PATIENCE: Duration = Duration::from_secs(1);
const PATIENCE_WITH_TLS: Duration = Duration::from_secs(3);

/// The connections of all sessions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connections {
    sessions: HashMap<i64, Connected>,
    /// Whether a server has shown any.
    pub(crate) are_shown: bool,
    /// Whether all servers have, so that a session that is not there is at none of them.
    are_complete: bool,
}

/// The connection of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Connected {
    pub(crate) address: String,
    /// The session timeout.
    pub(crate) timeout: Duration,
    /// How long ago the client was last heard, if that is known.
    pub(crate) heard: Option<Duration>,
}

/// What is known of the connection of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found<'a> {
    Unknown,
    /// It has none: its process ended, its machine did, or the network between.
    Gone,
    At(&'a Connected),
}

impl Connections {
    /// Asks all servers at once for the connections of these contenders.
    pub(crate) async fn look(
        connection: &Connection,
        session: &Session,
        entries: &[Entry],
    ) -> Result<Self, Failure> {
        let wanted = &*entries.iter().map(|entry| entry.contender.session_id().0).collect::<Vec<_>>();
        if wanted.is_empty() {
            return Ok(Self::default());
        }
        let (names, _) = split(&hosts(connection)?);
        let answers = join_all(names.iter().map(|name| of_host(connection, session, name, wanted))).await;
        let mut this = Self { are_complete: knows_all_servers(session, names.len()).await, ..Self::default() };
        for answer in answers {
            match answer? {
                Some(sessions) => {
                    this.are_shown = true;
                    for (session, connected) in sessions {
                        // A session that has moved may be at two servers for a moment.
                        let last = |one: &Connected| one.heard.unwrap_or(Duration::MAX);
                        if this.sessions.get(&session).is_none_or(|other| last(&connected) < last(other)) {
                            this.sessions.insert(session, connected);
                        }
                    }
                }
                None => this.are_complete = false,
            }
        }
        Ok(this)
    }

    pub(crate) fn of(&self, session: SessionId) -> Found<'_> {
        match self.sessions.get(&session.0) {
            Some(connected) => Found::At(connected),
            None if self.are_complete => Found::Gone,
            None => Found::Unknown,
        }
    }
}

/// The connections of a server; `None` if it does not show them.
async fn of_host(
    connection: &Connection,
    session: &Session,
    name: &str,
    wanted: &[i64],
) -> Result<Option<HashMap<i64, Connected>>, Failure> {
    let line = Line::to(connection, name)?;
    let limit = if line.has_tls() { PATIENCE_WITH_TLS } else { PATIENCE };
    let ask = async || parse(&line.ask("cons", limit).await.ok()?);
    let Some(rows) = ask().await else { return Ok(None) };
    let is_wanted = |rows: &[Row]| rows.iter().any(|row| wanted.contains(&row.session));
    let now = heard_last(&rows, session.id().0);
    if now.is_some() || !is_wanted(&rows) {
        return Ok(Some(by_session(&rows, now)));
    }
    // Servers show times of a clock of their own. A session there, which is heard now, shows what it is now.
    let server = Session::connect(servers(connection, connection.session(), name)?);
    let Ok(Ok(own)) = tokio::time::timeout(limit, server).await else { return Ok(Some(by_session(&rows, None))) };
    if let Some(client) = own.client() {
        _ = tokio::time::timeout(limit, client.check_stat("/")).await;
    }
    let rows = ask().await.unwrap_or(rows);
    let now = heard_last(&rows, own.id().0);
    close(&own).await;
    Ok(Some(by_session(&rows, now)))
}

/// Whether the list has all servers of the ensemble.
async fn knows_all_servers(session: &Session, listed: usize) -> bool {
    let Some(client) = session.client() else { return false };
    let Ok((config, _)) = client.get_config().await else { return false };
    let config = String::from_utf8_lossy(&config).into_owned();
    config.lines().filter(|line| line.starts_with("server.")).count() <= listed
}

/// A connection as `cons` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    session: i64,
    address: String,
    timeout: Duration,
    /// By the server's clock, in milliseconds.
    heard: u64,
}

/// When a session was last heard, by the clock of the server.
fn heard_last(rows: &[Row], session: i64) -> Option<u64> {
    let own = rows.iter().find(|row| row.session == session)?;
    // Another may be heard in the meantime.
    Some(rows.iter().map(|row| row.heard).max().unwrap_or_default().max(own.heard))
}

fn by_session(rows: &[Row], now: Option<u64>) -> HashMap<i64, Connected> {
    let connected = |row: &Row| Connected {
        address: row.address.clone(),
        timeout: row.timeout,
        heard: now.map(|now| Duration::from_millis(now.saturating_sub(row.heard))),
    };
    rows.iter().map(|row| (row.session, connected(row))).collect()
}

/// Reads lines like ` /10.0.0.7:41230[1](queued=0,recved=5,sent=5,sid=0x1000…,lop=PING,est=…,to=10000,…,lresp=8431,…)`. Those
/// without a session are connections of four letter words: the question itself is always one. `None`: the server does not show them.
fn parse(answer: &str) -> Option<Vec<Row>> {
    if !answer.lines().any(|line| line.trim_start().starts_with('/')) {
        return None;
    }
    let row = |line: &str| {
        let (address, fields) = line.trim().trim_start_matches('/').split_once('(')?;
        let (address, _) = address.rsplit_once('[')?;
        let fields: HashMap<_, _> =
            fields.trim_end_matches(')').split(',').filter_map(|field| field.split_once('=')).collect();
        let session = u64::from_str_radix(fields.get("sid")?.strip_prefix("0x")?, 16).ok()?;
        Some(Row {
            session: session.cast_signed(),
            address: address.to_owned(),
            timeout: Duration::from_millis(fields.get("to")?.parse().ok()?),
            heard: fields.get("lresp")?.parse().ok()?,
        })
    };
    Some(answer.lines().filter_map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = " /127.0.0.1:41230[0](queued=0,recved=1,sent=0)\n \
        /127.0.0.1:41228[1](queued=0,recved=5,sent=5,sid=0x100004eb38e70002,lop=PING,est=1790000000000,to=10000,lcxid=0x3,\
        lzxid=0xffffffffffffffff,lresp=8431,llat=0,minlat=0,avglat=0,maxlat=3)\n \
        /[0:0:0:0:0:0:0:1]:41229[1](queued=0,recved=5,sent=5,sid=0xf00004eb38e70003,lop=PING,est=1790000000000,to=4000,\
        lcxid=0x3,lzxid=0xffffffffffffffff,lresp=8000,llat=0,minlat=0,avglat=0,maxlat=3)\n\n";

    #[test]
    fn connections_are_read() {
        let rows = parse(ANSWER).expect("shown");
        assert_eq!(rows.len(), 2, "{rows:?}");
        assert_eq!((rows[0].session, rows[0].address.as_str()), (0x1000_04eb_38e7_0002, "127.0.0.1:41228"));
        assert_eq!(rows[1].session, 0xf000_04eb_38e7_0003_u64.cast_signed());
        assert_eq!(rows[1].address, "[0:0:0:0:0:0:0:1]:41229");
        let now = heard_last(&rows, rows[0].session);
        let all = by_session(&rows, now);
        assert_eq!(all[&rows[1].session].heard, Some(Duration::from_millis(431)));
        assert_eq!(heard_last(&rows, 1), None, "no session of ours is there");
        assert_eq!(
            parse(" /127.0.0.1:41230[0](queued=0,recved=1,sent=0)\n\n"),
            Some(Vec::new()),
            "an idle server"
        );
        assert_eq!(parse("cons is not executed because it is not in the whitelist."), None);
    }
}
