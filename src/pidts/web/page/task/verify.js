// Compares source and target. Repairs rows that differ, after their SQL was shown.

import { h } from "../dom.js";
import { empty, field, twice } from "../parts.js";
import * as words from "../words.js";
import { runs } from "./runs.js";

const EXAMPLES = 50;
const KINDS = ["missing", "extra", "different", "unsettled", "waiting", "locked"];

export function verify(shared) {
  const state = { tables: "", asked: "" };
  const found = runs(shared, ["verify", "repair"]);

  function draw() {
    const tables = state.tables.trim();
    const options = tables ? { tables } : {};
    const newest = found.one();
    const report = newest?.report;
    const differs = report?.tables?.length && report.equal === false && newest.state !== "running";
    return [
      h("p", { class: "explain" }, "Compares the rows of source and target, also while programs write to them. It changes nothing."),
      field(
        "Only these tables",
        h("input", {
          type: "text",
          placeholder: "all, or: shop.orders,crm.*",
          spellcheck: "false",
          on: {
            input: (event) => {
              state.tables = event.currentTarget.value;
              shared.page.redraw();
            },
          },
        }),
      ),
      h(
        "div",
        { class: "buttons" },
        found.launch("verify", "Compare", options, "main"),
        differs ? found.launch("repair", "Show the repair", options) : null,
        differs && newest.kind === "repair" && !report.applied
          ? twice(shared.page, state, "repair", {
              text: "Repair the target …",
              question: "Write these rows to the target?",
              yes: "Write them",
              act: () => found.begin("repair", { ...options, apply: true }),
            })
          : null,
      ),
      found.shown(comparison),
      earlier(found),
    ];
  }

  return { draw, shown: found.load, again: found.load, close: found.close };
}

function comparison(report) {
  const tables = report.tables ?? [];
  const wrong = tables.reduce((sum, one) => sum + KINDS.slice(0, 4).reduce((count, kind) => count + (one[kind] ?? 0), 0), 0);
  if (!tables.length) return [h("p", { class: "result still" }, report.stage === "stopped" ? "Stopped before any table was compared" : "Nothing to compare: the task has no table yet")];
  const stopped = report.stage === "stopped";
  const found = wrong ? `${words.plural(wrong, "difference")}` : stopped ? "No difference" : "No row is known to differ, but some rows are locked or not equal yet";
  const said = report.equal ? "Equal" : stopped ? `Stopped before the end. ${found} so far` : found;
  const sorted = [...tables].sort((one, other) => wrongOf(other) - wrongOf(one) || words.inOrder(one.name, other.name));
  return [
    h("p", { class: `result ${report.equal ? "good" : wrong ? "alarm" : "still"}` }, h("strong", {}, said), `, ${words.count(report.rows)} rows of ${words.plural(tables.length, "table")} compared`),
    report.written !== undefined && report.applied ? h("p", {}, `${words.plural(report.written, "row")} written, ${words.count(report.removed)} removed.`) : null,
    h(
      "div",
      { class: "scroll" },
      h(
        "table",
        { class: "compared" },
        h("thead", {}, h("tr", {}, ["Table", "Rows", "Result"].map((text) => h("th", { scope: "col" }, text)))),
        h(
          "tbody",
          {},
          sorted.slice(0, 300).map((one) =>
            h(
              "tr",
              { key: `${one.source ?? ""} ${one.name}`, class: wrongOf(one) ? "alarm" : "" },
              h("th", { scope: "row" }, one.source ? `${one.source}: ${one.name}` : one.name),
              h("td", { class: "figure" }, words.count(one.rows)),
              h("td", {}, result(one)),
            ),
          ),
        ),
      ),
    ),
    report.differences?.length
      ? h(
          "details",
          { class: "examples", open: true },
          h("summary", {}, "Rows that differ"),
          h("ul", { class: "mono" }, report.differences.slice(0, EXAMPLES).map((one) => h("li", {}, example(one)))),
        )
      : null,
    report.sql?.length ? h("details", { class: "examples", open: true }, h("summary", {}, report.applied ? "What was written" : "The repair, not done yet"), h("pre", { class: "says" }, report.sql.join("\n"))) : null,
  ];
}

const wrongOf = (one) => KINDS.reduce((count, kind) => count + (one[kind] ?? 0), 0) + (one.problem ? 1 : 0) + (one.waits?.length ?? 0);

function result(one) {
  const counts = KINDS.filter((kind) => one[kind]).map((kind) => `${words.count(one[kind])} ${kind}`);
  const rest = one.unfinished ? "not finished" : "";
  return [one.problem, counts.join(", "), ...(one.waits ?? []), one.note, rest].filter(Boolean).join("; ") || "equal";
}

function example(one) {
  const key = Object.entries(one.key ?? {}).map(([name, value]) => `${name}=${value}`).join(", ");
  return `${one.table} (${key}): ${one.kind}${one.columns?.length ? ` in ${one.columns.join(", ")}` : ""}`;
}

function earlier(found) {
  const list = found.list().filter((one) => one.id !== found.one()?.id);
  if (!list.length) return null;
  return h(
    "section",
    { class: "earlier" },
    h("h2", {}, "Earlier"),
    h(
      "ul",
      {},
      list.slice(0, 10).map((one) =>
        h(
          "li",
          { key: one.id },
          h("button", { type: "button", class: "quiet", on: { click: () => found.open(one.id) } }, `${words.capital(one.kind)}, ${words.moment(one.begun)}`),
          h("span", { class: "meta" }, one.exit_code === 0 ? "equal" : one.state === "running" ? "running" : one.exit_code === 4 ? "differences" : one.cancelled ? "cancelled" : (one.error?.what ?? "some rows wait or are locked, or it failed")),
        ),
      ),
    ),
    list.length > 10 ? empty(`and ${list.length - 10} more`) : null,
  );
}
