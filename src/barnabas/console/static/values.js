// Keys, values and headers: short ones as they are, long ones folded; opened, copied, downloaded.
import { problem } from "./dialogs.js";
import { bytes, h } from "./dom.js";

/** The longest value in a row, and the longest that is coloured as JSON, in characters. */
const SHORT = 160, COLOURED = 100_000;
/** Strings, numbers and words of JSON; a colon after a string makes it a name. */
const TOKEN = /("(?:[^"\\]|\\.)*")(\s*:)?|-?\b\d[\d.eE+-]*|\b(?:true|false|null)\b/g;

/** JSON as elements, with its parts coloured. @param {string} text */
function coloured(text) {
  if (text.length > COLOURED) return [text];
  const parts = [];
  let last = 0;
  for (const found of text.matchAll(TOKEN)) {
    parts.push(text.slice(last, found.index));
    parts.push(h(found[2] ? "span.name" : found[1] ? "span.string" : "span.literal", {}, found[1] ?? found[0]), found[2] ?? "");
    last = found.index + found[0].length;
  }
  return [...parts, text.slice(last)];
}

const paint = (c) => (["text", "hex"].includes(c.is) ? [c.text] : coloured(c.text));
const kind = (c) => (!["text", "json"].includes(c.is) || c.schema ? h("span.tag", {}, c.is, c.schema ? ` by schema ${c.schema}` : "") : "");

/** Put a text where other programs get it; without HTTPS there is the old way only. @param {string} text */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = h("textarea", { value: text });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  problem("Copied", true);
}

/**
 * A key, a value or a header.
 * @param {any} c as the server shows it
 * @param {{whole: () => Promise<any>, raw: string}} [from] where the whole of it is had
 */
export function content(c, from = undefined) {
  if (c.is === "null" || c.is === "hidden") return h("span.quiet", {}, c.is);
  const line = c.text.length > SHORT ? c.text.slice(0, 4 * SHORT).replace(/\s+/g, " ").slice(0, SHORT) : c.text;
  if (!c.cut && c.text.length <= SHORT && c.text.split("\n").length <= 3)
    return h("div", {}, h("code", {}, paint(c)), " ", kind(c));
  const body = h("div.value", {});
  const folded = h("details.fold", {}, h("summary", {}, h("code", {}, `${line} …`), " ", kind(c), h("span.quiet", {}, ` ${bytes(c.bytes)}`)), body);
  let all = c.cut ? null : c;
  folded.addEventListener("toggle", async () => {
    if (!folded.open || body.childNodes.length) return;
    try {
      all ??= from ? await from.whole() : c;
    } catch (error) {
      return problem(error.message);
    }
    body.replaceChildren(
      h("div.tools", {},
        h("button", { type: "button", onclick: () => copy(all.text) }, "Copy"),
        from?.raw ? h("a.button", { href: from.raw, download: "" }, "Download") : "",
        all.cut ? h("span.warn", {}, `The first ${bytes(all.text.length)} are shown.`) : ""),
      h("pre.box", { tabindex: 0 }, paint(all)));
  });
  return folded;
}
