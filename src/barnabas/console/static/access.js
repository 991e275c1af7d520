// Who may do what: users, rules and quotas, and changes of them.
import { ask, choose, enter } from "./dialogs.js";
import { count, get, h, table, update } from "./dom.js";

const RULES = [
  ["principal", (r) => r.principal], ["permission", (r) => (r.permission === "DENY" ? h("span.bad", {}, "DENY") : r.permission)], ["operation", (r) => r.operation],
  ["on", (r) => r.resource], ["name", (r) => (r.pattern === "PREFIXED" ? `${r.name}…` : r.name)], ["from", (r) => r.host],
];

/** @param {string} title @param {any[]} columns @param {any} told @param {any} [tools] */
const part = (title, columns, told, tools = "") => [
  h("h2", {}, told.problem ? title : `${title} (${count(told.count)})`),
  told.problem ? h("p.warn", {}, told.problem) : [tools && h("div.tools", {}, tools), table(title, columns, told.rows)],
];

/**
 * Rules, as api/access tells them, and buttons to change them.
 * @param {any} told @param {Record<string, string[]> | null} operations by resource, where rules may be changed
 * @param {() => void} changed @param {Record<string, string>} [about] what a new rule begins with
 */
export function rules(told, operations, changed, about = {}) {
  if (!operations) return part("Rules", RULES, told);
  const remove = async (r) => { if (await ask(`Delete the rule of ${r.principal}`, "Delete", { do: "delete-rule", ...r })) changed(); };
  const buttons = ["change", (r) => operations[r.resource] && h("button", { "aria-label": `Delete the rule of ${r.principal} to ${r.operation} ${r.name}`, onclick: () => remove(r) }, "Delete")];
  return part("Rules", [...RULES, buttons], told, h("button", { onclick: () => add(operations, changed, about) }, "Add a rule"));
}

async function add(operations, changed, about) {
  const operation = (resource) => operations[resource].map((name) => h("option", { value: name }, name));
  const select = (name, values, chosen, /** @type {any} */ onchange = undefined) => h("select", { name, onchange }, values.map((v) => h("option", { value: v, selected: v === chosen }, v)));
  const resource = about.resource ?? "TOPIC";
  const of = h("select", { name: "operation" }, operation(resource));
  const rule = await choose("Add a rule", [
    h("label", {}, "principal", h("input", { name: "principal", required: true, placeholder: "User:alice", autocomplete: "off" })),
    h("label", {}, "permission", select("permission", ["ALLOW", "DENY"], "ALLOW")),
    h("label", {}, "on", select("resource", Object.keys(operations), resource, (event) => of.replaceChildren(...operation(event.target.value)))),
    h("label", {}, "operation", of),
    h("label", {}, "name (* for all)", h("input", { name: "name", value: about.name ?? "", autocomplete: "off" })),
    h("label", {}, "pattern", select("pattern", ["LITERAL", "PREFIXED"], "LITERAL")),
    h("label", {}, "from (an IP address, * for all)", h("input", { name: "host", value: "*", autocomplete: "off" })),
  ]);
  if (rule && await ask("Add a rule", "Add", { do: "create-rule", ...rule })) changed();
}

export async function access({ main, every, isShown, about }) {
  const draw = async () => {
    const told = await get("access");
    if (!isShown()) return;
    const anybody = (of) => Object.entries(of).map(([kind, name]) => (name === null ? `any ${kind}` : `${kind} ${name}`)).join(", ");
    const change = (user) => h("button", { "aria-label": `Change the password of ${user}`, onclick: () => password(user) }, "Change the password");
    const remove = (user) => h("button", { "aria-label": `Delete ${user}`, onclick: () => forget(user) }, "Delete");
    update(main, h("h1", {}, "Access"),
      about.allow_writes ? "" : h("p.explain", {}, "Changed on the command line: ", h("code", {}, "barnabas users"), ", ", h("code", {}, "barnabas acls"), ", ", h("code", {}, "barnabas quotas"), "."),
      part("Users with a password", [["user", (u) => u.name], ["mechanisms", (u) => u.mechanisms.join(", ")],
        ...(about.allow_writes ? [["change", (u) => [change(u.name), remove(u.name)]]] : [])], told.users,
      about.allow_writes && h("button", { onclick: () => password("") }, "Add a user")),
      rules(told.rules, about.allow_writes ? told.operations : null, draw),
      part("Quotas", [["of", (q) => anybody(q.of)], ["quota", (q) => q.name], ["value", (q) => count(q.value), true]], told.quotas));
  };
  const password = async (user) => {
    const title = user ? `Change the password of ${user}` : "Add a user";
    const texts = await enter(title, [...(user ? [] : [["user", "name"]]), ["password", "password", "", "", "password"], ["again", "password again", "", "", "password"]],
      (t) => (t.password === t.again ? "" : "The two passwords differ."));
    if (texts && await ask(title, user ? "Change" : "Add", { do: "set-password", user: user || texts.user.trim(), password: texts.password })) draw();
  };
  const forget = async (user) => {
    if (await ask(`Delete ${user}`, "Delete", { do: "delete-user", user }, { typed: user, what: "the user, who cannot log in any more" })) draw();
  };
  await every(10_000, draw);
}
