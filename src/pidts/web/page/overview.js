// All tasks: those that need an operator first, each with its stage, and with its lag and rate now and over the last hour.

import { get } from "./api.js";
import { spark } from "./charts.js";
import { h } from "./dom.js";
import { listen } from "./live.js";
import { actionButtons, empty, errorBlock, hash, needs, needsOperator, stageLabel } from "./parts.js";
import * as words from "./words.js";

const FILTER_FROM = 8;

export function overview(page) {
  const state = { tasks: null, error: null, filter: "", doing: new Map() };
  const stages = new Map();

  function take({ tasks }) {
    for (const one of tasks) {
      const was = stages.get(one.name);
      if (was && was !== one.stage) page.speak(`${one.name} is ${words.stage(one.stage)}`);
      stages.set(one.name, one.stage);
    }
    state.tasks = tasks;
    state.error = null;
    page.redraw();
  }

  get("api/tasks").then(take, (error) => {
    state.error = page.failed(error);
    page.redraw();
  });
  const connection = listen("api/events", "api/tasks", { tasks: take }, page.connection);

  function replace(task) {
    state.tasks = state.tasks.map((one) => (one.name === task.name ? { ...one, ...task } : one));
  }

  function draw() {
    if (!state.tasks) return state.error ? errorBlock(state.error) : empty("Loading …");
    const sorted = [...state.tasks].sort(
      (one, other) => needsOperator(other) - needsOperator(one) || words.inOrder(one.name, other.name),
    );
    const words_ = state.filter.toLowerCase();
    const shown = sorted.filter((one) => !words_ || searched(one).includes(words_));
    return [
      h("div", { class: "title" }, h("h1", {}, "Tasks"), h("p", { class: "sum" }, summary(state.tasks))),
      attention(sorted.filter(needsOperator)),
      state.tasks.length >= FILTER_FROM || state.filter
        ? h("input", {
            type: "search",
            class: "filter", key: "filter",
            placeholder: "Filter by name, source, target or stage",
            "aria-label": "Filter tasks",
            on: {
              input: (event) => {
                state.filter = event.currentTarget.value;
                page.redraw();
              },
            },
          })
        : null,
      state.tasks.length ? table(page, state, shown, replace) : none(),
      state.tasks.length && !shown.length ? empty("No task matches the filter.") : null,
    ];
  }

  return {
    title: () => "",
    draw,
    alarms: () => (state.tasks ?? []).filter(needsOperator).length,
    close: () => connection.close(),
  };
}

function searched(task) {
  return [task.name, task.stage, words.stage(task.stage), task.target, ...(task.sources ?? [])].join(" ").toLowerCase();
}

function summary(tasks) {
  const rate = tasks.reduce((sum, one) => sum + (one.rate ?? 0), 0);
  const lags = tasks.map((one) => one.lag_seconds).filter((one) => one !== null && one !== undefined);
  const running = tasks.filter((one) => one.process).length;
  return [
    h("span", {}, `${words.count(running)} of ${words.plural(tasks.length, "task")} running`),
    h("span", {}, `${words.rate(rate)} rows/s`),
    lags.length ? h("span", {}, `largest lag ${words.lag(Math.max(...lags))}`) : null,
  ];
}

function attention(tasks) {
  if (!tasks.length) return null;
  return h(
    "section",
    { class: "attention", "aria-label": "Needs an operator" },
    h("h2", {}, "Needs an operator"),
    h(
      "ul",
      {},
      tasks.flatMap((task) =>
        needs(task).map(({ text, todo, view }) =>
          h(
            "li",
            { key: `${task.name} ${view}` },
            h("a", { href: hash(task.name, view) }, h("strong", {}, task.name), " ", text),
            todo && h("span", { class: "todo" }, todo),
          ),
        ),
      ),
    ),
  );
}

function none() {
  return h(
    "div",
    { class: "empty" },
    h("p", {}, "There is no task yet."),
    h("p", {}, h("a", { class: "button main", href: "#/new" }, "Create a task")),
    h("p", {}, "Or on the command line: ", h("code", {}, "pidts init SOURCE_URL TARGET_URL"), ", then ", h("code", {}, "pidts start TASK"), "."),
  );
}

function table(page, state, tasks, replace) {
  const head = ["Task", "Stage", "Lag", "Rate", "Now", ""].map((text) =>
    h("th", { scope: "col", role: "columnheader" }, text || h("span", { class: "unseen" }, "Actions")),
  );
  return h(
    "table",
    { class: "tasks", role: "table", "aria-label": "Tasks" },
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, head)),
    h("tbody", { role: "rowgroup" }, tasks.map((task) => row(page, state, task, replace))),
  );
}

function row(page, state, task, replace) {
  if (!state.doing.has(task.name)) state.doing.set(task.name, { doing: "", error: null });
  const doing = state.doing.get(task.name);
  const lines = task.last_hour ?? { lag: [], rate: [] };
  const cell = (kind, ...children) => h("td", { class: kind, role: "cell" }, ...children);
  return h(
    "tr",
    { key: task.name, role: "row", class: needsOperator(task) ? "alarm" : "" },
    h(
      "th",
      { class: "name", scope: "row", role: "rowheader" },
      h("a", { href: hash(task.name) }, task.name),
      h("span", { class: "places" }, `${(task.sources ?? []).join(", ")} → ${task.target ?? ""}`),
    ),
    cell("stage-cell", stageLabel(task), h("span", { class: "since" }, task.since ? `for ${words.duration(Date.now() / 1000 - task.since)}` : "")),
    cell("figure lag", h("b", {}, words.lag(task.lag_seconds)), hour(lines.lag, "Lag", words.lag)),
    cell("figure rate", h("b", {}, words.rate(task.rate), h("small", {}, " rows/s")), hour(lines.rate, "Rate", (one) => `${words.rate(one)} rows/s`)),
    cell("now", now(task), errorBlock(doing.error)),
    cell("buttons", actionButtons(page, task, doing, replace)),
  );
}

function hour(values, label, show) {
  const known = values.filter((one) => one !== null);
  if (!known.length) return h("span", { class: "spark none" });
  return spark(values, { says: `${label} over the last hour: highest ${show(Math.max(...known))}` });
}

function now(task) {
  if (task.next_start) {
    const left = task.next_start - Date.now() / 1000;
    return h("span", {}, `${task.error?.what ?? "It ended"}. Starts again ${left > 1 ? `in ${words.duration(left)}` : "now"}.`);
  }
  if (task.stage === "copy" && task.copy) {
    const { copied, estimate, tables, done, eta_seconds: eta } = task.copy;
    return [
      h("progress", { max: Math.max(estimate, copied, 1), value: copied, "aria-label": "Rows copied" }),
      h("span", {}, `${done} of ${words.plural(tables, "table")}`, eta ? `, ${words.duration(eta)} to go` : ""),
    ];
  }
  return h("span", {}, words.capital(task.message ?? ""));
}
