// What the model in use is: a summary of its card, for those who see it for the first time.

import { request } from "./api.js";
import { $, bdi, count, el, plural } from "./dom.js";
import { on, state } from "./state.js";

const METRICS = ["P@1", "P@5", "nDCG@5", "R@10", "F1@5"];

export async function showAbout() {
  const { model } = state;
  const place = $("about");
  let card;
  try {
    card = await request(`v1/models/${encodeURIComponent(model.name)}`);
  } catch {
    place.replaceChildren(); // what is wrong is told where labels are asked for
    return;
  }
  if (model === state.model) place.replaceChildren(el("h2", { id: "about-title" }, "About ", bdi(card.name)), el("p", {}, card.description), facts(card));
}

function facts(card) {
  const { data, metrics, calibration } = card;
  const rows = [
    ["Model", card.kind],
    ["Labels", `${count(card.n_labels)}; ${labelSizes(data)}`],
    ["Training", `${plural(data.samples, "text")}, with ${data.labels_per_sample.toFixed(1)} labels each`],
    ["Scores", calibration ? `probabilities, fitted on ${plural(calibration.rows, "text")}` : "raw scores, not calibrated"],
    ["Decision rule", card.rule],
    ["Names in", card.languages.join(", ")],
    ["On test texts", metrics && METRICS.filter((name) => typeof metrics[name] === "number").map((name) => `${name} ${metrics[name].toFixed(1)}`).join(", ")],
    ["Size", `${card.size < 1e6 ? `${count(Math.ceil(card.size / 1e3))} kB` : `${(card.size / 1e6).toFixed(1)} MB`}, version ${card.version}`],
  ];
  return el("dl", {}, ...rows.filter(([, value]) => value).map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, bdi(value)))));
}

function labelSizes({ median_samples_per_label: median, labels_with_one_sample: single }) {
  const middle = `half of them with at least ${plural(Math.round(median), "text")}`;
  return single ? `${middle}, ${count(single)} with a single one` : middle;
}

on("model", showAbout);
