// All pages but a topic's.
import { chart } from "./chart.js";
import { chooser } from "./columns.js";
import { ask, enter, problem } from "./dialogs.js";
import { bytes, count, get, h, link, named, seconds, table, update, when } from "./dom.js";

const card = (title, value, tone = "", more = "") => h("div.card", {}, h("span.quiet", {}, title), h(tone ? `b.${tone}` : "b", {}, value), more && h("span.quiet", {}, more));
/** How old a number is that the console asks for in the background; of a small cluster nothing. */
const aged = (age) => age === null || age === undefined ? ", being counted" : age < 10 ? "" : `, ${seconds(age)} ago`;
/** The column of brokers' ids. @type {[string, (b: any) => any]} */
const brokerId = ["id", (b) => [h("a", { href: `#/broker/${b.id}` }, b.id), b.controller ? h("span", { title: "controller" }, "\u00a0♛") : ""]];
const aliveness = (b) => (b.gone ? h("span.bad", {}, "gone") : h("span.good", {}, "alive"));
const partitions = (names) => names.map((name) => h("span.tag", {}, name));

export async function overview({ main, every, isShown }) {
  await every(3000, async function () {
    const o = await get("overview");
    if (!isShown()) return;
    const gone = o.brokers.filter((b) => b.gone).length;
    update(main,
      h("h1", {}, "Overview"),
      h("div.cards", {},
        card("brokers", gone ? `${o.brokers.length - gone} of ${o.brokers.length}` : o.brokers.length, gone ? "bad" : ""),
        card("controller", o.controller),
        card("topics", count(o.topics), "", o.internal.topics ? `${count(o.internal.topics)} internal` : ""),
        card("partitions", count(o.partitions), "", o.internal.partitions ? `${count(o.internal.partitions)} internal` : ""),
        card("offline", count(o.offline.count), o.offline.count ? "bad" : "good"),
        card("under-replicated", count(o.under_replicated.count), o.under_replicated.count ? "warn" : "good"),
        card(`records/s${aged(o.rate_age_s)}`, count(o.records_a_second)), card("groups", count(o.groups.count))),
      chart("Records a second", o.rates),
      o.offline.count ? [h("h2.bad", {}, "Without a leader"), named(o.offline)] : "",
      o.under_replicated.count ? [h("h2.warn", {}, "Under-replicated"), named(o.under_replicated)] : "",
      h("h2", {}, "Brokers"),
      table("Brokers", [
        brokerId, ["state", aliveness], ["address", (b) => b.address ?? "–"], ["rack", (b) => b.rack ?? "–"], ["leads", (b) => count(b.leads), true],
        ["replicas", (b) => count(b.replicas), true], ["in sync", (b) => count(b.in_sync), true],
      ], o.brokers),
      h("h2", {}, "The groups that are furthest behind"),
      o.groups.problem ? h("p.warn", {}, o.groups.problem) : "",
      table("Lags", [["group", (g) => link("group", g.group)], ["records behind", (g) => count(g.lag), true]], o.lags),
      h("h2", {}, "Recent events"),
      table("Recent events", [["seen at", (e) => when(e.at)], ["what", (e) => e.text]], o.events, "no change while a page was open"));
  });
}

/** A header that sorts: ordered by the server, so that it is right for all pages. */
function sorter(query, page) {
  return (name, title) => h("button", {
    "aria-label": `sort by ${title}`,
    onclick: () => {
      const order = query.sort === name && query.order !== "down" ? "down" : "up";
      location.hash = `#/${page}?${new URLSearchParams({ ...query, sort: name, order })}`;
    },
  }, title, query.sort === name ? (query.order === "down" ? " ↓" : " ↑") : "");
}

function pager(query, page, told) {
  const to = (n, text) => h("a.button", { href: `#/${page}?${new URLSearchParams({ ...query, page: n })}` }, text);
  return h("div.tools.below", {},
    told.page > 1 ? to(told.page - 1, "← before") : "", h("span.quiet", {}, `page ${count(told.page)} of ${count(told.pages)}, ${count(told.count)} in all`),
    told.page < told.pages ? to(told.page + 1, "more →") : "");
}

/** @param {Record<string, string>} query @param {string} page @param {any} [more] */
export function searchForm(query, page, more = []) {
  const input = h("input.wide", { name: "search", value: query.search ?? "", type: "search" });
  const submit = (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    location.hash = `#/${page}?${new URLSearchParams([...form].filter(([, value]) => value).map(([key, value]) => [key, String(value)]))}`;
  };
  return h("form", { onsubmit: submit, role: "search" }, h("label", {}, "name contains", input), more, h("button", {}, "Find"));
}

export async function topics({ main, query, every, isShown, about }) {
  const create = async () => {
    const texts = await enter("Create a topic", [["topic", "name"], ["partitions", "partitions", "1"], ["replicas", "replicas", "", "as the cluster does"]]);
    if (!texts) return;
    const name = texts.topic.trim();
    const made = await ask(`Create ${name}`, "Create", { do: "create-topic", topic: name, partitions: Number(texts.partitions) || null, replicas: Number(texts.replicas) || null });
    if (!made) return;
    for (let tries = 0; tries < 20; tries += 1) { // brokers hear of a new topic one after the other
      try { await get("topic", { name, brief: "yes" }); break; } catch { await new Promise((resolve) => setTimeout(resolve, 250)); }
    }
    if (isShown()) location.hash = `#/topic/${encodeURIComponent(name)}`;
  };
  const tools = h("div.tools", {},
    searchForm(query, "topics", h("label", {}, "internal", h("select", { name: "internal" },
      ["no", "yes"].map((v) => h("option", { value: v, selected: (query.internal ?? "no") === v }, v))))),
    about.allow_writes ? h("button", { onclick: create }, "Create a topic") : "");
  const below = h("div", {});
  /** @type {any} */
  let last;
  const columns = chooser("topics", ["name", "partitions", "replicas", "state", "records", "a second", "size", "groups"], () => last && draw(last));
  tools.append(columns.menu);
  main.replaceChildren(h("h1", {}, "Topics"), tools, below);
  const by = sorter(query, "topics");
  await every(5000, async function () {
    last = await get("topics", query);
    if (isShown()) draw(last);
  });
  function draw(told) {
    update(below, table("Topics", columns.of([
      [by("name", "name"), (t) => link("topic", t.name)],
      [by("partitions", "partitions"), (t) => count(t.partitions), true],
      ["replicas", (t) => t.replicas, true],
      ["state", (t) => t.offline ? h("span.bad", {}, `${count(t.offline)} offline`) : t.under_replicated ? h("span.warn", {}, `${count(t.under_replicated)} under-replicated`) : h("span.good", {}, "whole")],
      [by("records", "records"), (t) => count(t.records), true],
      [by("rate", "a second"), (t) => count(t.rate), true],
      [by("bytes", "size"), (t) => bytes(t.bytes), true],
      ["groups, records behind", (t) => t.groups.map((g) => h("span.tag", {}, link("group", g.group), ` ${count(g.lag)}`))],
    ]), told.topics, "no topic matches"), pager(query, "topics", told),
      told.sorted_by_age_s === null ? h("p.warn", {}, "The console is still counting. Topics that it has not reached show 0.")
        : told.sorted_by_age_s >= 10 ? h("p.quiet", {}, `The order is by figures from ${seconds(told.sorted_by_age_s)} ago.`) : "");
  }
}

export async function groups({ main, query, every, isShown }) {
  const below = h("div", {});
  main.replaceChildren(h("h1", {}, "Groups"), searchForm(query, "groups"), below);
  const by = sorter(query, "groups");
  await every(5000, async function () {
    const told = await get("groups", query);
    if (!isShown()) return;
    update(below, told.problem ? h("p.warn", {}, told.problem) : "", table("Groups", [
      [by("name", "name"), (g) => link("group", g.name)], [by("state", "state"), (g) => g.state], ["protocol", (g) => g.type],
      ["topics", (g) => g.topics.map((t) => h("span.tag", {}, link("topic", t)))],
      [by("lag", "records behind"), (g) => count(g.lag), true],
    ], told.groups, "no group matches"), pager(query, "groups", told));
  });
}

/** Lags that this tab has seen, to say whether they grow. @type {Map<string, [number, number][]>} */
const seen = new Map();

function trend(name, lag) {
  const past = seen.get(name) ?? [];
  past.push([Date.now(), lag]);
  seen.set(name, past.filter(([at]) => at > Date.now() - 300_000));
  const [first] = past;
  if (past.length < 3) return "–";
  const grows = (lag - first[1]) / Math.max(1, (Date.now() - first[0]) / 1000);
  return Math.abs(grows) < 0.05 ? "steady" : `${grows > 0 ? "+" : ""}${grows.toFixed(1)}/s`;
}

export async function group({ main, name, every, isShown, about }) {
  const reset = async (topic, numbers) => {
    const texts = await enter(`Reset the offsets of ${topic}`, [["to", "earliest, latest, offset N, shift N, or time 2026-03-01T12:00:00Z", "earliest"]]);
    if (!texts?.to) return;
    const [kind, text] = texts.to.trim().split(/\s+/);
    const at = kind === "time" ? Date.parse(text) : text === undefined ? undefined : Number(text);
    if (at !== undefined && !Number.isFinite(at)) return problem(`${text} is no ${kind === "time" ? "time" : "number"}`);
    await ask(`Reset the offsets of ${name}`, "Reset", { do: "reset-offsets", group: name, topic, to: kind, at, partitions: numbers });
  };
  await every(3000, async function () {
    const g = await get("group", { name });
    if (!isShown()) return;
    const ofTopics = [...new Set(g.partitions.map((p) => p.topic))];
    const isQueue = g.type === "share";
    update(main,
      h("h1", {}, "Group ", name),
      g.problem ? h("p.warn", {}, g.problem) : "",
      h("div.cards", {}, card("state", g.state ?? "–"), card("protocol", g.type ?? "–"), card("assignor", g.assignor || "–"),
        card("members", count(g.members.length)), card("records behind", count(g.lag)), card("trend", trend(name, g.lag)),
        isQueue ? queueCards(g) : ""),
      chart("Records behind", seen.get(name) ?? []),
      h("h2", {}, "Partitions"),
      about.allow_writes ? h("div.tools", {}, ofTopics.map((t) => h("button", { onclick: () => reset(t, null) }, `Reset the offsets of ${t}`))) : "",
      table("Partitions", [
        ["topic", (p) => link("topic", p.topic)], ["partition", (p) => p.partition, true],
        ...(isQueue ? QUEUE_COLUMNS : [
          ["committed", (p) => p.out_of_range ? h("span.bad", { title: "the log does not have this offset" }, `${count(p.committed)} out of range`) : count(p.committed), true],
          ["end", (p) => count(p.end), true], ["records behind", (p) => count(p.lag), true],
          ["behind in time", (p) => seconds(p.seconds), true], ["member", (p) => h("code", {}, p.member ?? "–")]]),
        ...(about.allow_writes ? [["change", (p) => h("button", { "aria-label": `Reset ${p.topic}-${p.partition}`, onclick: () => reset(p.topic, [p.partition]) }, "Reset")]] : []),
      ], g.partitions),
      isQueue ? flight(g) : "",
      h("h2", {}, "Members"),
      table("Members", [
        ["member", (m) => h("code", {}, m.id)], ["instance", (m) => m.instance ?? "–"], ["client", (m) => m.client], ["host", (m) => m.host],
        ["epoch", (m) => m.epoch ?? "–", true], ...(isQueue ? [["records locked", (m) => count(m.locked), true]] : []), ["partitions", (m) => partitions(m.partitions)],
      ], g.members));
  });
}

const QUEUE_COLUMNS = [
  ["start", (p) => count(p.start), true], ["records behind", (p) => count(p.lag), true], ["locked", (p) => count(p.locked), true],
  ["waiting again", (p) => count(p.waiting), true], ["acknowledged", (p) => count(p.acknowledged), true], ["given up", (p) => count(p.archived), true],
];

/** The numbers of a share group's records over all partitions. */
function queueCards(g) {
  const sum = (of) => (g.partitions.every((p) => p[of] === null) ? null : g.partitions.reduce((all, p) => all + (p[of] ?? 0), 0));
  return [card("locked", count(sum("locked"))), card("waiting again", count(sum("waiting")), sum("waiting") ? "warn" : ""),
    g.dead_letters ? deadLetters(g.dead_letters) : ""];
}

function deadLetters({ topic, records, problem }) {
  if (topic === null) return card("dead letters", count(records), "warn", problem);
  return card("dead letters", link("topic", topic, count(records)), records ? "bad" : problem ? "warn" : "",
    problem ? `in ${topic}: ${problem}` : `in ${topic}`);
}

/** A share group's records in flight: who has locked which, until when, and how often they were delivered. */
function flight(g) {
  return [h("h2", {}, "Records in flight"),
    g.is_told ? "" : h("p.quiet", {}, "These brokers do not tell who has locked which records; brokers of Barnabas do."),
    h("p.explain", {}, "From the start offset on: records that a member has locked, that wait for another delivery, or that are finished while earlier records are not."),
    table("Records in flight", [
      ["partition", (r) => `${r.topic}-${r.partition}`], ["offsets", (r) => (r.first === r.last ? count(r.first) : `${count(r.first)} to ${count(r.last)}`), true],
      ["state", (r) => STATES[r.state] ?? r.state], ["deliveries", (r) => count(r.deliveries), true],
      ["locked by", (r) => h("code", {}, r.member ?? "–")], ["lock ends in", (r) => seconds(r.lock_ms === null ? null : r.lock_ms / 1000), true],
    ], g.records, "no records", (r) => `${r.topic}-${r.partition}:${r.first}`),
    g.record_ranges > g.records.length ? h("p.quiet", {}, `the first ${count(g.records.length)} of ${count(g.record_ranges)} ranges of records`) : ""];
}

const STATES = { available: "waiting", acquired: "locked", acknowledged: "acknowledged", archiving: "becomes a dead letter", archived: "given up, or a gap" };

export async function brokers({ main, query, every, isShown }) {
  const [above, below] = [h("div", {}), h("div", {})];
  main.replaceChildren(h("h1", {}, "Brokers"), above, h("h2", {}, "Leaders and replicas of each partition"),
    h("p.explain", {}, "Solid: leads. Outlined: follows in sync. Red: not in sync. Grey: the broker is gone."), searchForm(query, "brokers"), below);
  await every(4000, async function () {
    const told = await get("brokers", query);
    if (!isShown()) return;
    update(above,
      table("Brokers", [
        brokerId, ["state", aliveness], ["address", (b) => b.address ?? "–"], ["rack", (b) => b.rack ?? "–"],
        ["log directories", (b) => b.log_dirs.problem ? h(b.gone ? "span.bad" : "span.warn", {}, b.log_dirs.problem) : b.log_dirs.directories.map((d) => h("div", {}, h("code", {}, d.path),
          d.error ? h("span.bad", {}, ` offline: ${d.error}`) : ` ${count(d.replicas)} replicas, ${bytes(d.bytes)}, ${bytes(d.free_bytes)} free`))],
      ], told.brokers),
      told.sizes_age_s === null ? h("p.quiet", {}, "The console still counts the content of each directory.")
        : told.sizes_age_s >= 10 ? h("p.quiet", {}, `Replicas and bytes were counted ${seconds(told.sizes_age_s)} ago.`) : "",
      h("h2", {}, "Moves under way"),
      told.moves_problem ? h("p.quiet", {}, told.moves_problem) : table("Moves", [
        ["partition", (m) => m.partition], ["replicas", (m) => m.replicas.join(", ")], ["adding", (m) => m.adding.join(", ") || "–"], ["removing", (m) => m.removing.join(", ") || "–"],
      ], told.moves));
    update(below, table("Leaders and replicas", [
      ["partition", (p) => p.partition],
      ...told.brokers.map((b) => [b.gone ? `${b.id} (gone)` : String(b.id), (p) => replica(p, b.id, 0, b.gone)]),
    ], told.matrix, "no partition matches"), pager(query, "brokers", told));
  });
}

/** One replica of a partition on one broker. */
export function replica(p, id, behind = 0, isGone = false) {
  if (isGone) return p.replicas.includes(id) ? h("span.replica.away", {}, p.leader === id ? "led" : "gone") : "";
  if (p.leader === id) return h("span.replica.leads", {}, "leads");
  if (!p.replicas.includes(id)) return "";
  const inSync = p.in_sync.includes(id);
  return h(inSync ? "span.replica" : "span.replica.out", {}, inSync ? (behind ? `${count(behind)} behind` : "follows") : `out${behind ? `, ${count(behind)} behind` : ""}`);
}

export async function broker({ main, name }) {
  const told = await get("broker", { id: name });
  update(main,
    h("h1", {}, `Broker ${told.id}`, told.controller ? h("span", { title: "controller" }, "\u00a0♛") : ""),
    h("div.cards", {}, card("state", told.gone ? "gone" : "alive", told.gone ? "bad" : "good"), card("address", told.address ?? "–"), card("rack", told.rack ?? "–"),
      card("leads", count(told.leads)), card("replicas", count(told.replicas)),
      card("not in sync", count(told.out_of_sync.count), told.out_of_sync.count ? "warn" : "good")),
    told.out_of_sync.count ? [h("h2.warn", {}, "Partitions in which it is not in sync"), named(told.out_of_sync)] : "",
    told.led.count ? [h("h2", {}, "Partitions that it leads"), named(told.led)] : "",
    h("h2", {}, "Settings"),
    told.settings_problem ? h("p.warn", {}, told.settings_problem) : settings(told.settings));
}

/** Settings; what differs from the default comes first. */
export function settings(all, more = []) {
  const own = all.filter((s) => !s.is_default);
  return h("div", {}, ...[[own, "Set"], [all.filter((s) => s.is_default), "Defaults"]].map(([some, title]) =>
    h("details", { open: title === "Set" }, h("summary", {}, `${title} (${some.length})`), table(title, [
      ["name", (s) => h("code", {}, s.name)], ["value", (s) => h("code", {}, s.sensitive ? "hidden" : s.value ?? "–")], ["from", (s) => s.source], ...more,
    ], some))));
}

export async function transactions({ main, every, isShown, query }) {
  await every(10_000, async function () {
    const told = await get("transactions", query);
    if (!isShown()) return;
    update(main,
      h("h1", {}, "Transactions"),
      h("h2", {}, "Hanging"),
      h("p.explain", {}, `These transactions are open in a partition and silent for 15 minutes, and no coordinator will end them. Readers of committed records wait behind them. Checked ${count(told.looked_at)} of ${count(told.partitions)} partitions.`),
      told.problem ? h("p.warn", {}, told.problem) : table("Hanging", [
        ["partition", (t) => t.partition], ["producer", (t) => `${t.producer} epoch ${t.epoch}`], ["since offset", (t) => count(t.began_at), true], ["last write", (t) => when(t.last)],
        ["to end it", (t) => h("code", {}, `barnabas transactions abort --topic ${t.partition.replace(/-\d+$/, "")} --partition ${t.partition.replace(/.*-/, "")} --start-offset ${t.began_at}`)],
      ], told.hanging),
      h("h2", {}, `Transactional ids (${count(told.count)})`),
      table("Transactional ids", [["id", (t) => t.id], ["state", (t) => t.state], ["producer", (t) => t.producer, true], ["coordinator", (t) => t.coordinator, true]], told.transactions));
  });
}

const TONES = { running: "good", done: "good", failed: "bad", silent: "bad", stopping: "warn" };
const tone = (state) => h(TONES[state] ? `span.${TONES[state]}` : "span", {}, state || "–");

const at = (text) => when(Date.parse(text));

export async function pipelines({ main, every, isShown }) {
  await every(3000, async function () {
    const told = await get("pipelines");
    if (!isShown()) return;
    update(main,
      h("h1", {}, "Pipelines"),
      told.problem ? h("p.quiet", {}, told.problem) : "",
      told.left ? h("p.warn", {}, `${count(told.left)} records of the status topic have yet to be read`) : "",
      told.pipelines.map((p) => h("section", { "aria-label": p.name },
        h("h2", {}, `${p.name} · `, tone(p.state)),
        h("p.quiet", {}, [p.host && `on ${p.host}`, p.file, p.started && `since ${at(p.started)}`, p.updated && `reported at ${at(p.updated)}`].filter(Boolean).join(" · ")),
        p.alerts.map((alert) => h("p.warn", {}, alert)),
        table(`Queries of ${p.name}`, [
          ["query", (q) => q.name], ["state", (q) => tone(q.state)], ["rows a second", (q) => count(q.rows_a_second), true],
          ["read", (q) => count(q.rows_read), true], ["written", (q) => count(q.rows_written), true], ["rejected", (q) => count(q.rows_rejected), true], ["records behind", (q) => count(q.lag), true],
          ["batch", (q) => (q.batch_ms === null ? "–" : `${count(q.batch_ms)} ms`), true], ["restarts", (q) => count(q.restarts), true],
          ["last error", (q) => q.error ? [h("code", {}, q.error), h("div.quiet", {}, at(q.error_at), q.recovered_at ? `, recovered ${at(q.recovered_at)}` : "")] : "–"],
        ], p.queries))));
  });
}

export async function clients({ main, every, isShown, query, name }) {
  await every(15_000, async function () {
    const told = await get("clients", name ? { ...query, id: name } : query);
    if (!isShown()) return;
    const who = told.clients.find((c) => c.client_instance_id === told.id);
    update(main,
      h("h1", {}, told.id ? `Client ${who?.client_id ?? told.id}` : "Clients' metrics"),
      told.id ? "" : [
        h("p.explain", {}, "Clients push their own metrics where a client-metrics resource asks for them (KIP-714); ", h("code", {}, "kafka-client-metrics.sh"), " makes one."),
        h("h2", {}, "Asked for"),
        told.subscriptions_problem ? h("p.quiet", {}, told.subscriptions_problem) : table("Asked for", [
          ["name", (s) => s.name], ["metrics", (s) => h("code", {}, s.metrics || "–")], ["every", (s) => seconds(s["interval.ms"] / 1000)], ["of clients that match", (s) => h("code", {}, s.match || "all")],
        ], told.subscriptions),
        h("h2", {}, `Pushing (${count(told.count)})`),
        told.pages.length ? "" : h("p.quiet", {}, "The brokers' pages of metrics have the metrics that clients push: start the console with --metrics-url http://HOST:PORT.")],
      told.problems.map((problem) => h("p.warn", {}, problem)),
      told.id ? table("Numbers", [
        ["metric", (n) => n.metric], ["of", (n) => Object.entries(n.attributes).map(([key, value]) => h("span.tag", {}, `${key} ${value}`))], ["kind", (n) => (n.sum ? "sum" : "gauge")], ["value", (n) => count(n.value), true],
      ], told.numbers) : table("Pushing", [
        ["client", (c) => link("clients", c.client_instance_id, c.client_id ?? c.client_instance_id)], ["instance", (c) => h("code", {}, c.client_instance_id)], ["software", (c) => c.client_software_name ?? "–"], ["numbers", (c) => count(c.series), true],
      ], told.clients));
  });
}
