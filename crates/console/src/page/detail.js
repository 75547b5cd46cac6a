// One key in full, and breaking its lock.

import { byId, count, duration, lease, make, named, printable, setText, who } from "./dom.js";

let shown = null;
// The ids of the holders on the screen, and those that were on it when the user began to type the name: only these are broken.
let holders = [];
let chosen = null;
let mayBreak = false;

export const allowBreak = (allowed) => {
  mayBreak = allowed;
};

/** Opens the dialog for a key. What it shows comes with `showDetail`. */
export function openDetail(key) {
  shown = key;
  holders = [];
  chosen = null;
  byId("detail-title").replaceChildren(make("span", { class: "name" }, ...named(key)));
  byId("detail-body").replaceChildren(make("p", { class: "empty" }, "Asking the store…"));
  byId("broken").replaceChildren();
  byId("break").hidden = true;
  byId("break-name").value = "";
  byId("break-button").disabled = true;
  if (!byId("detail").open) {
    byId("detail").showModal();
  }
}

export function showDetail(data) {
  if (data.key !== shown) {
    return;
  }
  byId("detail-body").replaceChildren(...holdsHere(data), ...waitersHere(data), ...inStore(data.store));
  holders = data.store.holders.map((holder) => holder.id);
  const held = holders.length > 0;
  byId("break").hidden = !(mayBreak && held);
}

function holdsHere({ holds }) {
  if (holds.length === 0) {
    return [make("h3", {}, "Held by this process"), make("p", { class: "empty" }, "No.")];
  }
  const heads = ["Mode", "Route", "Age", "Lease left", "Guards", "Token", "Id"];
  const rows = holds.map((hold) => [
    hold.state === "held" ? hold.mode : `${hold.mode}, ${hold.state}`,
    route(hold.route),
    duration(hold.age_ms),
    lease(hold.lease_left_ms, hold.lease_ms),
    count(hold.shares),
    hold.token ?? "–",
    make("span", { class: "name" }, hold.id),
  ]);
  return [make("h3", {}, "Held by this process"), ...rows.map((row) => facts(heads, row))];
}

function waitersHere({ waiters, waiting }) {
  const title = make("h3", {}, "Waiting in this process, in order");
  if (waiting === 0) {
    return [title, make("p", { class: "empty" }, "No request.")];
  }
  const rows = waiters.map((waiter, place) => [
    String(place + 1),
    waiter.mode,
    route(waiter.route),
    duration(waiter.waited_ms),
    waiter.asks_store ? "asks the store" : "in the queue of the process",
  ]);
  const parts = [title, table(["Place", "Mode", "Route", "Waited", "Where"], rows, "waiters")];
  if (waiting > waiters.length) {
    parts.push(make("p", { class: "quiet" }, `and ${count(waiting - waiters.length)} more`));
  }
  return parts;
}

function inStore({ holders, waiters, truncated, limit, error }) {
  const title = make("h3", {}, "In the store");
  if (error) {
    return [title, make("p", { class: "empty" }, error)];
  }
  const parts = [title];
  if (limit !== null) {
    const held = truncated ? `at least ${count(holders.length)}` : count(holders.length);
    parts.push(make("p", { class: "quiet" }, `${held} of ${count(limit)} permits are held.`));
  }
  if (holders.length === 0) {
    parts.push(make("p", { class: "empty" }, "Free: it has no holder."));
  } else {
    const rows = holders.map((holder) => [
      who(holder.kind, holder.process, holder.route),
      holder.mode,
      count(holder.count),
      holder.lease_left_ms === null ? "no end" : duration(holder.lease_left_ms),
      make("span", { class: "name" }, ...named(holder.id ?? "")),
    ]);
    parts.push(table(["Holder", "Mode", "Entered", "Lease left", "Id"], rows, "holders"));
  }
  if (waiters.length > 0) {
    const list = waiters.map((waiter) => make("li", { class: "name" }, ...named(waiter)));
    parts.push(make("h3", {}, "Waiting in the store"), make("ol", {}, ...list));
  }
  if (truncated) {
    parts.push(make("p", { class: "quiet" }, "There are more than the store shows."));
  }
  return parts;
}

const route = (template) => (template === "none" ? "–" : template);

function facts(heads, row) {
  const lines = heads.map((head, place) => make("tr", {}, make("th", { scope: "row" }, head), make("td", {}, row[place])));
  return make("table", { class: "facts" }, make("tbody", {}, ...lines));
}

function table(heads, rows, name) {
  const head = make("tr", {}, ...heads.map((text) => make("th", { scope: "col" }, text)));
  const cells = (row) => row.map((cell, place) => make("td", { "data-label": heads[place] }, cell));
  const body = rows.map((row) => make("tr", {}, ...cells(row)));
  return make("table", { class: `cards ${name}` }, make("thead", {}, head), make("tbody", {}, ...body));
}

byId("break-name").addEventListener("input", () => {
  chosen = byId("break-name").value === "" ? null : (chosen ?? holders);
  byId("break-button").disabled = shown === null || byId("break-name").value !== printable(shown);
});

byId("break").addEventListener("submit", async (event) => {
  event.preventDefault();
  const key = shown;
  byId("break-button").disabled = true;
  byId("break-name").value = "";
  const seen = chosen ?? holders;
  chosen = null;
  byId("broken").replaceChildren(await breakLock(key, seen));
});

async function breakLock(key, holders) {
  try {
    const answer = await fetch(new URL("api/break", import.meta.url), {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ key, confirm: key, holders }),
    });
    const told = await answer.json();
    if (!answer.ok) {
      return `It was not broken: ${told.detail}`;
    }
    const was = told.was.holders.map((holder) => `${holder.id} (${holder.mode}, ${holder.kind})`).join(", ");
    return told.broken ? `Broken. It was held by ${printable(was)}.` : "It was free already.";
  } catch (error) {
    return `It is unknown whether it was broken: ${error.message}`;
  }
}

/** Calls `closed` when the dialog is closed. */
export function onClose(closed) {
  byId("detail").addEventListener("close", () => {
    shown = null;
    closed();
  });
  // A click beside the dialog closes it.
  byId("detail").addEventListener("click", (event) => {
    if (event.target === byId("detail")) {
      byId("detail").close();
    }
  });
}
