// Long operations of a task (check, plan, verify, repair): begins them, shows their progress, and keeps the newest
// result.

import { ask, get, post } from "../api.js";
import { h } from "../dom.js";
import { button, errorBlock } from "../parts.js";
import * as words from "../words.js";

const EVERY_SECONDS = 1;

/** Follows the runs of these kinds. */
export function runs(shared, kinds) {
  const state = { list: [], one: null, error: null, starting: false };
  let timer = null;
  let closed = false;

  async function load() {
    try {
      const found = await get(shared.path("runs"));
      state.list = (found.runs ?? found).filter((one) => kinds.includes(one.kind));
      const newest = state.list[0];
      if (newest) await open(newest.id);
    } catch (error) {
      failed(error);
    }
    shared.page.redraw();
  }

  async function open(id) {
    state.one = await get(shared.path("runs", id));
    follow();
    shared.page.redraw();
  }

  function follow() {
    clearTimeout(timer);
    if (closed || state.one?.state !== "running") return;
    timer = setTimeout(async () => {
      try {
        await open(state.one.id);
        if (state.one.state !== "running") {
          shared.page.speak(`${state.one.kind} has ended`);
          state.list = state.list.map((one) => (one.id === state.one.id ? { ...one, ...state.one } : one));
        }
      } catch (error) {
        if (error.status) failed(error); // while the service does not answer, the page asks again
        else follow();
      }
      shared.page.redraw();
    }, EVERY_SECONDS * 1000);
  }

  function failed(error) {
    if (error.status) state.error = shared.page.failed(error);
  }

  async function begin(kind, options) {
    state.starting = true;
    state.error = null;
    shared.page.redraw();
    try {
      const { id } = await post(shared.path("runs"), { kind, options });
      state.one = { id, kind, state: "running", begun: Date.now() / 1000 };
      state.list = [state.one, ...state.list];
      await open(id);
    } catch (error) {
      failed(error);
    }
    state.starting = false;
    shared.page.redraw();
  }

  async function cancel() {
    try {
      await ask("DELETE", shared.path("runs", state.one.id));
      await open(state.one.id);
    } catch (error) {
      failed(error);
    }
    shared.page.redraw();
  }

  return {
    load,
    open,
    begin,
    list: () => state.list,
    one: () => state.one,
    close() {
      closed = true;
      clearTimeout(timer);
    },
    /** Returns the button that begins a run. */
    launch: (kind, text, options, style = "") =>
      button(text, () => begin(kind, options), {
        kind: style,
        key: `launch ${kind}`,
        disabled: state.starting || state.one?.state === "running",
        "data-run": kind,
      }),
    /** Returns the newest run: what it does now, its error, or its report, drawn by `report`. */
    shown(report) {
      const { one } = state;
      return h(
        "div",
        { class: "run", role: "status", key: "run" },
        errorBlock(state.error),
        one ? headline(one, cancel) : null,
        one?.error ? errorBlock(one.error) : null,
        one?.report ? report(one.report, one) : null,
      );
    },
  };
}

const NAMES = { check: "Check", plan: "Plan", verify: "Comparison", repair: "Repair" };

function headline(one, cancel) {
  const name = NAMES[one.kind] ?? one.kind;
  if (one.state === "running") {
    return h(
      "p",
      { class: "running" },
      h("progress", { "aria-label": `${name} is running` }),
      h("span", {}, `${name}, ${words.duration(Date.now() / 1000 - one.begun)}. ${one.progress ?? ""}`),
      button("Cancel", cancel, { kind: "quiet" }),
    );
  }
  const took = one.ended && one.begun ? `, took ${words.duration(one.ended - one.begun)}` : "";
  const how = one.cancelled ? ", cancelled" : one.state === "failed" && !one.error ? `, failed${one.progress ? `: ${one.progress}` : ""}` : "";
  return h("p", { class: "explain" }, `${name} of ${words.moment(one.begun)}${took}${how}`);
}
