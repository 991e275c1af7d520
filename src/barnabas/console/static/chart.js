// A line over time, as far as the console has seen it.
import { count } from "./dom.js";

const W = 600, H = 70, SVG = "http://www.w3.org/2000/svg";
/** Points further apart than this are not joined, in ms: no page was open. */
const GAP = 30_000;

function s(name, attributes, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  element.append(...children);
  return element;
}

const time = (ms) => new Date(ms).toLocaleTimeString(undefined, { hour12: false });

/**
 * A chart; empty before there are two points, so that the page does not jump.
 * @param {string} title what is counted @param {[number, number][]} points [ms since 1970, value]
 */
export function chart(title, points) {
  if (points.length < 2) points = [];
  const [from, to] = points.length ? [points[0][0], points[points.length - 1][0]] : [0, 0];
  const most = Math.max(1, ...points.map(([, value]) => value));
  const x = (at) => ((at - from) / Math.max(1, to - from)) * W;
  const y = (value) => H - 2 - (value / most) * (H - 4);
  let path = "";
  points.forEach(([at, value], i) => {
    const joins = i && at - points[i - 1][0] <= GAP;
    path += `${joins ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
  });
  const label = points.length ? `${title} from ${time(from)} to ${time(to)}, at most ${count(most)}` : `${title}, while a page is open`;
  const figure = document.createElement("figure");
  figure.className = "chart";
  const caption = document.createElement("figcaption");
  caption.textContent = label;
  figure.append(s("svg", { viewBox: `0 0 ${W} ${H}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
    s("line", { x1: 0, y1: H - 1, x2: W, y2: H - 1, class: "ground" }), s("path", { d: path, class: "line" })), caption);
  return figure;
}
