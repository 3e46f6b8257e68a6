//! Programs: what clients do, chosen before anything is sent, so that it is the same for every server.

use fastrand::Rng;

const STEPS: usize = 60;
const PATHS: [&str; 12] = [
    "",
    "/a",
    "/b",
    "/c",
    "/a/x",
    "/a/y",
    "/b/x",
    "/a/x/z",
    "/a/s0000000000",
    "/a/s0000000001",
    "/s0000000001",
    "/b/s0000000000",
];

#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Persistent,
    Ephemeral,
    Sequential,
    EphemeralSequential,
    Container,
    Ttl,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Access {
    Open,
    ReadOnly,
    Creator,
}

#[derive(Clone, Debug)]
pub(crate) enum Write {
    Create { path: &'static str, kind: Kind, access: Access, data: usize },
    Delete { path: &'static str, version: Option<i32> },
    SetData { path: &'static str, version: Option<i32>, data: usize },
    Check { path: &'static str, version: i32 },
}

#[derive(Clone, Debug)]
pub(crate) enum Action {
    Write(Write),
    Multi(Vec<Write>),
    SetAcl {
        path: &'static str,
        access: Access,
        version: Option<i32>,
    },
    Exists {
        path: &'static str,
        watch: bool,
    },
    GetData {
        path: &'static str,
        watch: bool,
    },
    GetChildren {
        path: &'static str,
        watch: bool,
        stat: bool,
    },
    MultiRead(Vec<(&'static str, bool)>),
    GetAcl(&'static str),
    Count(&'static str),
    Ephemerals(&'static str),
    Sync(&'static str),
    Auth(&'static str),
    WhoAmI,
    /// Drops the watch that waits longest.
    Unwatch,
    Cut,
    Heal,
    /// Closes the session, and opens another.
    Renew,
}

#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) client: usize,
    pub(crate) action: Action,
}

/// The program of a seed: of one client, or of two.
pub(crate) fn random(seed: u64) -> Vec<Step> {
    let mut rng = Rng::with_seed(seed);
    let clients = rng.usize(1..=2);
    (0..STEPS).map(|_| Step { client: rng.usize(..clients), action: action(&mut rng) }).collect()
}

fn action(rng: &mut Rng) -> Action {
    let path = any_path(rng);
    let watch = rng.bool();
    match rng.u8(..100) {
        0..42 => Action::Write(write(rng)),
        42..52 => Action::Multi((0..rng.usize(1..5)).map(|_| part(rng)).collect()),
        52..58 => Action::Exists { path, watch },
        58..66 => Action::GetData { path, watch },
        66..76 => Action::GetChildren { path, watch, stat: rng.bool() },
        76..79 => Action::MultiRead((0..rng.usize(1..4)).map(|_| (any_path(rng), rng.bool())).collect()),
        79..82 => Action::SetAcl { path, access: access(rng), version: version(rng) },
        82..85 => Action::GetAcl(path),
        85..87 => Action::Count(path),
        87..89 => Action::Ephemerals(path),
        89 => Action::Sync(path),
        90 => Action::Auth(if rng.bool() { "ann:secret" } else { "bob:other:secret" }),
        91 => Action::WhoAmI,
        92 => Action::Unwatch,
        93..96 => Action::Cut,
        96..99 => Action::Heal,
        _ => Action::Renew,
    }
}

fn write(rng: &mut Rng) -> Write {
    let (path, version, data) = (any_path(rng), version(rng), rng.usize(..4));
    match rng.u8(..10) {
        0..6 => {
            use Kind::{Container, Ephemeral, EphemeralSequential, Persistent, Sequential, Ttl};
            let kinds = [
                Persistent,
                Persistent,
                Persistent,
                Ephemeral,
                Ephemeral,
                Sequential,
                EphemeralSequential,
                Container,
                Ttl,
            ];
            let kind = kinds[rng.usize(..kinds.len())];
            let is_sequential = matches!(kind, Sequential | EphemeralSequential);
            let path = if is_sequential { ["/s", "/a/s", "/b/s"][rng.usize(..3)] } else { path };
            Write::Create { path, kind, access: access(rng), data }
        }
        6..8 => Write::Delete { path, version },
        _ => Write::SetData { path, version, data },
    }
}

fn part(rng: &mut Rng) -> Write {
    if rng.u8(..4) == 0 { Write::Check { path: any_path(rng), version: rng.i32(-1..2) } } else { write(rng) }
}

fn any_path(rng: &mut Rng) -> &'static str {
    PATHS[rng.usize(..PATHS.len())]
}

fn version(rng: &mut Rng) -> Option<i32> {
    rng.bool().then(|| rng.i32(0..3))
}

fn access(rng: &mut Rng) -> Access {
    match rng.u8(..12) {
        0 => Access::ReadOnly,
        1 => Access::Creator,
        _ => Access::Open,
    }
}
