// Elements, numbers and tables: what all pages use. Content from the cluster is only ever set as text.

/** @template {string} N @typedef {N extends keyof HTMLElementTagNameMap ? HTMLElementTagNameMap[N] : HTMLElement} Named */

/**
 * An element: h("td.number", {title: "x"}, "text", child, [more]).
 * @template {string} T @param {T} tag @param {Record<string, any>} [attributes] @param {...any} children
 * @returns {T extends `${infer N}.${string}` ? Named<N> : Named<T>}
 */
export function h(tag, attributes = {}, ...children) {
  const [name, ...classes] = tag.split(".");
  const element = /** @type {any} */ (document.createElement(name));
  if (classes.length) element.className = classes.join(" ");
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on") || key === "value" || key === "checked" || key === "disabled") element[key] = value;
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  add(element, children);
  return element;
}

function add(element, children) {
  for (const child of children) {
    if (Array.isArray(child)) add(element, child);
    else if (child !== undefined && child !== null && child !== false)
      element.append(child instanceof Node ? child : String(child));
  }
}

/**
 * Make the children of an element look like new ones, and keep the old elements where they fit: what has the focus keeps
 * it, and so do text that is selected, places that are scrolled to, and details that were opened.
 */
export function update(element, ...children) {
  const fresh = document.createElement("div");
  add(fresh, children);
  patchChildren(element, fresh);
}

const HANDLERS = ["onclick", "onsubmit", "onchange"];

function patchChildren(old, fresh) {
  const after = [...fresh.childNodes];
  const before = inOrder(old, after);
  after.forEach((child, i) => (i < before.length ? patch(before[i], child) : old.append(child)));
  before.slice(after.length).forEach((child) => child.remove());
}

/** The children, where each with a key takes the place of the new one with the same key. */
function inOrder(old, after) {
  const known = new Map([...old.children].filter((child) => child.dataset?.key).map((child) => [child.dataset.key, child]));
  if (!known.size) return [...old.childNodes];
  const wanted = new Set(after.map((child) => child.dataset?.key));
  for (const [key, child] of known) if (!wanted.has(key)) child.remove();
  after.forEach((child, i) => {
    const key = child.dataset?.key;
    if (!key) return;
    const kept = wanted.has(key) && known.get(key) || document.createElement(child.nodeName);
    if (old.childNodes[i] !== kept) old.insertBefore(kept, old.childNodes[i] ?? null);
  });
  return [...old.childNodes];
}

/** Those that fill themselves when they are opened; one with the same summary stays as it is. */
const isSame = (old, fresh) => old.nodeName === "DETAILS" && old.className === "fold" && fresh.className === "fold" && old.firstChild?.textContent === fresh.firstChild?.textContent;

function patch(old, fresh) {
  if (isSame(old, fresh)) return;
  if (old.className === "fold" || fresh.className === "fold") return old.replaceWith(fresh);
  if (old.nodeName !== fresh.nodeName) return old.replaceWith(fresh);
  if (old instanceof SVGElement) return old.outerHTML === fresh.outerHTML ? undefined : old.replaceWith(fresh);
  if (!(old instanceof HTMLElement)) {
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
    return;
  }
  const own = (name) => name === "style" || (name === "open" && old.nodeName === "DETAILS");
  for (const { name } of [...old.attributes]) if (!own(name) && !fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) if (!own(name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
  if (old.style.cssText !== fresh.style.cssText) old.style.cssText = fresh.style.cssText; // the policy forbids the attribute
  for (const name of HANDLERS) old[name] = fresh[name];
  patchChildren(old, fresh);
}

/** JSON of one of the console's addresses; raises Error with the reason, and with Kafka's `code` where there is one. */
export async function get(page, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const answer = await fetch(`api/${page}?${new URLSearchParams(given.map(([k, v]) => [k, String(v)]))}`);
  return checked(answer);
}

/** Ask for a change; without `execute` it is only told what it would be. */
export async function change(wanted, execute = false) {
  const answer = await fetch("api/change", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ ...wanted, execute }),
  });
  return checked(answer);
}

async function checked(answer) {
  let body;
  try {
    body = await answer.json();
  } catch {
    throw new Error(`the console answers ${answer.status}`);
  }
  if (!answer.ok) throw Object.assign(new Error(body.error ?? `the console answers ${answer.status}`), { code: body.code });
  return body;
}

const numbers = new Intl.NumberFormat();
/** A whole number with separators; a dash for none. */
export const count = (n) => (n === null || n === undefined ? "–" : numbers.format(n));

/** Bytes as people say them. */
export function bytes(n) {
  if (n === null || n === undefined) return "–";
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (n < 1024) return `${n < 10 && unit !== "B" ? n.toFixed(1) : Math.round(n)} ${unit}`;
    n /= 1024;
  }
  return `${n.toFixed(1)} TiB`;
}

/** Seconds as people say them. */
export function seconds(s) {
  if (s === null || s === undefined) return "–";
  if (s < 90) return `${s < 10 ? s.toFixed(1) : Math.round(s)} s`;
  if (s < 5400) return `${Math.round(s / 60)} min`;
  return s < 172800 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86400)} d`;
}

/** A time in milliseconds, by this browser's clock. */
export const when = (ms) => (ms > 0 ? new Date(ms).toLocaleString(undefined, { hour12: false }) : "–");

export const link = (page, name, text = name) => h("a", { href: `#/${page}/${encodeURIComponent(name)}` }, text);

/** Rows that a table shows before it scrolls within itself. */
const LONG = 60;

/**
 * A table in a frame that scrolls. `columns`: [title, cell(row), isNumber].
 * @param {string} caption @param {any[]} columns @param {any[]} rows @param {string} [empty]
 * @param {(row: any) => string} [key] tells rows that move apart
 */
export function table(caption, columns, rows, empty = "none", key = undefined) {
  return h(rows.length > LONG ? "div.scroll.long" : "div.scroll", { tabindex: 0, role: "region", "aria-label": caption },
    h("table", { "aria-label": caption },
      h("thead", {}, h("tr", {}, columns.map(([title, , isNumber]) => h(isNumber ? "th.number" : "th", { scope: "col" }, title)))),
      h("tbody", {}, rows.length
        ? rows.map((row) => h("tr", { "data-key": key?.(row) }, columns.map(([, cell, isNumber]) => h(isNumber ? "td.number" : "td", {}, cell(row)))))
        : h("tr", {}, h("td.quiet", { colspan: columns.length }, empty)))));
}

/** The first names of many things, and how many more there are. @param {{count: number, names: string[]}} some */
export const named = (some) => [some.names.map((name) => h("span.tag", {}, name)),
  some.count > some.names.length ? h("span.quiet", {}, `and ${count(some.count - some.names.length)} more`) : ""];
