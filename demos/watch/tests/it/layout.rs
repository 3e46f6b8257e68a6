//! How the status page looks: at three widths, by day and by night, with nobody in the queue, one contender and thirty, and
//! while the servers are away.

use serde_json::{Value, json};
use testbed::Server;

use crate::chromium::Chromium;
use crate::support::{LOCK, Watch, World, until};

/// A folder for a picture of each, if anywhere.
const PICTURES: &str = "STATUS_PAGE_PICTURES";

/// A phone, a tablet, a desk.
const WIDTHS: [u32; 3] = [390, 768, 1280];

/// What is wrong with the page as it is shown now: a list of texts.
///
/// 1. Nothing is wider than the window.
/// 2. No word is broken, other than those that clients choose: identifiers, the path and errors.
/// 3. Each text has a contrast of 4.5 with what is behind it (WCAG 2, AA).
/// 4. On a phone, fingers hit each button, and each value is beside the name of its column.
const FAULTS: &str = r"(() => {
    const faults = [];
    const shown = (it) => it.checkVisibility() && !it.closest('dialog:not([open])') && it.getClientRects().length > 0;
    const wide = document.documentElement.scrollWidth;
    if (wide > innerWidth) faults.push(`${wide} px wide`);
    const isPhone = innerWidth < 500;
    // Names of columns are not shown on a phone, but read aloud.
    const isHidden = (it) => isPhone && it.closest('thead');
    const texts = [...document.querySelectorAll('body *')].filter((it) => shown(it) && !isHidden(it)).flatMap((it) =>
        [...it.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE && node.data.trim()).map((node) => [it, node]));
    for (const [it, node] of texts) {
        const isChosen = it.closest('.identifier, bdi, h1, #state, #complaint, #question');
        for (const word of isChosen ? [] : node.data.matchAll(/\S+/g)) {
            const range = document.createRange();
            range.setStart(node, word.index);
            range.setEnd(node, word.index + word[0].length);
            const lines = new Set([...range.getClientRects()].map((at) => Math.round(at.top)));
            if (lines.size > 1) faults.push(`broken: ${word[0]}`);
        }
    }
    for (const cell of isPhone ? document.querySelectorAll('td:not(.empty, .group)') : []) {
        const lefts = [...cell.childNodes].map((node) => {
            const range = document.createRange();
            range.selectNode(node);
            return range.getBoundingClientRect().left - cell.getBoundingClientRect().left;
        });
        if (lefts.some((left) => left < 80)) faults.push(`under its name: ${cell.textContent}`);
    }
    const channels = (color) => color.match(/[\d.]+/g).map(Number);
    const luminance = (color) => {
        const [r, g, b] = channels(color).map((c) => c / 255).map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const isClear = (color) => channels(color)[3] === 0;
    const behind = (it) => {
        while (it && isClear(getComputedStyle(it).backgroundColor)) it = it.parentElement;
        return it ? getComputedStyle(it).backgroundColor : 'rgb(255, 255, 255)';
    };
    const contrast = (one, other) => {
        const [light, dark] = [luminance(one), luminance(other)].sort((a, b) => b - a);
        return (light + 0.05) / (dark + 0.05);
    };
    for (const [it, node] of texts) {
        for (const pseudo of [null, '::before']) {
            const found = contrast(getComputedStyle(it, pseudo).color, behind(it));
            if (found < 4.5) faults.push(`${node.data.trim()}: contrast ${found.toFixed(2)}`);
        }
        for (let at = it; at; at = at.parentElement) {
            if (getComputedStyle(at).opacity !== '1') faults.push(`${node.data.trim()}: see-through`);
        }
    }
    for (const button of [...document.querySelectorAll('button')].filter(shown)) {
        const at = button.getBoundingClientRect();
        if (isPhone && at.height < 40) faults.push(`${button.textContent}: ${at.height} px high`);
        if (at.right > innerWidth || at.left < 0) faults.push(`${button.textContent}: cut off`);
    }
    return [...new Set(faults)];
})()";

pub(crate) async fn looks_well(page: &mut Chromium, what: &str) {
    let mut faults = Vec::new();
    for width in WIDTHS {
        for scheme in ["light", "dark"] {
            page.emulate(width, scheme).await;
            let name = format!("{what}-{width}-{scheme}");
            let found = page.value(FAULTS).await;
            if found != json!([]) {
                faults.push(format!("{name}: {found}"));
            }
            if let Ok(folder) = std::env::var(PICTURES) {
                std::fs::write(format!("{folder}/{name}.png"), page.whole_picture().await).expect("written");
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

/// Waits until the page shows that many rows of contenders.
pub(crate) async fn rows(page: &mut Chromium, count: usize) {
    let shown = "document.querySelectorAll('#queue tbody tr td:nth-child(2)').length";
    until("the rows", async || page.value(shown).await == json!(count)).await;
}

#[tokio::test]
async fn page_can_be_read_at_every_width_by_day_and_by_night() {
    let mut server = Server::start().await.expect("a server");
    let world = World::on(&server.hosts()).await;
    let watch = Watch::impatient(&world.hosts()).await;
    let mut chromium = Chromium::open(&watch.page()).await;
    let page = &mut chromium;
    until("the path", async || page.value("document.title").await == LOCK).await;
    looks_well(page, "none").await;

    let guard = world.lock_of("billing-7d9f8b6c5d-x2x7q/0").lock().await.expect("held");
    rows(page, 1).await;
    looks_well(page, "one").await;
    page.click("tbody button").await;
    looks_well(page, "question").await;
    page.click("#no").await;

    let list = watch.list();
    let others: Vec<_> =
        (0..40).map(|number| world.lock_at(&format!("/orders/eu-west/{number}"), "mail-1")).collect();
    let mut others_held = Vec::new();
    for lock in &others {
        others_held.push(lock.lock().await.expect("held"));
    }
    page.go(&list).await;
    until("the list", async || page.value("document.querySelectorAll('#locks a').length").await == 41).await;
    looks_well(page, "list").await;
    drop(others_held);
    page.go(&watch.page()).await;

    let long = format!("billing-{}", "7d9f8b6c5d".repeat(12));
    let mut places = Vec::new();
    for number in 1..30 {
        let identifier = if number == 3 { long.clone() } else { format!("billing-7d9f8b6c5d-x2x7q/{number}") };
        places.push(world.lock_of(&identifier).enqueue().await.expect("queued"));
    }
    rows(page, 30).await;
    looks_well(page, "thirty").await;

    server.kill();
    until("an outage", async || page.value("document.body?.className").await == "stale").await;
    let state = page.value("document.getElementById('state')?.textContent").await;
    assert!(state.as_str().is_some_and(|text| text.contains("below is what was seen at")), "{state}");
    looks_well(page, "outage").await;
    assert_eq!(chromium.close().await, [""; 0], "complaints of the page");
    drop((places, guard));
}

#[tokio::test]
async fn page_that_is_opened_in_an_outage_shows_why_it_is_empty() {
    let mut server = Server::start().await.expect("a server");
    let hosts = server.hosts();
    server.kill();
    let watch = Watch::impatient(&hosts).await;
    let mut chromium = Chromium::open(&watch.page()).await;
    let page = &mut chromium;
    until("an outage", async || page.value("document.body?.className").await == "stale").await;
    let state: Value = page.value("document.getElementById('state')?.textContent").await;
    assert!(state.as_str().is_some_and(|text| text.contains(&hosts) && !text.contains("below")), "{state}");
    let queue = page.value("document.querySelector('#queue tbody').textContent").await;
    assert_eq!(queue, "it was not seen yet");
    looks_well(page, "outage-from-the-start").await;
    assert_eq!(chromium.close().await, [""; 0], "complaints of the page");
}
