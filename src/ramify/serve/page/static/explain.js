// Why a label is there: its words in the text with their contributions, its path through the index, labels beside it.

import { latest, request, suggest, trouble } from "./api.js";
import { $, bdi, count, el, keyOf, nameOf, number, say, shownLabel, signed } from "./dom.js";
import { emit, input, state, wholeText } from "./state.js";
import { currentScore, select } from "./suggest.js";

const STEPS = 7;
const SHOWN_TERMS = 10;
const WORD = /[\p{L}\p{N}\p{M}_]+/gu;
const MAX_WORDS = 3000;
let focusWord = 0;

const ask = latest(async (signal, entry) => {
  const body = { input: input(), model: state.model.name, k: 1, explain: [entry.label] };
  if (state.without.size) body.without = [...state.without];
  const query = new URLSearchParams({ label: shownLabel(entry.label) });
  const facts = request(`v1/models/${encodeURIComponent(state.model.name)}/label?${query}`, { signal }).catch(() => null);
  const answer = await suggest(body, signal);
  return { explanation: answer.results[0].explanations[0], facts: await facts };
});

export function closeExplanation() {
  if (!state.selected) return;
  const key = keyOf(state.selected.label);
  state.selected = null;
  $("why").hidden = true;
  $("why").dataset.key = "";
  $("why").replaceChildren();
  const row = [...$("labels").children].find((item) => item.dataset.key === key);
  if (row) row.querySelector(".name").focus({ preventScroll: true });
  emit("closed");
}

export async function explain() {
  const entry = state.selected;
  if (input() === null) return closeExplanation();
  $("why").hidden = false;
  $("why").setAttribute("aria-busy", "true");
  if (!$("why").firstChild || $("why").dataset.key !== keyOf(entry.label)) {
    $("why").replaceChildren(heading(entry, null), el("p", { class: "muted" }, "…"));
  }
  let result;
  try {
    result = await ask(entry);
  } catch (error) {
    trouble(error);
    return undefined;
  }
  if (!result || state.selected !== entry) return undefined;
  trouble(null);
  draw(entry, result);
  return undefined;
}

function heading(entry, explanation) {
  const close = el("button", { type: "button", class: "plain close", "aria-label": "Close the explanation" }, "Close");
  close.addEventListener("click", closeExplanation);
  const value = explanation ? currentScore(entry.label) ?? explanation.probability ?? explanation.score : null;
  const kind = explanation && explanation.probability !== null ? "probability" : "score";
  return el("div", { class: "why-head" },
    el("h2", { id: "why-title" }, "Why ", bdi(nameOf(entry)), "?"),
    value === null ? null : el("span", { class: "muted" }, `${kind} ${number(value)}`), close);
}

function draw(entry, { explanation, facts }) {
  const place = $("why");
  const hadFocus = place.contains(document.activeElement) && document.activeElement.classList.contains("word");
  const left = place.scrollTop;
  const isNew = place.dataset.key !== keyOf(entry.label);
  place.dataset.key = keyOf(entry.label);
  place.removeAttribute("aria-busy");
  const parts = [heading(entry, explanation)];
  if (entry.name !== null && entry.name !== undefined) parts.push(el("p", { class: "uri" }, bdi(shownLabel(entry.label))));
  parts.push(legend(explanation), words(explanation), ...termTable(explanation), ...path(explanation, facts), ...similar(facts), ...nearest(explanation));
  place.replaceChildren(...parts);
  place.scrollTop = left;
  if (isNew && place.getBoundingClientRect().top > innerHeight * 0.8) place.scrollIntoView({ block: "start" });
  if (hadFocus) place.querySelectorAll(".word")[focusWord]?.focus();
}

function legend(explanation) {
  const what = explanation.method === "linear" ? "contribution to the score" : "how much the score falls without the word";
  return el("p", { class: "muted hint" }, "Words ", el("mark", { class: "for-4" }, "for"), " and ", el("mark", { class: "against-4" }, "against"),
    ` the label: ${what}. Click a word to leave it out.`);
}

// ---- the text, word by word ----

function words(explanation) {
  const values = new Map();
  for (const [term, value] of explanation.terms) values.set(term.toLowerCase(), value);
  const largest = Math.max(...[...values.values()].map(Math.abs), 1e-12);
  const text = wholeText();
  const box = el("p", { class: "words", dir: "auto", role: "group", "aria-label": "Words of the text" });
  let end = 0;
  let n = 0;
  for (const match of text.matchAll(WORD)) {
    if (n >= MAX_WORDS) break;
    box.append(text.slice(end, match.index), word(match[0], values.get(match[0].toLowerCase()), largest, n));
    end = match.index + match[0].length;
    n += 1;
  }
  box.append(text.slice(end));
  box.addEventListener("keydown", (event) => {
    const buttons = [...box.querySelectorAll(".word")];
    const at = buttons.indexOf(document.activeElement);
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (at < 0 || !step) return;
    event.preventDefault();
    const next = buttons[Math.max(0, Math.min(buttons.length - 1, at + step))];
    buttons[at].tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
  return box;
}

function word(text, value, largest, n) {
  const lower = text.toLowerCase();
  const isOut = state.without.has(lower);
  const step = value ? Math.max(1, Math.round((STEPS * Math.abs(value)) / largest)) : 0;
  const shade = step ? `${value > 0 ? "for" : "against"}-${step}` : "";
  const button = el("button", {
    type: "button", class: `word ${shade}`, "aria-pressed": String(isOut), tabindex: n === 0 ? "0" : "-1",
    title: isOut ? "left out; click to put it back" : value ? signed(value, 4) : "no contribution",
  }, text);
  button.addEventListener("focus", () => { focusWord = n; });
  button.addEventListener("click", () => {
    focusWord = n;
    if (isOut) state.without.delete(lower);
    else state.without.add(lower);
    say(`${text} ${isOut ? "put back" : "left out"}`);
    emit("without");
  });
  return button;
}

// ---- figures ----

function termTable(explanation) {
  const { terms } = explanation;
  if (!terms.length) return [el("p", { class: "muted" }, "No word of the text is known to the model.")];
  const largest = Math.max(...terms.map(([, value]) => Math.abs(value)), 1e-12);
  const row = ([term, value]) => {
    const bar = el("span", { class: value > 0 ? "bar for" : "bar against", "aria-hidden": "true" });
    bar.style.setProperty("--part", `${(Math.abs(value) / largest) * 50}%`);
    return el("tr", {}, el("th", { scope: "row" }, bdi(term)), el("td", { class: "bars" }, bar), el("td", { class: "value" }, signed(value, 4)));
  };
  const table = (rows) => el("table", { class: "terms" }, el("tbody", {}, ...rows.map(row)));
  const parts = [el("h3", {}, "Words"), table(terms.slice(0, SHOWN_TERMS))];
  if (terms.length > SHOWN_TERMS) {
    parts.push(el("details", {}, el("summary", {}, `${count(terms.length - SHOWN_TERMS)} more`), table(terms.slice(SHOWN_TERMS, 300))));
  }
  return parts;
}

function path(explanation, facts) {
  const parts = [];
  const clusters = facts?.clusters ?? [];
  const nodes = new Map(clusters.flatMap((cluster) => [...cluster.path, cluster]).map((node) => [node.title, node]));
  if (explanation.levels.length) {
    const items = explanation.levels.map((level) => {
      const name = level.title.replace(/^tree \d+, /, "").replace(/^level (\d+), cluster (\d+)$/, "cluster $2, level $1");
      const node = nodes.get(name);
      const shown = node ? el("a", { href: `#index/${node.id}` }, level.title) : el("span", {}, level.title);
      return el("li", {}, shown, el("span", { class: "value" }, `margin ${signed(level.margin)}`),
        node ? el("small", { class: "typical" }, ...typical(node)) : null,
        el("small", {}, `bias ${signed(level.bias)}, ${level.contributions.length} words; score so far ${number(Math.exp(level.log_score))}`));
    });
    parts.push(el("h3", {}, "Path through the index"), el("ol", { class: "path" }, ...items));
  } else if (Object.keys(explanation.parts).length) {
    const rows = Object.entries(explanation.parts).map(([name, value]) => el("tr", {}, el("th", { scope: "row" }, name),
      el("td", { class: "value" }, Number.isInteger(value) ? count(value) : number(value))));
    parts.push(el("h3", {}, "What the score is made of"), el("table", { class: "terms parts" }, el("tbody", {}, ...rows)));
  }
  if (clusters.some((cluster) => cluster.score !== null)) {
    const items = clusters.map((cluster) => el("li", {}, el("a", { href: `#index/${cluster.id}` }, cluster.title),
      el("span", { class: "value" }, `edge ${number(cluster.score)}`), el("small", { class: "typical" }, ...typical(cluster))));
    parts.push(el("h3", {}, "Clusters of the label"), el("ul", { class: "path" }, ...items));
  }
  return parts;
}

const typical = (node) => node.typical.flatMap((name, i) => [i ? ", " : "", bdi(name)]);

function similar(facts) {
  if (!facts) return [];
  const parts = [];
  if (facts.similar.length) {
    const chips = facts.similar.map((other) => {
      const chip = el("button", { type: "button", class: "chip", title: `${count(other.samples)} training samples` }, bdi(nameOf(other)));
      chip.addEventListener("click", () => select(other));
      return el("li", {}, chip);
    });
    parts.push(el("h3", {}, "Similar labels"), el("ul", { class: "chips" }, ...chips));
  }
  parts.push(el("p", { class: "muted" }, `${count(facts.samples)} training samples have this label.`));
  return parts;
}

function nearest({ neighbors }) {
  if (!neighbors?.length) return [];
  const items = neighbors.map((other) => {
    const text = typeof other.text === "string" ? other.text : Object.values(other.text).join(" ");
    return el("li", {}, bdi(text.length > 200 ? `${text.slice(0, 199)}…` : text),
      el("span", { class: "value" }, number(other.similarity)), other.has_label ? el("small", {}, "has this label") : null);
  });
  return [el("h3", {}, "Nearest training texts"), el("ul", { class: "path" }, ...items)];
}

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && document.body.dataset.view === "try" && state.selected) closeExplanation();
});
