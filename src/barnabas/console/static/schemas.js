// Subjects of the schema registry, and changes of them.
import { ask, choose } from "./dialogs.js";
import { get, h, link, table } from "./dom.js";
import { searchForm } from "./pages.js";

const go = (subject) => { const to = `#/schemas/${encodeURIComponent(subject)}`; if (location.hash === to) dispatchEvent(new Event("hashchange")); else location.hash = to; };

/** Register a version. @param {any} about the subject, its format and text to begin with, where there is one */
async function register(about = {}) {
  const wanted = await choose(about.subject ? `Register a version of ${about.subject}` : "Register a schema", [
    about.subject ? h("input", { type: "hidden", name: "subject", value: about.subject }) : h("label", {}, "subject", h("input", { name: "subject", required: true, placeholder: "orders-value", autocomplete: "off" })),
    h("label", {}, "format", h("select", { name: "type" }, ["AVRO", "JSON", "PROTOBUF"].map((v) => h("option", { value: v, selected: v === about.type }, v)))),
    h("label.whole", {}, "schema", h("textarea", { name: "schema", required: true, rows: 14, value: about.text ?? "" })),
  ]);
  if (!wanted) return;
  const told = await ask(`Register a version of ${wanted.subject}`, "Register", { do: "register-schema", ...wanted, references: about.references ?? [] });
  if (told) go(wanted.subject.trim());
}

async function alter(told) {
  const texts = await choose(`Compatibility of ${told.subject}`, [
    h("label", {}, "level", h("select", { name: "level" }, ["", ...told.levels].map((v) => h("option", { value: v, selected: v === (told.own_level ?? "") }, v || "of the registry")))),
  ]);
  if (texts && await ask(`Compatibility of ${told.subject}`, "Change", { do: "set-compatibility", subject: told.subject, level: texts.level })) go(told.subject);
}

async function remove(subject, version, permanent, isLast) {
  const what = version === null ? "the subject with all its versions" : `version ${version}`;
  const title = `Delete ${version === null ? subject : `version ${version} of ${subject}`}${permanent ? " for good" : ""}`;
  const done = await ask(title, "Delete", { do: "delete-schema", subject, version, permanent }, { typed: subject, what: permanent ? `${what} for good` : what });
  if (!done) return;
  if (permanent && isLast) location.hash = "#/schemas";
  else go(subject);
}

function tools(told) {
  const [gone, isGone] = [told.deleted.includes(told.version), !told.versions.length];
  const isLast = told.versions.length + told.deleted.length === 1;
  return h("div.tools", {},
    h("button", { onclick: () => register(told) }, "Register a version"),
    h("button", { onclick: () => alter(told) }, "Change the compatibility"),
    h("button", { onclick: () => remove(told.subject, told.version, gone, isLast) }, `Delete version ${told.version}${gone ? " for good" : ""}`),
    h("button", { onclick: () => remove(told.subject, null, isGone, true) }, `Delete the subject${isGone ? " for good" : ""}`));
}

export async function schemas({ main, query, name, isShown, about }) {
  const told = await get("schemas", name ? { ...query, subject: name } : query);
  if (!isShown()) return;
  if (told.problem) return main.replaceChildren(h("h1", {}, "Schemas"), h("p.quiet", {}, told.problem));
  const columns = [["subject", (s) => link("schemas", s)]];
  if (!told.subject) {
    return main.replaceChildren(h("h1", {}, "Schemas"), searchForm(query, "schemas"),
      about.allow_writes ? h("div.tools", {}, h("button", { onclick: () => register() }, "Register a schema")) : "",
      table("Subjects", columns, told.subjects),
      told.deleted.length ? [h("h2", {}, "Deleted, but not for good"), table("Deleted subjects", columns, told.deleted)] : "");
  }
  const version = (v) => [h("a", { href: `#/schemas/${encodeURIComponent(told.subject)}?version=${v}` }, v), " "];
  main.replaceChildren(
    h("h1", {}, "Schema of ", told.subject),
    h("p", {}, `${told.type}, id ${told.id}, version ${told.version}, compatibility ${told.compatibility ?? "of the registry"}. Versions: `,
      told.versions.map(version), told.deleted.length ? ["Deleted, but not for good: ", told.deleted.map(version)] : ""),
    about.allow_writes ? tools(told) : "",
    told.changes.length ? [h("h2", {}, "Changed since the version before"), h("pre.box", {}, told.changes.map((line) => h(line.startsWith("+") ? "span.add" : line.startsWith("-") ? "span.gone" : "span", {}, line + "\n")))] : "",
    h("h2", {}, "Text"), h("pre.box", {}, told.text));
}
