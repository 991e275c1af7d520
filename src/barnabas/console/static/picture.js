// The picture of a topic: lanes of records on a canvas. It draws only data from the server.

const LANE = 54, CELL = 40, GAP = 4, TOP = 16, LABEL = 74, RIGHT = 54, KEPT = 120;
/** How many looks are kept to rewind: five minutes of two a second. */
export const HISTORY = 600;
/** White text stands on them, and none is near the red of what is wrong. */
const COLOURS = ["#1f6f94", "#6a4c93", "#00796b", "#8a5a00", "#3f51b5", "#4e6e1e", "#5d4037", "#455a64"];
const numbers = new Intl.NumberFormat();

/** All groups of a look by name, share groups among them. */
export const groupsOf = (look) => [...new Set([...Object.keys(look.groups), ...Object.keys(look.queues)])].sort();

/** The colour of the group that is the i-th by name. */
export const colour = (i) => COLOURS[i % COLOURS.length];

export class Picture {
  /** @param {HTMLCanvasElement} canvas @param {boolean} isStill whether nothing may move */
  constructor(canvas, isStill) {
    this.canvas = canvas;
    this.isStill = isStill;
    this.explains = false;
    this.paused = false;
    /** all looks that are kept, oldest first */
    this.looks = [];
    this.now = null;
    /** by partition: what lies in the lane, and how far it has yet to slide */
    this.lanes = new Map();
    this.frame = 0;
  }

  /** A look has come. */
  take(look) {
    this.looks.push(look);
    if (this.looks.length > HISTORY) this.looks.shift();
    if (this.paused) return;
    this.#add(look, !this.isStill);
    this.draw();
  }

  /** Show how it was so many looks ago (a number below 0); that look. */
  goBack(steps) {
    const last = Math.max(0, this.looks.length - 1 + steps);
    this.lanes.clear();
    for (const look of this.looks.slice(0, last + 1)) this.#add(look, false);
    this.draw();
    return this.now;
  }

  catchUp() {
    this.goBack(0);
  }

  stop() {
    cancelAnimationFrame(this.frame);
    this.frame = -1;
  }

  #add(look, slides) {
    this.now = look;
    for (const told of look.lanes) {
      let lane = this.lanes.get(told.partition);
      if (!lane) this.lanes.set(told.partition, (lane = { items: [], slide: 0, known: false }));
      lane.told = told;
      if (told.end === undefined) continue;
      let added = 0;
      for (const [offset, hue, time, what] of told.cells ?? []) {
        const last = lane.items.at(-1);
        if (last && offset < last.to) continue;
        if (last && offset > last.to) lane.items.push({ from: last.to, to: offset, kind: "hole" });
        lane.items.push({ from: offset, to: offset + 1, kind: "cell", hue, time, what });
        added += CELL + GAP;
      }
      if (told.block) {
        lane.items.push({ from: told.block[0], to: told.block[1], kind: "block" });
        added += CELL * 1.6 + GAP;
      }
      // Transactions end: their records are no longer open.
      for (const item of lane.items) if (item.what === "open" && item.to <= told.stable) item.what = "";
      lane.items = lane.items.filter((item) => item.to > told.start).slice(-KEPT);
      if (slides && lane.known) lane.slide = Math.min(lane.slide + added, 600);
      lane.known = true;
    }
  }

  /** Draw it now, and on as long as something slides. */
  draw() {
    if (this.frame === -1) return;
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => {
      let slides = false;
      for (const lane of this.lanes.values()) {
        lane.slide = lane.slide < 0.5 || this.paused ? 0 : lane.slide * 0.86;
        slides ||= lane.slide > 0;
      }
      this.#paint();
      if (slides) this.draw();
    });
  }

  #paint() {
    const look = this.now;
    const { canvas } = this;
    const width = canvas.clientWidth;
    if (!look || !width) return;
    const height = TOP + look.lanes.length * LANE + 8;
    const scale = devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
      canvas.style.height = `${height}px`;
    }
    const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    const style = getComputedStyle(document.documentElement);
    const ink = Object.fromEntries(["text", "quiet", "lane", "line", "mark", "hatch", "bad", "card"].map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
    const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, height);
    const groups = groupsOf(look);
    look.lanes.forEach((told, row) => {
      const lane = this.lanes.get(told.partition);
      if (lane) this.#paintLane(pen, ink, isDark, lane, TOP + row * LANE, width, look, groups);
    });
    if (this.explains && look.lanes.length) {
      pen.font = "11px system-ui, sans-serif";
      pen.fillStyle = ink.quiet;
      pen.textAlign = "right";
      pen.fillText("high watermark ↓", width - 4, 11);
      pen.textAlign = "left";
      pen.fillText("← older records; their numbers are offsets", LABEL, 11);
    }
  }

  #paintLane(pen, ink, isDark, lane, top, width, look, groups) {
    const { told } = lane;
    const cellTop = top + 6, cellHeight = 26;
    pen.fillStyle = ink.lane;
    pen.beginPath();
    pen.roundRect(LABEL - 6, top, width - LABEL, LANE - 12, 6);
    pen.fill();
    pen.textAlign = "left";
    pen.textBaseline = "middle";
    pen.font = "600 13px system-ui, sans-serif";
    pen.fillStyle = told.leader === null ? ink.bad : ink.text;
    pen.fillText(`P${told.partition}`, 8, cellTop + 7);
    pen.font = "11px system-ui, sans-serif";
    pen.fillStyle = ink.quiet;
    pen.fillText(told.leader === null ? "no leader" : `on ${told.leader}`, 8, cellTop + 23);
    if (told.end === undefined) return;

    pen.save();
    pen.beginPath();
    pen.rect(LABEL - 4, top, width - RIGHT - LABEL + 6, LANE);
    pen.clip();
    let x = width - RIGHT + lane.slide;
    /** where an offset is: the left edge of its cell; @type {[number, number, number][]} */
    const edges = [[told.end, told.end, x]];
    for (let i = lane.items.length - 1; i >= 0 && x > LABEL - CELL; i -= 1) {
      const item = lane.items[i];
      const w = item.kind === "cell" ? CELL : item.kind === "block" ? CELL * 1.6 : 16;
      x -= w + GAP;
      edges.push([item.from, item.to, x]);
      this.#paintItem(pen, ink, isDark, item, x, cellTop, w, cellHeight);
    }
    const first = lane.items[0];
    if (first && x > LABEL && first.from > told.start) {
      pen.fillStyle = ink.quiet;
      pen.textAlign = "right";
      pen.fillText(`… from ${numbers.format(told.start)}`, x - 6, cellTop + cellHeight / 2);
    } else if (first && x > LABEL && told.start > 0) {
      hatch(pen, ink.hatch, LABEL - 4, cellTop, x - LABEL, cellHeight);
    }
    if (told.end === told.start) {
      pen.fillStyle = ink.quiet;
      pen.textAlign = "right";
      pen.fillText("empty", width - RIGHT - 8, cellTop + cellHeight / 2);
    }
    pen.restore();

    const at = (offset) => {
      for (const [from, to, left] of edges) if (offset >= from) return left + (to > from + 1 ? ((offset - from) / (to - from)) * CELL * 1.6 : 0);
      return null;
    };
    // high watermark, and where open transactions begin
    const end = width - RIGHT + GAP / 2;
    pen.strokeStyle = ink.mark;
    pen.setLineDash([4, 3]);
    line(pen, end, top + 1, end, top + LANE - 14);
    pen.setLineDash([]);
    pen.textAlign = "left";
    pen.fillStyle = ink.quiet;
    pen.font = "11px system-ui, sans-serif";
    pen.fillText(short(told.end), end + 4, cellTop + cellHeight / 2);
    if (told.stable >= 0 && told.stable < told.end) {
      const stable = at(told.stable);
      if (stable !== null) {
        pen.strokeStyle = ink.bad;
        pen.setLineDash([2, 3]);
        line(pen, stable - GAP / 2, top + 1, stable - GAP / 2, top + LANE - 14);
        pen.setLineDash([]);
      }
    }
    const y = top + LANE - 13;
    /** the groups whose pointers lie left of the picture */
    const outside = [];
    groups.forEach((group, i) => {
      const queue = look.queues[group]?.[told.partition];
      if (queue) this.#paintQueue(pen, ink, queue, colour(i), edges, y);
      const offset = queue ? queue.start : look.groups[group]?.[told.partition];
      if (offset === undefined) return;
      const px = offset >= told.end ? end : at(offset);
      if (px === null) return void outside.push([i, told.end - offset]);
      pen.fillStyle = colour(i);
      const tip = Math.max(LABEL, px + (i - (groups.length - 1) / 2) * 3);
      pen.beginPath();
      pen.moveTo(tip, y - 5);
      pen.lineTo(tip - 6, y + 6);
      pen.lineTo(tip + 6, y + 6);
      pen.fill();
    });
    this.#paintOutside(pen, ink, outside, y, LABEL - 2, width / 2);
  }

  /** The records that members of a share group have in hand, and those that wait for another delivery or are done. */
  #paintQueue(pen, ink, queue, colour, edges, y) {
    pen.font = "600 10px system-ui, sans-serif";
    pen.textAlign = "center";
    for (const [from, to, left] of edges) {
      if (to === from) continue;
      const width = to > from + 1 ? CELL * 1.6 : CELL;
      for (const [first, last, state, deliveries, hand] of queue.batches) {
        if (last < from || first >= to) continue;
        const x = left + width / 2;
        if (x < LABEL) break;
        pen.beginPath();
        if (state === "acquired") {
          pen.fillStyle = colour;
          pen.roundRect(x - 17, y - 7, 34, 15, 7);
          pen.fill();
          pen.fillStyle = "#fff";
          paintHand(pen, x - 12, y);
          pen.fillText(`#${hand}`, x + 6, y + 1);
        } else if (state === "available") {
          if (!deliveries) continue;
          pen.strokeStyle = pen.fillStyle = colour;
          pen.roundRect(x - 15, y - 7, 30, 15, 7);
          pen.stroke();
          pen.fillText(`↻${deliveries}`, x, y + 1);
        } else {
          pen.fillStyle = state === "acknowledged" ? ink.quiet : ink.bad;
          if (deliveries) pen.fillText(state === "acknowledged" ? "✓" : "✗", x, y + 1);
        }
        break;
      }
    }
  }

  /** The lags of groups that are further behind than the picture reaches, each on a label of the group's colour. */
  #paintOutside(pen, ink, outside, y, x, most) {
    pen.font = "600 10px system-ui, sans-serif";
    pen.textAlign = "left";
    for (const [i, [group, lag]] of outside.entries()) {
      const text = `◀ ${numbers.format(lag)} behind`;
      const w = pen.measureText(text).width + 12;
      if (x + w > most && i) {
        pen.fillStyle = ink.quiet;
        pen.fillText(`and ${outside.length - i} more`, x, y + 1);
        return;
      }
      pen.fillStyle = colour(group);
      pen.beginPath();
      pen.roundRect(x, y - 7, w, 15, 7);
      pen.fill();
      pen.fillStyle = "#fff";
      pen.fillText(text, x + 6, y + 1);
      x += w + 4;
    }
  }

  #paintItem(pen, ink, isDark, item, x, y, w, height) {
    if (item.kind === "hole") {
      pen.fillStyle = ink.quiet;
      pen.textAlign = "center";
      pen.fillText("⋯", x + w / 2, y + height / 2);
      return;
    }
    pen.beginPath();
    pen.roundRect(x, y, w, height, 5);
    if (item.kind === "block") {
      pen.fillStyle = ink.hatch;
      pen.fill();
      pen.fillStyle = ink.text;
      pen.textAlign = "center";
      pen.font = "600 11px system-ui, sans-serif";
      pen.fillText(`+${numbers.format(item.to - item.from)}`, x + w / 2, y + height / 2);
      return;
    }
    const isMarker = item.what === "commit" || item.what === "abort" || item.what === "control";
    pen.fillStyle = isMarker ? ink.card : item.hue < 0 ? (isDark ? "#3a4a4e" : "#c9d4d6") : `hsl(${item.hue} 52% ${isDark ? 34 : 78}%)`;
    pen.fill();
    if (item.what === "open") hatch(pen, ink.text, x, y, w, height);
    pen.fillStyle = ink.text;
    pen.textAlign = "center";
    pen.font = "11px ui-monospace, monospace";
    pen.fillText(isMarker ? (item.what === "commit" ? "✓" : item.what === "abort" ? "✗" : "◆") : short(item.from), x + w / 2, y + height / 2);
    if (item.what === "aborted") {
      pen.strokeStyle = ink.bad;
      line(pen, x + 3, y + height - 4, x + w - 3, y + 4);
    }
  }
}

/** A hand, 9 pixels wide: few fonts have one. */
function paintHand(pen, x, y) {
  pen.beginPath();
  for (const [finger, length] of [4, 5.5, 5, 3.5].entries()) pen.roundRect(x + 1.5 + finger * 2, y - length, 1.5, length + 1, 0.7);
  pen.roundRect(x + 1.5, y - 1, 7.5, 6, 2);
  pen.roundRect(x - 0.5, y, 3, 1.6, 0.8);
  pen.fill();
}

/** An offset in five characters. */
const short = (n) => (n > 99_999 ? `…${String(n).slice(-4)}` : String(n));

function line(pen, x1, y1, x2, y2) {
  pen.beginPath();
  pen.moveTo(x1, y1);
  pen.lineTo(x2, y2);
  pen.stroke();
}

function hatch(pen, ink, x, y, w, height) {
  if (w <= 0) return;
  pen.save();
  pen.beginPath();
  pen.rect(x, y, w, height);
  pen.clip();
  pen.strokeStyle = ink;
  pen.globalAlpha = 0.45;
  for (let i = -height; i < w; i += 7) line(pen, x + i, y + height, x + i + height, y);
  pen.restore();
}
