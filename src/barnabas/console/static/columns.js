// The columns of a table that a person wants to see, kept in the browser.
import { h } from "./dom.js";

/**
 * A menu of columns.
 * @param {string} table @param {string[]} names all columns; the first is always shown
 * @param {() => void} changed
 */
export function chooser(table, names, changed) {
  const key = `columns:${table}`;
  const hidden = new Set(JSON.parse(localStorage.getItem(key) ?? "[]"));
  const box = (name) => {
    const input = h("input", { type: "checkbox", checked: !hidden.has(name) });
    input.addEventListener("change", () => {
      if (input.checked) hidden.delete(name);
      else hidden.add(name);
      localStorage.setItem(key, JSON.stringify([...hidden]));
      changed();
    });
    return h("label.inline", {}, input, name);
  };
  return {
    menu: h("details.columns", {}, h("summary", {}, "Columns"), h("div", {}, names.slice(1).map(box))),
    /** @param {any[]} columns in the order of the names; those beyond them are always shown */
    of: (columns) => columns.filter((_, i) => i === 0 || i >= names.length || !hidden.has(names[i])),
  };
}
