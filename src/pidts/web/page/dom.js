// Makes elements and brings a part of the document up to date. All text becomes text nodes: no text is ever read as HTML.

const SVG = "http://www.w3.org/2000/svg";
const SVG_NAMES = new Set(["svg", "path", "line", "rect", "circle", "g", "title", "text", "polyline"]);

// Attributes that users change when they use the page: a redraw does not change them.
const READERS_OWN = new Set(["open"]);

/** Makes an element. `key` identifies it among its siblings; `on` has its listeners; children are nodes or texts. */
export function h(name, attributes = {}, ...children) {
  const element = SVG_NAMES.has(name) ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [attribute, value] of Object.entries(attributes)) {
    if (attribute === "on") {
      element.listeners = value;
      Object.keys(value).forEach((kind) => element.addEventListener(kind, listen));
    } else if (attribute === "key") {
      element.key = value;
    } else if (attribute === "own") {
      element.own = value; // other code makes the children of this element, and a redraw does not change them
    } else if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(attribute, value === true ? "" : String(value));
    }
  }
  element.append(...nodes(children));
  return element;
}

// One function for all elements: a redraw replaces `listeners`, so a click always runs the newest listener.
function listen(event) {
  return event.currentTarget.listeners?.[event.type]?.(event);
}

function nodes(children) {
  return children
    .flat(Infinity)
    .filter((child) => child !== null && child !== undefined && child !== false && child !== "")
    .map((child) => (child instanceof Node ? child : document.createTextNode(String(child))));
}

/** Makes the children of `parent` equal to `fresh`. Elements that stay the same keep their focus and their scroll. */
export function patch(parent, fresh) {
  const wanted = nodes([fresh]);
  const keys = new Set(wanted.map((node) => node.key).filter((key) => key !== undefined));
  const keyed = new Map();
  for (const child of parent.childNodes) {
    if (child.key !== undefined) keyed.set(child.key, child);
  }
  let at = parent.firstChild;
  const dropStale = () => {
    while (at && at.key !== undefined && !keys.has(at.key)) {
      const stale = at;
      at = at.nextSibling;
      stale.remove();
    }
  };
  for (const node of wanted) {
    dropStale();
    const match = node.key !== undefined ? keyed.get(node.key) : nextAlike(at, node);
    if (match && node.key === undefined) {
      while (at !== match) {
        const stale = at;
        at = at.nextSibling;
        stale.remove();
      }
    }
    if (!match || !alike(match, node)) {
      parent.insertBefore(node, at);
      continue;
    }
    keyed.delete(node.key);
    if (match === at) at = at.nextSibling;
    else parent.insertBefore(match, at);
    update(match, node);
  }
  while (at) {
    const stale = at;
    at = at.nextSibling;
    stale.remove();
  }
}

// Returns the next sibling without a key that can become this node. The caller removes the siblings before it. Suppose
// that a notice above a field disappears. If the caller made a new field, the text that a user is typing would be lost.
function nextAlike(from, node) {
  for (let one = from; one && one.key === undefined; one = one.nextSibling) {
    if (alike(one, node)) return one;
  }
  return null;
}

function alike(one, other) {
  return one.nodeType === other.nodeType && one.nodeName === other.nodeName && one.type === other.type;
}

function update(element, fresh) {
  if (element.nodeType === Node.TEXT_NODE) {
    if (element.data !== fresh.data) element.data = fresh.data;
    return;
  }
  for (const { name } of [...element.attributes]) {
    if (!fresh.hasAttribute(name) && !READERS_OWN.has(name)) element.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (element.getAttribute(name) !== value && !READERS_OWN.has(name)) element.setAttribute(name, value);
  }
  for (const kind of Object.keys(fresh.listeners ?? {})) {
    if (!element.listeners?.[kind]) element.addEventListener(kind, listen);
  }
  element.listeners = fresh.listeners;
  if (!element.own) patch(element, [...fresh.childNodes]);
}
