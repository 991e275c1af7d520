// A topic: the live picture, its records, its settings.
import { chart } from "./chart.js";
import { ask, enter } from "./dialogs.js";
import { bytes, count, get, h, link, table, update } from "./dom.js";
import { records } from "./records.js";
import { rules } from "./access.js";
import { replica, settings } from "./pages.js";
import { HISTORY, Picture, colour, groupsOf } from "./picture.js";

const TABS = [["", "Live"], ["records", "Records"], ["settings", "Partitions and settings"]];

export async function topic(page) {
  const { main, name, rest } = page;
  const tab = rest[0] ?? "";
  await get("topic", { name, brief: "yes" }); // a topic that is not there has no page
  if (!page.isShown()) return;
  const body = h("div", {});
  main.replaceChildren(
    h("h1", {}, "Topic ", name),
    h("nav", { "aria-label": "Parts of the topic" }, TABS.map(([id, title]) =>
      h("a", { href: `#/topic/${encodeURIComponent(name)}${id && "/" + id}`, "aria-current": id === tab ? "page" : null }, title))),
    body);
  await (tab === "records" ? records : tab === "settings" ? described : live)({ ...page, body });
}

// --- live ---

const EXPLAINED = `A partition is a list of records to which producers append. Each record has a number, its offset. New records appear at the right,
coloured by their key; all records with one key are in one partition. A group's pointer is at its committed offset, the next record that it
reads; it jumps when the group commits. The records between the pointer and the end are the group's lag. A share group has many hands
in a lane: a hand with the number of its member is under each record that the member has locked, and an arrow with the number of
deliveries under each record that waits for another one. All records before its pointer are finished. The dashed line is the high
watermark: records behind it are not on all in-sync replicas yet, and consumers cannot read them. Hatched records belong to an open
transaction, crossed-out records to an aborted one. Retention removes records at the left; compaction leaves gaps.`;

async function live({ body, name, onLeave, isShown, fail }) {
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
    h("div.tools", {}, pause, h("label.inline", {}, "rewind", rewind), h("label.inline", {}, explain, "explain"),
      h("label.inline", {}, asTable, "as a table"), state),
    explained,
    h("div.live", {},
      h("section", { "aria-label": "producers" }, h("h2", {}, "Producers"), producers),
      h("div", {}, canvas, stepping),
      h("section", { "aria-label": "groups" }, h("h2", {}, "Groups"), groups)),
    h("h2", {}, "Brokers"), brokers);

  function setPaused(paused) {
    picture.paused = paused;
    pause.textContent = paused ? "Resume" : "Pause";
    pause.setAttribute("aria-pressed", String(paused));
    if (!paused) { picture.catchUp(); around(picture.now); }
  }
  rewind.addEventListener("input", () => {
    setPaused(Number(rewind.value) < 0);
    if (picture.paused) around(picture.goBack(Number(rewind.value)));
  });

  /** The rows and columns around the lanes. */
  function around(look) {
    if (!look) return;
    canvas.hidden = asTable.checked;
    update(stepping, asTable.checked ? table("Partitions", [
      ["partition", (l) => l.partition, true], ["leader", (l) => l.leader ?? "none"], ["start", (l) => count(l.start), true],
      ["stable", (l) => count(l.stable), true], ["end", (l) => count(l.end), true],
      ...Object.keys(look.queues).flatMap((g) => [["locked", "locked"], ["waiting", "waiting again"]].map(([of, title]) => [`${title} in ${g}`, (l) => count(look.queues[g][l.partition]?.[of]), true])),
      ...Object.keys(look.groups).map((g) => [`lag of ${g}`, (l) => (look.groups[g][l.partition] === undefined ? "–" : count(Math.max(0, l.end - look.groups[g][l.partition]))), true]),
    ], look.lanes) : "");
    const ids = new Map();
    for (const p of look.producers) ids.set(p.id, [...(ids.get(p.id) ?? []), p]);
    const recent = [...ids].filter(([, some]) => some.some((p) => look.at - p.last < 60_000)).slice(0, 12);
    update(producers, ...(recent.length ? recent.map(([id, some]) => h("li", {}, `producer ${id}`, h("br"), h("span.quiet", {},
      `partitions ${some.map((p) => p.partition).sort((a, b) => a - b).join(", ")}`, some.some((p) => p.began !== null) ? " · in a transaction" : "")))
      : []), h("li.quiet", {}, "the rest: producers without an id"));
    update(groups, ...groupsOf(look).map((g, i) => {
      const dot = h("span.dot", {});
      dot.style.background = colour(i);
      return h("li", {}, dot, link("group", g), h("br"), h("span.quiet", {}, look.queues[g] ? inHands(look.queues[g]) : behind(look, g)));
    }), groupsOf(look).length ? "" : h("li.quiet", {}, "no group has committed offsets here"));
    update(brokers, look.ensemble.length ? h("p", {}, "ZooKeeper ", look.ensemble.map((server) => h("span.tag", {}, server))) : "", table("Leaders and replicas", [
      ["partition", (l) => l.partition, true],
      ...look.brokers.map((b) => [`${b.id === look.controller ? "♛ " : ""}${b.id}${b.gone ? " (gone)" : ""}`, (l) => replica(l, b.id, l.behind[b.id], b.gone)]),
    ], look.lanes));
    state.textContent = picture.paused ? `paused at ${new Date(look.at).toLocaleTimeString()}`
      : look.partition_count > look.lanes.length ? `the first ${look.lanes.length} of ${count(look.partition_count)} partitions` : "";
  }

  /** The lag of a group. */
  function behind(look, g) {
    const lag = look.lanes.reduce((sum, l) => sum + (look.groups[g][l.partition] === undefined || l.end === undefined ? 0 : Math.max(0, l.end - look.groups[g][l.partition])), 0);
    return `${count(lag)} behind, as committed`;
  }

  /** What the members of a share group have in their hands. */
  function inHands(queue) {
    const all = Object.values(queue);
    const sum = (of) => all.reduce((sum, lane) => sum + lane[of], 0);
    const hands = new Set(all.flatMap((lane) => lane.batches.map((batch) => batch[4])).filter(Boolean));
    return `share group: ${count(sum("locked"))} locked by ${count(hands.size)} members, ${count(sum("waiting"))} waiting again`;
  }

  const stream = new EventSource(`api/live?topic=${encodeURIComponent(name)}`);
  stream.onmessage = (message) => {
    if (!isShown()) return;
    const look = JSON.parse(message.data);
    if (look.problem) {
      if (look.code) return fail(Object.assign(new Error(look.problem), look)); // it was deleted
      state.textContent = look.problem;
      return;
    }
    picture.take(look);
    if (!picture.paused) around(look);
    if (look.missed) state.textContent = `${look.missed} updates were missed`;
  };
  stream.onerror = () => { state.textContent = "the connection is lost; trying again"; };
  const resized = new ResizeObserver(() => picture.draw());
  resized.observe(canvas);
  const redraw = () => picture.draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  onLeave(() => { stream.close(); resized.disconnect(); picture.stop(); matchMedia("(prefers-color-scheme: dark)").removeEventListener("change", redraw); });
}

// --- partitions and settings ---

async function described({ body, name, every, isShown, about }) {
  const readRules = async () => { ruled = await get("access", { topic: name }); };
  /** @type {any} */
  let ruled;
  await readRules();
  const grow = async (now) => {
    const n = Number((await enter(`Add partitions to ${name}`, [["n", "partitions in all", now + 1]]))?.n);
    if (n) ask(`Add partitions to ${name}`, "Add", { do: "add-partitions", topic: name, partitions: n });
  };
  const alter = async (setting, value) => ask(`Change ${setting} of ${name}`, "Change", { do: "set-config", topic: name, setting, value });
  await every(5000, async function () {
    const t = await get("topic", { name });
    if (!isShown() || document.querySelector("dialog")) return;
    update(body,
      about.allow_writes ? h("div.tools", {},
        h("button", { onclick: () => grow(t.partition_count) }, "Add partitions"),
        h("button", { onclick: async () => { if (await ask(`Delete ${name}`, "Delete", { do: "delete-topic", topic: name }, { typed: name })) location.hash = "#/topics"; } }, "Delete the topic")) : "",
      h("p.quiet", {}, `id ${t.id ?? "–"}, ${count(t.rate)} records a second`),
      chart("Records a second", t.rates),
      table("Partitions", [
        ["partition", (p) => p.partition, true], ["leader", (p) => p.leader ?? h("span.bad", {}, "none")], ["epoch", (p) => p.leader_epoch, true],
        ["replicas", (p) => p.replicas.join(", ")], ["in sync", (p) => p.in_sync.length < p.replicas.length ? h("span.warn", {}, p.in_sync.join(", ")) : p.in_sync.join(", ")],
        ["start", (p) => count(p.start), true], ["stable", (p) => count(p.stable), true], ["end", (p) => count(p.end), true], ["size", (p) => bytes(p.bytes), true],
      ], t.partitions),
      h("h2", {}, "Groups"),
      table("Groups", [["group", (g) => link("group", g.group)], ["records behind", (g) => count(g.lag), true]], t.groups),
      rules(ruled.rules, about.allow_writes ? ruled.operations : null, readRules, { resource: "TOPIC", name }),
      h("h2", {}, "Settings"),
      t.settings_problem ? h("p.warn", {}, t.settings_problem) : settings(t.settings, about.allow_writes ? [["change", (s) => h("button", { "aria-label": `Change ${s.name}`,
        onclick: async () => { const texts = await enter(`Change ${s.name}`, [["value", "value (empty: back to the default)", s.value ?? ""]]); if (texts) alter(s.name, texts.value === "" ? null : texts.value); } }, "Change")]] : []));
  });
}
