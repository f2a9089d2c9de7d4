// The tables of a task: how much of each table is copied, the time left, and what the task does with each (the plan).

import { post } from "../api.js";
import { h } from "../dom.js";
import { empty, errorBlock, field, sql, twice } from "../parts.js";
import * as words from "../words.js";
import { runs } from "./runs.js";

const SHOWN = 300;

const PHASES = {
  extras: "looking for rows that the source does not have",
  reread: "reading rows again whose keys have changed",
  finish: "creating keys",
};

export function tables(shared) {
  const state = { filter: "", error: null, again: "", asked: "" };
  const plan = runs(shared, ["plan"]);

  async function copyAgain() {
    state.error = null;
    try {
      shared.replace(await post(shared.path("start"), { resync: state.again.split(/[\s,]+/).filter(Boolean) }));
      state.again = "";
    } catch (error) {
      state.error = shared.page.failed(error);
    }
    shared.page.redraw();
  }

  function draw() {
    const task = shared.task();
    const all = task.progress?.tables ?? [];
    const wanted = state.filter.toLowerCase();
    const found = all.filter((one) => !wanted || `${one.source ?? ""} ${one.name}`.toLowerCase().includes(wanted)).sort(byTurn);
    return [
      all.length ? copySummary(task, all) : null,
      all.length > 8
        ? h("input", {
            type: "search",
            class: "filter", key: "filter",
            placeholder: "Filter tables",
            "aria-label": "Filter tables",
            on: {
              input: (event) => {
                state.filter = event.currentTarget.value;
                shared.page.redraw();
              },
            },
          })
        : null,
      all.length ? copyTable(found) : empty("The task has not reported its tables yet."),
      found.length > SHOWN ? empty(`And ${words.count(found.length - SHOWN)} more; the filter finds them.`) : null,
      h(
        "section",
        { class: "plan" },
        h("h2", {}, "Plan"),
        h("p", { class: "explain" }, "The plan shows what the task does with each table: the target's types, its SQL, and values that will differ. It changes nothing."),
        plan.launch("plan", "Show the plan", {}),
        plan.shown(planReport),
      ),
      task.wanted === "stopped" && !task.process
        ? h(
            "section",
            {},
            h("h2", {}, "Copy tables again"),
            field(
              "Tables",
              h("input", { type: "text", placeholder: "shop.orders, shop.items", spellcheck: "false", on: { input: (event) => { state.again = event.currentTarget.value; shared.page.redraw(); } } }),
              "The source's rows overwrite those of the target; rows that the source does not have are deleted there.",
            ),
            state.again.trim()
              ? twice(shared.page, state, "resync", { text: "Start and copy again", question: `Copy ${state.again} again?`, yes: "Copy again", act: copyAgain })
              : null,
            errorBlock(state.error),
          )
        : null,
    ];
  }

  return { draw, again: plan.load, shown: plan.load, close: plan.close };
}

// Tables that are being copied come first, then tables that wait for their copy, then copied tables.
function byTurn(one, other) {
  const turn = (table) => (table.done ? 2 : table.copied || (table.phase && table.phase !== "rows") ? 0 : 1);
  return turn(one) - turn(other) || words.inOrder(one.name, other.name) || words.inOrder(one.source ?? "", other.source ?? "");
}

function copySummary(task, all) {
  const done = all.filter((one) => one.done).length;
  if (done === all.length) return h("p", { class: "message" }, `The rows of all ${words.plural(all.length, "table")} are copied. Changes follow.`);
  const { copy_rate: rate, eta_seconds: eta } = task.progress ?? {};
  return h(
    "p",
    { class: "message" },
    `${words.count(done)} of ${words.plural(all.length, "table")} copied`,
    rate ? `, ${words.rate(rate)} rows/s` : "",
    eta ? `, ${words.duration(eta)} to go` : "",
  );
}

function copyTable(found) {
  const cell = (kind, ...children) => h("td", { class: kind, role: "cell" }, ...children);
  return h(
    "table",
    { class: "copy", role: "table", "aria-label": "Copy progress of each table" },
    h(
      "thead",
      { role: "rowgroup" },
      h("tr", { role: "row" }, ["Table", "Copied", "Rows", "Rows/s", "To go"].map((text) => h("th", { scope: "col", role: "columnheader" }, text))),
    ),
    h(
      "tbody",
      { role: "rowgroup" },
      found.slice(0, SHOWN).map((one) => {
        const total = Math.max(one.estimate, one.copied);
        const busy = one.phase && one.phase !== "rows" ? (PHASES[one.phase] ?? one.phase) : "";
        return h(
          "tr",
          { key: `${one.source ?? ""} ${one.name}`, role: "row", class: one.done ? "done" : "" },
          h("th", { scope: "row", role: "rowheader" }, one.source ? h("span", { class: "of-source" }, `${one.source}: `) : null, one.name),
          cell("bar", one.done ? h("span", { class: "ok" }, "done") : busy || h("progress", { max: total || 1, value: one.copied, "aria-label": `${one.name} copied` })),
          cell("figure", words.count(one.copied), one.done || !one.estimate ? "" : h("small", {}, ` of ~${words.count(total)}`)),
          cell("figure", one.done || !one.rate ? "" : words.rate(one.rate)),
          cell("figure", one.done || !(one.eta_seconds ?? one.eta) ? "" : words.duration(one.eta_seconds ?? one.eta)),
        );
      }),
    ),
  );
}

function planReport(report) {
  const found = report.tables ?? [];
  return [
    ...(report.notes ?? []).map((note) => h("p", { class: "todo" }, note)),
    h(
      "ul",
      { class: "previews" },
      found.slice(0, SHOWN).map((one) =>
        h(
          "li",
          { key: `${one.source_id ?? ""} ${one.source}`, class: one.problems?.length ? "failed" : "" },
          h(
            "details",
            {},
            h(
              "summary",
              {},
              h("strong", {}, one.source === one.target ? one.source : `${one.source} → ${one.target}`),
              h("span", { class: "way" }, one.way),
              h("span", {}, one.rows === null ? "size unknown" : `about ${words.count(one.rows)} rows`),
              one.notes?.length ? h("span", { class: "todo" }, words.plural(one.notes.length, "note")) : null,
            ),
            h(
              "div",
              { class: "scroll" },
              h(
                "table",
                { class: "types" },
                h("thead", {}, h("tr", {}, ["Column", "Source", "Target"].map((text) => h("th", { scope: "col" }, text)))),
                h("tbody", {}, (one.columns ?? []).map((column) => h("tr", {}, h("th", { scope: "row" }, column.name), h("td", {}, column.source_type ?? ""), h("td", {}, column.target_type ?? "")))),
              ),
            ),
            [...(one.notes ?? []), ...(one.problems ?? [])].map((text) => h("p", { class: "todo" }, text)),
            [...(one.statements ?? []), ...(one.finish ?? [])].map((text) => sql(text)),
          ),
        ),
      ),
    ),
    found.length > SHOWN ? empty(`And ${words.count(found.length - SHOWN)} more: pidts plan TASK.`) : null,
  ];
}

