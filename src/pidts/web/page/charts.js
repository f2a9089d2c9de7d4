// Draws small charts of numbers over time, as SVG.

import { h } from "./dom.js";

const WIDTH = 180;
const FEWEST = 30;

// The line of a new task begins at the right edge, so that its shape does not change with each new value.
const padded = (values) => (values.length < FEWEST ? [...Array(FEWEST - values.length).fill(null), ...values] : values);

/** Returns a small chart without axes. `says` describes the chart to a reader who cannot see it. */
export function spark(values, { height = 26, says, top = null, kind = "" }) {
  const scale = scaled(padded(values), height, top);
  return h(
    "svg",
    { class: `spark ${kind}`, viewBox: `0 0 ${WIDTH} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": says },
    h("path", { class: "area", d: area(scale, height) }),
    h("path", { class: "line", d: line(scale) }),
  );
}

/** Returns a chart with its highest value and its time at the edges. */
export function chart(found, { everySeconds, label, show, kind = "" }) {
  const values = padded(found);
  const known = values.filter((value) => value !== null);
  const highest = known.length ? Math.max(...known) : 0;
  const now = known.length ? values.at(-1) : null;
  const says = known.length
    ? `${label} over the last ${span(values.length * everySeconds)}: now ${show(now)}, highest ${show(highest)}`
    : `${label}: not known yet`;
  return h(
    "figure",
    { class: "chart" },
    h("figcaption", {}, h("span", { class: "label" }, label), h("span", { class: "top" }, `highest ${show(known.length ? highest : null)}`)),
    spark(values, { height: 56, says, kind }),
    h("div", { class: "axis", "aria-hidden": "true" }, h("span", {}, `${span(values.length * everySeconds)} ago`), h("span", {}, "now")),
  );
}

function span(seconds) {
  return seconds >= 3540 ? "1 h" : `${Math.max(1, Math.round(seconds / 60))} min`;
}

function scaled(values, height, top) {
  const highest = Math.max(top ?? 0, ...values.filter((value) => value !== null), 1e-9);
  const step = values.length > 1 ? WIDTH / (values.length - 1) : WIDTH;
  // The line keeps one unit of room at the top and at the bottom, so that its stroke is not cut.
  return values.map((value, at) => (value === null ? null : [at * step, height - 1.5 - (value / highest) * (height - 3)]));
}

// A time without a value leaves a gap.
function runs(points) {
  const found = [];
  let open = false;
  for (const point of points) {
    if (point === null) {
      open = false;
      continue;
    }
    if (!open) found.push([]);
    open = true;
    found.at(-1).push(point);
  }
  return found;
}

const at = ([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`;

function line(points) {
  return runs(points)
    .map((run) => `M${(run.length > 1 ? run : [run[0], [run[0][0] + 1, run[0][1]]]).map(at).join("L")}`)
    .join("");
}

function area(points, height) {
  return runs(points)
    .filter((run) => run.length > 1)
    .map((run) => `M${run[0][0].toFixed(1)} ${height}L${run.map(at).join("L")}L${run.at(-1)[0].toFixed(1)} ${height}Z`)
    .join("");
}
