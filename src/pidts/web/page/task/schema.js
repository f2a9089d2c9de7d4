// Schema changes and tables that wait for an operator or for other shards, and the decisions about them. The service
// first shows what a decision does, as `pidts ddl` does in a terminal. Only then can it be confirmed.

import { get, post } from "../api.js";
import { h } from "../dom.js";
import { button, empty, errorBlock, field, sql } from "../parts.js";
import * as words from "../words.js";

const EVERY_SECONDS = 30;
const SHARDS_SHOWN = 12;

const DECISIONS = {
  retry: { text: "Try again", says: "The target tries again, without any change." },
  skip: { text: "Skip", says: "The target does not run the statement: it already has this change, or must not get it." },
  replace: { text: "Replace …", says: "The target runs your statements instead.", takesSql: true },
  inject: { text: "Run first …", says: "The target runs your statements first, then the schema change.", takesSql: true },
  unlock: { text: "Do not wait", says: "The target runs the schema change now, and does not wait for the shards that have not reached it." },
  revert: { text: "Take back", says: "The earlier decision is forgotten: the target runs the statement as the source did." },
};

export function schema(shared) {
  const state = { found: null, error: null, open: null, loading: false };
  let timer = null;

  async function load() {
    if (state.loading) return;
    state.loading = true;
    clearTimeout(timer);
    try {
      state.found = await get(shared.path("ddl"));
      state.error = null;
    } catch (error) {
      if (error.status) state.error = shared.page.failed(error);
    }
    state.loading = false;
    clearTimeout(timer);
    timer = setTimeout(load, EVERY_SECONDS * 1000);
    shared.page.redraw();
  }

  /** Opens a decision. `instead` has the statements that the task itself proposes in place of the schema change. */
  function choose(place, decision, which, instead) {
    const proposed = decision === "replace" ? instead.join(";\n") : "";
    state.open = { place, decision, which, proposed, sql: proposed, preview: null, error: null, busy: false, given: false };
    if (!DECISIONS[decision].takesSql) send(false);
    shared.page.redraw();
  }

  async function send(yes) {
    const { open } = state;
    open.busy = true;
    open.error = null;
    shared.page.redraw();
    try {
      const body = { ...open.which, yes, ...(DECISIONS[open.decision].takesSql ? { sql: [open.sql] } : {}) };
      open.preview = await post(shared.path("ddl", open.decision), body);
      open.given = yes;
      if (yes) {
        shared.page.speak("The decision is recorded");
        load();
      }
    } catch (error) {
      open.error = shared.page.failed(error);
    }
    open.busy = false;
    shared.page.redraw();
  }

  /** Returns the buttons of one schema change, and below them the decision that is being made. */
  function decide(place, decisions, which, instead = []) {
    const open = state.open?.place === place ? state.open : null;
    return h(
      "div",
      { class: "decide", key: `decide ${place}` },
      h(
        "div",
        { class: "buttons", role: "group", "aria-label": "Decide" },
        decisions.map((name) =>
          button(DECISIONS[name].text, () => choose(place, name, which, instead), {
            key: name,
            "data-decision": name,
            "aria-expanded": open?.decision === name ? "true" : "false",
            title: DECISIONS[name].says,
          }),
        ),
      ),
      open ? decision(open) : null,
    );
  }

  function decision(open) {
    const { says, takesSql } = DECISIONS[open.decision];
    const close = () => {
      state.open = null;
      shared.page.redraw();
    };
    const lines = open.preview?.says ?? [];
    return h(
      "div",
      { class: "preview", key: open.decision, role: "region", "aria-label": "Preview" },
      h("p", { class: "explain" }, says),
      takesSql && !open.given
        ? field(
            "SQL for the target",
            h("textarea", {
              rows: Math.max(3, open.proposed.split("\n").length),
              spellcheck: "false",
              "aria-label": "SQL for the target",
              on: {
                input: (event) => {
                  open.sql = event.currentTarget.value;
                  open.preview = null;
                  shared.page.redraw();
                },
              },
            }, open.proposed),
            "Use the names that tables and columns have on the target. Write ; between statements.",
          )
        : null,
      errorBlock(open.error),
      open.preview ? h("pre", { class: "says" }, lines.length ? lines.join("\n") : JSON.stringify(open.preview, null, 2)) : null,
      h(
        "div",
        { class: "buttons" },
        open.given
          ? button("Close", close)
          : [
              takesSql && !open.preview ? button("Preview", () => send(false), { kind: "main", disabled: open.busy || !open.sql.trim() }) : null,
              open.preview ? button(open.busy ? "Recording …" : "Do it", () => send(true), { kind: "main", disabled: open.busy, "data-decision": "yes" }) : null,
              button("Cancel", close),
              !open.preview && open.busy ? h("span", { class: "explain" }, "Asking the target …") : null,
            ],
      ),
    );
  }

  function draw() {
    const { found } = state;
    if (!found) return state.error ? errorBlock(state.error) : empty("Asking the target …");
    const halted = (found.halted ?? []).filter((one) => !one.awaits?.length);
    const shown = halted.length + (found.locks ?? []).length + (found.orders ?? []).length + (found.held ?? []).length;
    return [
      errorBlock(state.error),
      // If a table is not halted any more, the decision about it can still be read until the user closes it.
      state.open?.given && !places(found).has(state.open.place) ? decision(state.open) : null,
      halted.length ? h("section", {}, h("h2", {}, "Halted"), h("ul", { class: "cards" }, halted.map(halt))) : null,
      found.locks?.length ? h("section", {}, h("h2", {}, "Waiting for other shards"), h("ul", { class: "cards" }, found.locks.map(lock))) : null,
      found.orders?.length ? h("section", {}, h("h2", {}, "Decisions so far"), h("ul", { class: "cards small" }, found.orders.map(order))) : null,
      found.held?.length ? h("section", {}, h("h2", {}, "Tables that wait at an earlier place in the log"), h("ul", { class: "cards small" }, found.held.map(held))) : null,
      shown ? null : empty("No schema change waits, and no table is halted."),
    ];
  }

  function halt(one) {
    const place = placeOf(one);
    const which = one.statement ? { source: one.source, at: one.lsn } : { source: one.source, table: one.tables[0] };
    return h(
      "li",
      { key: place, class: "card alarm" },
      h("h3", {}, one.tables.join(", ") || "All tables"),
      h("p", { class: "meta" }, [one.source, one.since ? `since ${words.moment(one.since)} (${words.ago(one.since)})` : "", `Lsn ${one.lsn}`].filter(Boolean).join(" · ")),
      one.statement ? sql(one.statement) : null,
      h("p", {}, words.capital(one.what), one.key ? ` (key ${one.key})` : "", " ", h("code", { class: "code" }, one.code)),
      one.values?.length ? h("p", { class: "mono" }, one.values.join("; ")) : null,
      one.todo ? h("p", { class: "todo" }, one.todo) : null,
      backlog(one.backlog),
      decide(place, one.statement ? ["retry", "skip", "replace", "inject"] : ["retry"], which, one.instead),
    );
  }

  function lock(one) {
    const place = `lock ${one.target}`;
    const arrived = one.arrived ?? [];
    return h(
      "li",
      { key: place, class: one.disagrees ? "card alarm" : "card" },
      h("h3", {}, one.target),
      h("p", { class: "meta" }, `${arrived.length} of ${arrived.length + (one.awaited ?? []).length} shards have reached it${one.since ? `, first ${words.ago(one.since)}` : ""}`),
      sql(one.statement),
      one.disagrees ? h("p", { class: "todo" }, "The schema changes of the shards lead to different structures: decide for each.") : null,
      h(
        "ul",
        { class: "shards" },
        arrived.slice(0, SHARDS_SHOWN).map((shard) =>
          h(
            "li",
            { key: `${shard.source} ${shard.lsn}` },
            h("span", { class: "ok" }, "reached by "),
            `${shard.source}: ${shard.tables.join(", ")}`,
            one.disagrees ? sql(shard.statement) : null,
            backlog(shard.backlog),
            decide(`${place} ${shard.source} ${shard.lsn}`, ["skip", "replace", "inject"], { source: shard.source, at: shard.lsn }),
          ),
        ),
        (one.awaited ?? []).slice(0, SHARDS_SHOWN).map((name) =>
          h(
            "li",
            { key: name },
            h("span", { class: "waits" }, "waits for "),
            name,
            one.awaited_since?.[name] ? `, for ${words.duration(Date.now() / 1000 - one.awaited_since[name])}` : "",
            one.refused?.[name] ? h("code", { class: "code" }, one.refused[name]) : null,
          ),
        ),
        more(arrived.length + (one.awaited ?? []).length, Math.min(arrived.length, SHARDS_SHOWN) + Math.min((one.awaited ?? []).length, SHARDS_SHOWN)),
      ),
      decide(place, ["unlock"], { table: one.target, ...(one.disagrees && arrived[0] ? { source: arrived[0].source, at: arrived[0].lsn } : {}) }),
    );
  }

  function order(one) {
    const place = `order ${one.source} ${one.lsn}`;
    return h(
      "li",
      { key: place, class: "card" },
      h("p", {}, h("strong", {}, one.order), ` ${one.failed ? "failed" : one.done ? "done" : one.begun ? "begun" : "not begun"}`, one.done_at ? ` ${words.ago(one.done_at)}` : ""),
      sql(one.statement),
      (one.statements ?? []).map(sql),
      one.done ? null : decide(place, ["revert"], { source: one.source, at: one.lsn }),
    );
  }

  return {
    draw,
    shown: load,
    again: load,
    changed(was, is) {
      const seen = (task) => JSON.stringify([task?.stage, task?.halted, (task?.progress?.halted ?? []).map((one) => [one.lsn, one.tables, one.code])]);
      if (seen(was) !== seen(is)) load();
    },
    close: () => clearTimeout(timer),
  };
}

const placeOf = (one) => `halt ${one.source} ${one.lsn} ${one.tables}`;

function places(found) {
  return new Set([
    ...(found.halted ?? []).map(placeOf),
    ...(found.locks ?? []).flatMap((one) => [`lock ${one.target}`, ...one.arrived.map((shard) => `lock ${one.target} ${shard.source} ${shard.lsn}`)]),
    ...(found.orders ?? []).map((one) => `order ${one.source} ${one.lsn}`),
  ]);
}

function held(one) {
  const names = Object.keys(one.tables ?? {});
  return h(
    "li",
    { key: one.source, class: "card" },
    h("p", {}, h("strong", {}, one.source), ` ${names.slice(0, SHARDS_SHOWN).join(", ")}`, names.length > SHARDS_SHOWN ? ` and ${names.length - SHARDS_SHOWN} more` : ""),
    one.log_bytes ? h("p", { class: "meta" }, `The relay keeps ${words.bytes(one.log_bytes)} of log that only waiting tables need.`) : null,
  );
}

function backlog(found) {
  if (!found?.transactions) return null;
  return h("p", { class: "meta" }, `${found.is_whole === false ? "at least " : ""}${words.plural(found.transactions, "waiting transaction")} (${words.bytes(found.own_bytes)})`);
}

function more(all, shown) {
  return all > shown ? h("li", { class: "meta" }, `and ${words.count(all - shown)} more: pidts ddl list TASK --table TABLE`) : null;
}
