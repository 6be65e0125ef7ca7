// SPDX-License-Identifier: Apache-2.0
// Shows the view of a job (horovod/runner/watch/collector.py) as it arrives, about once a second. Whatever comes
// from a job is put into the page as text, never as markup.
"use strict";

const byId = (id) => document.getElementById(id);
const MOST_LINES = 400, MOST_EVENTS = 300;
const opened = new Set();  // ranks whose stacks the user wants to see
const tiles = new Map();   // rank's name -> its tile
let lines = [], events = [], last = null;

function make(tag, text, kind) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

const known = (value) => value !== null && value !== undefined;
const percent = (value) => known(value) ? Math.round(value * 100) + " %" : "–";
const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString();

function time(seconds) {
  if (!known(seconds)) return "–";
  return seconds < 1 ? (seconds * 1000).toPrecision(3) + " ms" : seconds.toPrecision(3) + " s";
}

function size(count) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (count >= 1000 && unit < units.length - 1) { count /= 1000; unit += 1; }
  return (unit ? count.toPrecision(3) : Math.round(count)) + " " + units[unit];
}

function duration(seconds) {
  const parts = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, Math.floor(seconds) % 60];
  return parts.map((part) => String(part).padStart(2, "0")).join(":");
}

function speed(row) {
  if (known(row.samples_s)) return [Math.round(row.samples_s), "samples/s"];
  if (known(row.steps_s)) return [row.steps_s.toPrecision(3), "steps/s"];
  return known(row.ops_s) ? [row.ops_s.toPrecision(3), "tensors/s"] : ["–", "steps/s"];
}

function does(row) {
  const kind = row.tensor.startsWith(row.kind.toLowerCase()) ? "" : row.kind.toLowerCase() + " ";
  const what = row.tensor ? ` in ${kind}${row.tensor}` : "";
  const since = known(row.since) && row.since >= 1 ? `, ${Math.round(row.since)} s` : "";
  if (row.bad) return row.why;
  const where = row.state === "computing" ? row.where.split("/").pop() : "";
  return [row.why || (what || where ? "" : row.state), where].filter(Boolean).join(" ") + what + since;
}

function showTotals(view) {
  const totals = view.totals, [value, unit] = speed(totals);
  const hosts = view.hosts === 1 ? "1 host" : `${view.hosts} hosts`;
  const cards = [
    [totals.ranks, `ranks on ${hosts}`], [time(totals.step_s), "a step"], [value, unit],
    [percent(totals.waiting), "waiting for others"],
    [known(totals.bytes_s) ? size(totals.bytes_s) + "/s" : "–", "reduced"], [size(totals.memory), "memory"],
  ];
  if (view.generation > 1) cards.push([view.generation, "generation"]);
  byId("totals").replaceChildren(...cards.map(([number, label]) => {
    const card = make("div");
    card.append(make("b", number), make("span", label));
    return card;
  }));
}

function line(history) {
  const values = history.filter(known);
  if (values.length < 2) return null;
  const top = Math.max(...values), space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg"), path = document.createElementNS(space, "polyline");
  svg.setAttribute("viewBox", "0 0 59 24");
  svg.setAttribute("preserveAspectRatio", "none");
  const start = 60 - values.length;
  path.setAttribute("points", values.map((value, i) => `${start + i},${23 - 22 * value / top}`).join(" "));
  svg.append(path);
  return svg;
}

function tile(row) {
  let found = tiles.get(row.name);
  if (!found) {
    found = make("button");
    found.type = "button";
    found.dataset.worker = row.name;
    found.addEventListener("click", () => look(row.name));
    tiles.set(row.name, found);
  }
  found.className = `rank ${row.state}${row.bad ? " bad" : ""}`;
  found.title = "Show its Python stacks";
  const head = make("div", undefined, "head"), numbers = make("div", undefined, "numbers");
  head.append(make("span", row.rank >= 0 ? `rank ${row.rank}` : row.name), make("span", row.state));
  const what = make("div", does(row), "does");
  what.title = row.where;
  numbers.append(make("span", time(row.step_s)), make("span", percent(row.waiting)), make("span", size(row.memory)));
  found.replaceChildren(head, what, numbers, ...[line(row.history)].filter(Boolean));
  return found;
}

function look(name) {
  if (opened.delete(name)) { showTrouble(last); return; }
  opened.add(name);
  fetch("/stacks?worker=" + encodeURIComponent(name));
  showTrouble(last);
}

function showHosts(view) {
  const hosts = new Map();
  for (const row of view.ranks) {
    if (!hosts.has(row.host)) hosts.set(row.host, []);
    hosts.get(row.host).push(row);
  }
  for (const name of tiles.keys()) if (!view.ranks.some((row) => row.name === name)) tiles.delete(name);
  byId("hosts").replaceChildren(...[...hosts].flatMap(([host, rows]) => {
    const grid = make("div", undefined, "ranks");
    grid.append(...rows.map(tile));
    return [make("h2", host), grid];
  }));
}

function showTrouble(view) {
  const shown = view.ranks.filter((row) => row.bad || opened.has(row.name));
  byId("trouble").hidden = shown.length === 0;
  byId("trouble").replaceChildren(...shown.map((row) => {
    const card = make("article");
    card.dataset.worker = row.name;
    const who = row.rank >= 0 ? `rank ${row.rank}` : row.name;
    card.append(make("b", `${who} on ${row.host} ${does(row)}`));
    if (row.stack) {
      const age = view.now - row.stack_time;
      const then = `Where it was ${Math.round(age)} s ago, when it was last heard of:`;
      card.append(make("div", age > 4 ? then : "Where it is now:"), make("pre", row.stack));
    }
    return card;
  }));
}

function showState(view) {
  const pill = byId("state"), bad = view.totals.bad > 0 || view.end;
  pill.textContent = view.end === null ? (bad ? `${view.totals.bad} not well` : "running") : (view.end ? "failed" : "ended");
  pill.className = "pill " + (bad ? "bad" : "good");
  byId("title").textContent = view.title;
  byId("elapsed").textContent = duration(view.now - view.began);
  document.title = `${pill.textContent} · Horovod`;
}

// Stays at the end while the reader is there.
function append(list, made) {
  const follows = list.scrollHeight - list.scrollTop - list.clientHeight < 30;
  list.replaceChildren(...made);
  if (follows) list.scrollTop = list.scrollHeight;
}

function showEvents() {
  append(byId("events"), events.map((event) => {
    const item = make("li", undefined, event.bad ? "bad" : "");
    item.append(make("time", clock(event.time)), " " + event.text);
    return item;
  }));
}

function showLines() {
  const which = byId("which");
  for (const one of lines) {
    if (![...which.options].some((option) => option.value === one.rank)) {
      const option = make("option", `rank ${one.rank}`);
      option.value = one.rank;
      which.append(option);
    }
  }
  const wanted = lines.filter((one) => !which.value || one.rank === which.value);
  append(byId("lines"), wanted.flatMap((one) => {
    return [make("i", `[${one.rank}] `), make("span", one.text, one.channel), "\n"];
  }));
}

function show(view) {
  last = view;
  showState(view);
  showTotals(view);
  showTrouble(view);
  showHosts(view);
  if (view.events.length) {
    events = events.concat(view.events).slice(-MOST_EVENTS);
    showEvents();
  }
  if (view.lines.length) {
    lines = lines.concat(view.lines).slice(-MOST_LINES);
    showLines();
  }
}

byId("which").addEventListener("change", showLines);
const source = new EventSource("/events");
source.onopen = () => { lines = []; events = []; };  // whoever connects gets all of them
source.onmessage = (message) => {
  show(JSON.parse(message.data));
  if (last.end !== null) source.close();
};
source.onerror = () => {
  byId("state").textContent = "the launcher does not answer";
  byId("state").className = "pill bad";
};
