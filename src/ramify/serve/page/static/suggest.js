// The list of labels: suggested as you type, with rule, threshold and filter; accepted and rejected; copied.

import { latest, request, suggest, trouble } from "./api.js";
import { decide, decisionOf, startDecisions } from "./decisions.js";
import { $, announce, bdi, count, el, keyOf, nameOf, plural, say, shownLabel, shownScore, signed } from "./dom.js";
import { closeExplanation, explain } from "./explain.js";
import { emit, input, on, state } from "./state.js";

const RULES = [["", "the k best"], ["default", "that of the model"], ["maximize-f1", "maximize F1"], ["expected-count", "expected number"], ["top-k=5", "top 5"], ["threshold=0.5", "from 0.5 on"]];
const BUSY = [0, 429, 503]; // statuses after which the same request may succeed; 0: no answer
let retry;
let shown = [];
let before = new Map(); // scores of the whole text, while words are left out
let areProbabilities = false;

// Score of a label in the list; undefined if it is not there.
export const currentScore = (label) => shown.find((entry) => keyOf(entry.label) === keyOf(label))?.score;

function options() {
  const { model } = state;
  const rule = $("rule").value;
  const body = { model: model.name, k: Number($("k").value) };
  if (rule) body.rule = rule;
  else if (model.calibrated) body.probabilities = true;
  const threshold = Number($("threshold").value);
  if (threshold > 0) body.threshold = threshold;
  return body;
}

const ask = latest(async (signal) => {
  const text = input();
  if (text === null) return { labels: [], text };
  const body = { input: text, ...options() };
  const wanted = $("filter").value.trim();
  let found = null;
  if (wanted) {
    const query = new URLSearchParams({ q: wanted, model: state.model.name, limit: 1000 });
    found = await request(`v1/labels?${query}`, { signal });
    if (!found.labels.length) return { labels: [], text, found, nothing: `No label of the model has “${wanted}” in its name.` };
    body.allow = found.labels.map((entry) => entry.label);
  }
  const started = performance.now();
  const without = [...state.without];
  if (without.length) {
    const whole = await suggest({ ...body, k: Math.max(50, body.k), threshold: undefined }, signal);
    before = new Map(whole.results[0].labels.map((entry) => [keyOf(entry.label), entry.score]));
    body.without = without;
  }
  const answer = await suggest(body, signal);
  const { labels } = answer.results[0];
  state.model.version = answer.version; // the model may have been replaced: map and report are then loaded again
  return { labels, text, found, probabilities: answer.probabilities, took: performance.now() - started };
});

export async function refresh() {
  clearTimeout(retry);
  let result;
  try {
    result = await ask();
  } catch (error) {
    trouble(error);
    if (!shown.length) $("empty").textContent = "Labels appear here as soon as the service answers.";
    if (BUSY.includes(error.status)) retry = setTimeout(refresh, 2000);
    return;
  }
  if (!result) return;
  trouble(null);
  draw(result);
}

function draw({ labels, text, found, nothing, probabilities, took }) {
  const list = $("labels");
  const focused = list.contains(document.activeElement) ? document.activeElement.closest("li").dataset.key : null;
  shown = labels;
  areProbabilities = Boolean(probabilities);
  const largest = areProbabilities ? 1 : Math.max(...labels.map((entry) => entry.score), 1e-9);
  list.replaceChildren(...labels.map((entry, i) => row(entry, i, largest)));
  list.hidden = !labels.length;
  $("empty").hidden = labels.length > 0;
  $("empty").textContent = text === null
    ? "Type or paste a text: its labels appear here as you type. Click a label to see why it is there."
    : nothing ?? "No label reaches this threshold. Move it to the left, or choose another rule.";
  $("timing").textContent = took === undefined ? "" : `${took < 10 ? took.toFixed(1) : Math.round(took)} ms`;
  $("filter-value").textContent = !found ? "" : found.total > found.labels.length ? `first ${count(found.labels.length)} of ${count(found.total)}` : count(found.total);
  drawLeftOut();
  if (focused) [...list.children].find((item) => item.dataset.key === focused)?.querySelector(".name").focus();
  if (labels.length) announce(`${plural(labels.length, "label")}; the first is ${nameOf(labels[0])}`);
  document.body.dataset.shown = String(Number(document.body.dataset.shown ?? 0) + 1);
}

function row(entry, i, largest) {
  const key = keyOf(entry.label);
  const name = el("button", { type: "button", class: "name", "aria-pressed": String(state.selected !== null && keyOf(state.selected.label) === key), title: nameOf(entry) },
    bdi(nameOf(entry)), entry.name === null ? null : el("small", {}, bdi(shownLabel(entry.label))));
  name.addEventListener("click", () => select(entry));
  const bar = el("span", { class: "meter", "aria-hidden": "true" });
  bar.style.setProperty("--part", `${Math.max(0, Math.min(1, entry.score / largest)) * 100}%`);
  const change = state.without.size && before.has(key) ? entry.score - before.get(key) : null;
  const score = el("span", { class: "score", title: String(entry.score) }, shownScore(entry.score, areProbabilities),
    !state.without.size ? null : change === null || Math.abs(change) < 5e-4 ? el("small") : el("small", { class: change > 0 ? "up" : "down" }, signed(change)));
  const item = el("li", { "data-key": key }, bar, el("span", { class: "rank", "aria-hidden": "true" }, String(i + 1)), name, score,
    mark(entry, true), mark(entry, false));
  const decision = decisionOf(entry.label);
  item.className = decision === true ? "accepted" : decision === false ? "rejected" : "";
  return item;
}

function mark(entry, accepts) {
  const button = el("button", { type: "button", class: accepts ? "accept" : "reject", "aria-pressed": String(decisionOf(entry.label) === accepts),
    "aria-label": `${accepts ? "Accept" : "Reject"} ${nameOf(entry)}`, title: accepts ? "Accept" : "Reject" }, accepts ? "✓" : "✗");
  button.addEventListener("click", () => set(entry, accepts));
  return button;
}

function set(entry, accepts) {
  const now = decide(entry, accepts);
  const item = [...$("labels").children].find((one) => one.dataset.key === keyOf(entry.label));
  if (!item) return;
  item.className = now === true ? "accepted" : now === false ? "rejected" : "";
  item.querySelector(".accept").setAttribute("aria-pressed", String(now === true));
  item.querySelector(".reject").setAttribute("aria-pressed", String(now === false));
}

export function select(entry) {
  const again = state.selected && keyOf(state.selected.label) === keyOf(entry.label);
  if (again) {
    closeExplanation();
  } else {
    state.selected = entry;
    explain();
  }
  markSelected();
}

function markSelected() {
  for (const item of $("labels").children) {
    item.querySelector(".name").setAttribute("aria-pressed", String(state.selected !== null && item.dataset.key === keyOf(state.selected.label)));
  }
}

function drawLeftOut() {
  const place = $("left-out");
  place.hidden = !state.without.size;
  if (place.hidden) return place.replaceChildren();
  const words = [...state.without].map((word) => {
    const chip = el("button", { type: "button", class: "chip", "aria-label": `Put ${word} back` }, bdi(word), " ×");
    chip.addEventListener("click", () => { state.without.delete(word); emit("without"); });
    return chip;
  });
  const all = el("button", { type: "button", class: "plain" }, "Put all back");
  all.addEventListener("click", () => { state.without.clear(); emit("without"); });
  return place.replaceChildren("Exact scores without ", ...words, all);
}

function keys(event) {
  const item = event.target.closest("li");
  if (!item || event.ctrlKey || event.metaKey || event.altKey) return;
  const items = [...$("labels").children];
  const at = items.indexOf(item);
  const entry = shown[at];
  const steps = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: items.length - 1 };
  if (event.key in steps) {
    event.preventDefault();
    items[Math.max(0, Math.min(items.length - 1, steps[event.key]))].querySelector(".name").focus();
  } else if (event.key === "a" || event.key === "r") {
    event.preventDefault();
    set(entry, event.key === "a");
    say(`${nameOf(entry)}: ${{ true: "accepted", false: "rejected", undefined: "open" }[decisionOf(entry.label)]}`);
  }
}

function asText(kind) {
  if (kind === "json") return JSON.stringify(shown, null, 2);
  if (kind === "uris") return shown.map((entry) => shownLabel(entry.label)).join("\n");
  const clean = (text) => String(text).replace(/[\t\n\r]+/g, " ");
  const rows = shown.map((entry) => [clean(shownLabel(entry.label)), clean(nameOf(entry)), entry.score].join("\t"));
  return ["label\tname\tscore", ...rows].join("\n");
}

async function copy(kind) {
  const text = asText(kind);
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = el("textarea", { class: "quiet", "aria-hidden": "true" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  say(`Copied ${plural(shown.length, "label")} as ${kind === "uris" ? "URIs" : kind.toUpperCase()}`);
  const button = document.querySelector(`[data-copy=${kind}]`);
  button.classList.add("done");
  setTimeout(() => button.classList.remove("done"), 1200);
}

function prepareControls() {
  const { model } = state;
  const rules = RULES.filter(([rule]) => model.calibrated || ["", "top-k=5"].includes(rule)).filter(([rule]) => rule !== "default" || model.rule);
  $("rule").replaceChildren(...rules.map(([value, name]) => el("option", { value }, value === "default" ? `${name} (${model.rule})` : name)));
  $("threshold-name").textContent = model.calibrated ? "Probability" : "Score";
  $("threshold").value = 0;
  $("threshold-value").textContent = "0";
}

export function startSuggesting() {
  startDecisions();
  on("text", refresh);
  on("text", () => { if (state.selected) explain(); });
  on("without", refresh);
  on("without", () => { if (state.selected) explain(); });
  on("closed", markSelected);
  on("model", () => { prepareControls(); closeExplanation(); refresh(); });
  for (const id of ["k", "threshold"]) {
    $(id).addEventListener("input", () => { $(`${id}-value`).textContent = $(id).value; refresh(); });
  }
  for (const id of ["rule", "filter"]) $(id).addEventListener("input", refresh);
  $("controls").addEventListener("submit", (event) => event.preventDefault());
  $("labels").addEventListener("keydown", keys);
  for (const button of document.querySelectorAll("[data-copy]")) button.addEventListener("click", () => copy(button.dataset.copy));
}
