// Models side by side on one text: what they have in common, and what only one of them suggests.

import { latest, suggest, trouble } from "./api.js";
import { $, bdi, el, keyOf, nameOf, plural, shownScore } from "./dom.js";
import { input, on, state } from "./state.js";

const MAX_MODELS = 8;

const ask = latest(async (signal) => {
  const text = input();
  if (text === null) return [];
  const models = state.models.slice(0, MAX_MODELS);
  const answers = models.map(async (model) => {
    const body = { input: text, model: model.name, k: Number($("k").value) };
    if (model.calibrated) body.probabilities = true;
    const started = performance.now();
    const answer = await suggest(body, signal);
    return { model, labels: answer.results[0].labels, probabilities: answer.probabilities, took: performance.now() - started };
  });
  return Promise.all(answers);
});

export async function showCompare() {
  if (document.body.dataset.view !== "compare") return;
  let columns;
  try {
    columns = await ask();
  } catch (error) {
    trouble(error);
    return;
  }
  if (!columns) return;
  trouble(null);
  draw(columns);
}

function draw(columns) {
  const note = $("compare-note");
  if (state.models.length === 1) note.textContent = "Only one model is served. Serve several to see them side by side: ramify serve first/ second/";
  else if (!columns.length) note.textContent = "Type or paste a text to see what each model suggests for it.";
  else {
    const sets = columns.map((column) => new Set(column.labels.map((entry) => keyOf(entry.label))));
    const common = [...sets[0]].filter((key) => sets.every((set) => set.has(key))).length;
    const all = new Set(sets.flatMap((set) => [...set])).size;
    const which = state.models.length > columns.length ? `the first ${columns.length}` : columns.length === 2 ? "both" : `all ${columns.length}`;
    note.textContent = common === all ? `All ${plural(all, "label")} are suggested by ${which} models (●).`
      : `${common} of ${plural(all, "label")} are suggested by ${which} models (●), the others only by some (○).`;
  }
  const keys = columns.map((column) => column.labels.map((entry) => keyOf(entry.label)));
  $("compare").replaceChildren(...columns.map((column, i) => el("section", { class: "column", "aria-label": column.model.name },
    el("h2", {}, bdi(column.model.name)), el("p", { class: "muted" }, `${column.model.kind}, ${column.probabilities ? "probabilities" : "raw scores"}, ${Math.round(column.took)} ms`),
    el("ol", {}, ...column.labels.map((entry) => row(entry, column, keys, i))))));
}

function row(entry, column, keys, mine) {
  const key = keyOf(entry.label);
  const everywhere = keys.every((list) => list.includes(key));
  const largest = column.probabilities ? 1 : Math.max(...column.labels.map((one) => one.score), 1e-9);
  const bar = el("span", { class: "meter", "aria-hidden": "true" });
  bar.style.setProperty("--part", `${Math.max(0, Math.min(1, entry.score / largest)) * 100}%`);
  const elsewhere = keys.map((list, i) => (i === mine ? null : list.indexOf(key))).filter((rank) => rank !== null);
  const hint = elsewhere.map((rank) => (rank < 0 ? "not suggested" : `rank ${rank + 1}`)).join(", ");
  const item = el("li", { "data-key": key, class: everywhere ? "common" : "", title: `other models: ${hint || "none"}` }, bar,
    el("span", { class: "sign" }, everywhere ? "●" : "○", el("span", { class: "quiet" }, everywhere ? " in all models" : " not in all models")),
    bdi(nameOf(entry), { class: "text" }), el("span", { class: "score", title: String(entry.score) }, shownScore(entry.score, column.probabilities)));
  for (const [event, on_] of [["mouseenter", true], ["mouseleave", false]]) {
    item.addEventListener(event, () => {
      for (const other of document.querySelectorAll("#compare li")) other.classList.toggle("same", on_ && other.dataset.key === key);
    });
  }
  return item;
}

on("text", showCompare);
