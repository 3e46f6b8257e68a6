//! Members of a group beside Curator's `GroupMember`, on the same path.

use zookeeper_groups::{
    Members,
    members::{Member, MemberChanges},
};
use zookeeper_recipes::zookeeper_client::Client;
use zookeeper_recipes::{Error, Session};

use crate::peer::{Handle, Language, Peer};
use crate::support::{connect, dwell, fresh_path, hosts, soon};

/// A session on each side, on one group.
struct Group {
    peer: Peer,
    session: Session,
    admin: Client,
    members: Members,
    changes: MemberChanges,
    path: String,
}

impl Group {
    async fn new() -> Self {
        let hosts = hosts();
        let (session, path) = (connect(&hosts).await, fresh_path());
        let members = Members::new(&session, &path).expect("a group");
        let changes = members.changes();
        let admin = Client::connect(&hosts).await.expect("connects");
        Self { peer: Peer::start(Language::Java, &hosts).await, session, admin, members, changes, path }
    }

    /// Starts a member of Curator.
    async fn curator(&self, name: &str, data: &str) -> Handle {
        let mut theirs = self.peer.lock("member", &format!("{} {name} {data}", self.path)).await;
        theirs.acquire().await;
        theirs
    }

    /// Waits until we see these, as `NAME=DATA`.
    async fn we_see(&mut self, expected: &str) -> Vec<Member> {
        let is_so = |members: &[Member]| shown(members) == expected;
        soon(&format!("we see {expected}"), self.changes.wait_for(is_so)).await.expect("seen")
    }

    async fn end(self) {
        self.peer.close().await;
        drop(self.changes);
        self.session.close().await.expect("closed");
    }
}

fn shown(members: &[Member]) -> String {
    let all = members.iter().map(|one| format!("{}={}", one.name(), String::from_utf8_lossy(one.data())));
    all.collect::<Vec<_>>().join(" ")
}

/// Waits until Curator sees these.
async fn they_see(theirs: &mut Handle, expected: &str) {
    let mut last = String::new();
    let seen = async {
        while last != expected {
            last = theirs.done("members").await;
        }
    };
    let what = format!("they see {expected}");
    soon(&what, seen).await;
}

#[tokio::test]
async fn members_of_both_see_each_other_come_change_and_go() {
    let mut group = Group::new().await;
    let mut theirs = group.curator("curator-0", "java").await;
    group.we_see("curator-0=java").await;
    let mine = group.members.join("ours-0", b"rust").await.expect("joined");
    they_see(&mut theirs, "curator-0=java ours-0=rust").await;
    group.we_see("curator-0=java ours-0=rust").await;
    mine.set(b"other").await.expect("written");
    they_see(&mut theirs, "curator-0=java ours-0=other").await;
    // It fires no watch of ours: the slow look finds it.
    theirs.done("set changed").await;
    group.we_see("curator-0=changed ours-0=other").await;
    let read = group.members.members().await.expect("read");
    assert_eq!(shown(&read), "curator-0=changed ours-0=other");
    mine.leave().await.expect("left");
    they_see(&mut theirs, "curator-0=changed").await;
    theirs.release().await;
    group.we_see("").await;
    group.end().await;
}

#[tokio::test]
async fn member_of_a_killed_process_of_curator_goes_with_its_session() {
    let mut group = Group::new().await;
    _ = group.curator("curator-0", "java").await;
    let seen = group.we_see("curator-0=java").await;
    let stat = group.admin.check_stat(&format!("{}/curator-0", group.path)).await.expect("asked").expect("a node");
    assert_eq!(seen[0].session_id().0, stat.ephemeral_owner);
    group.peer.kill().await;
    let is_empty = |members: &[Member]| members.is_empty();
    soon("it goes", group.changes.wait_for(is_empty)).await.expect("seen");
    group.session.close().await.expect("closed");
}

/// Such as that of a host and a path. Curator refuses a slash, and sees our spelling of it.
#[tokio::test]
async fn name_that_is_no_segment_is_escaped_for_curator() {
    let group = Group::new().await;
    let mine = group.members.join("eu/west", b"rust").await.expect("joined");
    let mut theirs = group.curator("curator-0", "java").await;
    they_see(&mut theirs, "curator-0=java eu%2Fwest=rust").await;
    mine.leave().await.expect("left");
    group.end().await;
}

#[tokio::test]
async fn name_of_a_member_of_curator_is_taken_for_us() {
    let mut group = Group::new().await;
    let mut theirs = group.curator("a", "java").await;
    group.we_see("a=java").await;
    let refused = group.members.join("a", b"rust").await;
    assert!(matches!(refused, Err(Error::NameTaken { .. })), "{refused:?}");
    let members = group.members.clone();
    let waiting = tokio::spawn(async move { members.join_when_free("a", b"rust").await.expect("joined") });
    dwell(&group.session.client().expect("a client")).await;
    assert!(!waiting.is_finished());
    theirs.release().await;
    let mine = soon("our turn", waiting).await.expect("no panic");
    group.we_see("a=rust").await;
    mine.leave().await.expect("left");
    group.end().await;
}

/// Curator does not look who owns the node: it writes its data there at its start, and deletes the node at its end. Ours comes back, with our
/// data.
#[tokio::test]
async fn curator_takes_our_name_writes_its_data_there_and_deletes_our_node() {
    let mut group = Group::new().await;
    let mine = group.members.join("a", b"rust").await.expect("joined");
    let before = group.we_see("a=rust").await;
    let mut theirs = group.curator("a", "java").await;
    let after = group.we_see("a=java").await;
    assert_eq!(after[0].session_id(), before[0].session_id(), "the node is ours, with their data");
    assert_eq!(after[0].generation(), before[0].generation());
    theirs.release().await;
    let again = group.we_see("a=rust").await;
    assert_eq!(again[0].session_id(), before[0].session_id());
    assert!(again[0].generation() > before[0].generation(), "they have deleted it, and it was created again");
    mine.leave().await.expect("left");
    group.we_see("").await;
    group.end().await;
}
