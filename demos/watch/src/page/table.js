// Tables whose rows are changed in place, and the forms of times.

export const byId = (id) => document.getElementById(id);

const two = (number) => String(number).padStart(2, "0");

// With the date, and the same in every language.
export function time(millis) {
  const at = new Date(millis);
  const date = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${date} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

// A change that nobody saw was before the time.
export const moment = ({ at, seen }) => (seen ? time(at) : `before ${time(at)}`);

// In two units at most, as zklock prints it.
export function span(millis) {
  const seconds = Math.max(0, Math.floor(millis / 1000));
  const [minutes, hours, days] = [60, 3600, 86400].map((unit) => Math.floor(seconds / unit));
  if (minutes === 0) return `${seconds}s`;
  if (hours === 0) return `${minutes}m${two(seconds % 60)}s`;
  if (days === 0) return `${hours}h${two(minutes % 60)}m`;
  return `${days}d${two(hours % 24)}h`;
}

// How long from one moment to another, as far as it was seen.
export function between(from, to) {
  const about = from.seen ? (to.seen ? "" : "at most ") : to.seen ? "over " : "about ";
  return about + span(to.at - from.at);
}

// What others write into their nodes is only ever set as text.
export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// A time may be broken between its words only.
export function writeTime(cell, text) {
  if (cell.textContent === text) return;
  const words = document.createElement("span");
  words.className = "time";
  for (const [index, word] of text.split(" ").entries()) {
    const whole = document.createElement("span");
    whole.className = "whole";
    whole.textContent = word;
    words.append(...(index ? [" ", whole] : [whole]));
  }
  cell.replaceChildren(...(text ? [words] : []));
}

function newRow(key, labels) {
  const row = document.createElement("tr");
  row.setAttribute("role", "row");
  row.dataset.key = key;
  for (const label of labels) {
    const cell = row.insertCell();
    cell.setAttribute("role", "cell");
    cell.dataset.label = label;
    if (label === "identifier" || label === "action") cell.className = label;
  }
  return row;
}

function wideRow(key, width, className) {
  const row = newRow(key, [""]);
  Object.assign(row.cells[0], { className, colSpan: width });
  return row;
}

// Rows that stay are changed in place. So a button keeps the focus, and a selected text its selection, at each event. Each item of the
// list has a key; a group has one cell.
export function update(table, list, nothing, fill) {
  const body = table.tBodies[0];
  const labels = [...table.tHead.rows[0].cells].map((cell) => cell.textContent.trim());
  const known = new Map([...body.rows].map((row) => [row.dataset.key, row]));
  const rows = list.map((one) => {
    const key = JSON.stringify([one.key, Boolean(one.isGroup)]);
    const row = known.get(key) ?? (one.isGroup ? wideRow(key, labels.length, "group") : newRow(key, labels));
    fill(row, one);
    return row;
  });
  if (rows.length === 0) {
    rows.push(known.get("") ?? wideRow("", labels.length, "empty quiet"));
    write(rows[0].cells[0], nothing);
  }
  const focused = document.activeElement;
  const kept = new Set(rows);
  for (const row of known.values()) if (!kept.has(row)) row.remove();
  rows.forEach((row, index) => {
    if (body.rows[index] !== row) body.insertBefore(row, body.rows[index] ?? null);
  });
  if (document.activeElement !== focused && focused.isConnected) focused.focus();
}
