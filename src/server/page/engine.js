// The live view of the engine: polls GET v1/engine (page.js says what it holds) and draws it.
//
// Speeds are differences of two polls' totals over the engine's own clock, so any number of pages may look at once.
import { authorization } from "./chat.js";

const kPollMs = 1000;
const kRetryMs = 4000;
const kSamples = 90;
const kSvg = "http://www.w3.org/2000/svg";
const count = new Intl.NumberFormat("en");

const kPageKinds = [
  { sign: "u", tone: "used", label: "used", count: "used" },
  { sign: "c", tone: "cached", label: "cached", count: "cached" },
  { sign: "i", tone: "image", label: "STATE images", count: "images" },
  { sign: "f", tone: "free", label: "free", count: "free" },
];

function element(name, className, text) {
  const node = document.createElement(name);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (value >= 1024 && at < units.length - 1) {
    value /= 1024;
    ++at;
  }
  return `${value.toFixed(at === 0 || value >= 100 ? 0 : 1)} ${units[at]}`;
}

function duration(seconds) {
  const whole = Math.floor(seconds);
  const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const first = Math.max(0, parts.findIndex(([size]) => whole >= size));
  if (whole < 60) return `${whole} s`;
  return parts.slice(first, first + 2).map(([size, unit], at) =>
    `${at === 0 ? Math.floor(whole / size) : Math.floor((whole % parts[first][0]) / size)} ${unit}`).join(" ");
}

// A number with the course of its last values.
class Gauge {
  constructor(list, label, unit, digits) {
    this.digits = digits;
    this.values = [];
    const item = element("li");
    const text = element("div");
    this.number = element("b", "", "–");
    this.unit = element("small", "", ` ${unit}`);
    text.append(element("span", "", label), this.number);
    this.svg = document.createElementNS(kSvg, "svg");
    this.svg.setAttribute("viewBox", `0 0 ${kSamples - 1} 20`);
    this.svg.setAttribute("preserveAspectRatio", "none");
    this.svg.setAttribute("aria-hidden", "true");
    this.base = this.shape("line", "base");
    const ends = { x1: 0, x2: kSamples - 1, y1: 20, y2: 20 };
    for (const [name, value] of Object.entries(ends)) this.base.setAttribute(name, value);
    this.area = this.shape("polygon", "area");
    this.line = this.shape("polyline", "line");
    item.append(text, this.svg);
    list.append(item);
  }

  shape(name, className) {
    const node = document.createElementNS(kSvg, name);
    node.setAttribute("class", className);
    this.svg.append(node);
    return node;
  }

  add(value, top) {
    this.values.push(value);
    if (this.values.length > kSamples) this.values.shift();
    this.number.replaceChildren(value.toFixed(value >= 1000 ? 0 : this.digits), this.unit);
    const most = top ?? Math.max(1, ...this.values);
    const from = kSamples - this.values.length;
    const points = this.values.map((each, at) => `${from + at},${(20 - 19 * Math.min(1, each / most)).toFixed(2)}`);
    this.line.setAttribute("points", points.join(" "));
    this.area.setAttribute("points", `${from},20 ${points.join(" ")} ${kSamples - 1},20`);
  }
}

export class EngineView {
  // settings(): what the user set; onModel(name): called with each poll. `ready` settles after the first one.
  constructor(root, { settings, onModel }) {
    this.part = (id) => root.getElementById(id);
    this.settings = settings;
    this.onModel = onModel;
    this.previous = null;
    this.map = null;
    const gauges = this.part("gauges");
    this.promptSpeed = new Gauge(gauges, "Prompt", "tokens/s", 0);
    this.answerSpeed = new Gauge(gauges, "Answers", "tokens/s", 1);
    this.hitRate = new Gauge(gauges, "Prefix hits", "%", 0);
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.drawMap());
    new ResizeObserver(() => this.drawMap()).observe(this.part("page-map"));
    document.addEventListener("visibilitychange", () => { if (!document.hidden) this.poll(); });
    this.ready = new Promise((resolve) => { this.noteReady = resolve; });
    this.poll();
  }

  poll() {
    clearTimeout(this.timer);
    if (document.hidden || this.isPolling) return;
    this.isPolling = true;
    this.fetchState().then((isLive) => {
      this.isPolling = false;
      this.noteReady();
      this.timer = setTimeout(() => this.poll(), isLive ? kPollMs : kRetryMs);
    });
  }

  async fetchState() {
    try {
      const response = await fetch("v1/engine", { headers: authorization(this.settings()), cache: "no-store" });
      if (response.status === 401) throw new Error("The server wants an API key: enter it under Settings.");
      if (!response.ok) throw new Error(`The engine's state is not to be had: status ${response.status}.`);
      this.show(await response.json());
      this.say("live", "live", "");
      return true;
    } catch (error) {
      this.previous = null;
      const isOffline = error instanceof TypeError;
      this.say("lost", isOffline ? "unreachable" : "no engine view",
               isOffline ? "The server cannot be reached; trying again." : error.message);
      return false;
    }
  }

  say(state, label, notice) {
    const link = this.part("link-state");
    link.dataset.state = state;
    if (link.textContent !== label) link.textContent = label;
    const node = this.part("engine-notice");
    node.hidden = notice === "";
    if (node.textContent !== notice) node.textContent = notice;
  }

  show(state) {
    this.onModel(state.model);
    this.showSpeeds(state);
    this.showPages(state);
    this.showRequests(state);
    this.showMemory(state.memory);
    this.showTotals(state);
    this.previous = state;
  }

  showSpeeds(state) {
    const before = this.previous;
    const elapsed = before ? state.uptime_seconds - before.uptime_seconds : 0;
    if (elapsed > 0) {
      const speed = (name) => Math.max(0, state.totals[name] - before.totals[name]) / elapsed;
      this.promptSpeed.add(speed("computed_tokens"));
      this.answerSpeed.add(speed("answer_tokens"));
    }
    const { prompt_tokens: asked, cached_tokens: hit } = state.totals;
    this.hitRate.add(asked > 0 ? (100 * hit) / asked : 0, 100);
  }

  showPages(state) {
    const counts = state.pages;
    this.part("legend").replaceChildren(...kPageKinds.map((kind) => {
      const item = element("li");
      item.dataset.tone = kind.tone;
      item.append(element("b", "", count.format(counts[kind.count])), ` ${kind.label}`);
      return item;
    }));
    const perCell = state.page_map.pages_per_cell;
    this.part("page-note").textContent =
      `${count.format(counts.total)} PAGEs of ${state.page_tokens} tokens` +
      (perCell > 1 ? `; a square is ${count.format(perCell)} of them` : "");
    this.part("page-map").setAttribute("aria-label",
      `PAGE map: ${kPageKinds.map((kind) => `${counts[kind.count]} ${kind.label}`).join(", ")}`);
    this.map = state.page_map.cells;
    this.drawMap();
  }

  drawMap() {
    const canvas = this.part("page-map");
    const width = canvas.clientWidth;
    if (!this.map || width === 0) return;
    // The largest squares, up to 14 px, with which the map stays within 220 px of height.
    let cell = 14;
    while (cell > 3 && Math.ceil(this.map.length / Math.floor(width / cell)) * cell > 220) --cell;
    const columns = Math.floor(width / cell);
    const height = Math.ceil(this.map.length / columns) * cell;
    const scale = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    canvas.style.height = `${height}px`;
    const style = getComputedStyle(document.documentElement);
    const gap = cell > 5 ? 2 : 1;
    const context = canvas.getContext("2d");
    context.scale(scale, scale);
    for (const kind of kPageKinds) {
      context.fillStyle = style.getPropertyValue(kind.tone === "used" ? "--accent" : `--${kind.tone}`);
      for (let at = this.map.indexOf(kind.sign); at >= 0; at = this.map.indexOf(kind.sign, at + 1)) {
        context.fillRect((at % columns) * cell, Math.floor(at / columns) * cell, cell - gap, cell - gap);
      }
    }
  }

  showRequests(state) {
    this.part("running").replaceChildren(...state.running.map((request) => {
      const row = element("tr");
      const { computed_tokens: computed, prompt_tokens: wanted } = request;
      const meter = element("td", "meter", `${count.format(computed)} / ${count.format(wanted)}`);
      const bar = element("i");
      bar.style.width = `${Math.min(100, (100 * computed) / Math.max(1, wanted))}%`;
      meter.append(bar);
      const id = element("td", "", String(request.id));
      id.title = String(request.id);
      row.append(id, element("td", "", request.state), meter,
                 element("td", "number", count.format(request.cached_tokens)),
                 element("td", "number", count.format(request.answer_tokens)));
      return row;
    }));
    const waiting = state.waiting > 0 ? `${count.format(state.waiting)} waiting` : "";
    this.part("queue-note").textContent = state.running.length === 0 && waiting === "" ? "Nothing runs." : waiting;
  }

  showMemory(memory) {
    const tone = (at) => String(Math.min(at, 3));
    this.part("memory-bar").replaceChildren(...memory.map((entry, at) => {
      const part = element("i");
      part.dataset.tone = tone(at);
      part.style.flexGrow = String(entry.bytes);
      return part;
    }));
    this.part("memory").replaceChildren(...memory.flatMap((entry, at) => {
      const name = element("dt", "", entry.name);
      name.dataset.tone = tone(at);
      return [name, element("dd", "", bytes(entry.bytes))];
    }));
  }

  showTotals(state) {
    const totals = state.totals;
    const rows = [
      ["up for", duration(state.uptime_seconds)],
      ["most tokens of a request", count.format(state.max_context)],
      ["requests", count.format(totals.requests)],
      ["prompt tokens", count.format(totals.prompt_tokens)],
      ["answer tokens", count.format(totals.answer_tokens)],
      ["steps", count.format(totals.steps)],
      ["preemptions", count.format(totals.preemptions)],
      ["PAGEs evicted", count.format(totals.evictions)],
    ];
    this.part("totals").replaceChildren(
      ...rows.flatMap(([name, value]) => [element("dt", "", name), element("dd", "", value)]));
  }
}
