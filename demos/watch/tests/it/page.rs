//! The status page, as an operator uses it.

use serde_json::{Value, json};
use testbed::Server;
use tokio::time::timeout;
use zookeeper_recipes::Mutex;

use crate::chromium::Chromium;
use crate::support::{FROM_HERE, PATIENCE, Watch, World, soon, until};

/// Where to write a picture of the page, if anywhere.
const PICTURE: &str = "STATUS_PAGE_PNG";

/// The columns of a table that do not differ from run to run: not tokens, and not times.
const COLUMNS: [(&str, &str); 2] = [("queue", "[0, 1, 2, 6]"), ("grants", "[0, 1, 4]")];

/// The texts of a table, row by row.
async fn rows(chromium: &mut Chromium, table: &str) -> Value {
    let (_, columns) = COLUMNS.iter().find(|(name, _)| *name == table).expect("a table");
    let texts = format!(
        "[...document.querySelectorAll('#{table} tbody tr')].map(row => {columns}
            .map(column => row.cells[column]?.textContent ?? '')
            .map(text => /^\\d+:\\d+:\\d+/.test(text) ? 'ended' : text).join('; '))"
    );
    chromium.value(&texts).await
}

async fn shows(chromium: &mut Chromium, table: &str, expected: Value) {
    let mut found = Value::Null;
    let is_met = async || {
        found = rows(chromium, table).await;
        found == expected
    };
    // With a shorter limit, to print what it found.
    if timeout(PATIENCE / 2, until(table, is_met)).await.is_err() {
        panic!("{table}: {found} instead of {expected}");
    }
}

async fn wait_for(lock: &Mutex, count: usize) {
    until("they queue", async || lock.contenders().await.expect("listed").len() == count).await;
}

#[tokio::test]
async fn click_on_revoke_reaches_the_holder_and_the_queue_moves_on() {
    let world = World::new().await;
    let watch = Watch::start(&world.hosts()).await;
    let mut chromium = Chromium::open(&format!("http://{}/", watch.address)).await;
    let page = &mut chromium;
    shows(page, "queue", json!(["none; ; ; "])).await;

    let (first, second, third) =
        (world.lock_of("billing-7"), world.lock_of("billing-8"), world.lock_of("billing-2"));
    let guard = first.lock().await.expect("held");
    let second = tokio::spawn(async move { second.lock().await });
    wait_for(&first, 2).await;
    let third = tokio::spawn(async move { third.lock().await });
    shows(
        page,
        "queue",
        json!(["holds; billing-7; lock; revoke", "1; billing-8; lock; ", "2; billing-2; lock; "]),
    )
    .await;
    shows(page, "grants", json!(["billing-7; lock; holds"])).await;
    let shown = page.value("document.querySelector('tr.holds').cells[3].textContent").await;
    assert_eq!(shown, guard.fencing_token().to_string(), "the token of the holder");

    page.click("button").await;
    soon("the holder is asked", guard.revoke_requested()).await;
    let asked = "holds; billing-7; lock; asked to release";
    shows(page, "queue", json!([asked, "1; billing-8; lock; ", "2; billing-2; lock; "])).await;
    guard.release().await.expect("released");
    let guard = soon("the next is granted", second).await.expect("no panic").expect("held");
    shows(page, "queue", json!(["holds; billing-8; lock; revoke", "1; billing-2; lock; "])).await;
    shows(page, "grants", json!(["billing-8; lock; holds", "billing-7; lock; ended"])).await;
    if let Ok(file) = std::env::var(PICTURE) {
        std::fs::write(file, page.picture().await).expect("written");
    }

    guard.release().await.expect("released");
    soon("the last is granted", third).await.expect("no panic").expect("held").release().await.expect("released");
    shows(page, "queue", json!(["none; ; ; "])).await;
    assert_eq!(chromium.close().await, [""; 0], "complaints of the page");
    assert!(watch.terminate().await);
    world.session.close().await.expect("closed");
}

#[tokio::test]
async fn identifier_with_markup_is_shown_as_text() {
    let world = World::new().await;
    let watch = Watch::start(&world.hosts()).await;
    let markup = "<img src=x onerror=document.title='taken'>";
    let guard = world.lock_of(markup).lock().await.expect("held");
    let mut chromium = Chromium::open(&format!("http://{}/", watch.address)).await;
    shows(&mut chromium, "queue", json!([format!("holds; {markup}; lock; revoke")])).await;
    assert_eq!(chromium.value("document.querySelectorAll('img').length").await, 0);
    assert_eq!(chromium.close().await, [""; 0], "complaints of the page");
    guard.release().await.expect("released");
    assert!(watch.terminate().await);
    world.session.close().await.expect("closed");
}

#[tokio::test]
async fn requests_of_other_sites_revoke_nothing() {
    let world = World::new().await;
    let watch = Watch::start(&world.hosts()).await;
    let lock = world.lock_of("billing-7");
    let guard = lock.lock().await.expect("held");
    let contenders = async || lock.contenders().await.expect("listed");
    let holder = contenders().await.remove(0);
    let mut chromium = Chromium::open(&format!("http://{}/", watch.address)).await;
    shows(&mut chromium, "queue", json!(["holds; billing-7; lock; revoke"])).await;
    let revoke = format!("/contenders/{}/{}/revoke", holder.name(), holder.token());
    let (status, body) = watch.ask("POST", &revoke, "content-length: 0\r\n").await;
    assert_eq!((status, body.as_str()), (403, "the header x-status-page is missing\n"));
    let (status, _) = watch.ask("POST", "/work/0", "content-length: 0\r\n").await;
    assert_eq!(status, 403);

    // A browser may send the header from another site only if it is allowed to. Another process is another site, and its
    // numbers are a page without a policy.
    let other = Watch::start(&world.hosts()).await;
    chromium.go(&format!("http://{}/metrics", other.address)).await;
    let url = json!(format!("http://{}{revoke}", watch.address));
    for (options, answer) in [("mode: 'no-cors'", "sent"), ("headers: { 'x-status-page': '1' }", "refused")] {
        let attempt = format!("fetch({url}, {{ method: 'POST', {options} }}).then(() => 'sent', () => 'refused')");
        assert_eq!(chromium.value(&attempt).await, answer, "{options}");
    }
    chromium.close().await;
    assert!(other.terminate().await);
    assert_eq!(contenders().await, [holder], "asked to release");

    let (status, _) = watch.ask("POST", &revoke, FROM_HERE).await;
    assert_eq!(status, 200);
    soon("the holder is asked", guard.revoke_requested()).await;
    guard.release().await.expect("released");
    until("it is gone", async || watch.ask("POST", &revoke, FROM_HERE).await.0 == 404).await;
    assert!(watch.terminate().await);
    world.session.close().await.expect("closed");
}

#[tokio::test]
async fn page_shows_that_the_servers_are_away_and_the_queue_when_they_are_back() {
    let mut server = Server::start().await.expect("a server");
    let watch = Watch::start(&server.hosts()).await;
    let mut chromium = Chromium::open(&format!("http://{}/", watch.address)).await;
    let page = &mut chromium;
    shows(page, "queue", json!(["none; ; ; "])).await;
    server.kill();
    let state = "document.getElementById('state')";
    until("a failure", async || page.value(&format!("{state}.className")).await == "failed").await;
    let failure = page.value(&format!("{state}.textContent")).await;
    assert!(failure.as_str().is_some_and(|text| text.contains("no answer")), "{failure}");
    server.restart().await.expect("restarted");
    until("no failure", async || page.value(&format!("{state}.textContent")).await == "0 in the queue").await;
    chromium.close().await;
    assert!(watch.terminate().await);
}
