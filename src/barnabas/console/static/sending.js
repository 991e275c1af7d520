// The form that sends a record: texts, or JSON that a registered schema encodes.
import { ask, problem } from "./dialogs.js";
import { get, h } from "./dom.js";

const PARTS = ["value", "key"];

/** Whether a key or a value can be put into the form. @param {any} c as the server shows it @param {any} about */
export const editable = (c, about) => (c.schema ? about.registry && ["avro", "json"].includes(c.is) : ["text", "json"].includes(c.is));

/**
 * The schema of a key or a value: its name, what the registry knows of it, and the messages of Protobuf.
 * @param {string} part @param {() => string} topic
 */
function schemaField(part, topic) {
  const input = h("input", { name: `${part}_schema`, list: "subjects", placeholder: "none: text", autocomplete: "off", size: 24 });
  const messages = h("select", { name: `${part}_message`, "aria-label": `message of the ${part} schema` });
  const choice = h("label", { hidden: true }, "message", messages);
  const status = h("span.quiet", { role: "status" });
  /** The name that was filled in by itself: another topic has another. */
  let suggested = "";

  function show(told) {
    messages.replaceChildren(...(told.messages ?? []).map((name) => h("option", { value: name }, name)));
    choice.hidden = messages.options.length < 2;
    status.textContent = told.problem ?? (told.id ? `${told.name}, ${told.type}, id ${told.id}` : "");
  }
  async function look(name) {
    try {
      return await get("schema", { name });
    } catch (error) {
      return { problem: error.message, failed: true };
    }
  }
  async function changed() {
    const name = input.value.trim();
    const told = name ? await look(name) : {};
    if (input.value.trim() === name) show(told);
  }
  input.onchange = changed;

  return {
    controls: [h("label", {}, `${part} schema`, input), choice, status],
    /** Fill in the latest version of the topic's subject, where there is one. */
    async suggest() {
      if (input.value.trim() !== suggested) return;
      const name = `${topic()}-${part}`;
      const told = await look(name);
      if (input.value.trim() !== suggested || name !== `${topic()}-${part}`) return;
      suggested = input.value = told.problem ? "" : name;
      show(told.problem && !told.failed ? {} : told);
    },
    /** @param {string} name */
    async set(name) {
      input.value = name;
      suggested = "\n"; // what a person has chosen stays
      await changed();
    },
    wanted: () => ({ [`${part}_schema`]: input.value.trim() || null, [`${part}_message`]: choice.hidden ? null : messages.value }),
  };
}

/** The forms of the pages, with what fills in their schemas. @type {WeakMap<HTMLElement, any>} */
const forms = new WeakMap();

/** @param {string} name the topic @param {any} about */
export function editor(name, about) {
  const topic = h("input", { name: "topic", value: name });
  const fields = about.registry ? PARTS.map((part) => schemaField(part, () => topic.value.trim())) : [];
  const suggest = () => { for (const field of fields) field.suggest(); };
  topic.onchange = suggest;
  const send = async (event) => {
    event.preventDefault();
    const form = event.target;
    const key = form.key.value === "" ? null : form.key.value;
    const headers = form.headers.value.split("\n").filter(Boolean).map((line) => [line.split(":")[0].trim(), line.slice(line.indexOf(":") + 1).trim()]);
    const schemas = Object.assign({}, ...fields.map((field) => field.wanted()));
    const told = await ask(`Send a record to ${form.topic.value}`, "Send", { do: "produce", topic: form.topic.value, key, value: form.value.value, headers, partition: form.partition.value === "" ? null : Number(form.partition.value), ...schemas });
    if (told?.result) problem(`sent: partition ${told.result.partition}, offset ${told.result.offset}`, true);
  };
  const subjects = h("datalist", { id: "subjects" });
  const details = h("details", { id: "editor" }, h("summary", {}, "Send a record"),
    h("form", { onsubmit: send },
      h("label", {}, "topic", topic), h("label", {}, "key", h("input", { name: "key" })),
      h("label", {}, "partition", h("input", { name: "partition", size: 5 })),
      fields.map((field) => h("div.whole.tools", {}, field.controls)), subjects,
      h("label.whole", {}, "value", h("textarea", { name: "value" })), h("label.whole", {}, "headers, as name: text", h("textarea", { name: "headers", rows: 2 })),
      h("button.main", {}, "Send …")));
  forms.set(details, fields);
  // The registry is asked once the form is of interest.
  const opened = async () => {
    if (!fields.length || subjects.childNodes.length) return;
    suggest();
    try {
      subjects.replaceChildren(...(await get("schemas")).subjects.map((subject) => h("option", { value: subject })));
    } catch (error) {
      problem(error.message);
    }
  };
  details.addEventListener("toggle", () => { if (details.open) opened(); });
  return details;
}

/** Put a record into the form: to send it again, changed, or to another topic (a dead letter to where it came from). */
export function fill(record) {
  const editing = /** @type {HTMLDetailsElement} */ (document.getElementById("editor"));
  const form = /** @type {HTMLFormElement} */ (editing.querySelector("form"));
  forms.get(editing).forEach((field, i) => field.set(String(record[PARTS[i]].schema ?? "")));
  editing.open = true;
  form.key.value = record.key.text ?? "";
  form.value.value = record.value.text ?? "";
  form.headers.value = record.headers.map(([k, v]) => `${k}: ${v.text ?? ""}`).join("\n");
  form.value.focus();
}
