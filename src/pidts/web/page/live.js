// Listens to the service's events, and connects again when the connection is lost.

import { get } from "./api.js";

const FIRST_PAUSE = 1;
const LONGEST_PAUSE = 10;

/**
 * Listens until `close` is called.
 *
 * `events` has a function for each kind of event; it gets the event's JSON. `onState` gets "connecting", "live",
 * "gone" (with the moment of the next attempt) or "refused" (with the service's error).
 */
export function listen(path, probe, events, onState) {
  let source = null;
  let timer = null;
  let pause = FIRST_PAUSE;
  let closed = false;

  function connect() {
    onState({ state: "connecting" });
    source = new EventSource(path);
    source.onopen = () => {
      pause = FIRST_PAUSE;
      onState({ state: "live" });
    };
    source.onerror = lost;
    for (const [kind, take] of Object.entries(events)) {
      source.addEventListener(kind, (event) => take(JSON.parse(event.data)));
    }
  }

  // The browser's own attempts are not enough: it does not tell when the next attempt is, and makes none after a
  // refusal.
  async function lost() {
    source.close();
    if (closed) return;
    onState({ state: "gone", next: Date.now() + pause * 1000 });
    timer = setTimeout(async () => {
      try {
        await get(probe);
      } catch (error) {
        if (closed) return;
        if (error.status >= 400 && error.status < 500 && error.status !== 429) return onState({ state: "refused", error });
        pause = Math.min(pause * 1.5, LONGEST_PAUSE);
        return lost();
      }
      if (!closed) connect();
    }, pause * 1000);
  }

  connect();
  return {
    close() {
      closed = true;
      clearTimeout(timer);
      source?.close();
    },
  };
}
