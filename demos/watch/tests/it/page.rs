//! The status page, as an operator uses it.

use serde_json::{Value, json};
use testbed::Server;
use tokio::time::timeout;
use zookeeper_recipes::Mutex;

use crate::chromium::Chromium;
use crate::support::{FROM_HERE, LOCK, PATIENCE, Watch, World, soon, until};

/// Where to write a picture of the page, if anywhere.
const PICTURE: &str = "STATUS_PAGE_PNG";

/// The columns of a table that do not differ from run to run: not tokens, and not times.
const COLUMNS: [(&str, &str); 2] = [("queue", "[0, 1, 2, 7]"), ("grants", "[0, 1, 4]")];

/// A time in a cell.
const TIME: &str = r"/^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$/";

/// The queue while nobody is in it.
const NOBODY: &str = "nobody holds the lock or waits for it; ; ; ";

/// The button of the only holder, and the two of the question that it asks.
const REVOKE: &str = "tbody button";
const ASK: &str = "#yes";
const CANCEL: &str = "#no";

/// The texts of a table, row by row.
async fn rows(chromium: &mut Chromium, table: &str) -> Value {
    let (_, columns) = COLUMNS.iter().find(|(name, _)| *name == table).expect("a table");
    let texts = format!(
        "[...document.querySelectorAll('#{table} tbody tr')].map(row => {columns}
            .map(column => row.cells[column]?.textContent ?? '')
            .map(text => {TIME}.test(text) ? 'ended' : text).join('; '))"
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
    let mut chromium = Chromium::open(&watch.page()).await;
    let page = &mut chromium;
    shows(page, "queue", json!([NOBODY])).await;

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
    let times =
        format!("[4, 5].map(cell => {TIME}.test(document.querySelector('tr.holds').cells[cell].textContent))");
    assert_eq!(page.value(&times).await, json!([true, true]), "times with their dates");
    let spans = r"[...document.querySelectorAll('#queue tbody tr')].map(row =>
        row.cells[6].textContent.replace(/\d+m?\d*s$/, 'long'))";
    assert_eq!(page.value(spans).await, json!(["held long", "waits long", "waits long"]));
    let held = "document.querySelector('tr.holds').cells[6].textContent";
    let now = page.value(held).await;
    until("the duration grows", async || page.value(held).await != now).await;

    // A click that is not confirmed asks for nothing.
    page.click(REVOKE).await;
    let question = page.value("document.querySelector('#question').textContent").await;
    assert_eq!(question, "Ask billing-7 to release /orders/7?");
    page.click(CANCEL).await;
    assert_eq!(page.value("document.activeElement.textContent").await, "revoke", "the focus is where it was");
    assert!(!first.contenders().await.expect("listed")[0].revoke_requested());
    page.click(REVOKE).await;
    page.click(ASK).await;
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
    shows(page, "queue", json!([NOBODY])).await;
    assert_eq!(chromium.close().await, [""; 0], "complaints of the page");
    assert!(watch.terminate().await);
    world.session.close().await.expect("closed");
}

#[tokio::test]
async fn focus_stays_on_the_button_at_each_event_until_its_holder_is_gone() {
    let world = World::new().await;
    let watch = Watch::start(&world.hosts()).await;
    let guard = world.lock_of("billing-7").lock().await.expect("held");
    let mut chromium = Chromium::open(&watch.page()).await;
    let page = &mut chromium;
    let holder = "holds; billing-7; lock; revoke";
    shows(page, "queue", json!([holder])).await;
    page.value(&format!("document.querySelector('{REVOKE}').focus()")).await;
    for waiter in ["billing-8", "billing-9"] {
        let place = world.lock_of(waiter).enqueue().await.expect("queued");
        shows(page, "queue", json!([holder, format!("1; {waiter}; lock; ")])).await;
        assert_eq!(page.value("document.activeElement.textContent").await, "revoke", "{waiter} came");
        drop(place);
        shows(page, "queue", json!([holder])).await;
        assert_eq!(page.value("document.activeElement.textContent").await, "revoke", "{waiter} left");
    }
    guard.release().await.expect("released");
    shows(page, "queue", json!([NOBODY])).await;
    assert_eq!(page.value("document.activeElement.id").await, "queue-title");
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
    let mut chromium = Chromium::open(&watch.page()).await;
    shows(&mut chromium, "queue", json!([format!("holds; {markup}; lock; revoke")])).await;
    assert_eq!(chromium.value("document.querySelectorAll('img').length").await, 0);
    assert_eq!(chromium.close().await, [""; 0], "complaints of the page");
    guard.release().await.expect("released");
    assert!(watch.terminate().await);
    world.session.close().await.expect("closed");
}

/// U+202E would show `txt.7-gnillib` as `billing-7.txt`, and turn the question behind it around.
#[tokio::test]
async fn identifier_with_control_and_bidi_characters_turns_no_text_around() {
    let world = World::new().await;
    let watch = Watch::start(&world.hosts()).await;
    let guard = world.lock_of("\u{202e}7-gnillib\u{2066}\n\u{5d0}\u{5d1}").lock().await.expect("held");
    let shown = "\\u{202e}7-gnillib\\u{2066}\\n\u{5d0}\u{5d1}";
    let mut chromium = Chromium::open(&watch.page()).await;
    let page = &mut chromium;
    shows(page, "queue", json!([format!("holds; {shown}; lock; revoke")])).await;
    let bidi = "[...document.querySelectorAll('.identifier')].map(it => getComputedStyle(it).unicodeBidi)";
    let bidi = page.value(bidi).await;
    assert!(bidi.as_array().is_some_and(|all| all.iter().all(|it| it == "isolate")), "{bidi}");
    let label = page.value(&format!("document.querySelector('{REVOKE}').ariaLabel")).await;
    assert_eq!(label, format!("revoke \u{2068}{shown}\u{2069}"));
    page.click(REVOKE).await;
    let question = page.value("document.querySelector('#question').textContent").await;
    assert_eq!(question, format!("Ask {shown} to release {LOCK}?"));
    // What is written from right to left at its end does not take the words behind it along.
    let order = "(() => {
        const texts = [...document.getElementById('question').childNodes];
        const left = (node) => {
            const range = document.createRange();
            range.selectNodeContents(node);
            return range.getClientRects()[0].left;
        };
        return texts.slice(0, 3).map(left).every((at, index, all) => index === 0 || all[index - 1] < at);
    })()";
    assert_eq!(page.value(order).await, true, "the order of the question");
    if let Ok(folder) = std::env::var("STATUS_PAGE_PICTURES") {
        std::fs::write(format!("{folder}/hostile.png"), page.picture().await).expect("written");
    }
    page.click(CANCEL).await;
    assert_eq!(chromium.close().await, [""; 0], "complaints of the page");
    guard.release().await.expect("released");
    assert!(watch.terminate().await);
    world.session.close().await.expect("closed");
}

#[tokio::test]
async fn complaint_of_a_failed_revoke_goes_when_the_servers_are_back() {
    let mut server = Server::start().await.expect("a server");
    let world = World::on(&server.hosts()).await;
    let watch = Watch::impatient(&world.hosts()).await;
    let guard = world.lock_of("billing-7").lock().await.expect("held");
    let mut chromium = Chromium::open(&watch.page()).await;
    let page = &mut chromium;
    shows(page, "queue", json!(["holds; billing-7; lock; revoke"])).await;
    server.kill();
    page.click(REVOKE).await;
    page.click(ASK).await;
    let complaint = "document.getElementById('complaint').textContent";
    until("a complaint", async || page.value(complaint).await != "").await;
    let found = page.value(complaint).await;
    assert!(found.as_str().is_some_and(|text| text.starts_with("billing-7 was not asked: no answer")), "{found}");
    server.restart().await.expect("restarted");
    until("no complaint", async || page.value(complaint).await == "").await;
    drop(guard);
    chromium.close().await;
    assert!(watch.terminate().await);
}

#[tokio::test]
async fn requests_of_other_sites_revoke_nothing() {
    let world = World::new().await;
    let watch = Watch::start(&world.hosts()).await;
    let lock = world.lock_of("billing-7");
    let guard = lock.lock().await.expect("held");
    let contenders = async || lock.contenders().await.expect("listed");
    let holder = contenders().await.remove(0);
    let mut chromium = Chromium::open(&watch.page()).await;
    shows(&mut chromium, "queue", json!(["holds; billing-7; lock; revoke"])).await;
    let revoke = format!("/contenders/{}/{}/revoke?lock={LOCK}", holder.name(), holder.token());
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
    let watch = Watch::impatient(&server.hosts()).await;
    let mut chromium = Chromium::open(&watch.page()).await;
    let page = &mut chromium;
    shows(page, "queue", json!([NOBODY])).await;
    server.kill();
    let state = "document.getElementById('state')";
    until("a failure", async || page.value(&format!("{state}.className")).await == "failed").await;
    let failure = page.value(&format!("{state}.textContent")).await;
    let (status, body) = watch.ask("GET", "/healthz", "").await;
    assert!(status == 503 && body.contains("no answer"), "{status} {body}");
    assert!(failure.as_str().is_some_and(|text| text.contains("no answer")), "{failure}");
    server.restart().await.expect("restarted");
    until("no failure", async || page.value(&format!("{state}.textContent")).await == "0 in the queue").await;
    assert_eq!(watch.ask("GET", "/healthz", "").await, (200, "ok\n".to_owned()));
    chromium.close().await;
    assert!(watch.terminate().await);
}
