// The table of keys. Rows stay the same elements while their keys stay, so that the focus stays where it is.

import { byId, count, duration, lease, make, named, printable, setText, who } from "./dom.js";

const rows = new Map();

/** Shows a page of keys; `open` is called with the key that a person chooses. */
export function showKeys(page, query, open) {
  setText(byId("sum-keys"), count(page.keys_in_use));
  setText(byId("sum-held"), count(page.held));
  setText(byId("sum-waiters"), count(page.waiters));
  showCount(page, query);
  showPager(page);
  const seen = new Set(page.keys.map((row) => row.key));
  for (const [key, row] of rows) {
    if (!seen.has(key)) {
      row.node.remove();
      rows.delete(key);
    }
  }
  const body = byId("rows");
  page.keys.forEach((data, place) => {
    let row = rows.get(data.key);
    if (!row) {
      row = makeRow(data.key, open);
      rows.set(data.key, row);
    }
    fillRow(row, data);
    // A row that is moved loses the focus: it is moved only where the order has changed.
    if (body.children[place] !== row.node) {
      const focused = row.node.contains(document.activeElement) ? document.activeElement : null;
      body.insertBefore(row.node, body.children[place] ?? null);
      focused?.focus();
    }
  });
}

function makeRow(key, open) {
  const button = make("button", { type: "button", class: "name", "aria-label": `${printable(key)}: show holders and waiters` }, ...named(key));
  button.addEventListener("click", () => open(key));
  const cell = (label, kind, wide) => make("td", { "data-label": label, class: kind, "data-wide": wide });
  const cells = {
    mode: cell("Mode", null, true),
    holder: cell("Holder", "holder", true),
    route: cell("Route", null, true),
    age: cell("Age", "number"),
    lease: cell("Lease left", "number"),
    waiters: cell("Waiters", "number"),
    token: cell("Token", "number", true),
  };
  const node = make("tr", {}, make("th", { scope: "row" }, button), ...Object.values(cells));
  return { node, cells };
}

function fillRow({ node, cells }, data) {
  node.dataset.state = data.state;
  setText(cells.mode, data.mode);
  const holder = JSON.stringify([data.holder.kind, data.holder.process, data.state, data.shares]);
  if (node.dataset.holder !== holder) {
    node.dataset.holder = holder;
    cells.holder.replaceChildren(holderOf(data));
  }
  setText(cells.route, data.route === "none" ? "" : data.route);
  setText(cells.age, data.state === "waiting" ? "" : duration(data.age_ms));
  cells.lease.replaceChildren(lease(data.lease_left_ms, data.renewed === false ? null : data.lease_ms));
  const waiters = data.waiters === 0 ? "0" : `${count(data.waiters)}, ${duration(data.longest_wait_ms)}`;
  setText(cells.waiters, waiters);
  cells.waiters.classList.toggle("waiting", data.waiters > 0);
  cells.waiters.toggleAttribute("data-zero", data.waiters === 0);
  setText(cells.token, data.token ?? "");
}

function holderOf(data) {
  const node = make("span", {}, who(data.holder.kind, data.holder.process));
  if (data.shares > 1) {
    node.append(` × ${count(data.shares)}`);
  }
  if (data.state === "lost") {
    node.append(make("span", { class: "state", "data-state": data.state }, data.state));
  }
  return node;
}

function showCount(page, query) {
  const all = page.matching === page.keys_in_use;
  const text = all ? `${count(page.keys_in_use)} in use` : `${count(page.matching)} of ${count(page.keys_in_use)} in use`;
  setText(byId("keys-count"), text);
  const none = page.matching === 0;
  byId("no-rows").hidden = !none;
  const filtered = query.match !== "" || query.which !== "all";
  setText(byId("no-rows"), filtered ? "No key matches." : "This process holds no lock and waits for none.");
}

function showPager(page) {
  byId("pager").hidden = page.pages === 1;
  setText(byId("page-of"), `page ${count(page.page)} of ${count(page.pages)}`);
  for (const button of byId("pager").querySelectorAll("button")) {
    const back = button.dataset.page === "first" || button.dataset.page === "previous";
    button.disabled = back ? page.page === 1 : page.page === page.pages;
  }
}
