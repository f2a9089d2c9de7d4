// The task file as the service has it, without its secrets, and the results of a check. The file can be replaced here.

import { ask, get } from "../api.js";
import { h } from "../dom.js";
import { button, empty, errorBlock, field, findings } from "../parts.js";
import { runs } from "./runs.js";

const HIDDEN = "***";

export function file(shared) {
  const state = { found: null, error: null, editing: false, text: "", saving: false, refused: null };
  const checks = runs(shared, ["check"]);

  async function load() {
    checks.load();
    try {
      state.found = await get(shared.path("file"));
      state.error = null;
    } catch (error) {
      if (error.status) state.error = shared.page.failed(error);
    }
    shared.page.redraw();
  }

  function edit() {
    state.editing = true;
    state.refused = null;
    state.text = state.found.text;
    shared.page.redraw();
    setTimeout(() => {
      const box = document.getElementById("replacement");
      if (!box) return;
      box.value = state.text;
      box.focus();
    }, 20);
  }

  async function save() {
    state.saving = true;
    state.refused = null;
    shared.page.redraw();
    try {
      await ask("PUT", shared.path(), state.text, "application/yaml");
      state.editing = false;
      await load();
    } catch (error) {
      state.refused = shared.page.failed(error);
    }
    state.saving = false;
    shared.page.redraw();
  }

  function draw() {
    const { found } = state;
    return [
      errorBlock(state.error),
      found?.path ? h("p", { class: "meta mono" }, found.path) : null,
      h(
        "div",
        { class: "buttons" },
        checks.launch("check", "Check the servers", {}),
        found && !state.editing ? button("Replace the file …", edit) : null,
      ),
      checks.shown((report) => [
        h("p", { class: `result ${report.ok ? "good" : "alarm"}` }, h("strong", {}, report.ok ? "Ready to run" : "Not ready")),
        findings(report.findings ?? []),
      ]),
      state.editing
        ? h(
            "section",
            { class: "create", key: "edit" },
            field(
              "New task file",
              h("textarea", { id: "replacement", rows: 20, spellcheck: "false", wrap: "off", on: { input: (event) => { state.text = event.currentTarget.value; shared.page.redraw(); } } }),
              found.text.includes(HIDDEN) ? `A secret that is left as ${HIDDEN} stays as it is.` : "",
            ),
            errorBlock(state.refused),
            h(
              "div",
              { class: "buttons" },
              button(state.saving ? "Saving …" : "Save", save, { kind: "main", disabled: state.saving || !state.text.trim() }),
              button("Cancel", () => {
                state.editing = false;
                shared.page.redraw();
              }),
            ),
          )
        : null,
      found ? h("ol", { class: "source-text", "aria-label": "Task file" }, lines(found.text).map((line) => h("li", {}, h("code", {}, line || " ")))) : state.error ? null : empty("Loading …"),
    ];
  }

  return { draw, shown: load, again: load, close: checks.close };
}

function lines(text) {
  const found = text.split("\n");
  if (found.at(-1) === "") found.pop();
  return found;
}
