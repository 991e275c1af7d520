// The records of a topic: found, shown, sent.
import { chooser } from "./columns.js";
import { ask, problem } from "./dialogs.js";
import { bytes, count, get, h, table, update, when } from "./dom.js";
import { editable, editor, fill } from "./sending.js";
import { content } from "./values.js";

export async function records({ body, name, query, onLeave, isShown, about, fail }) {
  const kept = JSON.parse(localStorage.getItem(`records:${name}`) ?? "{}");
  const given = { from: "end", format: "auto", limit: "50", ...kept, ...query };
  const option = (v) => (of) => h("option", { value: of, selected: of === v }, of);
  const field = (key, title, wide = false, placeholder = "") => h("label", {}, title, h(wide ? "input.wide" : "input", { name: key, value: given[key] ?? "", placeholder, autocomplete: "off" }));
  const rows = h("div", {});
  const status = h("span.quiet", { role: "status" });
  const more = h("button", { type: "button", hidden: true, onclick: () => load(true) }, "Search further");
  const save = h("button", { type: "button", title: "the records that these choices find, as lines of JSON", onclick: () => download() }, "Download");
  const columns = chooser("records", ["offset", "partition", "time", "key", "value", "headers"], () => draw());
  const tail = h("input", { type: "checkbox" });
  const form = h("form", { onsubmit: (event) => { event.preventDefault(); load(false); } },
    h("label", {}, "from", h("select", { name: "from" }, ["end", "start", "offset", "time"].map(option(given.from)))),
    field("at", "offset or time", false, "2026-03-01T12:00:00Z"), field("until", "until time"), field("partitions", "partitions", false, "0-3,7"),
    field("limit", "at most"), h("label", {}, "show as", h("select", { name: "format" }, ["auto", "text", "json", "hex"].map(option(given.format)))),
    field("filter", "filter: value.total > 100 && key ~ \"^user-\"", true),
    field("columns", "columns of your own", false, "value.total,header.region"),
    h("label.inline", {}, h("input", { type: "checkbox", name: "markers", value: "yes", checked: given.markers === "yes" }), "markers"),
    h("button.main", {}, "Show"), h("label.inline", {}, tail, "live tail"), columns.menu, more, save);
  body.replaceChildren(form, about.allow_writes ? editor(name, about) : "", status, rows);
  let [found, next, busy] = [[], "", false];
  /** The columns that were added, by their paths. @type {string[]} */
  let own = [];

  async function load(further) {
    if (busy) return;
    busy = true;
    const wanted = Object.fromEntries([...new FormData(form)].filter(([, v]) => v));
    localStorage.setItem(`records:${name}`, JSON.stringify(wanted));
    try {
      const told = await get("records", { ...wanted, topic: name, next: further ? next : "" });
      if (!isShown()) return;
      own = String(wanted.columns ?? "").split(",").map((path) => path.trim()).filter(Boolean);
      found = further ? [...found, ...told.records].slice(-2000) : told.records;
      next = told.next;
      more.hidden = told.complete;
      if (!further || told.records.length) draw();
      status.textContent = `${count(found.length)} shown, ${count(told.scanned)} records searched (${bytes(told.scanned_bytes)})${told.complete ? ", to the end" : ""}${told.problem ? "; " + told.problem : ""}`;
    } catch (error) {
      if (error.code && !found.length) fail(error);
      else problem(error.message);
    } finally {
      busy = false;
    }
  }
  /** How to get the whole of a key or a value. @param {any} r @param {string} part */
  const of = (r, part) => ({
    whole: async () => (await get("record", { topic: name, partition: r.partition, offset: r.offset, format: new FormData(form).get("format") }))[part],
    raw: about.hide_values ? "" : `api/download/value?${new URLSearchParams({ topic: name, partition: r.partition, offset: r.offset, part })}`,
  });
  async function edit(r) {
    try {
      const all = await get("record", { topic: name, partition: r.partition, offset: r.offset });
      if (!isShown()) return;
      if (all.value.cut) return problem(`A value of ${bytes(all.value.bytes)} is too long to be edited here.`);
      if (all.value.masked) return problem("A mask of this console (--mask) hides a part of this value. The form would send *** in its place, so the value cannot be edited here.");
      fill(all);
    } catch (error) {
      problem(error.message);
    }
  }
  function download() {
    const wanted = new URLSearchParams([...new FormData(form)].filter(([, v]) => v).map(([k, v]) => [k, String(v)]));
    wanted.set("topic", name);
    h("a", { href: `api/download/records?${wanted}`, download: "" }).click();
  }
  async function redrive(r) {
    const told = await ask(`Send the dead letter back to ${r.origin}`, "Send", { do: "redrive", topic: name, partition: r.partition, offset: r.offset });
    if (told?.result) problem(`sent: ${told.result.topic}, partition ${told.result.partition}, offset ${told.result.offset}`, true);
  }
  function draw() {
    const order = new FormData(form).get("from") === "end" ? [...found].reverse() : found;
    update(rows, table("Records", [...columns.of([
      ["offset", (r) => count(r.offset), true], ["partition", (r) => r.partition, true], ["time", (r) => when(r.timestamp)],
      ["key", (r) => r.marker ? "" : content(r.key, of(r, "key"))],
      ["value", (r) => r.marker ? h("span.quiet", {}, `transaction ends: ${r.marker}`) : [content(r.value, of(r, "value")), r.aborted ? h("span.bad", {}, "aborted") : r.open ? h("span.warn", {}, "in an open transaction") : ""]],
      ["headers", (r) => (r.headers ?? []).map(([k, v]) => h("div", {}, h("code", {}, k, ": "), content(v)))],
      ]), ...own.map((path, i) => [path, (r) => (r.columns?.[i] === undefined || r.columns[i] === null ? "–" : h("code", {}, r.columns[i]))]),
      ...(about.allow_writes ? [["change", (r) => [
        !r.marker && editable(r.value, about) && (r.key.is === "null" || editable(r.key, about)) ? h("button", { onclick: () => edit(r) }, "Edit and send") : "",
        r.origin ? h("button", { onclick: () => redrive(r) }, `Send back to ${r.origin}`) : "",
      ]]] : []),
    ], order, "no record passes", (r) => `${r.partition}:${r.offset}`));
  }
  const timer = setInterval(() => { if (tail.checked && next && !document.hidden) load(true); }, 1000);
  onLeave(() => clearInterval(timer));
  await load(false);
}
