//! A minute of everything at once: the program `chaos` with client processes and faults of all kinds, judged by what
//! its clients wrote down.
//!
//! `CHAOS_SEED` repeats the faults of another run, `CHAOS_MINUTES` makes it longer.

use std::path::Path;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::sync::Mutex;

const CLIENTS: usize = 8;

/// For one game at a time.
static MACHINE: Mutex<()> = Mutex::const_new(());

#[tokio::test]
async fn minute_of_chaos_breaks_no_promise() {
    let seed = std::env::var("CHAOS_SEED").unwrap_or_else(|_| fastrand::u64(..1_000_000).to_string());
    let minutes = std::env::var("CHAOS_MINUTES").unwrap_or_else(|_| "1".to_owned());
    println!("CHAOS_SEED={seed}");
    let _machine = MACHINE.lock().await;
    let out = tempfile::tempdir().expect("a temporary folder");
    let played = Command::new(executable())
        .args(["--minutes", &minutes, "--seed", &seed, "--clients", &CLIENTS.to_string(), "--out"])
        .arg(out.path())
        .kill_on_drop(true)
        .output()
        .await
        .expect("it can be run");
    let [said, complained] =
        [played.stdout, played.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    println!("{said}\n{complained}");
    if !played.status.success() {
        let kept = out.keep();
        panic!("{}: see above, and the history in {}; CHAOS_SEED={seed}", played.status, kept.display());
    }
}

#[tokio::test]
async fn interrupted_game_leaves_nothing_behind() {
    let _machine = MACHINE.lock().await;
    let [out, temporary] = [(), ()].map(|()| tempfile::tempdir().expect("a temporary folder"));
    let mut game = Command::new(executable())
        .args(["--minutes", "5", "--clients", "1", "--workload", "election", "--out"])
        .arg(out.path())
        .env("TMPDIR", temporary.path())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("it can be run");
    let mut said = BufReader::new(game.stdout.take().expect("it is piped")).lines();
    while said.next_line().await.expect("it says something").expect("it does not end") != "chaos: all have begun" {
    }
    let names = |folder: &Path| {
        let entries = std::fs::read_dir(folder).expect("it is there");
        entries.map(|entry| entry.expect("it can be read").file_name()).collect::<Vec<_>>()
    };
    assert!(!names(out.path()).is_empty() && !names(temporary.path()).is_empty(), "nothing could be left behind");
    let id = Pid::from_raw(game.id().expect("it runs").cast_signed()).expect("it is not 0");
    kill_process(id, Signal::INT).expect("it runs");
    let ended = game.wait().await.expect("it ends");
    assert_eq!(ended.code(), Some(2), "{ended}");
    assert_eq!(names(out.path()), [""; 0]);
    assert_eq!(names(temporary.path()), [""; 0]);
}

/// A history of the lock `election`: steps of `c1.1` and `c2.1`, and what else there is. Times are in milliseconds.
struct Story {
    lines: Vec<Value>,
    course: Value,
}

impl Story {
    /// One holds from 100 to 300, the other waits from 200 on, and holds from 400 to 500, and after the faults.
    fn of_two() -> Self {
        let holds = [
            hold("c1.1", 1, 90, 100, 300, 7),
            hold("c2.1", 1, 200, 400, 500, 8),
            hold("c2.1", 2, 600, 610, 620, 9),
        ];
        let nothing = json!({"acknowledged": 0, "lost": 0, "refused": 0});
        let course = json!({
            "seed": 1, "session": seconds(2), "workloads": ["election"], "clients": 2, "duration": seconds(1),
            "calm": ms(600), "settled": ms(600), "asked": ms(700), "left": [], "wrong": [],
            "checked": nothing, "ignored": nothing,
        });
        Self { lines: holds.concat(), course }
    }

    /// With another fact of the course.
    fn on(mut self, fact: &str, value: Value) -> Self {
        self.course[fact] = value;
        self
    }

    fn with_session(self, millis: u64) -> Self {
        self.on("session", json!({"secs": 0, "nanos": ms(millis)}))
    }

    fn with(mut self, line: Value) -> Self {
        self.lines.push(line);
        self
    }

    /// Changes the first line that has this process and step.
    fn change(mut self, process: &str, step: &str, change: impl FnOnce(&mut Value)) -> Self {
        let line = self.lines.iter_mut().find(|line| line["process"] == process && line["step"] == step);
        change(line.expect("there is such a line"));
        self
    }

    /// Without the release of the first holder.
    fn without_release(mut self) -> Self {
        let releases = |line: &Value| line["step"].as_str().is_some_and(|step| step.starts_with("release"));
        self.lines.retain(|line| line["process"] != "c1.1" || !releases(line));
        self
    }

    /// What the judge says, and whether it is content.
    async fn judged(self) -> (bool, String) {
        self.judged_in(&tempfile::tempdir().expect("a temporary folder")).await
    }

    async fn judged_in(self, folder: &TempDir) -> (bool, String) {
        let lines: String = self.lines.iter().map(|line| format!("{line}\n")).collect();
        std::fs::write(folder.path().join("history.jsonl"), lines).expect("can be written");
        std::fs::write(folder.path().join("course.json"), self.course.to_string()).expect("can be written");
        let judged =
            Command::new(executable()).arg("judge").arg(folder.path()).output().await.expect("it can be run");
        (judged.status.success(), String::from_utf8_lossy(&judged.stdout).into_owned())
    }

    async fn assert_violation(self, sentence: &str) {
        let (clean, said) = self.judged().await;
        assert!(!clean && said.contains(sentence), "not said: {sentence}\n{said}");
    }

    async fn assert_clean(self) {
        let (clean, said) = self.judged().await;
        assert!(clean, "{said}");
    }
}

fn seconds(seconds: u64) -> Value {
    json!({"secs": seconds, "nanos": 0})
}

fn ms(millis: u64) -> u64 {
    millis * 1_000_000
}

fn step(process: &str, attempt: u64, at: u64, what: Value) -> Value {
    let mut line = json!({"at": ms(at), "process": process, "object": "/chaos/election", "attempt": attempt});
    let what = what.as_object().expect("an object").clone();
    line.as_object_mut().expect("an object").extend(what);
    line
}

fn hold(process: &str, attempt: u64, asked: u64, from: u64, to: u64, token: i64) -> Vec<Value> {
    vec![
        step(process, attempt, asked, json!({"step": "acquire", "mode": "exclusive"})),
        step(process, attempt, from, json!({"step": "acquired", "token": token})),
        step(process, attempt, to, json!({"step": "release"})),
        step(process, attempt, to + 1, json!({"step": "released"})),
    ]
}

fn fault(kind: &str, client: &str, begin: u64, end: u64) -> Value {
    json!({"fault": kind, "target": client, "clients": [client], "begin": ms(begin), "end": ms(end)})
}

fn operator(at: u64, what: Value) -> Value {
    step("operator", 0, at, what)
}

/// The node of the first holder is deleted by hand.
fn deleted(at: u64) -> Value {
    operator(at, json!({"mark": "deleted", "node": "/chaos/election/a", "token": 7, "result": "deleted"}))
}

fn at(at: u64) -> impl FnOnce(&mut Value) {
    move |line| line["at"] = json!(ms(at))
}

/// The first holder does not release, but is told of a loss, after the other has been granted the lock.
fn told_late() -> Story {
    Story::of_two().without_release().with(step("c1.1", 1, 450, json!({"step": "lost", "since": ms(450)})))
}

#[tokio::test]
async fn judge_is_content_with_what_is_right() {
    Story::of_two().assert_clean().await;
}

#[tokio::test]
async fn judge_sees_two_holders_at_once() {
    let both = Story::of_two().change("c1.1", "release", |line| line["at"] = json!(ms(450)));
    let both = both.change("c1.1", "released", |line| line["at"] = json!(ms(460)));
    both.assert_violation("was granted while inside").await;
}

#[tokio::test]
async fn judge_sees_a_token_that_does_not_grow() {
    let same = Story::of_two().change("c2.1", "acquired", |line| line["token"] = json!(6));
    same.assert_violation("with a token that is not above").await;
}

#[tokio::test]
async fn judge_sees_who_is_overtaken() {
    let mut story = Story::of_two();
    let placed = step("c2.1", 1, 80, json!({"step": "enqueued"}));
    story = story.change("c2.1", "acquire", |line| line["at"] = json!(ms(70))).with(placed);
    story.assert_violation("overtook").await;
}

#[tokio::test]
async fn judge_sees_a_loss_that_is_told_late() {
    told_late().assert_violation("was told of its loss 50.0 ms after c2.1 was granted it").await;
}

#[tokio::test]
async fn judge_excuses_a_late_loss_of_a_paused_process_alone() {
    told_late().with(fault("long-client-pause", "c1.1", 350, 440)).assert_clean().await;
    let other = told_late().with(fault("long-client-pause", "c2.1", 350, 440));
    other.assert_violation("was told of its loss").await;
    let before = told_late().with(fault("long-client-pause", "c1.1", 110, 120));
    before.assert_violation("was told of its loss").await;
}

/// Sessions live for 100 ms, so none can have ended before pings were held back for 75 ms.
#[tokio::test]
async fn judge_excuses_a_late_loss_of_pings_that_were_held_for_long_enough_alone() {
    let held = |begin, end| told_late().with_session(100).with(fault("pings-held", "c1.1", begin, end));
    held(310, 440).assert_clean().await;
    for (begin, end) in [(380, 385), (310, 380)] {
        held(begin, end).assert_violation("was told of its loss 50.0 ms after c2.1 was granted it").await;
    }
    // The other was granted it before the session can have ended.
    held(330, 440).assert_violation("was granted while inside").await;
    let looked = |at| held(310, 440).with(step("c1.1", 1, at, json!({"step": "confirmed"})));
    looked(420).assert_clean().await;
    held(380, 385).with(step("c1.1", 1, 420, json!({"step": "confirmed"}))).assert_violation("inside").await;
}

#[tokio::test]
async fn judge_excuses_a_late_loss_of_a_node_that_was_deleted_by_hand_before() {
    told_late().with(deleted(390)).assert_clean().await;
    told_late().with(deleted(460)).assert_violation("was told of its loss").await;
}

/// Sessions live for 10 ms, so a holder has to know of it 260 ms later at the latest.
#[tokio::test]
async fn judge_excuses_a_deletion_by_hand_for_a_while_only() {
    let told = |sent: u64| told_late().with_session(10).with(deleted(sent));
    told(195).assert_clean().await;
    told(185).assert_violation("was told of its loss").await;
    // Who then stands still cannot know it in time.
    told(185).with(fault("long-client-pause", "c1.1", 350, 440)).assert_clean().await;
    let looked = |at| told(195).with(step("c1.1", 1, at, json!({"step": "confirmed"})));
    looked(449).assert_clean().await;
    let releases = |sent| Story::of_two().with_session(10).change("c1.1", "release", at(450)).with(deleted(sent));
    releases(195).change("c1.1", "released", at(451)).assert_clean().await;
    releases(185).change("c1.1", "released", at(451)).assert_violation("was granted while inside").await;
}

#[tokio::test]
async fn judge_takes_a_deletion_by_hand_without_an_answer_for_one() {
    let deleting = |at| operator(at, json!({"mark": "deleting", "node": "/chaos/election/b", "token": 8}));
    let evicted = json!({"at": ms(250), "process": "c2.1", "mark": "evicted", "node": "/chaos/election/b"});
    let told = || Story::of_two().with(evicted.clone());
    told().with(deleting(240)).assert_clean().await;
    let answer = json!({"mark": "deleted", "node": "/chaos/election/b", "token": 8, "result": "NoNode"});
    told().with(deleting(240)).with(operator(240, answer)).assert_violation("which nobody did").await;
}

#[tokio::test]
async fn judge_ends_what_a_killed_process_held() {
    Story::of_two().without_release().with(fault("client-kill", "c1.1", 350, 600)).assert_clean().await;
    Story::of_two().without_release().assert_violation("was granted while inside").await;
}

#[tokio::test]
async fn judge_sees_nodes_that_are_left_and_evictions_by_nobody() {
    let node = "/chaos/election/_c_a-lock-0000000001";
    Story::of_two().on("left", json!([node])).assert_violation(&format!("{node} is left")).await;
    let own = json!({"at": ms(690), "process": "c2.1", "mark": "left", "node": node});
    Story::of_two().with(own).assert_violation(&format!("{node} is left, of c2.1")).await;
    let evicted = json!({"at": ms(250), "process": "c2.1", "mark": "evicted", "node": "/chaos/election/b"});
    Story::of_two().with(evicted).assert_violation("which nobody did").await;
}

#[tokio::test]
async fn judge_wants_grants_under_attack_and_after_it() {
    let nothing = || Story { lines: Vec::new(), ..Story::of_two() };
    nothing().assert_violation("/chaos/election: no grant before the last fault was over").await;
    nothing().assert_violation("/chaos/election: no grant after all was healed").await;
    Story::of_two().on("settled", json!(ms(611))).assert_violation("no grant after all was healed").await;
    Story::of_two().on("calm", json!(ms(99))).assert_violation("no grant before the last fault was over").await;
    // Others are granted what is theirs.
    Story::of_two().on("workloads", json!(["election", "rw"])).assert_violation("/chaos/rw: no grant").await;
    // Nobody waits for more than a session and a second, counted from the end of the faults.
    let together = |settled| {
        let story =
            Story::of_two().with_session(10).on("settled", json!(ms(settled))).on("asked", json!(ms(2_000)));
        let later = |attempt, at, token| hold("c1.1", attempt, at - 1, at, at + 1, token);
        let lines = [story.lines, later(2, 1_605, 10), later(3, 1_700, 11)].concat();
        Story { lines, ..story }
    };
    together(650).assert_clean().await;
    let alone = |settled| {
        let mut story = together(settled);
        story.lines.retain(|line| line["attempt"] != 2);
        story
    };
    alone(1_650).assert_violation("/chaos/election: no grant for 1.1s after all was healed").await;
}

#[tokio::test]
async fn judge_wants_to_know_what_came_of_each_acquire() {
    let asked = || Story::of_two().with(step("c1.1", 9, 520, json!({"step": "acquire", "mode": "exclusive"})));
    asked().assert_violation("c1.1 asked for /chaos/election, and nothing is known of what came of it").await;
    asked().with(fault("client-kill", "c1.1", 530, 560)).assert_clean().await;
    for outcome in ["acquire_failed", "acquire_unknown"] {
        asked().with(step("c1.1", 9, 540, json!({"step": outcome}))).assert_clean().await;
    }
}

#[tokio::test]
async fn judge_of_a_long_run_wants_to_have_been_shown_a_loss_of_updates() {
    let set = || {
        let mut story = Story::of_two().on("workloads", json!(["lock-set"]));
        for object in ["set-checked", "set-ignored"] {
            let mut lines = Story::of_two().lines;
            lines.iter_mut().for_each(|line| line["object"] = json!(format!("/chaos/{object}")));
            story.lines.extend(lines);
        }
        story
    };
    let lost = |lost| json!({"acknowledged": 10, "lost": lost, "refused": 0});
    set().on("duration", seconds(299)).assert_clean().await;
    let long = || set().on("duration", seconds(300));
    long().assert_violation("no update was lost of the set that ignores tokens").await;
    long().on("ignored", lost(1)).assert_clean().await;
    long().on("ignored", lost(1)).on("checked", lost(1)).assert_violation("1 updates are lost").await;
}

#[tokio::test]
async fn timeline_shows_all_faults_of_a_server_at_a_time() {
    let struck = |kind: &str, begin, end| json!({"fault": kind, "target": "server 1", "clients": [], "begin": ms(begin), "end": ms(end)});
    let folder = tempfile::tempdir().expect("a temporary folder");
    let story = Story::of_two().with(struck("slow-disk", 100, 400)).with(struck("server-pause", 101, 200));
    story.with(struck("leader-kill", 300, 350)).judged_in(&folder).await;
    let page = std::fs::read_to_string(folder.path().join("timeline-01.svg")).expect("it is drawn");
    let height = |label: &str| {
        let text = page.lines().find(|line| line.contains(&format!(">{label}<")));
        text.unwrap_or_else(|| panic!("no {label} in\n{page}")).split('\'').nth(5)
    };
    assert_ne!(height("disk slow"), height("server paused"));
    // It would be written over the second.
    assert!(!page.contains(">leader killed<"));
}

#[tokio::test]
async fn client_that_never_connects_fails() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let [journal, register] = ["journal", "register"].map(|name| folder.path().join(name));
    // Nobody listens at that port; and a client whose input has ended is to stop.
    let client = Command::new(executable())
        .args(["client", "c0.1", "127.0.0.1:1", "lock", "500", "quorum", "1"])
        .args([journal, register])
        .stdin(Stdio::null())
        .output();
    let ended = client.await.expect("it can be run");
    let complained = String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success() && complained.contains("never connected"), "{complained}");
}

fn executable() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_chaos"))
}
