// The frame of the page: which view is shown, the head with the state of the connection, and the redraws.

import { h, patch } from "./dom.js";
import { create } from "./create.js";
import { login } from "./login.js";
import { overview } from "./overview.js";
import { task } from "./task.js";

const NAME = "PiDTS";
const nodes = Object.fromEntries(["head", "gone", "content", "spoken"].map((id) => [id, document.getElementById(id)]));

let view = null;
let due = null;
let connection = { state: "connecting" };

/** The functions of the page that views may call. */
const page = {
  /** Draws the view soon. Several calls in a row cause one redraw. */
  redraw() {
    due ??= setTimeout(draw, 0);
  },
  /** Makes screen readers read a text about something that has changed. */
  speak(text) {
    nodes.spoken.textContent = text;
  },
  go(address) {
    location.hash = address;
  },
  /** Shows the state of the connection to the service. */
  connection(state) {
    if (state.state === "refused" && state.error.status === 401) {
      page.wantsLogin();
      return;
    }
    if (state.state === "connecting" && connection.state === "gone") return; // "no connection" is shown until the service answers
    const was = connection.state;
    connection = state;
    if (state.state === "gone" && was === "live") page.speak("The service does not answer.");
    if (state.state === "live" && was === "gone") page.speak("The service answers again.");
    page.redraw();
  },
  /** Shows the login, and comes back to this view after it. */
  wantsLogin() {
    if (!location.hash.startsWith("#/login")) {
      page.go(`#/login?then=${encodeURIComponent(location.hash || "#/")}`);
    }
  },
  /** Handles an error of a view: a missing login opens the login; any other error is returned, so that it is shown. */
  failed(error) {
    if (error.status === 401) {
      page.wantsLogin();
      return null;
    }
    return error;
  },
};

const ROUTES = [
  [/^#\/login(?:\?then=(.*))?$/, login],
  [/^#\/new$/, create],
  [/^#\/tasks\/([^/]+)(?:\/([a-z]+))?$/, task],
  [/^(?:#\/?)?$/, overview],
];

function route() {
  const found = ROUTES.map(([form, open]) => [location.hash.match(form), open]).find(([match]) => match);
  const [match, open] = found ?? [[], overview];
  const [, ...parts] = match;
  const values = parts.map((part) => (part === undefined ? "" : decoded(part)));
  // All tabs of a task belong to one view, so that its connection stays open.
  const stays = view?.takes?.(...values) && view.open === open;
  if (!stays) {
    view?.close?.();
    patch(nodes.content, []);
    view = open(page, ...values);
    view.open = open;
  }
  draw();
  window.scrollTo(0, 0);
  if (isFirst) isFirst = false;
  else nodes.content.focus({ preventScroll: true });
}

let isFirst = true;

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // typed by hand, with a lone %
  }
}

function draw() {
  clearTimeout(due);
  due = null;
  patch(nodes.head, head());
  patch(nodes.gone, gone());
  nodes.gone.hidden = connection.state !== "gone";
  patch(nodes.content, view.draw());
  const alarms = view.alarms?.() ?? 0;
  const title = `${alarms ? `(${alarms}) ` : ""}${[view.title(), NAME].filter(Boolean).join(" · ")}`;
  if (document.title !== title) document.title = title;
}

const STATES = { live: "live", connecting: "connecting", gone: "no connection", refused: "no connection" };

function head() {
  const is = (address) => (location.hash === address || (address === "#/" && !location.hash) ? "page" : null);
  return [
    h("a", { class: "brand", href: "#/" }, NAME),
    view.bare
      ? null
      : h(
          "nav",
          { "aria-label": "Main" },
          h("a", { href: "#/", "aria-current": is("#/") }, "Tasks"),
          h("a", { href: "#/new", "aria-current": is("#/new") }, "New task"),
        ),
    view.bare ? null : h("span", { class: `link ${connection.state}` }, STATES[connection.state]),
  ];
}

function gone() {
  if (connection.state !== "gone") return [];
  const seconds = Math.max(0, Math.ceil((connection.next - Date.now()) / 1000));
  return h(
    "div",
    { class: "wide" },
    h("strong", {}, "The service does not answer."),
    " What is shown here may be old. Tasks go on without the service. ",
    h("span", { "aria-hidden": "true" }, seconds ? `Next attempt in ${seconds} s.` : "Trying now."),
  );
}

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  nodes.content.focus();
});
window.addEventListener("hashchange", route);
// Durations ("for 3 min") grow even if nothing else changes.
setInterval(() => page.redraw(), 1000);
route();
