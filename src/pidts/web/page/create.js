// Creates a task from a task file. The file is read and checked first; then the task is created and started.

import { ask, get } from "./api.js";
import { h } from "./dom.js";
import { errorBlock, field, findings, hash } from "./parts.js";

const YAML = "application/yaml";
const EXCERPTS = 5;

export function create(page) {
  const state = { text: "", path: "", checking: false, creating: false, checked: null, error: null, start: true };

  // People without a token see the login before they paste a file.
  get("api/tasks").then(() => page.connection({ state: "live" }), (error) => page.failed(error));

  const body = () => (state.path ? [{ path: state.path }, "application/json"] : [state.text, YAML]);

  async function run(flag, work) {
    state[flag] = true;
    state.error = null;
    page.redraw();
    try {
      await work();
    } catch (error) {
      state.error = page.failed(error);
    }
    state[flag] = false;
    page.redraw();
  }

  const check = () =>
    run("checking", async () => {
      state.checked = null;
      state.checked = await ask("POST", "api/validate", ...body());
    });

  const make = () =>
    run("creating", async () => {
      const made = await ask("POST", `api/tasks?start=${state.start}`, ...body());
      page.go(hash(made.name));
    });

  function changed(name) {
    return (event) => {
      state[name] = event.currentTarget.value;
      state.checked = null;
      state.error = null;
      page.redraw();
    };
  }

  async function read(event) {
    const [file] = event.currentTarget.files;
    if (!file) return;
    state.text = await file.text();
    document.getElementById("task-text").value = state.text;
    state.checked = null;
    page.redraw();
  }

  function draw() {
    const busy = state.checking || state.creating;
    const nothing = !state.text.trim() && !state.path.trim();
    const lines = state.error ? linesOf(state.error) : [];
    const { checked } = state;
    const isRight = Boolean(checked) && checked.ok !== false;
    return [
      h("div", { class: "title" }, h("h1", {}, "New task"), h("p", { class: "sum" }, "A task file says which tables are synced, from which source, and to which target.")),
      h(
        "div",
        { class: "create" },
        field(
          "Task file",
          h("textarea", { id: "task-text", rows: 22, spellcheck: "false", autocomplete: "off", wrap: "off", on: { input: changed("text") }, placeholder: "name: shop\ntask-mode: all\ntarget-database: …" }),
          "Paste the YAML here. Write passwords as password-file or ${ENV}: the file or variable must exist on the service's machine.",
        ),
        h(
          "div",
          { class: "sources" },
          field("Or choose a file on this computer", h("input", { type: "file", accept: ".yaml,.yml,text/*", on: { change: read } })),
          field("Or name a file on the service's machine", h("input", { type: "text", placeholder: "/etc/pidts/shop.yaml", spellcheck: "false", on: { input: changed("path") } }), "PiDTS also uses later edits of that file."),
        ),
      ),
      h(
        "div",
        { class: "buttons" },
        h("button", { type: "button", class: isRight ? "" : "main", disabled: busy || nothing, on: { click: check } }, state.checking ? "Checking …" : "Check"),
        h("button", { type: "button", class: isRight ? "main" : "", disabled: busy || nothing || !isRight, on: { click: make } }, state.creating ? "Creating …" : "Create"),
        h("label", { class: "tick" }, h("input", { type: "checkbox", checked: true, on: { change: (event) => { state.start = event.currentTarget.checked; } } }), "and start it"),
      ),
      errorBlock(state.error, lines.length ? `Line${lines.length > 1 ? "s" : ""} ${lines.join(", ")} of the task file` : ""),
      state.text ? lines.slice(0, EXCERPTS).map((line) => h("pre", { class: "excerpt", key: `line ${line}` }, excerpt(state.text, line))) : null,
      checked ? verdict(checked, isRight) : null,
    ];
  }

  return { title: () => "New task", draw };
}

function verdict(checked, isRight) {
  return h(
    "section",
    { role: "status" },
    h("h2", {}, isRight ? `The task ${checked.name} can be created` : "Not ready yet"),
    checked.target ? h("p", {}, `${(checked.sources ?? []).join(", ")} → ${checked.target}, mode ${checked.mode}`) : null,
    (checked.notes ?? []).map((note) => h("p", { class: "todo" }, note)),
    checked.findings ? findings(checked.findings) : h("p", { class: "explain" }, "The file is valid. The servers are checked when the task starts."),
  );
}

/** Returns the lines in which an error has found mistakes. An error about several mistakes names them in its text. */
function linesOf(error) {
  if (error.where?.line) return [Number(error.where.line)];
  const named = [...(error.what ?? "").matchAll(/^ *line (\d+)[:,]/gm)].map((found) => Number(found[1]));
  return [...new Set(named)];
}

/** Returns the line with the two lines before and after it. */
function excerpt(text, line) {
  const lines = text.split("\n");
  const from = Math.max(0, line - 3);
  return lines
    .slice(from, line + 2)
    .map((one, at) => h("span", { class: from + at + 1 === line ? "at" : "" }, `${String(from + at + 1).padStart(4)}  ${one}\n`));
}
