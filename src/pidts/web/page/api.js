// Sends requests to the service. Every failure becomes a `Refused` with code, what, where and todo, as on the command
// line.

/** An error of the service, in the form that all errors of PiDTS have. */
export class Refused extends Error {
  constructor(status, error) {
    super(error.what);
    this.status = status;
    this.code = error.code;
    this.what = error.what;
    this.where = error.where ?? {};
    this.todo = error.todo ?? "";
  }
}

const GONE = {
  code: "service-gone",
  what: "the service does not answer",
  todo: "The page tries again by itself. Tasks go on without the service.",
};

/** Returns the path of a task, whatever characters its name has. */
export function taskPath(name, ...rest) {
  return ["api/tasks", encodeURIComponent(name), ...rest.map(encodeURIComponent)].join("/");
}

/** Sends a request and returns the answer's JSON; null if there is none. */
export async function ask(method, path, body, type = "application/json") {
  const headers = { "X-Pidts": "1", Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = type;
  const text = body === undefined || typeof body === "string" ? body : JSON.stringify(body);
  let answer;
  try {
    answer = await fetch(path, { method, headers, body: text, credentials: "same-origin" });
  } catch {
    throw new Refused(0, GONE);
  }
  let found = null;
  try {
    found = await answer.json();
  } catch {
    found = null;
  }
  if (answer.ok) return found;
  throw new Refused(
    answer.status,
    found?.error ?? { code: "no-answer", what: `the service answered ${answer.status} without a reason` },
  );
}

export const get = (path) => ask("GET", path);
export const post = (path, body = {}) => ask("POST", path, body);
