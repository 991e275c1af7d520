// Elements, numbers and questions: what all pages use. Content from the cluster is only ever set as text.

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

const HANDLERS = ["onclick", "onsubmit"];

function patchChildren(old, fresh) {
  const [before, after] = [[...old.childNodes], [...fresh.childNodes]];
  after.forEach((child, i) => (i < before.length ? patch(before[i], child) : old.append(child)));
  before.slice(after.length).forEach((child) => child.remove());
}

function patch(old, fresh) {
  if (old.nodeName !== fresh.nodeName) return old.replaceWith(fresh);
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

/** JSON of one of the console's addresses; raises Error with the reason. */
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
  if (!answer.ok) throw new Error(body.error ?? `the console answers ${answer.status}`);
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

/** A table in a frame that scrolls. `columns`: [title, cell(row), isNumber]. */
export function table(caption, columns, rows, empty = "none") {
  return h("div.scroll", { tabindex: 0, role: "region", "aria-label": caption },
    h("table", { "aria-label": caption },
      h("thead", {}, h("tr", {}, columns.map(([title, , isNumber]) => h(isNumber ? "th.number" : "th", { scope: "col" }, title)))),
      h("tbody", {}, rows.length
        ? rows.map((row) => h("tr", {}, columns.map(([, cell, isNumber]) => h(isNumber ? "td.number" : "td", {}, cell(row)))))
        : h("tr", {}, h("td.quiet", { colspan: columns.length }, empty)))));
}

/** What went wrong, for some seconds; or what was done, as `isFine` says. */
export function problem(text, isFine = false) {
  const box = /** @type {HTMLElement} */ (document.getElementById("problem"));
  box.textContent = text ?? "";
  box.hidden = !text;
  box.classList.toggle("fine", isFine);
  clearTimeout(problem.timer);
  if (text) problem.timer = setTimeout(() => problem(""), 8000);
}
problem.timer = 0;

/**
 * Ask for texts: `fields` are [name, label, value, placeholder]. Resolves to the texts by name, or null.
 * @returns {Promise<Record<string, string> | null>}
 */
export function enter(title, fields) {
  return new Promise((resolve) => {
    const end = (answer) => { dialog.close(); dialog.remove(); resolve(answer); };
    const submit = (event) => { event.preventDefault(); end(Object.fromEntries(/** @type {any} */ (new FormData(event.target)))); };
    const dialog = h("dialog", { "aria-label": title, oncancel: () => end(null) },
      h("form", { onsubmit: submit }, h("h1.whole", {}, title),
        fields.map(([name, label, value = "", placeholder = ""]) => h("label", {}, label, h("input", { name, value, placeholder, autocomplete: "off" }))),
        h("div.whole.tools", {}, h("button.main", {}, "Go on"), h("button", { type: "button", onclick: () => end(null) }, "Leave it"))));
    document.body.append(dialog);
    dialog.showModal();
  });
}

/**
 * A question before a change: the command that does the same, a preview, and for deleting the name to type.
 * Resolves to what the change has answered, or null.
 * @param {string} title @param {Record<string, any>} wanted @param {{typed?: string}} [options]
 */
export async function ask(title, wanted, { typed } = {}) {
  let told;
  try {
    told = await change(typed ? { ...wanted, confirm: typed } : wanted);
  } catch (error) {
    problem(error.message);
    return null;
  }
  return new Promise((resolve) => {
    const name = h("input", { "aria-label": `type ${typed ?? ""}`, autocomplete: "off" });
    const preview = Array.isArray(told.preview) && table("What will be", [
      ["topic", (r) => r.topic], ["partition", (r) => r.partition, true],
      ["from", (r) => count(r.from), true], ["to", (r) => count(r.to), true],
    ], told.preview);
    const end = (answer) => { dialog.close(); dialog.remove(); resolve(answer); };
    const carryOut = async (event) => {
      event.preventDefault();
      if (typed && name.value !== typed) return problem(`type ${typed} to go on`);
      try {
        end(await change(typed ? { ...wanted, confirm: typed } : wanted, true));
      } catch (error) {
        problem(error.message);
      }
    };
    const dialog = h("dialog", { "aria-label": title, oncancel: () => end(null) },
      h("form", { onsubmit: carryOut },
        h("div.whole", {}, h("h1", {}, title), h("p.quiet", {}, "The same on the command line:"),
          h("pre.box", {}, told.command), preview || ""),
        typed && h("label", {}, `Type ${typed} to delete it with all its records`, name),
        h("button.main", {}, "Do it"), h("button", { type: "button", onclick: () => end(null) }, "Leave it")));
    document.body.append(dialog);
    dialog.showModal();
  });
}
