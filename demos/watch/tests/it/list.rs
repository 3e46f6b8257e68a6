//! The page of all locks.

use futures_util::future::join_all;
use serde_json::{Value, json};
use zookeeper_recipes::{RwLock, Semaphore};

use crate::chromium::Chromium;
use crate::support::{PATIENCE, Watch, World, binary, until};

const MANY: usize = 500;

/// The first column, and the number of waiters of a lock.
const ROWS: &str = "[...document.querySelectorAll('#locks tbody tr')]
    .map((row) => [row.cells[0], row.cells[1], row.cells[3]].filter(Boolean).map((cell) => cell.textContent).join('; '))";

async fn shows(page: &mut Chromium, expected: Value) {
    let mut found = Value::Null;
    let is_met = async || {
        found = page.value(ROWS).await;
        found == expected
    };
    if tokio::time::timeout(PATIENCE / 2, until("the list", is_met)).await.is_err() {
        panic!("{found} instead of {expected}");
    }
}

/// Types into a field, or chooses an option.
async fn choose(page: &mut Chromium, id: &str, value: &str) {
    let typed = format!(
        "{{ const it = document.getElementById('{id}'); it.value = '{value}';
            it.dispatchEvent(new Event('input')); it.dispatchEvent(new Event('change')); }}"
    );
    page.value(&typed).await;
}

#[tokio::test]
async fn list_has_every_lock_can_be_searched_sorted_and_collapsed_and_opens_a_lock() {
    let world = World::new().await;
    let session = &world.session;
    let first = world.lock_at("/orders/7", "billing-7").lock().await.expect("held");
    let second = world.lock_at("/orders/8", "mail-1").lock().await.expect("held");
    let waiting = world.lock_at("/orders/8", "mail-2").enqueue().await.expect("queued");
    let reader = RwLock::new(session, "/stock").expect("a lock").read().await.expect("held");
    let permit = Semaphore::new(session, "/mail/gate", 3).expect("a semaphore").acquire().await.expect("held");
    // No lock, and nobody in it.
    world.lock_at("/orders/old", "billing-7").lock().await.expect("held").release().await.expect("released");

    let watch = Watch::start(&world.hosts()).await;
    let mut chromium = Chromium::open(&watch.list()).await;
    let page = &mut chromium;
    let ours = session.lock_options().identifier().to_owned();
    let ours = String::from_utf8_lossy(&ours);
    let (gate, stock) = (format!("/mail/gate; {ours}; 0"), format!("/stock; {ours}; 0"));
    let orders = ["/orders/7; billing-7; 0", "/orders/8; mail-1; 1"];
    shows(
        page,
        json!([
            "/ · 1 lock · 0 waiters",
            stock,
            "/mail · 1 lock · 0 waiters",
            gate,
            "/orders · 2 locks · 1 waiter",
            orders[0],
            orders[1]
        ]),
    )
    .await;
    choose(page, "search", "BILLING-7").await;
    shows(page, json!(["/orders · 1 lock · 0 waiters", orders[0]])).await;
    choose(page, "search", "nobody").await;
    shows(page, json!(["no lock has this text"])).await;
    choose(page, "search", "orders").await;
    choose(page, "sort", "waiters").await;
    shows(page, json!([orders[1], orders[0]])).await;
    let waits = r"/^\d+s$/.test(document.querySelector('#locks tbody tr').cells[4].textContent)";
    assert_eq!(page.value(waits).await, true, "the longest wait");
    choose(page, "sort", "path").await;
    choose(page, "search", "").await;
    page.value("document.querySelectorAll('.group button')[2].focus()").await;
    page.value("document.activeElement.click()").await;
    let collapsed = json!([
        "/ · 1 lock · 0 waiters",
        stock,
        "/mail · 1 lock · 0 waiters",
        gate,
        "/orders · 2 locks · 1 waiter"
    ]);
    shows(page, collapsed.clone()).await;
    assert_eq!(
        page.value("document.activeElement.getAttribute('aria-expanded')").await,
        "false",
        "the focus stays"
    );

    page.value("document.activeElement.click()").await;
    page.value("document.querySelector('a[href$=\"orders%2F8\"]').click()").await;
    let queue = "[...document.querySelectorAll('#queue tbody tr')].map((row) => row.cells[1]?.textContent)";
    until("the queue", async || page.value(queue).await == json!(["mail-1", "mail-2"])).await;
    assert_eq!(page.value("document.title").await, "/orders/8");
    page.value("document.querySelector('#back a').click()").await;
    until("the list", async || page.value("document.title").await == "All locks").await;
    assert_eq!(chromium.close().await, [""; 0], "complaints of the page");
    drop((first, second, waiting, reader, permit));
    assert!(watch.terminate().await);
}

#[tokio::test]
async fn lock_beside_the_parent_is_not_shown() {
    let world = World::new().await;
    let guard = world.lock_at("/stock", "billing-7").lock().await.expect("held");
    let watch = Watch::run(binary(&world.hosts()).arg("/orders")).await;
    let event = watch.event("/locks", |event| event["is_complete"] == true).await;
    assert_eq!((&event["path"], &event["locks"]), (&json!("/orders"), &json!([])));
    for path in ["/stock", "/orders2", "orders", "/"] {
        let (status, body) = watch.ask("GET", &format!("/queue?lock={path}"), "").await;
        assert_eq!((status, body), (404, format!("{path} is no lock that is shown here\n")));
    }
    let mut chromium = Chromium::open(&format!("{}?lock=/stock", watch.list())).await;
    let refused = "document.getElementById('state')?.textContent === '/stock is no lock that is shown here\\n'";
    until("the refusal", async || chromium.value(refused).await == true).await;
    guard.release().await.expect("released");
    assert!(watch.terminate().await);
}

#[tokio::test]
async fn list_of_hundreds_of_locks_is_shown_as_it_is_read() {
    let world = World::new().await;
    let paths: Vec<_> = (0..MANY).map(|number| format!("/orders/eu-{}/{number}", number % 10)).collect();
    let locks = paths.iter().map(|path| world.lock_at(path, "billing-7"));
    let places = join_all(locks.map(async |lock| lock.enqueue().await.expect("queued"))).await;
    let watch = Watch::start(&world.hosts()).await;
    let mut chromium = Chromium::open(&watch.list()).await;
    let page = &mut chromium;
    let state = "document.getElementById('state')?.textContent";
    until("a part", async || page.value(&format!("{state}.endsWith('locks so far')")).await == true).await;
    until("all", async || page.value(state).await == format!("{MANY} locks")).await;
    assert_eq!(page.value("document.querySelectorAll('#locks a').length").await, MANY);
    choose(page, "search", "/orders/eu-7/117").await;
    shows(page, json!(["/orders/eu-7 · 1 lock · 0 waiters", "/orders/eu-7/117; billing-7; 0"])).await;
    assert_eq!(chromium.close().await, [""; 0], "complaints of the page");
    drop(places);
    assert!(watch.terminate().await);
}
