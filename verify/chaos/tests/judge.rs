//! The judge: histories written by the test, and the violations which it finds in them.

use serde_json::{Value, json};
use tokio::process::Command;

/// A history of the lock `election`: steps of `c1.1` and `c2.1`, faults and marks. Times are in milliseconds.
struct Story {
    lines: Vec<Value>,
    course: Value,
}

impl Story {
    /// The first holds from 100 to 300; the second waits from 200, holds from 400 to 500, and again after the faults.
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

    /// Changes the first line with this process and step.
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

    /// Whether the judge finds no violation, and its output.
    async fn judged(self) -> (bool, String) {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let lines: String = self.lines.iter().map(|line| format!("{line}\n")).collect();
        std::fs::write(folder.path().join("history.jsonl"), lines).expect("can be written");
        std::fs::write(folder.path().join("course.json"), self.course.to_string()).expect("can be written");
        let judged = Command::new(env!("CARGO_BIN_EXE_chaos"))
            .arg("judge")
            .arg(folder.path())
            .output()
            .await
            .expect("it can be run");
        (judged.status.success(), String::from_utf8_lossy(&judged.stdout).into_owned())
    }

    async fn assert_violation(self, sentence: &str) {
        let (clean, output) = self.judged().await;
        assert!(!clean && output.contains(sentence), "no \"{sentence}\" in\n{output}");
    }

    async fn assert_clean(self) {
        let (clean, output) = self.judged().await;
        assert!(clean, "{output}");
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

/// The operator deletes the node of the first holder.
fn deleted(at: u64) -> Value {
    operator(at, json!({"mark": "deleted", "node": "/chaos/election/a", "token": 7, "result": "deleted"}))
}

fn at(at: u64) -> impl FnOnce(&mut Value) {
    move |line| line["at"] = json!(ms(at))
}

/// The first holder does not release, and reports a loss after the second was granted the lock.
fn reported_late() -> Story {
    Story::of_two().without_release().with(step("c1.1", 1, 450, json!({"step": "lost", "since": ms(450)})))
}

#[tokio::test]
async fn judge_accepts_a_correct_history() {
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
async fn judge_sees_a_waiter_that_is_overtaken() {
    let mut story = Story::of_two();
    let placed = step("c2.1", 1, 80, json!({"step": "enqueued"}));
    story = story.change("c2.1", "acquire", |line| line["at"] = json!(ms(70))).with(placed);
    story.assert_violation("overtook").await;
}

#[tokio::test]
async fn judge_sees_a_loss_that_is_reported_late() {
    reported_late()
        .assert_violation("c2.1 (token 8, +310ms to +410ms) was granted while inside: c1.1 (token 7")
        .await;
    let in_time = |line: &mut Value| (line["at"], line["since"]) = (json!(ms(399)), json!(ms(399)));
    reported_late().change("c1.1", "lost", in_time).assert_clean().await;
}

#[tokio::test]
async fn judge_excuses_a_late_loss_only_of_the_paused_process() {
    reported_late().with(fault("long-client-pause", "c1.1", 350, 440)).assert_clean().await;
    let other = reported_late().with(fault("long-client-pause", "c2.1", 350, 440));
    other.assert_violation("was granted while inside").await;
    let before = reported_late().with(fault("long-client-pause", "c1.1", 110, 120));
    before.assert_violation("was granted while inside").await;
}

/// A session may expire while its pings are not answered, and its trust ends one timeout later.
#[tokio::test]
async fn judge_excuses_a_late_loss_only_of_the_process_whose_pings_were_held() {
    let held = |client, begin, end| reported_late().with_session(50).with(fault("pings-held", client, begin, end));
    held("c1.1", 380, 440).assert_clean().await;
    let looked = step("c1.1", 1, 420, json!({"step": "confirmed"}));
    held("c1.1", 380, 440).with(looked).assert_clean().await;
    held("c2.1", 380, 440).assert_violation("was granted while inside").await;
    // The second was granted the lock before the session can have expired.
    held("c1.1", 455, 460).assert_violation("was granted while inside").await;
}

#[tokio::test]
async fn judge_excuses_a_late_loss_after_the_operator_deleted_the_node() {
    reported_late().with(deleted(390)).assert_clean().await;
    reported_late().with(deleted(460)).assert_violation("was granted while inside").await;
    let other = |node: &str| {
        let deleted = json!({"mark": "deleted", "node": node, "token": 99, "result": "deleted"});
        reported_late().with(operator(390, deleted))
    };
    other("/chaos/election/b-latch-0000000004").assert_violation("was granted while inside").await;
    // A downgraded writer has kept its token.
    other("/chaos/election/b__READ__0000000003").assert_clean().await;
    let late = Story::of_two().change("c1.1", "release", at(450)).change("c1.1", "released", at(451));
    late.with(deleted(390)).assert_clean().await;
}

#[tokio::test]
async fn judge_counts_a_deletion_without_an_answer() {
    let deleting = |at| operator(at, json!({"mark": "deleting", "node": "/chaos/election/b", "token": 8}));
    let evicted = json!({"at": ms(250), "process": "c2.1", "mark": "evicted", "node": "/chaos/election/b"});
    let eviction = || Story::of_two().with(evicted.clone());
    eviction().with(deleting(240)).assert_clean().await;
    let answer = json!({"mark": "deleted", "node": "/chaos/election/b", "token": 8, "result": "NoNode"});
    eviction().with(deleting(240)).with(operator(240, answer)).assert_violation("which nobody deleted").await;
}

#[tokio::test]
async fn judge_ends_the_grants_of_a_killed_process() {
    Story::of_two().without_release().with(fault("client-kill", "c1.1", 350, 600)).assert_clean().await;
    Story::of_two().without_release().assert_violation("was granted while inside").await;
}

#[tokio::test]
async fn judge_sees_leftover_nodes_and_unexplained_evictions() {
    let node = "/chaos/election/_c_a-lock-0000000001";
    Story::of_two().on("left", json!([node])).assert_violation(&format!("{node} was left behind")).await;
    let own = json!({"at": ms(690), "process": "c2.1", "mark": "left", "node": node});
    Story::of_two().with(own).assert_violation(&format!("{node} was left behind by c2.1")).await;
    let evicted = json!({"at": ms(250), "process": "c2.1", "mark": "evicted", "node": "/chaos/election/b"});
    Story::of_two().with(evicted).assert_violation("which nobody deleted").await;
}

#[tokio::test]
async fn judge_requires_grants_during_the_faults_and_after_them() {
    let nothing = || Story { lines: Vec::new(), ..Story::of_two() };
    nothing().assert_violation("/chaos/election: no grant before the last fault was over").await;
    nothing().assert_violation("/chaos/election: no grant after all faults were healed").await;
    Story::of_two().on("settled", json!(ms(611))).assert_violation("no grant after all faults were healed").await;
    Story::of_two().on("calm", json!(ms(99))).assert_violation("no grant before the last fault was over").await;
    // Every lock of every workload must be granted.
    Story::of_two().on("workloads", json!(["election", "rw"])).assert_violation("/chaos/rw: no grant").await;
}

#[tokio::test]
async fn judge_requires_no_grant_of_a_number_that_no_claim_takes() {
    let story = |again: &str| {
        let mut story = Story { lines: Vec::new(), ..Story::of_two().on("workloads", json!(["slots"])) };
        let slots = ["slots/0", "slots/1", "slots/2", again];
        for (number, (slot, from)) in (1..).zip(slots.into_iter().zip([100, 110, 120, 610])) {
            let mut lines = hold("c1.1", number, from - 1, from, from + 1, number.cast_signed());
            lines.iter_mut().for_each(|line| line["object"] = json!(format!("/chaos/{slot}")));
            story.lines.extend(lines);
        }
        story
    };
    story("slots/1").assert_clean().await;
    story("election").assert_violation("/chaos/slots/0: no grant after all faults were healed").await;
}

#[tokio::test]
async fn judge_requires_an_outcome_of_each_attempt() {
    let asked = || Story::of_two().with(step("c1.1", 9, 520, json!({"step": "acquire", "mode": "exclusive"})));
    asked().assert_violation("c1.1 asked for /chaos/election, and the outcome is not recorded").await;
    asked().with(fault("client-kill", "c1.1", 530, 560)).assert_clean().await;
    for outcome in ["acquire_failed", "acquire_unknown"] {
        asked().with(step("c1.1", 9, 540, json!({"step": outcome}))).assert_clean().await;
    }
}

#[tokio::test]
async fn judge_of_a_long_run_requires_that_updates_were_lost() {
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
    long().assert_violation("no update of the set that ignores tokens was lost").await;
    long().on("ignored", lost(1)).assert_clean().await;
    long()
        .on("ignored", lost(1))
        .on("checked", lost(1))
        .assert_violation("1 updates of the set that checks tokens were lost")
        .await;
}

/// Two processes of the members, and the servers. All faults are over at 600 ms.
fn groups() -> Story {
    let set = &["c1 7 a", "c2 9 b"][..];
    let story = Story::of_two().on("workloads", json!(["election", "members"])).on("asked", json!(ms(6_000)));
    story.with(saw("servers", 700, set)).with(saw("c1.1", 750, set)).with(saw("c2.1", 5_900, set))
}

fn saw(process: &str, at: u64, members: &[&str]) -> Value {
    json!({"at": ms(at), "process": process, "mark": "seen", "members": members})
}

#[tokio::test]
async fn judge_requires_that_all_see_the_set_of_the_servers_at_the_end() {
    groups().assert_clean().await;
    groups().on("asked", json!(ms(5_800))).assert_violation("belong to the group, and the servers have").await;
    let other = groups().with(saw("c1.1", 1_000, &["c1 7 a", "c2 8 b"]));
    other.assert_violation("c1.1 saw [\"c1 7 a\", \"c2 8 b\"] last").await;
    // A process that was killed sees nothing.
    let killed = groups().with(saw("c1.0", 100, &[])).with(fault("client-kill", "c1.0", 200, 250));
    killed.assert_clean().await;
    let stranger = groups().with(saw("servers", 1_000, &["c1 7 a", "c2 9 b", "c9 10 c"]));
    stranger.assert_violation("and the servers have {\"c1\", \"c2\", \"c9\"}").await;
}

#[tokio::test]
async fn judge_requires_that_every_shard_has_an_owner_at_the_end() {
    let story = |from: u64, to: u64| {
        let mut story = Story::of_two().on("workloads", json!(["shards"])).on("asked", json!(ms(9_000)));
        story.lines.clear();
        for shard in 0..6 {
            let mut lines = hold("c1.1", shard, 90, 100, 10_000, 7);
            if shard == 3 {
                lines = [hold("c1.1", shard, 90, 100, 300, 7), hold("c2.1", shard, 90, from, to, 9)].concat();
            }
            lines.iter_mut().for_each(|line| line["object"] = json!(format!("/chaos/shards/{shard}")));
            story.lines.extend(lines);
        }
        story
    };
    story(8_900, 9_500).assert_clean().await;
    story(9_100, 9_500).assert_violation("/chaos/shards/3: no owner at the end").await;
    story(400, 8_000).assert_violation("/chaos/shards/3: no owner at the end").await;
    story(200, 9_500).assert_violation("was granted while inside").await;
}
