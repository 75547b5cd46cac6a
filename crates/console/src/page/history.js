// Losses and refusals, the hottest keys, and how long requests waited.

import { bar, byId, count, draw, duration, make, named, setText } from "./dom.js";

/** Shows the latest events; `announce` is called for losses that are new. */
export function showEvents(data, announce) {
  setText(byId("sum-lost"), count(data.lost));
  setText(byId("sum-refused"), count(data.refused));
  byId("sum-lost").parentElement.classList.toggle("alarming", data.lost > 0);
  byId("no-events").hidden = data.events.length > 0;
  byId("events").hidden = data.events.length === 0;
  byId("events").replaceChildren(...data.events.map(eventOf));
  const before = showEvents.last;
  const lost = data.events.filter((event) => event.kind === "lost" && before !== undefined && event.number > before);
  if (lost.length > 0) {
    announce(lost.length === 1 ? "A lock was lost" : `${lost.length} locks were lost`);
  }
  showEvents.last = data.last;
}

function eventOf(event) {
  const at = new Date(event.at_ms);
  const route = event.route === "none" ? "" : `${event.route}: `;
  const waited = event.waited_ms === null ? "" : `, after ${duration(event.waited_ms)}`;
  const mode = event.mode ? ` (${event.mode})` : "";
  return make(
    "li",
    {},
    make("time", { datetime: at.toISOString() }, at.toLocaleTimeString("en-GB")),
    make("span", { class: "kind", "data-kind": event.kind }, event.outcome ?? event.kind),
    make("span", { class: "name" }, ...named(event.key)),
    make("span", { class: "why" }, `${route}${event.cause}${waited}${mode}`),
  );
}

export function showContended(data, open) {
  byId("no-contended").hidden = data.keys.length > 0;
  setText(byId("contended-window"), `waited for, in the last ${Math.round(data.window_ms / 60_000)} minutes at most`);
  const most = Math.max(1, ...data.keys.map((key) => key.waited_ms));
  const focused = document.activeElement?.dataset?.hot;
  const bars = data.keys.map((key) => {
    const button = make("button", { type: "button", class: "name" }, ...named(key.key));
    button.dataset.hot = key.key;
    button.addEventListener("click", () => open(key.key));
    const numbers = `${count(key.waits)} ${key.waits === 1 ? "wait" : "waits"}, ${duration(key.waited_ms)}`;
    return make("li", {}, button, make("span", {}, numbers), bar("track", key.waited_ms / most));
  });
  byId("contended").replaceChildren(...bars);
  if (focused !== undefined) {
    bars.map((item) => item.firstChild).find((button) => button.dataset.hot === focused)?.focus();
  }
}

export function showDurations(data) {
  byId("no-durations").hidden = data.series.length > 0;
  const rows = data.series.map((series) =>
    make(
      "tr",
      {},
      make("th", { scope: "row" }, series.route === "none" ? "no route" : series.route),
      make("td", { "data-label": "Mode", "data-wide": true }, series.mode),
      ...waits(series.waits, data.bounds_ms),
    ),
  );
  byId("durations").replaceChildren(...rows);
}

function waits(histogram, bounds) {
  const within = (quantile) => {
    if (histogram.count === 0) {
      return "–";
    }
    return quantile === null ? `over ${duration(bounds.at(-1))}` : duration(quantile);
  };
  return [
    make("td", { "data-label": "Waits" }, chart("Waits", histogram, bounds)),
    make("td", { "data-label": "Count", class: "number" }, count(histogram.count)),
    make("td", { "data-label": "p50", class: "number" }, within(histogram.p50_ms)),
    make("td", { "data-label": "p95", class: "number" }, within(histogram.p95_ms)),
    make("td", { "data-label": "p99", class: "number" }, within(histogram.p99_ms)),
  ];
}

// One bar for each bucket: from the shortest to the longest.
function chart(name, histogram, bounds) {
  const most = Math.max(1, ...histogram.buckets);
  const width = 100 / histogram.buckets.length;
  const parts = histogram.buckets.map((number, place) => {
    const height = number === 0 ? 0 : Math.max(6, (number / most) * 30);
    const upTo = place < bounds.length ? `up to ${duration(bounds[place])}` : `over ${duration(bounds.at(-1))}`;
    const box = { x: place * width + 0.4, y: 31 - height, width: width - 0.8, height };
    return draw("rect", box, draw("title", {}, `${upTo}: ${count(number)}`));
  });
  const base = draw("rect", { class: "base", x: 0, y: 31, width: 100, height: 1 });
  const said = histogram.buckets
    .map((number, place) => [number, place])
    .filter(([number]) => number > 0)
    .map(([number, place]) => `${count(number)} ${place < bounds.length ? `up to ${duration(bounds[place])}` : "longer"}`);
  const label = `${name}: ${said.join(", ") || "none"}`;
  return draw("svg", { class: "chart", viewBox: "0 0 100 32", preserveAspectRatio: "none", role: "img", "aria-label": label }, base, ...parts);
}
