// The page's state, which stands in its address, and the stream that keeps it up to date.

import { byId, count, duration, make, setText } from "./dom.js";
import { allowBreak, onClose, openDetail, showDetail } from "./detail.js";
import { showContended, showDurations, showEvents } from "./history.js";
import { showKeys } from "./keys.js";
import { showStore } from "./store.js";

const DEFAULTS = { match: "", which: "all", sort: "age", order: "desc", page: "1", key: null };

const query = { ...DEFAULTS, ...Object.fromEntries(new URLSearchParams(location.hash.slice(1))) };
let page = null;
let paused = false;
let stream = null;
// A stream has an event each second. After this time without one, the page says that it is old.
const SILENCE = 6000;
let silence = null;
let retry = null;

const announce = (text) => setText(byId("announce"), text);

const shows = {
  process: showProcess,
  keys(data) {
    page = data;
    showKeys(data, query, inspect);
    if (announce.soon) {
      announce.soon = false;
      announce(`${count(data.matching)} keys, page ${data.page} of ${data.pages}, sorted by ${query.sort}`);
    }
  },
  key: showDetail,
  events: (data) => showEvents(data, announce),
  durations: showDurations,
  contended: (data) => showContended(data, inspect),
  store(data) {
    showStore(data);
    // The last of a tick: a page that is paused has all that it asked for.
    if (paused) {
      close();
    }
  },
};

function connect() {
  close();
  const parameters = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== null && value !== ""));
  const opened = new EventSource(new URL(`api/live?${parameters}`, import.meta.url));
  stream = opened;
  expectEvent();
  for (const [name, show] of Object.entries(shows)) {
    opened.addEventListener(name, (event) => {
      if (opened !== stream) {
        return;
      }
      state(paused ? "paused" : "live");
      expectEvent();
      show(JSON.parse(event.data));
    });
  }
  // Streams end twice a minute, and the browser opens the next one. It gives up only after an answer that is no stream.
  opened.addEventListener("error", () => {
    if (opened === stream && opened.readyState === EventSource.CLOSED) {
      retry = setTimeout(connect, 2000);
    }
  });
}

function expectEvent() {
  clearTimeout(silence);
  silence = setTimeout(() => state("broken"), SILENCE);
}

function close() {
  stream?.close();
  stream = null;
  clearTimeout(silence);
  clearTimeout(retry);
}

const STATES = { live: "Live", paused: "Paused", broken: "No connection" };

function state(name) {
  if (byId("link").dataset.state !== name) {
    byId("link").dataset.state = name;
    setText(byId("link-text"), STATES[name]);
    if (name === "broken") {
      announce("The connection to the process is broken; what is shown is old");
    }
  }
}

function showProcess(data) {
  document.title = `Locks: ${data.name}`;
  setText(byId("process"), `${data.name}, version ${data.version}`);
  allowBreak(data.may_break);
  byId("peers").hidden = data.peers.length === 0;
  const links = data.peers.map((peer) => make("a", { href: peer.address, rel: "noreferrer" }, peer.name));
  byId("peers").replaceChildren(make("span", { class: "quiet" }, "Other processes:"), ...links);
}

/** Changes what is asked for. */
function ask(changes) {
  Object.assign(query, changes);
  const differs = Object.entries(query).filter(([name, value]) => value !== DEFAULTS[name] && value !== null);
  history.replaceState(null, "", `#${new URLSearchParams(differs)}`);
  showQuery();
  connect();
}

function showQuery() {
  byId("which").value = query.which;
  byId("sort").value = query.sort;
  if (document.activeElement !== byId("match")) {
    byId("match").value = query.match;
  }
  for (const button of document.querySelectorAll("th button[data-sort]")) {
    const head = button.parentElement;
    if (button.dataset.sort === query.sort) {
      head.setAttribute("aria-sort", query.order === "asc" ? "ascending" : "descending");
    } else {
      head.removeAttribute("aria-sort");
    }
  }
}

function inspect(key) {
  openDetail(key);
  ask({ key });
}

function sortBy(sort) {
  announce.soon = true;
  const names = ["key", "mode", "route"];
  const first = names.includes(sort) ? "asc" : "desc";
  const other = query.order === "asc" ? "desc" : "asc";
  ask({ sort, order: query.sort === sort ? other : first, page: "1" });
}

for (const button of document.querySelectorAll("th button[data-sort]")) {
  button.addEventListener("click", () => sortBy(button.dataset.sort));
}
byId("sort").addEventListener("change", () => sortBy(byId("sort").value));
byId("which").addEventListener("change", () => {
  announce.soon = true;
  ask({ which: byId("which").value, page: "1" });
});
let typing = null;
byId("match").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => {
    announce.soon = true;
    ask({ match: byId("match").value, page: "1" });
  }, 250);
});
byId("pager").addEventListener("click", (event) => {
  const where = event.target.dataset?.page;
  if (where && page) {
    announce.soon = true;
    const to = { first: 1, previous: page.page - 1, next: page.page + 1, last: page.pages }[where];
    ask({ page: String(to) });
  }
});
byId("inspect").addEventListener("submit", (event) => {
  event.preventDefault();
  inspect(byId("inspect-key").value);
});
byId("pause").addEventListener("click", () => {
  paused = !paused;
  byId("pause").setAttribute("aria-pressed", String(paused));
  if (paused) {
    close();
    state("paused");
  } else {
    connect();
  }
});
onClose(() => ask({ key: null }));

showQuery();
if (query.key) {
  openDetail(query.key);
}
connect();
