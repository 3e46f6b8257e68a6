// One lock: its queue, its grants, and the button that asks a holder to release.

import { between, byId, moment, span, time, update, write, writeTime } from "./table.js";

// Why a holder was not asked: { key, who, why, isRefused, at }, at the server's time.
let complaint = null;
let last = null;
let serverTime = () => Date.now();

function identifier(one) {
  return one.identifier || "(overwritten by a revocation)";
}

function confirmed(contender) {
  const dialog = byId("confirm");
  write(byId("asked"), identifier(contender));
  write(byId("asked-lock"), last.path);
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    // The event of an earlier question may come late, when this one is open already.
    dialog.onclose = () => dialog.open || resolve(dialog.returnValue === "yes");
  });
}

byId("no").onclick = () => byId("confirm").close("");
byId("yes").onclick = () => byId("confirm").close("yes");

function complain(about) {
  complaint = about;
  const who = document.createElement("bdi");
  who.textContent = about?.who;
  byId("complaint").replaceChildren(...(about ? [who, ` was not asked: ${about.why}`] : []));
}

// An outage is over once the queue was seen again. What the servers refused stays as long as the holder does.
function forgive() {
  if (!complaint) return;
  const one = (last.queue ?? []).find((it) => String(it.key) === complaint.key);
  const isOver = last.error === null && (!one || one.revoked || !complaint.isRefused);
  if (isOver && last.looked > complaint.at) complain(null);
}

async function revoke(contender) {
  complain(null);
  const isConfirmed = await confirmed(contender);
  // The browser gives the focus back to the button, unless that is gone.
  if (document.activeElement === document.body) byId("queue-title").focus();
  if (!isConfirmed) return;
  const node = contender.key.map(encodeURIComponent).join("/");
  const about = { key: String(contender.key), who: identifier(contender) };
  try {
    const url = `contenders/${node}/revoke${location.search}`;
    const answer = await fetch(url, { method: "POST", headers: { "x-status-page": "1" } });
    if (!answer.ok) complain({ ...about, why: await answer.text(), isRefused: answer.status === 403, at: serverTime() });
  } catch (error) {
    complain({ ...about, why: error.message, isRefused: false, at: serverTime() });
  }
}

function writeAction(cell, contender) {
  let button = cell.querySelector("button");
  if (contender.revoked || !contender.holds) return write(cell, contender.revoked ? "asked to release" : "");
  if (!button) {
    button = document.createElement("button");
    button.type = "button";
    button.textContent = "revoke";
    button.title = "asks the holder to release";
    // An attribute has no element that keeps its direction: these characters do.
    button.setAttribute("aria-label", `revoke \u2068${identifier(contender)}\u2069`);
    cell.replaceChildren(button);
  }
  button.onclick = () => revoke(contender);
}

export function start(again, clock) {
  serverTime = clock;
}

export const title = (lock) => lock.path;

export function summary(lock) {
  if (lock.hidden) return "the ACLs hide this lock from this page's server";
  return lock.queue ? `${lock.queue.length} in the queue` : "connecting";
}

export function show(lock, now) {
  last = lock;
  forgive();
  const button = document.activeElement.closest?.("tbody button");
  const nobody = lock.queue ? "nobody holds the lock or waits for it" : lock.hidden ? "it cannot be seen" : "it was not seen yet";
  update(byId("queue"), lock.queue ?? [], nobody, (row, one) => {
    row.className = one.holds ? "holds" : "";
    write(row.cells[0], one.holds ? "holds" : String(one.position));
    write(row.cells[1], identifier(one));
    write(row.cells[2], one.kind);
    write(row.cells[3], one.token);
    writeTime(row.cells[4], time(one.joined));
    writeTime(row.cells[5], one.granted ? moment(one.granted) : "");
    const held = one.granted ? `held ${between(one.granted, { at: now, seen: true })}` : "";
    writeTime(row.cells[6], one.holds ? held : `waits ${span(now - one.joined)}`);
    writeAction(row.cells[7], one);
  });
  // The button is gone, as its holder is, or was asked. The next key press begins where it was.
  if (button && !button.isConnected) byId("queue-title").focus();
  update(byId("grants"), lock.grants ?? [], "none was seen yet", (row, one) => {
    write(row.cells[0], identifier(one));
    write(row.cells[1], one.kind);
    write(row.cells[2], one.token);
    writeTime(row.cells[3], moment(one.granted));
    writeTime(row.cells[4], one.ended ? moment(one.ended) : "holds");
    writeTime(row.cells[5], between(one.granted, one.ended ?? { at: now, seen: true }));
  });
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  write(byId("clocks"), `Times are in ${zone}: joined by the servers' clock, granted and ended by the clock of this page's server.`);
}
