// What a task does now: problems that need an operator, the stages of a change and the slowest one, charts of the last
// hour, and the newest schema changes.

import { get } from "../api.js";
import { chart } from "../charts.js";
import { h } from "../dom.js";
import { errorBlock, hash, needs, needsOperator, sql } from "../parts.js";
import * as words from "../words.js";

const CHANGES_SHOWN = 8;
const LOG_LINES = 1000;

export function now(shared) {
  let applied = [];

  // The task's log has a line for each schema change that the target has run.
  async function load() {
    try {
      const { lines } = await get(`${shared.path("logs")}?limit=${LOG_LINES}`);
      applied = lines.filter(isChange).map(changeOf).reverse();
      shared.page.redraw();
    } catch {
      applied = []; // the log's own tab shows why the log cannot be read
    }
  }

  return {
    shown: load,
    again: load,
    add(line) {
      if (isChange(line)) applied = [changeOf(line), ...applied];
    },
    draw() {
      const task = shared.task();
      const progress = task.progress ?? {};
      return [
        attention(task),
        progress.cause && !task.error ? errorBlock(progress.cause, "The task waits, and continues by itself") : null,
        task.message && task.message !== task.error?.what ? h("p", { class: "message" }, words.capital(task.message)) : null,
        stages(task),
        numbers(task, progress),
        charts(task),
        changes(task.changes ?? applied),
        sources(progress),
      ];
    },
  };
}

const isChange = (line) => line.event === "schema change applied" && line.statement;

function changeOf(line) {
  return { at: Date.parse(line.timestamp ?? line.ts) / 1000, table: line.source ?? "", statement: line.statement, result: "applied" };
}

function attention(task) {
  if (!needsOperator(task) && !task.error) return null;
  const halts = task.progress?.halted ?? [];
  const heading = needsOperator(task) ? "Needs an operator" : task.stage === "cut-over" ? "The task is over" : "The last run ended with an error";
  return h(
    "section",
    { class: task.stage === "cut-over" ? "" : "attention", "aria-label": heading },
    h("h2", {}, heading),
    h(
      "ul",
      {},
      halts.slice(0, 5).map((halt) =>
        h(
          "li",
          { key: `${halt.source ?? ""} ${halt.lsn} ${halt.tables}` },
          h("a", { href: hash(task.name, "schema") }, h("strong", {}, halt.tables.join(", ") || "All tables"), " ", halt.what),
          halt.statement ? sql(halt.statement) : null,
          halt.todo && h("span", { class: "todo" }, halt.todo),
        ),
      ),
      halts.length > 5 ? h("li", {}, h("a", { href: hash(task.name, "schema") }, `and ${halts.length - 5} more`)) : null,
      needs(task)
        .filter((one) => one.view !== "schema" || !halts.length)
        .map((one) =>
          h(
            "li",
            { key: one.view },
            one.view === "now" ? words.capital(one.text) : h("a", { href: hash(task.name, one.view) }, words.capital(one.text)),
            one.todo && h("span", { class: "todo" }, one.todo),
            one.code && h("code", { class: "code" }, one.code),
          ),
        ),
    ),
    h("p", { class: "links" }, h("a", { href: hash(task.name, "log") }, "Log"), h("a", { href: hash(task.name, "file") }, "Task file")),
  );
}

// The unit of each stage's rate.
const RATES = {
  source: (number) => `${words.bytes(number)}/s`,
  relay: (number) => `${words.bytes(number)}/s`,
  plan: (number) => `${words.rate(number)} batches/s`,
  apply: (number) => `${words.rate(number)} rows/s`,
  target: (number) => `${words.rate(number)} rows/s`,
};

const STAGES = { source: "Source", relay: "Relay", plan: "Plan", apply: "Apply", target: "Target" };

function icon(name) {
  const shapes = {
    source: ["M4 6c0-2 16-2 16 0v12c0 2-16 2-16 0zM4 6c0 2 16 2 16 0M4 12c0 2 16 2 16 0"],
    relay: ["M4 5h16M4 10h16M4 15h16M4 20h10"],
    plan: ["M5 5h5v5H5zM14 14h5v5h-5zM10 7.500h6.500v6.500"],
    apply: ["M4 12h13M12 6l6 6-6 6M21 5v14"],
    target: ["M4 6c0-2 16-2 16 0v12c0 2-16 2-16 0zM4 6c0 2 16 2 16 0M8.500 14.500l2.500 2.500 5-5"],
  };
  return h("svg", { class: "icon", viewBox: "0 0 24 24", "aria-hidden": "true" }, shapes[name].map((d) => h("path", { d })));
}

// Returns the stages of a task that has not measured them yet. Only their places, the lag and the rate are known.
function outline(task) {
  const relay = (task.progress?.sources ?? []).map((one) => one.relay_bytes).filter((one) => one !== null && one !== undefined);
  return [
    { name: "source", place: (task.sources ?? []).join(", ") },
    { name: "relay", place: relay.length ? words.bytes(relay.reduce((sum, one) => sum + one, 0)) : "" },
    { name: "apply", rate: task.rate },
    { name: "target", place: task.target ?? "", lag_seconds: task.lag_seconds },
  ];
}

/** Returns the stages that a change goes through. Values that a stage does not have are left out. */
function stages(task) {
  const found = task.progress?.road ?? task.road ?? null;
  const known = new Map((found?.stages?.length ? found.stages : outline(task)).map((one) => [one.name, one]));
  const slow = found?.slow ?? null;
  return h(
    "section",
    { "aria-label": "The stages of a change" },
    h(
      "ol",
      { class: "stages" },
      Object.entries(STAGES).map(([name, text]) => {
        const stage = known.get(name) ?? {};
        const isSlow = slow?.name === name;
        return h(
          "li",
          { class: isSlow ? "slow" : "", "data-stage": name },
          h("div", { class: "stop" }, icon(name), h("h3", {}, text), isSlow ? h("span", { class: "tag" }, "slowest") : null),
          h("p", { class: "where" }, stage.place ?? ""),
          h(
            "dl",
            {},
            pair("Rate", stage.rate === null || stage.rate === undefined ? null : RATES[name](stage.rate)),
            pair("Lag", stage.lag_seconds === null || stage.lag_seconds === undefined ? null : words.lag(stage.lag_seconds)),
            pair("Busy", stage.busy === null || stage.busy === undefined ? null : busy(stage.busy)),
          ),
          stage.detail ? h("p", { class: "detail" }, stage.detail) : null,
        );
      }),
    ),
    found?.source && task.sources?.length > 1 ? h("p", { class: "explain" }, `The source that is the furthest behind: ${found.source}.`) : null,
    slow ? h("p", { class: "slow-why" }, h("strong", {}, `Slowest: ${(STAGES[slow.name] ?? slow.name).toLowerCase()}. `), words.capital(slow.why)) : null,
  );
}

function busy(share) {
  const percent = Math.round(Math.min(1, Math.max(0, share)) * 100);
  return [h("span", { class: "percent" }, `${percent} %`), h("progress", { max: 100, value: percent, "aria-hidden": "true" })];
}

function pair(term, value) {
  return value === null ? null : h("div", { key: term }, h("dt", {}, term), h("dd", {}, value));
}

function numbers(task, progress) {
  const counts = progress.rows ?? {};
  const names = { stale: "skipped as older", removed: "extra deleted" };
  const shown = Object.entries(counts).filter(([name, number]) => number || ["inserted", "updated", "deleted"].includes(name));
  return h(
    "dl",
    { class: "numbers" },
    pair("Lag", words.lag(task.lag_seconds)),
    pair("Oldest waiting change", task.held_lag_seconds === null || task.held_lag_seconds === undefined ? null : words.lag(task.held_lag_seconds)),
    pair("Rows a second", words.rate(task.rate)),
    shown.map(([name, number]) => pair(words.capital(names[name] ?? name), words.count(number))),
    progress.batches === undefined ? null : pair("Batches", words.count(progress.batches)),
    progress.seconds === undefined ? null : pair("This run", words.duration(progress.seconds)),
    task.copy && task.copy.done < task.copy.tables ? pair("Copied", `${task.copy.done} of ${words.plural(task.copy.tables, "table")}`) : null,
  );
}

function charts(task) {
  const lines = task.last_hour;
  if (!lines || !lines.lag?.length) return null;
  return h(
    "div",
    { class: "charts" },
    chart(lines.lag, { everySeconds: lines.every_seconds, label: "Lag", show: words.lag }),
    chart(lines.rate, { everySeconds: lines.every_seconds, label: "Rows a second", show: words.rate }),
  );
}

function changes(found) {
  if (!found.length) return null;
  return h(
    "section",
    { class: "changes" },
    h("h2", {}, "Recent schema changes"),
    h(
      "ul",
      {},
      found.slice(0, CHANGES_SHOWN).map((one) =>
        h(
          "li",
          { key: `${one.at} ${one.table} ${one.statement}` },
          h("span", { class: "when", title: words.moment(one.at) }, words.ago(one.at)),
          h("span", { class: "table-name" }, one.table ?? ""),
          sql(one.statement),
          h("span", { class: "result" }, one.result ?? ""),
        ),
      ),
    ),
  );
}

function sources(progress) {
  const found = progress.sources ?? [];
  if (!found.length) return null;
  return h(
    "section",
    { class: "sources-list" },
    h("h2", {}, found.length > 1 ? "Sources" : "Source"),
    h(
      "ul",
      {},
      found.map((one) => {
        const applied = one.applied ?? {};
        return h(
          "li",
          { key: one.source },
          h("strong", {}, one.source),
          h("span", {}, words.stage(one.stage)),
          h("span", {}, `lag ${words.lag(one.lag_seconds)}`),
          applied.file ? h("span", { class: "mono" }, `applied up to ${applied.file}:${applied.position}`) : null,
          applied.gtid ? h("span", { class: "mono gtid" }, applied.gtid) : null,
          one.relay_bytes === null || one.relay_bytes === undefined ? null : h("span", {}, `relay ${words.bytes(one.relay_bytes)}`),
          one.not_receiving ? errorBlock(one.not_receiving.error ?? one.not_receiving, "It receives nothing") : null,
        );
      }),
    ),
  );
}
