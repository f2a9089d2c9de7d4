// Numbers, times and names as the page shows them.

export const NOTHING = "–";

/** Orders names as a person does: t2 before t10. */
export const inOrder = new Intl.Collator("en", { numeric: true }).compare;

/** Returns a whole number with separators: 12,340. */
export function count(number) {
  return number === null || number === undefined ? NOTHING : Math.round(number).toLocaleString("en-US");
}

/** Returns "1 table", "2 tables". */
export function plural(number, noun, nouns = `${noun}s`) {
  return `${count(number)} ${number === 1 ? noun : nouns}`;
}

/** Returns a rate in rows per second. Small rates keep one decimal. */
export function rate(rows) {
  if (rows === null || rows === undefined) return NOTHING;
  return rows > 0 && rows < 10 ? rows.toFixed(1) : count(rows);
}

/** Returns a lag with as many digits as are useful: 0.04 s, 2.5 s, 48 s, 3 min 10 s. */
export function lag(seconds) {
  if (seconds === null || seconds === undefined) return NOTHING;
  if (seconds < 0.995) return `${seconds === 0 ? "0" : seconds.toFixed(2)} s`;
  return seconds < 9.95 ? `${seconds.toFixed(1)} s` : duration(seconds);
}

/** Returns a duration of at most two units: 48 s, 3 min 10 s, 2 h 5 min, 3 d 4 h. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return NOTHING;
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

/** Returns how long ago a moment was; the moment is in seconds since 1970. */
export function ago(moment) {
  return moment ? `${duration(Date.now() / 1000 - moment)} ago` : "";
}

/** Returns a moment as a local date and time. */
export function moment(seconds) {
  if (!seconds) return NOTHING;
  const at = new Date(typeof seconds === "number" ? seconds * 1000 : seconds);
  if (Number.isNaN(at.getTime())) return String(seconds);
  const two = (number) => String(number).padStart(2, "0");
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${clock(at)}`;
}

/** Returns the local time of day. */
export function clock(at) {
  const date = at instanceof Date ? at : new Date(typeof at === "number" ? at * 1000 : at);
  if (Number.isNaN(date.getTime())) return String(at);
  return [date.getHours(), date.getMinutes(), date.getSeconds()].map((one) => String(one).padStart(2, "0")).join(":");
}

/** Returns a size in bytes with a unit. */
export function bytes(number) {
  if (number === null || number === undefined) return NOTHING;
  const units = ["B", "kB", "MB", "GB", "TB"];
  let size = number;
  let unit = 0;
  while (size >= 1000 && unit < units.length - 1) {
    size /= 1000;
    unit += 1;
  }
  return `${unit && size < 100 ? size.toFixed(1) : Math.round(size)} ${units[unit]}`;
}

/** Returns a text with a capital first letter, unless it begins with a name: task-mode, shop.orders. */
export function capital(text) {
  return /^[a-z]+([ ,;:]|$)/.test(text ?? "") ? text[0].toUpperCase() + text.slice(1) : (text ?? "");
}

const STAGES = {
  starting: "starting",
  copy: "copying",
  sync: "in sync",
  synced: "synced",
  paused: "paused",
  halted: "halted",
  stopped: "stopped",
  failed: "failed",
  waiting: "waiting",
  "cut-over": "cut over",
};

/** Returns the stage of a task in words. */
export function stage(name) {
  return STAGES[name] ?? name;
}

/** Returns where an error is, in words: file, line, table. */
export function place(where) {
  return Object.entries(where ?? {})
    .map(([name, value]) => (name === "file" ? String(value) : `${name} ${value}`))
    .join(", ");
}
