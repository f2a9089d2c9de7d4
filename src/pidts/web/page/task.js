// One task: its head with the buttons, its tabs, and the connection that keeps it up to date.

import { ask, get, taskPath } from "./api.js";
import { h } from "./dom.js";
import { listen } from "./live.js";
import { actionButtons, empty, errorBlock, hash, needsOperator, stageLabel, twice } from "./parts.js";
import * as words from "./words.js";
import { file } from "./task/file.js";
import { log } from "./task/log.js";
import { now } from "./task/now.js";
import { rows } from "./task/rows.js";
import { schema } from "./task/schema.js";
import { tables } from "./task/tables.js";
import { verify } from "./task/verify.js";

const TABS = {
  now: { text: "Now", open: now },
  tables: { text: "Tables", open: tables },
  schema: { text: "Schema changes", open: schema, count: (task) => task.halted },
  rows: { text: "Rows set aside", open: rows, count: (task) => task.locked_rows },
  verify: { text: "Verify", open: verify },
  log: { text: "Log", open: log },
  file: { text: "Task file", open: file },
};

const CHARTS_SECONDS = 20;

export function task(page, name, first) {
  const state = { task: null, error: null, removed: false, doing: { doing: "", error: null }, asked: {} };
  const opened = {};
  let tab = "";
  let connection = null;
  let timer = null;

  /** The functions of the task's view that its tabs may call. */
  const shared = {
    name,
    page,
    path: (...rest) => taskPath(name, ...rest),
    task: () => state.task,
    replace: take,
  };

  function take(fresh) {
    if (!fresh || fresh.name !== name) return;
    const was = state.task;
    state.task = { ...was, ...fresh };
    if (was && was.stage !== fresh.stage) page.speak(`${name} is ${words.stage(fresh.stage)}`);
    state.error = null;
    opened[tab]?.changed?.(was, state.task);
    page.redraw();
  }

  async function load() {
    try {
      take(await get(taskPath(name)));
    } catch (error) {
      if (error.status) state.error = page.failed(error);
      page.redraw();
    }
  }

  function connect() {
    connection = listen(
      taskPath(name, "events"),
      taskPath(name),
      {
        task: take,
        log: (line) => ["now", "log"].forEach((one) => opened[one]?.add(line)),
        removed: () => {
          state.removed = true;
          connection.close();
          page.redraw();
        },
      },
      (found) => {
        if (found.state === "refused" && found.error.status === 404) state.removed = true;
        if (found.state === "live") {
          load();
          opened[tab]?.again?.();
        }
        page.connection(found);
      },
    );
  }

  function show(wanted) {
    tab = TABS[wanted] ? wanted : "now";
    opened[tab] ??= TABS[tab].open(shared);
    opened[tab].shown?.();
    // On a narrow screen the tabs scroll, and the chosen one may be out of sight.
    setTimeout(() => document.querySelector(".tabs [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" }), 50);
  }

  async function remove() {
    try {
      await ask("DELETE", taskPath(name));
      page.speak(`${name} was deleted`);
      page.go("#/");
    } catch (error) {
      state.doing.error = page.failed(error);
      page.redraw();
    }
  }

  function draw() {
    if (state.removed) return [empty(`The task ${name} does not exist any more. `, h("a", { href: "#/" }, "All tasks"))];
    if (!state.task) return state.error ? errorBlock(state.error) : empty("Loading …");
    const { task: current } = state;
    return [
      h(
        "div",
        { class: "title task" },
        h("h1", {}, name, " ", stageLabel(current)),
        h(
          "div",
          { class: "buttons" },
          actionButtons(page, current, state.doing, take),
          current.wanted === "stopped" && !current.process
            ? twice(page, state.asked, "delete", {
                text: "Delete",
                question: "Delete this task? Its relay and its records on the target stay.",
                yes: "Delete it",
                act: remove,
              })
            : null,
        ),
        h("p", { class: "places" }, `${(current.sources ?? []).join(", ")} → ${current.target ?? ""}`, h("span", { class: "since" }, since(current))),
      ),
      errorBlock(state.doing.error),
      tabs(current, tab),
      h("section", { key: `tab ${tab}`, class: `tab of-${tab}`, "aria-label": TABS[tab].text }, opened[tab].draw()),
    ];
  }

  connect();
  load();
  show(first);
  timer = setInterval(load, CHARTS_SECONDS * 1000);

  return {
    title: () => (tab === "now" ? name : `${name}: ${TABS[tab].text}`),
    alarms: () => (state.task && needsOperator(state.task) ? 1 : 0),
    takes(other, wanted) {
      if (other !== name) return false;
      show(wanted);
      return true;
    },
    draw,
    close() {
      clearInterval(timer);
      connection.close();
      for (const one of Object.values(opened)) one.close?.();
    },
  };
}

function since(task) {
  const parts = [task.since ? `${words.stage(task.stage)} for ${words.duration(Date.now() / 1000 - task.since)}` : ""];
  const starts = task.process || task.next_start ? task.restarts : task.restarts - 1; // the end of a last run is no start
  if (starts > 0) parts.push(`restarted ${words.plural(starts, "time")}`);
  if (task.mode) parts.push(`mode ${task.mode}`);
  return parts.filter(Boolean).join(", ");
}

function tabs(task, shown) {
  return h(
    "nav",
    { class: "tabs", "aria-label": `Views of ${task.name}` },
    Object.entries(TABS).map(([name, { text, count }]) => {
      const number = count?.(task);
      return h(
        "a",
        { href: hash(task.name, name), "aria-current": name === shown ? "page" : null },
        text,
        number ? h("span", { class: "number" }, words.count(number)) : null,
      );
    }),
  );
}
