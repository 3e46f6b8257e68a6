// The list of all locks: search, order, and groups that can be closed.

import { between, byId, span, update, write, writeTime } from "./table.js";

// What the user has chosen stays when a lock is opened, and the list again.
const chosen = { search: "", sort: "path", closed: [], ...JSON.parse(sessionStorage.getItem("chosen") ?? "{}") };
let showAgain = () => {};

function choose(change) {
  Object.assign(chosen, change);
  sessionStorage.setItem("chosen", JSON.stringify(chosen));
  showAgain();
}

export function start(show) {
  showAgain = show;
  byId("search").value = chosen.search;
  byId("sort").value = chosen.sort;
  byId("search").oninput = () => choose({ search: byId("search").value });
  byId("sort").onchange = () => choose({ sort: byId("sort").value });
}

// The longest first; those of whom it is not known, or whom it does not concern, last.
const orders = {
  wait: (lock) => lock.waits ?? Infinity,
  held: (lock) => lock.granted?.at ?? Infinity,
  waiters: (lock) => -lock.waiters,
};

const parentOf = (path) => path.slice(0, path.lastIndexOf("/")) || "/";

// 9 before 10.
const { compare } = new Intl.Collator("en", { numeric: true });

const byPath = (one, other) => compare(parentOf(one.key), parentOf(other.key)) || compare(one.key, other.key);

const plural = (count, one) => `${count} ${one}${count === 1 ? "" : "s"}`;

// With a row for each parent before its locks, where they are in the order of their paths.
function arranged(locks) {
  const by = orders[chosen.sort];
  if (by) return locks.toSorted((one, other) => (by(one) === by(other) ? 0 : by(one) < by(other) ? -1 : 1));
  const groups = Map.groupBy(locks.toSorted(byPath), (lock) => parentOf(lock.key));
  return [...groups].flatMap(([key, members]) => {
    const isClosed = chosen.closed.includes(key);
    return [{ isGroup: true, key, path: parentOf(members[0].path), members, isClosed }, ...(isClosed ? [] : members)];
  });
}

function fillGroup(row, { key, path, members, isClosed }) {
  const cell = row.cells[0];
  let button = cell.querySelector("button");
  if (!button) {
    button = document.createElement("button");
    button.type = "button";
    button.append(document.createElement("bdi"), document.createElement("span"));
    cell.append(button);
  }
  const waiters = members.reduce((sum, lock) => sum + lock.waiters, 0);
  write(button.firstChild, path);
  write(button.lastChild, ` · ${plural(members.length, "lock")} · ${plural(waiters, "waiter")}`);
  button.setAttribute("aria-expanded", String(!isClosed));
  button.onclick = () => choose({ closed: isClosed ? chosen.closed.filter((it) => it !== key) : [...chosen.closed, key] });
}

function fill(row, lock, now) {
  const cell = row.cells[0];
  cell.className = "identifier path";
  let link = cell.querySelector("a");
  if (!link) {
    link = document.createElement("a");
    link.href = `?lock=${encodeURIComponent(lock.key)}`;
    cell.append(link);
  }
  write(link, lock.path);
  row.cells[1].className = "identifier";
  const others = lock.holders > 1 ? ` and ${lock.holders - 1} more` : "";
  const nobody = lock.waiters ? "nobody" : "";
  write(row.cells[1], lock.holders ? (lock.identifier || "(no identifier)") + others : nobody);
  writeTime(row.cells[2], lock.granted ? between(lock.granted, { at: now, seen: true }) : "");
  write(row.cells[3], String(lock.waiters));
  write(row.cells[4], lock.waits ? span(now - lock.waits) : "");
}

export function title(list) {
  return list.path === "/" ? "All locks" : `Locks below ${list.path}`;
}

export function summary({ locks, denied, is_complete: isComplete }) {
  if (!locks) return "connecting";
  const hidden = denied ? ` · the ACLs hide ${plural(denied, "node")}` : "";
  return plural(locks.length, "lock") + (isComplete ? "" : " so far") + hidden;
}

export function show(list, now) {
  const text = chosen.search.toLowerCase();
  const has = (lock) => `${lock.path} ${lock.identifier ?? ""}`.toLowerCase().includes(text);
  const found = (list.locks ?? []).filter(has);
  byId("locks").classList.toggle("grouped", !orders[chosen.sort]);
  const nobody = list.is_complete ? "nobody holds a lock or waits for one" : "they were not seen yet";
  update(byId("locks"), arranged(found), list.locks?.length ? "no lock has this text" : nobody, (row, one) =>
    one.isGroup ? fillGroup(row, one) : fill(row, one, now));
}
