// Which page is shown: the address behind the # says it, so that the console works below any path.
import { leave as leaveDialogs, problem } from "./dialogs.js";
import { get, h } from "./dom.js";
import { access } from "./access.js";
import * as pages from "./pages.js";
import { schemas } from "./schemas.js";
import { topic } from "./topic.js";

const routes = {
  "": pages.overview, topics: pages.topics, topic, groups: pages.groups, group: pages.group,
  brokers: pages.brokers, broker: pages.broker, transactions: pages.transactions, schemas,
  pipelines: pages.pipelines, access, clients: pages.clients,
};
const main = /** @type {HTMLElement} */ (document.getElementById("main"));
/** Functions that end the open page: its timers and streams. */
let leave = () => {};
let shown = 0;

/** The keyboard focus stays at the pressed element, or goes to the beginning of the new page. */
function refocus(label) {
  if (document.activeElement && document.activeElement !== document.body) return;
  /** @type {NodeListOf<HTMLElement>} */
  const labelled = main.querySelectorAll("[aria-label]");
  const same = label && [...labelled].find((element) => element.getAttribute("aria-label") === label);
  (same || main).focus({ preventScroll: !same });
}

/** Missing things by Kafka's error code: the name, and the page that lists the existing ones. */
const MISSING = {
  UNKNOWN_TOPIC_OR_PARTITION: ["topic", "topics"], GROUP_ID_NOT_FOUND: ["group", "groups"],
  BROKER_NOT_AVAILABLE: ["broker", "brokers"],
};

/** Why a page cannot be shown, in its stead. */
function refuse(error, route, name) {
  const [what, list] = MISSING[error.code] ?? [];
  if (what === route && name)
    return main.replaceChildren(h("h1", {}, `There is no ${what} ${name}`), h("p", {}, h("a", { href: `#/${list}` }, `All ${list}`)));
  main.replaceChildren(h("h1", {}, "This page cannot be shown"), h("p.bad", {}, error.message),
    h("button", { onclick: () => show() }, "Try again"));
}

async function show(moved = true) {
  leave();
  leaveDialogs();
  const mine = (shown += 1);
  const [path, queryText] = location.hash.replace(/^#\/?/, "").split("?");
  const [page, ...rest] = path.split("/").map(decodeURIComponent);
  const query = Object.fromEntries(new URLSearchParams(queryText ?? ""));
  for (const item of document.querySelectorAll("nav a")) {
    const name = (item.getAttribute("href") ?? "").replace(/^#\/?/, "");
    const isHere = name === page || (name && name.replace(/s$/, "") === page);
    if (isHere) item.setAttribute("aria-current", "page");
    else item.removeAttribute("aria-current");
  }
  const ends = [];
  leave = () => ends.splice(0).forEach((end) => end());
  const onLeave = (end) => (mine === shown ? ends.push(end) : end());
  /** Show an error instead of the page. */
  const fail = (error) => {
    if (mine !== shown) return;
    leave();
    refuse(error, page, rest[0]);
  };
  const route = routes[page];
  document.title = `${rest[0] ?? (page || "overview")} · Barnabas`;
  const focused = document.activeElement?.getAttribute("aria-label");
  if (!route) return main.replaceChildren(h("h1", {}, "There is no such page"));
  main.replaceChildren(h("p.quiet", {}, "…"));
  try {
    await route({
      main, query, name: rest[0] ?? "", rest: rest.slice(1), about: await about,
      onLeave, fail,
      isShown: () => mine === shown,
      /** Draw now and every few seconds, while the page is looked at. */
      async every(ms, draw) {
        const again = async () => {
          try {
            if (!document.hidden && mine === shown) await draw();
          } catch (error) {
            if (MISSING[error.code]?.[0] === page) fail(error); // it was deleted meanwhile
            else if (mine === shown) problem(error.message);
          }
        };
        await draw();
        const timer = setInterval(again, ms);
        onLeave(() => clearInterval(timer));
      },
    });
    if (mine === shown && moved) refocus(focused);
  } catch (error) {
    fail(error);
  }
}

const about = get("console").then((told) => {
  const where = /** @type {HTMLElement} */ (document.getElementById("where"));
  const [first, ...others] = told.servers.split(",");
  where.textContent = first + (others.length ? ` +${others.length}` : "") + (told.allow_writes ? "" : " · read only");
  where.title = told.servers;
  return told;
});
addEventListener("hashchange", () => show());
document.querySelector(".skip")?.addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
show(false);
