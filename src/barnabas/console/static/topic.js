// A topic: the live picture, its records, its settings.
import { ask, bytes, count, enter, get, h, link, problem, table, update, when } from "./dom.js";
import { replica, rules, settings } from "./pages.js";
import { HISTORY, Picture, colour } from "./picture.js";

const TABS = [["", "Live"], ["records", "Records"], ["settings", "Partitions and settings"]];

export async function topic(page) {
  const { main, name, rest } = page;
  const tab = rest[0] ?? "";
  const body = h("div", {});
  main.replaceChildren(
    h("h1", {}, "Topic ", name),
    h("nav", { "aria-label": "Parts of the topic" }, TABS.map(([id, title]) =>
      h("a", { href: `#/topic/${encodeURIComponent(name)}${id && "/" + id}`, "aria-current": id === tab ? "page" : null }, title))),
    body);
  await (tab === "records" ? records : tab === "settings" ? described : live)({ ...page, body });
}

// --- live ---

const EXPLAINED = `A partition is a list of records that only grows: each record has a number, its offset. Records slide in at the right,
coloured by their key; all records with one key lie in one partition. A group's pointer stands where it will read next, as committed:
it jumps when the group commits. What lies between the pointer and the end is the group's lag. The dashed line is the high watermark:
what is behind it is not on all replicas in sync yet, and nobody reads it. Hatched records belong to a transaction that has not ended; those struck
through to one that was aborted. Retention takes records away at the left; compaction leaves holes.`;

async function live({ body, name, onLeave, isShown }) {
  const canvas = h("canvas", { role: "img", "aria-label": `The partitions of ${name} as lanes of records` });
  const stepping = h("div", {});
  const [producers, groups, brokers, state] = [h("ul", {}), h("ul", {}), h("div", {}), h("span.quiet", { role: "status" })];
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  const picture = new Picture(canvas, still.matches);
  const pause = h("button", { "aria-pressed": "false", onclick: () => setPaused(!picture.paused) }, "Pause");
  const rewind = h("input", { type: "range", min: -HISTORY, max: 0, value: 0, "aria-label": "rewind, up to five minutes" });
  const explain = h("input", { type: "checkbox" });
  const explained = h("p.explain", { hidden: true }, EXPLAINED);
  explain.addEventListener("change", () => { explained.hidden = !explain.checked; picture.explains = explain.checked; picture.draw(); });
  const asTable = h("input", { type: "checkbox", checked: still.matches });
  asTable.addEventListener("change", () => around(picture.now));
  body.replaceChildren(
    h("div.tools", {}, pause, h("label.inline", {}, "rewind", rewind), h("label.inline", {}, explain, "explain it to me"),
      h("label.inline", {}, asTable, "as a table"), state),
    explained,
    h("div.live", {},
      h("section", { "aria-label": "producers" }, h("h2", {}, "Producers"), producers),
      h("div", {}, canvas, stepping),
      h("section", { "aria-label": "groups" }, h("h2", {}, "Groups"), groups)),
    h("h2", {}, "Brokers"), brokers);

  function setPaused(paused) {
    picture.paused = paused;
    pause.textContent = paused ? "Go on" : "Pause";
    pause.setAttribute("aria-pressed", String(paused));
    if (!paused) { picture.catchUp(); around(picture.now); }
  }
  rewind.addEventListener("input", () => {
    setPaused(Number(rewind.value) < 0);
    if (picture.paused) around(picture.goBack(Number(rewind.value)));
  });

  /** What stands around the lanes. */
  function around(look) {
    if (!look) return;
    canvas.hidden = asTable.checked;
    update(stepping, asTable.checked ? table("Partitions", [
      ["partition", (l) => l.partition, true], ["leader", (l) => l.leader ?? "none"], ["start", (l) => count(l.start), true],
      ["stable", (l) => count(l.stable), true], ["end", (l) => count(l.end), true],
      ...Object.keys(look.groups).map((g) => [`lag of ${g}`, (l) => (look.groups[g][l.partition] === undefined ? "–" : count(Math.max(0, l.end - look.groups[g][l.partition]))), true]),
    ], look.lanes) : "");
    const ids = new Map();
    for (const p of look.producers) ids.set(p.id, [...(ids.get(p.id) ?? []), p]);
    const recent = [...ids].filter(([, some]) => some.some((p) => look.at - p.last < 60_000)).slice(0, 12);
    update(producers, ...(recent.length ? recent.map(([id, some]) => h("li", {}, `producer ${id}`, h("br"), h("span.quiet", {},
      `partitions ${some.map((p) => p.partition).sort((a, b) => a - b).join(", ")}`, some.some((p) => p.began !== null) ? " · in a transaction" : "")))
      : []), h("li.quiet", {}, "the rest: producers without an id"));
    update(groups, ...Object.keys(look.groups).sort().map((g, i) => {
      const lag = look.lanes.reduce((sum, l) => sum + (look.groups[g][l.partition] === undefined || l.end === undefined ? 0 : Math.max(0, l.end - look.groups[g][l.partition])), 0);
      const dot = h("span.dot", {});
      dot.style.background = colour(i);
      return h("li", {}, dot, link("group", g), h("br"), h("span.quiet", {}, `${count(lag)} behind, as committed`));
    }), Object.keys(look.groups).length ? "" : h("li.quiet", {}, "no group has committed offsets here"));
    update(brokers, look.ensemble.length ? h("p", {}, "ZooKeeper ", look.ensemble.map((server) => h("span.tag", {}, server))) : "", table("Leaders and replicas", [
      ["partition", (l) => l.partition, true],
      ...look.brokers.map((b) => [`${b.id === look.controller ? "♛ " : ""}${b.id}${b.gone ? " (gone)" : ""}`, (l) => replica(l, b.id, l.behind[b.id], b.gone)]),
    ], look.lanes));
    state.textContent = picture.paused ? `stands still at ${new Date(look.at).toLocaleTimeString()}`
      : look.partition_count > look.lanes.length ? `the first ${look.lanes.length} of ${count(look.partition_count)} partitions` : "";
  }

  const stream = new EventSource(`api/live?topic=${encodeURIComponent(name)}`);
  stream.onmessage = (message) => {
    if (!isShown()) return;
    const look = JSON.parse(message.data);
    if (look.problem) return problem(look.problem);
    picture.take(look);
    if (!picture.paused) around(look);
    if (look.missed) state.textContent = `${look.missed} looks were missed`;
  };
  stream.onerror = () => { state.textContent = "the stream has broken; trying again"; };
  const resized = new ResizeObserver(() => picture.draw());
  resized.observe(canvas);
  const redraw = () => picture.draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  onLeave(() => { stream.close(); resized.disconnect(); picture.stop(); matchMedia("(prefers-color-scheme: dark)").removeEventListener("change", redraw); });
}

// --- records ---

const content = (c) => c.is === "null" ? h("span.quiet", {}, "null") : c.is === "hidden" ? h("span.quiet", {}, "hidden")
  : h("div", {}, h("code", {}, c.text, c.cut ? " …" : ""), " ", c.is !== "text" || c.schema ? h("span.tag", {}, c.is, c.schema ? ` by schema ${c.schema}` : "") : "");

async function records({ body, name, query, onLeave, isShown, about }) {
  const kept = JSON.parse(localStorage.getItem(`records:${name}`) ?? "{}");
  const given = { from: "end", format: "auto", limit: "50", ...kept, ...query };
  const option = (v) => (of) => h("option", { value: of, selected: of === v }, of);
  const field = (key, title, wide = false, placeholder = "") => h("label", {}, title, h(wide ? "input.wide" : "input", { name: key, value: given[key] ?? "", placeholder, autocomplete: "off" }));
  const rows = h("div", {});
  const status = h("span.quiet", { role: "status" });
  const more = h("button", { type: "button", hidden: true, onclick: () => load(true) }, "Look further");
  const tail = h("input", { type: "checkbox" });
  const form = h("form", { onsubmit: (event) => { event.preventDefault(); load(false); } },
    h("label", {}, "from", h("select", { name: "from" }, ["end", "start", "offset", "time"].map(option(given.from)))),
    field("at", "offset or time", false, "2026-03-01T12:00:00Z"), field("until", "until time"), field("partitions", "partitions", false, "0-3,7"),
    field("limit", "at most"), h("label", {}, "show as", h("select", { name: "format" }, ["auto", "text", "json", "hex"].map(option(given.format)))),
    field("filter", "filter: value.total > 100 && key ~ \"^user-\"", true),
    h("label.inline", {}, h("input", { type: "checkbox", name: "markers", value: "yes", checked: given.markers === "yes" }), "markers"),
    h("button.main", {}, "Show"), h("label.inline", {}, tail, "live tail"), more);
  body.replaceChildren(form, about.allow_writes ? editor(name) : "", status, rows);
  let [found, next, busy] = [[], "", false];

  async function load(further) {
    if (busy) return;
    busy = true;
    const wanted = Object.fromEntries([...new FormData(form)].filter(([, v]) => v));
    localStorage.setItem(`records:${name}`, JSON.stringify(wanted));
    try {
      const told = await get("records", { ...wanted, topic: name, next: further ? next : "" });
      if (!isShown()) return;
      found = further ? [...found, ...told.records].slice(-2000) : told.records;
      next = told.next;
      more.hidden = told.complete;
      if (!further || told.records.length) draw();
      status.textContent = `${count(found.length)} shown, ${count(told.scanned)} records looked at (${bytes(told.scanned_bytes)})${told.complete ? ", to the end" : ""}${told.problem ? "; " + told.problem : ""}`;
    } catch (error) {
      problem(error.message);
    } finally {
      busy = false;
    }
  }
  async function redrive(r) {
    const told = await ask(`Send the dead letter back to ${r.origin}`, { do: "redrive", topic: name, partition: r.partition, offset: r.offset });
    if (told?.result) problem(`sent: ${told.result.topic}, partition ${told.result.partition}, offset ${told.result.offset}`, true);
  }
  function draw() {
    const order = new FormData(form).get("from") === "end" ? [...found].reverse() : found;
    update(rows, table("Records", [
      ["partition", (r) => r.partition, true], ["offset", (r) => count(r.offset), true], ["time", (r) => when(r.timestamp)],
      ["key", (r) => r.marker ? "" : content(r.key)],
      ["value", (r) => r.marker ? h("span.quiet", {}, `transaction ends: ${r.marker}`) : [content(r.value), r.aborted ? h("span.bad", {}, "aborted") : r.open ? h("span.warn", {}, "in an open transaction") : ""]],
      ["headers", (r) => (r.headers ?? []).map(([k, v]) => h("div", {}, h("code", {}, k, ": "), content(v)))],
      ...(about.allow_writes ? [["change", (r) => [
        r.marker || !["text", "json"].includes(r.value.is) || r.value.cut ? "" : h("button", { onclick: () => fill(r) }, "Edit and send"),
        r.origin ? h("button", { onclick: () => redrive(r) }, `Send back to ${r.origin}`) : "",
      ]]] : []),
    ], order, "no record passes"));
  }
  const timer = setInterval(() => { if (tail.checked && next && !document.hidden) load(true); }, 1000);
  onLeave(() => clearInterval(timer));
  await load(false);
}

function editor(name) {
  const send = async (event) => {
    event.preventDefault();
    const form = event.target;
    const key = form.key.value === "" ? null : form.key.value;
    const headers = form.headers.value.split("\n").filter(Boolean).map((line) => [line.split(":")[0].trim(), line.slice(line.indexOf(":") + 1).trim()]);
    const told = await ask(`Send a record to ${form.topic.value}`, { do: "produce", topic: form.topic.value, key, value: form.value.value, headers, partition: form.partition.value === "" ? null : Number(form.partition.value) });
    if (told?.result) problem(`sent: partition ${told.result.partition}, offset ${told.result.offset}`, true);
  };
  return h("details", { id: "editor" }, h("summary", {}, "Send a record"),
    h("form", { onsubmit: send },
      h("label", {}, "topic", h("input", { name: "topic", value: name })), h("label", {}, "key", h("input", { name: "key" })),
      h("label", {}, "partition", h("input", { name: "partition", size: 5 })),
      h("label.whole", {}, "value", h("textarea", { name: "value" })), h("label.whole", {}, "headers, as name: text", h("textarea", { name: "headers", rows: 2 })),
      h("button.main", {}, "Send …")));
}

/** Put a record into the editor: to send it again, changed, or to another topic (a dead letter to where it came from). */
function fill(record) {
  const editing = /** @type {HTMLDetailsElement} */ (document.getElementById("editor"));
  const form = /** @type {HTMLFormElement} */ (editing.querySelector("form"));
  editing.open = true;
  form.key.value = record.key.text ?? "";
  form.value.value = record.value.text ?? "";
  form.headers.value = record.headers.map(([k, v]) => `${k}: ${v.text ?? ""}`).join("\n");
  form.value.focus();
}

// --- partitions and settings ---

async function described({ body, name, every, isShown, about }) {
  const ruled = (await get("access", { topic: name })).rules;
  const grow = async (now) => {
    const n = Number((await enter(`Add partitions to ${name}`, [["n", "partitions in all", now + 1]]))?.n);
    if (n) ask(`Add partitions to ${name}`, { do: "add-partitions", topic: name, partitions: n });
  };
  const alter = async (setting, value) => ask(`Change ${setting} of ${name}`, { do: "set-config", topic: name, setting, value });
  await every(5000, async function () {
    const t = await get("topic", { name });
    if (!isShown() || document.querySelector("dialog")) return;
    update(body,
      about.allow_writes ? h("div.tools", {},
        h("button", { onclick: () => grow(t.partition_count) }, "Add partitions"),
        h("button", { onclick: async () => { if (await ask(`Delete ${name}`, { do: "delete-topic", topic: name }, { typed: name })) location.hash = "#/topics"; } }, "Delete the topic")) : "",
      h("p.quiet", {}, `id ${t.id ?? "–"}, ${count(t.rate)} records a second`),
      table("Partitions", [
        ["partition", (p) => p.partition, true], ["leader", (p) => p.leader ?? h("span.bad", {}, "none")], ["epoch", (p) => p.leader_epoch, true],
        ["replicas", (p) => p.replicas.join(", ")], ["in sync", (p) => p.in_sync.length < p.replicas.length ? h("span.warn", {}, p.in_sync.join(", ")) : p.in_sync.join(", ")],
        ["start", (p) => count(p.start), true], ["stable", (p) => count(p.stable), true], ["end", (p) => count(p.end), true], ["size", (p) => bytes(p.bytes), true],
      ], t.partitions),
      h("h2", {}, "Groups"),
      table("Groups", [["group", (g) => link("group", g.group)], ["records behind", (g) => count(g.lag), true]], t.groups),
      rules(ruled),
      h("h2", {}, "Settings"),
      t.settings_problem ? h("p.warn", {}, t.settings_problem) : settings(t.settings, about.allow_writes ? [["change", (s) => h("button", { "aria-label": `Change ${s.name}`,
        onclick: async () => { const texts = await enter(`Change ${s.name}`, [["value", "value (empty: back to the default)", s.value ?? ""]]); if (texts) alter(s.name, texts.value === "" ? null : texts.value); } }, "Change")]] : []));
  });
}
