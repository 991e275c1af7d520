// Questions and short messages. They end with the page that they belong to.
import { change, count, h, table } from "./dom.js";

/** Show an error for some seconds, or with `isFine` a success. */
export function problem(text, isFine = false) {
  const box = /** @type {HTMLElement} */ (document.getElementById("problem"));
  box.textContent = text ?? "";
  box.hidden = !text;
  box.classList.toggle("fine", isFine);
  clearTimeout(problem.timer);
  if (text) problem.timer = setTimeout(() => problem(""), 8000);
}
problem.timer = 0;

/** The dialogs that are open, by what ends them. @type {Set<(answer: any) => void>} */
const open = new Set();
let page = 0;

/** Another page is shown: the messages and dialogs of the one before go with it. */
export function leave() {
  page += 1;
  problem("");
  for (const end of [...open]) end(null);
}

/**
 * Show a form in a dialog; resolves to the answer, or null.
 * @param {string} title @param {(form: HTMLFormElement, end: (answer: any) => void) => any} submit
 * @param {(end: (answer: any) => void) => any} fill the content; `end(answer)` closes the dialog
 * @returns {Promise<any>}
 */
function dialogue(title, submit, fill) {
  return new Promise((resolve) => {
    const end = (answer) => { open.delete(end); dialog.close(); dialog.remove(); resolve(answer); };
    const dialog = h("dialog", { "aria-label": title, oncancel: () => end(null) },
      h("form", { onsubmit: (event) => { event.preventDefault(); submit(event.target, end); } }, fill(end)));
    open.add(end);
    document.body.append(dialog);
    dialog.showModal();
  });
}

const cancel = (end) => h("button", { type: "button", onclick: () => end(null) }, "Cancel");

/**
 * Ask for texts: `fields` are [name, label, value, placeholder, type]. Resolves to the texts by name, or null.
 * @param {string} title @param {any[]} fields @param {(texts: Record<string, string>) => string} [check] says what is wrong
 * @returns {Promise<Record<string, string> | null>}
 */
export function enter(title, fields, check = () => "") {
  return choose(title, fields.map(field), check);
}

function field([name, label, value = "", placeholder = "", type = "text"]) {
  return h("label", {}, label, h("input", { name, value, placeholder, type, autocomplete: type === "password" ? "new-password" : "off" }));
}

/**
 * Ask by controls of one's own; resolves to their values by name, or null.
 * @param {string} title @param {any[]} controls
 * @param {(values: Record<string, string>) => string} [check] says what is wrong with the values
 * @returns {Promise<Record<string, string> | null>}
 */
export function choose(title, controls, check = () => "") {
  const submit = (form, end) => {
    const values = Object.fromEntries(/** @type {any} */ (new FormData(form)));
    const wrong = check(values);
    if (wrong) problem(wrong);
    else end(values);
  };
  return dialogue(title, submit, (end) => [
    h("h1.whole", {}, title), controls, h("div.whole.tools", {}, h("button.main", {}, "Continue"), cancel(end))]);
}

/**
 * A question before a change: the command that does the same, a preview, and for deleting the name to type.
 * Resolves to what the change has answered, or null.
 * @param {string} title @param {string} verb of the button that makes the change
 * @param {Record<string, any>} wanted @param {{typed?: string, what?: string}} [options]
 *   the name to type, and what is deleted
 */
export async function ask(title, verb, wanted, { typed, what = "it with all its records" } = {}) {
  const asked = page;
  const sent = typed ? { ...wanted, confirm: typed } : wanted;
  let told;
  try {
    told = await change(sent);
  } catch (error) {
    if (asked === page) problem(error.message);
    return null;
  }
  if (asked !== page) return null;
  const name = h("input", { "aria-label": `type ${typed ?? ""}`, autocomplete: "off" });
  const preview = Array.isArray(told.preview) && table("Preview", [
    ["topic", (r) => r.topic], ["partition", (r) => r.partition, true],
    ["from", (r) => count(r.from), true], ["to", (r) => count(r.to), true],
  ], told.preview);
  const says = told.preview?.says && h("ul", {}, told.preview.says.map((text) => h("li", {}, text)));
  const carryOut = async (_, end) => {
    if (typed && name.value !== typed) return problem(`Type ${typed} to continue.`);
    try {
      end(await change(sent, true));
    } catch (error) {
      if (asked === page) problem(error.message);
    }
  };
  return dialogue(title, carryOut, (end) => [
    h("div.whole", {}, h("h1", {}, title), h("p.quiet", {}, "The same on the command line:"),
      h("pre.box", {}, told.command), preview || says || ""),
    typed && h("label.whole", {}, `Type ${typed} to delete ${what}`, name),
    h("div.whole.tools", {}, told.preview?.possible === false ? "" : h("button.main", {}, verb), cancel(end))]);
}
