// Asks for the token of the service. After the login the browser sends a cookie, which no script can read.

import { post } from "./api.js";
import { h } from "./dom.js";
import { errorBlock, field } from "./parts.js";

export function login(page, then) {
  const state = { error: null, busy: false };

  async function send(event) {
    event.preventDefault();
    const input = event.currentTarget.elements.token;
    state.busy = true;
    page.redraw();
    try {
      await post("api/login", { token: input.value.trim() });
      input.value = "";
      page.go(then || "#/");
    } catch (error) {
      state.error = error;
    }
    state.busy = false;
    page.redraw();
  }

  return {
    bare: true,
    title: () => "Log in",
    draw: () =>
      h(
        "form",
        { class: "narrow", on: { submit: send } },
        h("h1", {}, "Log in"),
        h("p", {}, "This service asks for a token. It is in the file that ", h("code", {}, "pidts serve --token-file"), " names."),
        field("Token", h("input", { name: "token", type: "password", autocomplete: "current-password", required: true, autofocus: true })),
        h("div", { class: "buttons" }, h("button", { type: "submit", class: "main", disabled: state.busy }, "Log in")),
        errorBlock(state.error),
      ),
  };
}
