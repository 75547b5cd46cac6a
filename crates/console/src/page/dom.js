// What every part of the page is made with. Names of locks come from strangers: they enter the page as text, and nothing here
// takes text for markup.

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes and children: nodes, or text. */
export function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same in SVG. */
export function draw(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) {
      node.setAttribute(name, value === true ? "" : String(value));
    }
  }
  node.append(...children);
  return node;
}

export const byId = (id) => document.getElementById(id);

/** Changes a text only where it differs, so that a screen reader and a selection are left alone. */
export function setText(node, text) {
  if (node.textContent !== text) {
    node.textContent = text;
  }
}

// Control characters, those that turn the direction of text, those without width, and spaces that look like a space.
const ODD = /[\p{C}\p{Zl}\p{Zp}\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]/u;

const escaped = (character) => `\\u{${character.codePointAt(0).toString(16)}}`;

/** A name as a person can read and type it. */
export function printable(name) {
  return Array.from(name, (character) => (ODD.test(character) ? escaped(character) : character)).join("");
}

/** A name as nodes; what cannot be seen is marked. */
export function named(name) {
  const nodes = [];
  let plain = "";
  for (const character of name) {
    if (ODD.test(character)) {
      nodes.push(plain, make("span", { class: "odd" }, escaped(character)));
      plain = "";
    } else {
      plain += character;
    }
  }
  nodes.push(plain);
  return nodes.filter((node) => node !== "");
}

/** Milliseconds for people. */
export function duration(ms) {
  if (ms === null || ms === undefined) {
    return "";
  }
  if (ms < 1000) {
    return `${ms} ms`;
  }
  const seconds = ms / 1000;
  if (seconds < 10) {
    return `${seconds.toFixed(1)} s`;
  }
  if (seconds < 60) {
    return `${Math.floor(seconds)} s`;
  }
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) {
    const rest = Math.floor(seconds % 60);
    return rest === 0 ? `${minutes} min` : `${minutes} min ${pad(rest)} s`;
  }
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${pad(minutes % 60)} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

const pad = (number) => String(Math.floor(number)).padStart(2, "0");

/** Microseconds for people. */
export function micros(us) {
  return us < 1000 ? `${us} µs` : us < 10_000 ? `${(us / 1000).toFixed(1)} ms` : duration(Math.round(us / 1000));
}

export const count = (number) => number.toLocaleString("en");

const KINDS = { here: "this process", ours: "another of ours", java: "Java (Redisson)", unknown: "unknown" };

/** A holder: a mark and words, and its process if that is known. */
export function who(kind, process, route = null) {
  const mark = make("span", { class: "who", "data-kind": kind }, make("span", { class: "dot", "aria-hidden": "true" }), KINDS[kind] ?? kind);
  if (!process) {
    return mark;
  }
  const { label, host, pid } = process;
  const known = `${label}, process ${pid} on ${host}`;
  const words = printable(route === null ? known : `${known}, ${route}`);
  return make("span", { class: "known" }, mark, " ", make("span", { class: "process" }, words));
}

/** A bar for a part of a whole, from 0 to 1. */
export function bar(cssClass, part) {
  const inner = make("span");
  inner.style.setProperty("--part", String(Math.max(0, Math.min(1, part))));
  return make("span", { class: cssClass, "aria-hidden": "true" }, inner);
}

/** The rest of a lease: a bar and a time. */
export function lease(left, whole) {
  if (left === null || left === undefined) {
    return "";
  }
  const part = whole ? left / whole : null;
  const node = make("span", { class: "lease", "data-low": part !== null && part < 0.34 });
  if (part !== null) {
    node.append(bar("rest", part));
  }
  node.append(duration(left));
  return node;
}
