// Shows all locks, or the one that the address names, as the events come, and once a second for the durations.

import * as lock from "./lock.js";
import * as locks from "./locks.js";
import { byId, time, write } from "./table.js";

const isOne = new URLSearchParams(location.search).has("lock");
const view = isOne ? lock : locks;
let last = null;
let isConnected = false;
let lostAt = null;
let refusal = null;
// How far the clock of this page's server is ahead of the browser's.
let ahead = 0;

// In a sentence it is not broken.
const unbroken = (text) => text.replaceAll("-", "\u2011").replaceAll(" ", "\u00a0");

function failure() {
  if (refusal) return refusal;
  if (!isConnected) return lostAt ? `no connection to this page's server since ${unbroken(time(lostAt))}` : "connecting";
  return last?.error ?? null;
}

function show() {
  const failed = failure();
  const isStale = Boolean(failed && failed !== "connecting");
  document.body.classList.toggle("stale", isStale);
  byId("state").classList.toggle("failed", isStale);
  const seen = isStale && last?.looked ? ` · below is what was seen at ${unbroken(time(last.looked))}` : "";
  write(byId("state"), failed ? failed + seen : last ? view.summary(last) : "connecting");
  if (!last?.path) return;
  document.title = view.title(last);
  write(byId("path"), view.title(last));
  // Nobody knows whether a hold has lasted since.
  view.show(last, isStale ? (last.looked ?? last.now) : serverTime());
}

const serverTime = () => Date.now() + ahead;

byId(isOne ? "one" : "all").hidden = false;
byId("back").hidden = !isOne;
view.start(show, serverTime);
const url = isOne ? `queue${location.search}` : "locks";
const events = new EventSource(url);
events.onmessage = (event) => {
  isConnected = true;
  lostAt = null;
  last = { ...last, ...JSON.parse(event.data) };
  if (last.now) ahead = last.now - Date.now();
  show();
};
// The browser connects again by itself, unless the server has refused it.
events.onerror = async () => {
  isConnected = false;
  lostAt ??= Date.now();
  if (events.readyState === EventSource.CLOSED) refusal ??= await fetch(url).then((answer) => answer.text(), () => null);
  show();
};
setInterval(() => last && show(), 1000);
