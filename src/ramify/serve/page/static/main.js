// Starts the page: models, text fields, views.

import "./about.js";
import { request, trouble } from "./api.js";
import { showCompare } from "./compare.js";
import { $, el, plural } from "./dom.js";
import { showIndex } from "./map.js";
import { showReport } from "./report.js";
import { emit, fieldsOf, on, state, wholeText } from "./state.js";
import { startSuggesting } from "./suggest.js";

const TITLES = { try: "Try the model", index: "Index of the model", report: "Evaluation report", compare: "Models side by side" };

function drawFields() {
  const fields = fieldsOf(state.model).map((name) => {
    const id = name ? `text-${name}` : "text";
    const area = el("textarea", { id, dir: "auto", rows: name ? "3" : "9", spellcheck: "false", placeholder: "Type or paste a text" });
    area.value = state.texts[name] ?? "";
    area.addEventListener("input", () => { state.texts[name] = area.value; changed(); });
    return el("div", { class: "field" }, el("label", { for: id, class: name ? "" : "quiet" }, name || "Text"), area);
  });
  $("fields").replaceChildren(...fields);
}

function changed() {
  const words = wholeText().match(/[\p{L}\p{N}\p{M}_]+/gu)?.length ?? 0;
  $("count").textContent = words ? plural(words, "word") : "no words yet";
  state.without.clear();
  emit("text");
}

function useModel(name) {
  state.model = state.models.find((model) => model.name === name) ?? state.models[0];
  state.selected = null;
  state.without.clear();
  drawFields();
  document.title = `${state.model.name} · Ramify`;
  emit("model");
}

function showView() {
  const wanted = location.hash.slice(1).split("/")[0];
  const view = wanted in TITLES ? wanted : "try";
  const changes = document.body.dataset.view !== view;
  document.body.dataset.view = view;
  for (const link of document.querySelectorAll("[data-view]")) {
    if (link.tagName !== "A") continue;
    if (link.dataset.view === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  $("title").textContent = TITLES[view];
  $("desk").hidden = view !== "try" && view !== "compare";
  $("side-try").hidden = view !== "try";
  $("side-compare").hidden = view !== "compare";
  $("why").hidden = view !== "try" || !state.selected;
  $("about").hidden = view !== "try";
  $("view-index").hidden = view !== "index";
  $("view-report").hidden = view !== "report";
  if (changes) scrollTo(0, 0);
  emit("view");
  if (view === "index") showIndex();
  if (view === "report") showReport();
  if (view === "compare") showCompare();
}

async function start() {
  try {
    state.models = (await request("v1/models")).models;
  } catch (error) {
    trouble(error);
    setTimeout(start, 2000);
    return;
  }
  trouble(null);
  const options = state.models.map((model) => el("option", { value: model.name }, model.name));
  $("model").replaceChildren(...options);
  $("model").addEventListener("change", () => { useModel($("model").value); showView(); });
  $("clear").addEventListener("click", () => {
    state.texts = {};
    drawFields();
    changed();
    $("fields").querySelector("textarea").focus();
  });
  addEventListener("hashchange", () => { if (location.hash !== "#main") showView(); });
  startSuggesting();
  useModel(state.models[0].name);
  showView();
  if (document.body.dataset.view === "try") $("fields").querySelector("textarea").focus();
  document.body.dataset.ready = "true";
}

on("texts", drawFields);
start();
