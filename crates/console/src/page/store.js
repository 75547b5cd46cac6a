// The store: what it promises, and how it answers.

import { byId, duration, make, micros, setText } from "./dom.js";

export function showStore(data) {
  setText(byId("store-age"), age(data.audited_ms));
  byId("warnings").replaceChildren(...warnings(data));
  byId("facts").replaceChildren(...(data.audit ? facts(data.audit) : []));
  setText(byId("sum-latency"), data.answered_us === null ? "–" : micros(data.answered_us));
}

function age(audited) {
  if (audited === null) {
    return "";
  }
  return audited < 1000 ? "looked at just now" : `looked at ${duration(audited)} ago`;
}

function warnings({ audit, error }) {
  const all = [];
  if (error) {
    all.push(make("li", { class: "error" }, error));
  }
  for (const warning of audit?.warnings ?? []) {
    all.push(make("li", {}, warning.text));
  }
  (audit?.members ?? []).forEach((member, place) => {
    const silent = member.error !== undefined;
    for (const text of silent ? [member.error] : member.warnings.map((warning) => warning.text)) {
      all.push(make("li", { class: silent && "error" }, `Member ${place + 1}: ${text}`));
    }
  });
  return all;
}

function facts(audit) {
  const rows = [["deployment", audit.deployment]];
  rows.push(...audit.facts);
  audit.members.forEach((member, place) => {
    const text = (member.facts ?? []).map(([name, value]) => `${name}: ${value}`).join("; ");
    rows.push([`member ${place + 1}`, text || member.error || "–"]);
  });
  rows.push(...audit.promises.map((promise) => [`${promise.id} ${promise.name}`, promise.kept]));
  return rows.map(([name, text]) => make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, text)));
}
