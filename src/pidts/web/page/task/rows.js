// Rows that differ from the source and were set aside. They are shown side by side, and resolved after a preview, as in
// the terminal.

import { get, post } from "../api.js";
import { h } from "../dom.js";
import { button, empty, errorBlock } from "../parts.js";
import * as words from "../words.js";

const EVERY_SECONDS = 30;
const SHOWN = 200;

const TAKES = {
  source: "Take the source's row",
  target: "Take the target's row",
  set: "Give values",
};

export function rows(shared) {
  const state = { found: null, error: null, table: "", chosen: new Set(), open: null, deal: null };
  let timer = null;
  let loading = false;

  async function load() {
    if (loading) return;
    loading = true;
    try {
      state.found = await get(shared.path("locks"));
      state.error = null;
      const ids = new Set(state.found.locks.map((one) => one.id));
      for (const id of state.chosen) if (!ids.has(id)) state.chosen.delete(id);
    } catch (error) {
      if (error.status) state.error = shared.page.failed(error);
    }
    loading = false;
    clearTimeout(timer);
    timer = setTimeout(load, EVERY_SECONDS * 1000);
    shared.page.redraw();
  }

  async function openRow(id) {
    if (state.open?.id === id) {
      state.open = null;
      shared.page.redraw();
      return;
    }
    state.open = { id, row: null, error: null };
    shared.page.redraw();
    const { open } = state;
    try {
      open.row = await get(shared.path("locks", id));
    } catch (error) {
      open.error = shared.page.failed(error);
    }
    shared.page.redraw();
  }

  /** Begins to resolve rows. `which` names these rows in the request to the service. */
  function begin(place, which, take, columns = []) {
    state.deal = { place, which, take, set: {}, columns, preview: null, error: null, busy: false, done: false };
    if (take !== "set") send(false);
    shared.page.redraw();
  }

  async function send(yes) {
    const { deal } = state;
    deal.busy = true;
    deal.error = null;
    shared.page.redraw();
    const how = deal.take === "set" ? { set: deal.set } : { take: deal.take };
    try {
      deal.preview = await post(shared.path("locks", "resolve"), { ...deal.which, ...how, yes });
      deal.done = yes;
      if (yes) {
        shared.page.speak(`${words.plural(deal.preview.rows.length, "row")} resolved`);
        state.open = null;
        state.chosen.clear();
        load();
      }
    } catch (error) {
      deal.error = shared.page.failed(error);
    }
    deal.busy = false;
    shared.page.redraw();
  }

  function choices(place, which, columns) {
    const takes = columns ? ["source", "target", "set"] : ["source", "target"];
    const deal = state.deal?.place === place ? state.deal : null;
    return h(
      "div",
      { class: "decide", key: `decide ${place}` },
      h(
        "div",
        { class: "buttons", role: "group", "aria-label": "Resolve" },
        takes.map((take) =>
          button(TAKES[take], () => begin(place, which(), take, columns), {
            key: take,
            "data-take": take,
            "aria-expanded": deal?.take === take ? "true" : "false",
          }),
        ),
      ),
      deal ? resolution(deal) : null,
    );
  }

  function resolution(deal) {
    const close = () => {
      state.deal = null;
      shared.page.redraw();
    };
    const resolved = deal.preview?.rows ?? [];
    return h(
      "div",
      { class: "preview", role: "region", "aria-label": "Preview", key: deal.take },
      deal.take === "set" && !deal.done ? values(deal) : null,
      errorBlock(deal.error),
      deal.preview
        ? h("p", { class: "explain" }, deal.done ? `${words.plural(resolved.length, "row")} resolved.` : `${words.plural(resolved.length, "row")} would be resolved, and then get their held changes.`)
        : null,
      resolved.slice(0, 20).map((one) => h("div", { key: one.id }, h("p", { class: "meta" }, `${one.table} ${one.id}`), sides(one, true))),
      resolved.length > 20 ? empty(`and ${words.count(resolved.length - 20)} more rows`) : null,
      h(
        "div",
        { class: "buttons" },
        deal.done
          ? button("Close", close)
          : [
              deal.take === "set" && !deal.preview
                ? button("Preview", () => send(false), { kind: "main", disabled: deal.busy || !Object.keys(deal.set).length })
                : null,
              deal.preview ? button(deal.busy ? "Resolving …" : "Do it", () => send(true), { kind: "main", disabled: deal.busy, "data-take": "yes" }) : null,
              button("Cancel", close),
              !deal.preview && deal.busy ? h("span", { class: "explain" }, "Asking the target …") : null,
            ],
      ),
    );
  }

  function values(deal) {
    return h(
      "div",
      { class: "values" },
      h("p", { class: "explain" }, "The target gets the source's row with these values. An empty field keeps the source's value. Write NULL for NULL."),
      deal.columns.map((column) =>
        h(
          "label",
          { class: "field", key: column },
          h("span", { class: "label" }, column),
          h("input", {
            type: "text",
            spellcheck: "false",
            autocomplete: "off",
            on: {
              input: (event) => {
                const text = event.currentTarget.value;
                if (text) deal.set[column] = text;
                else delete deal.set[column];
                deal.preview = null;
                shared.page.redraw();
              },
            },
          }),
        ),
      ),
    );
  }

  function draw() {
    const { found } = state;
    if (!found) return state.error ? errorBlock(state.error) : empty("Asking the target …");
    const done = state.deal?.done ? resolution(state.deal) : null;
    if (!found.locks.length) return [errorBlock(state.error), done, empty("No rows are set aside.")];
    const tables = found.tables ?? [];
    const shown = found.locks.filter((one) => !state.table || one.table === state.table);
    const ids = () => [...state.chosen];
    return [
      errorBlock(state.error),
      done,
      h("p", { class: "message" }, `${words.plural(found.locked_rows, "row")} of ${words.plural(tables.length, "table")} differ from the source. Changes of these rows are held until you decide. All other rows go on.`),
      tables.length > 1
        ? h(
            "label",
            { class: "inline", key: "inline" },
            "Table ",
            h(
              "select",
              {
                on: {
                  change: (event) => {
                    state.table = event.currentTarget.value;
                    shared.page.redraw();
                  },
                },
              },
              h("option", { value: "" }, "all"),
              [...new Set(tables.map((one) => one.table))].map((name) => h("option", { value: name }, name)),
            ),
          )
        : null,
      state.chosen.size && !done
        ? h("section", { class: "bar", "aria-label": "Chosen rows", key: "chosen" }, h("strong", {}, `${words.plural(state.chosen.size, "row")} chosen`), choices("chosen", () => ({ ids: ids() }), null))
        : null,
      state.table && !state.chosen.size && !done
        ? h("section", { class: "bar", "aria-label": "All rows of the table", key: "all" }, h("strong", {}, `All rows of ${state.table}`), choices("all", () => ({ table: state.table, all: true }), null))
        : null,
      h("ul", { class: "cards rows" }, shown.slice(0, SHOWN).map(row)),
      shown.length > SHOWN ? empty(`And ${words.count(shown.length - SHOWN)} more.`) : null,
    ];
  }

  function row(one) {
    const open = state.open?.id === one.id ? state.open : null;
    return h(
      "li",
      { key: one.id, class: "card row" },
      h(
        "div",
        { class: "line" },
        h("input", {
          type: "checkbox",
          "aria-label": `Choose ${one.table} ${one.key}`,
          on: {
            change: (event) => {
              if (event.currentTarget.checked) state.chosen.add(one.id);
              else state.chosen.delete(one.id);
              shared.page.redraw();
            },
          },
        }),
        h(
          "button",
          { type: "button", class: "quiet reveal", "aria-expanded": open ? "true" : "false", on: { click: () => openRow(one.id) } },
          h("strong", {}, one.table),
          ` ${one.key}`,
        ),
        h("span", { class: "why" }, one.why),
        h("span", { class: "meta", title: words.moment(one.since) }, words.ago(one.since)),
      ),
      open?.error ? errorBlock(open.error) : null,
      open && !open.row && !open.error ? empty("Asking the target …") : null,
      open?.row
        ? h(
            "div",
            { class: "open" },
            sides(open.row, false),
            (open.row.changes ?? []).map((change) => h("p", { class: "meta" }, `held: ${change.op} at ${change.lsn}`)),
            choices(`row ${one.id}`, () => ({ ids: [one.id] }), open.row.columns.map((column) => column.name)),
          )
        : null,
    );
  }

  return {
    draw,
    shown: load,
    again: load,
    changed(was, is) {
      if (was?.locked_rows !== is.locked_rows) load();
    },
    close: () => clearTimeout(timer),
  };
}

/** Returns a row's values: those that the source's log has, those that the target has, and those after the decision. */
function sides(one, withOutcome) {
  const text = (value) => (value === null || value === undefined ? h("i", {}, "no row") : value);
  return h(
    "div",
    { class: "scroll" },
    h(
      "table",
      { class: "sides" },
      h("thead", {}, h("tr", {}, ["Column", "The source said", "The target has", withOutcome ? "Becomes" : null].filter(Boolean).map((name) => h("th", { scope: "col" }, name)))),
      h(
        "tbody",
        {},
        (one.columns ?? []).map((column) =>
          h(
            "tr",
            { key: column.name, class: column.source === column.target ? "" : "differs" },
            h("th", { scope: "row" }, column.name),
            h("td", {}, text(column.source)),
            h("td", {}, text(column.target)),
            withOutcome ? h("td", { class: "outcome" }, text(column.outcome)) : null,
          ),
        ),
      ),
    ),
  );
}
