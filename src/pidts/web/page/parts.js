// Parts that several views use: the stage of a task, an error, the buttons of a task, a preview with its confirmation.

import { post, taskPath } from "./api.js";
import { h } from "./dom.js";
import * as words from "./words.js";

/** Returns the address of a task's view. */
export function hash(name, ...rest) {
  return ["#/tasks", encodeURIComponent(name), ...rest].join("/");
}

const KINDS = { halted: "alarm", failed: "alarm", sync: "good", synced: "good", "cut-over": "good", copy: "busy", starting: "busy", waiting: "busy" };

/** Returns the stage of a task as a small label; its colour repeats what the word says. */
export function stageLabel(task) {
  const kind = KINDS[task.stage] ?? "still";
  const isMarked = kind !== "alarm" && needsOperator(task);
  // A task with halted tables still carries the changes of its other tables.
  const text = task.stage === "sync" && task.halted ? `${words.plural(task.halted, "table")} halted` : words.stage(task.stage);
  return h("span", { class: `stage ${isMarked ? "mark" : kind}` }, text);
}

/** Tells whether a person has to do something for this task. */
export function needsOperator(task) {
  return Boolean(task.needs_operator || task.stage === "halted" || task.stage === "failed");
}

/** Returns the problems that need an operator: for each a text, and the view in which it is resolved. */
export function needs(task) {
  const found = [];
  if (task.halted) {
    found.push({ text: words.plural(task.halted, "halted table"), view: "schema" });
  }
  if (task.locked_rows) {
    found.push({ text: `${words.plural(task.locked_rows, "row")} set aside`, view: "rows" });
  }
  // While the task runs, its error only repeats that tables are halted. A run that has ended may have another error.
  const halts = task.progress?.halted ?? [];
  const isRepeated = task.halted && (task.process || halts.some((one) => one.what === task.error?.what));
  if (task.error && !isRepeated) found.push({ text: task.error.what, todo: task.error.todo, code: task.error.code, view: "now" });
  if (!found.length && needsOperator(task)) found.push({ text: task.message || `the task is ${words.stage(task.stage)}`, view: "now" });
  return found;
}

/** Returns an error in the form that all errors have: what, where, what to do. */
export function errorBlock(error, heading = "") {
  if (!error) return null;
  const where = words.place(error.where);
  return h(
    "div",
    { class: "error", role: "alert" },
    heading && h("strong", {}, heading),
    h("p", { class: "what" }, words.capital(error.what), where && ` (${where})`),
    error.todo && h("p", { class: "todo" }, error.todo),
    error.code && h("code", { class: "code" }, error.code),
  );
}

/** Returns a button. `kind` is "main" for the most important button of a view. */
export function button(text, click, { kind = "", disabled = false, key, ...more } = {}) {
  return h("button", { type: "button", class: kind, disabled, key, on: { click }, ...more }, text);
}

const ACTIONS = {
  start: { text: "Start", doing: "starting", done: "will start" },
  pause: { text: "Pause", doing: "pausing", done: "pauses at the end of a transaction" },
  resume: { text: "Resume", doing: "resuming", done: "will resume" },
  stop: { text: "Stop", doing: "stopping", done: "stops at the end of a transaction" },
};

/** Returns the names of the actions that make sense for a task now. */
export function actionsFor(task) {
  if (task.wanted === "stopped") return ["start"];
  if (task.wanted === "paused") return ["resume", "stop"];
  const ended = !task.process && ["failed", "halted", "synced", "stopped", "cut-over"].includes(task.stage);
  return ended ? ["start", "stop"] : ["pause", "stop"];
}

/** Returns the buttons that start, pause, resume and stop a task. `state` has the action that is under way. */
export function actionButtons(page, task, state, done) {
  return actionsFor(task).map((name) => {
    const { text, doing, done: result } = ACTIONS[name];
    const run = async () => {
      state.doing = name;
      state.error = null;
      page.redraw();
      try {
        done(await post(taskPath(task.name, name)));
        page.speak(`${task.name} ${result}`);
      } catch (error) {
        state.error = error;
      }
      state.doing = "";
      page.redraw();
    };
    const isDoing = state.doing === name;
    const kind = name === "start" || name === "resume" ? "main" : "";
    return button(isDoing ? `${words.capital(doing)} …` : text, run, {
      kind,
      key: name,
      disabled: Boolean(state.doing),
      "data-action": name,
    });
  });
}

/** Returns a labelled field. */
export function field(label, input, hint = "") {
  return h("label", { class: "field", key: `field ${label}` }, h("span", { class: "label" }, label), input, hint && h("span", { class: "hint" }, hint));
}

/** Returns the verdicts of a check, failures first. */
export function findings(found) {
  const order = (one) => (one.ok ? (one.fix ? 1 : 2) : 0);
  const sorted = [...found].sort((one, other) => order(one) - order(other));
  return h(
    "ul",
    { class: "findings" },
    sorted.map((one) =>
      h(
        "li",
        { class: one.ok ? (one.fix ? "hint" : "ok") : "failed" },
        h("span", { class: "verdict" }, one.ok ? (one.fix ? "hint" : "ok") : "failed"),
        h(
          "div",
          {},
          h("strong", {}, one.item),
          " ",
          one.message,
          one.fix && h("p", { class: "todo" }, `Fix: ${one.fix}`),
          one.ignored_by && h("p", { class: "todo" }, `Or, at your own risk: ${one.ignored_by}`),
        ),
      ),
    ),
  );
}

/** Returns the text that is shown in a view without contents. */
export function empty(text, ...more) {
  return h("p", { class: "empty" }, text, ...more);
}

/** Returns SQL as the source or the target gets it. */
export function sql(statement) {
  return h("code", { class: "sql" }, statement);
}

/** Returns a button that asks once more before it acts. The question takes the button's place. */
export function twice(page, state, name, { text, question, yes, act }) {
  if (state.asked !== name) {
    return button(text, () => {
      state.asked = name;
      page.redraw();
    }, { kind: "quiet", key: `${name}-ask` });
  }
  const close = () => {
    state.asked = "";
    page.redraw();
  };
  return h(
    "span",
    { class: "twice", role: "group", "aria-label": question, key: `${name}-asked` },
    h("span", {}, question),
    button(yes, () => {
      close();
      act();
    }, { kind: "alarm" }),
    button("No", close),
  );
}
