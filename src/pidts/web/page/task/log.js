// The log of a task: its newest lines, filtered by level and words, and the lines before them on request.

import { get } from "../api.js";
import { h, patch } from "../dom.js";
import { button, empty, errorBlock } from "../parts.js";
import * as words from "../words.js";

const LINES = 200;
const KEPT = 2000;
const LEVELS = ["debug", "info", "warning", "error"];
const SAID_ELSEWHERE = new Set(["ts", "timestamp", "level", "event", "logger"]);

export function log(shared) {
  const state = { lines: [], error: null, level: "", filter: "", loaded: false, atBeginning: false, follows: true };
  let number = 0;
  const box = h("div", {
    class: "log-box",
    role: "log",
    "aria-live": "off",
    "aria-label": "Log lines",
    tabindex: "0",
    own: true,
    key: "log",
    on: { scroll: () => { state.follows = box.scrollTop + box.clientHeight > box.scrollHeight - 8; } },
  });

  const numbered = (line) => ({ ...line, number: (number += 1) });

  async function load() {
    try {
      const found = await get(`${shared.path("logs")}?limit=${LINES}${state.level ? `&level=${state.level}` : ""}`);
      state.lines = found.lines.map(numbered);
      state.atBeginning = found.lines.length < LINES;
      state.loaded = true;
      state.error = null;
    } catch (error) {
      if (error.status) state.error = shared.page.failed(error);
    }
    show();
    shared.page.redraw();
  }

  async function before() {
    const first = state.lines[0];
    if (!first) return;
    try {
      const at = encodeURIComponent(first.ts ?? first.timestamp);
      const found = await get(`${shared.path("logs")}?limit=${LINES}&before=${at}${state.level ? `&level=${state.level}` : ""}`);
      state.atBeginning = found.lines.length < LINES;
      state.lines = [...found.lines.map(numbered), ...state.lines];
    } catch (error) {
      state.error = shared.page.failed(error);
    }
    const fromEnd = box.scrollHeight - box.scrollTop;
    show();
    box.scrollTop = box.scrollHeight - fromEnd; // the lines that were being read stay in place
    shared.page.redraw();
  }

  function show() {
    const wanted = state.filter.toLowerCase();
    const shown = state.lines.filter((one) => matches(one, state.level) && (!wanted || JSON.stringify(one).toLowerCase().includes(wanted)));
    patch(box, shown.map(lineOf));
    // The box may not be in the document yet.
    if (state.follows) requestAnimationFrame(() => { box.scrollTop = box.scrollHeight; });
  }

  function changed(name, load_) {
    return (event) => {
      state[name] = event.currentTarget.value;
      if (load_) load();
      else show();
      shared.page.redraw();
    };
  }

  function draw() {
    return [
      h(
        "div",
        { class: "log-head" },
        h("label", { class: "inline", key: "inline" }, "Level ", h("select", { on: { change: changed("level", true) } }, h("option", { value: "" }, "all"), LEVELS.slice(1).map((name) => h("option", { value: name }, `${name} and above`.replace("error and above", "error"))))),
        h("input", { type: "search", class: "filter", key: "filter", placeholder: "Filter lines", "aria-label": "Filter lines", on: { input: changed("filter", false) } }),
        state.atBeginning || !state.lines.length ? null : button("Earlier lines", before),
      ),
      errorBlock(state.error),
      state.loaded && !state.lines.length ? empty("The log has no lines yet.") : null,
      box,
    ];
  }

  return {
    draw,
    shown: load,
    again: load,
    add(line) {
      if (!state.loaded) return;
      state.lines.push(numbered(line));
      if (state.lines.length > KEPT) state.lines.splice(0, state.lines.length - KEPT);
      show();
    },
  };
}

function matches(line, level) {
  return !level || LEVELS.indexOf(line.level ?? "info") >= LEVELS.indexOf(level);
}

function lineOf(line) {
  const more = Object.entries(line).filter(([name]) => !SAID_ELSEWHERE.has(name) && name !== "number");
  const at = line.ts ?? line.timestamp;
  return h(
    "p",
    { key: line.number, class: `at-${line.level ?? "info"}` },
    h("time", { title: words.moment(at) }, words.clock(at)),
    h("span", { class: "level" }, line.level ?? ""),
    h("span", { class: "event" }, line.event ?? ""),
    more.length ? h("span", { class: "more" }, more.map(([name, value]) => `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`).join("  ")) : null,
  );
}
