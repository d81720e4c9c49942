// Small helpers: elements, names of labels, numbers. Text is only ever set as text, never as HTML.

export const $ = (id) => document.getElementById(id);

export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "onclick") node.addEventListener("click", value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export const keyOf = (label) => JSON.stringify(label);

export const shownLabel = (label) => (typeof label === "string" ? label : JSON.stringify(label));

export const nameOf = (entry) => entry.name ?? shownLabel(entry.label);

export const bdi = (text, attributes = {}) => el("bdi", attributes, text);

export function number(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1000 || size < 0.0005) return value.toPrecision(2);
  return value.toFixed(size >= 100 ? 1 : 3);
}

// A probability below the last digit that is shown is told so; raw scores have their own scale.
export const shownScore = (value, isProbability) => (isProbability && value > 0 && value < 0.0005 ? "<0.001" : number(value));

export const signed = (value, digits = 3) => (value === 0 ? "0" : (value < 0 ? "−" : "+") + Math.abs(value).toFixed(digits));

export const count = (value) => value.toLocaleString("en");

export const plural = (n, word) => `${count(n)} ${word}${n === 1 ? "" : "s"}`;

let announcing;
export function announce(text) {
  // After a pause, so that a screen reader is not told of every key.
  clearTimeout(announcing);
  announcing = setTimeout(() => { $("status").textContent = text; }, 700);
}

export function say(text) {
  clearTimeout(announcing);
  $("status").textContent = text;
}
