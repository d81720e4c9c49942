// The index as a zoomable map: an area is a cluster, its size the number of labels, its color the training samples of one.

import { latest, request, trouble } from "./api.js";
import { $, bdi, count, el, keyOf, nameOf, number, plural, say, shownLabel } from "./dom.js";
import { on, state } from "./state.js";
import { treemap } from "./treemap.js";

const HEAT = [1, 3, 10, 30, 100]; // training samples of a label
let node = null;
let wanted = null; // label that the map shows
let shownFor = null;

const path = (rest) => `v1/models/${encodeURIComponent(state.model.name)}/${rest}`;
const load = latest((signal, id) => request(path(`index?${new URLSearchParams({ node: id })}`), { signal }));

export async function showIndex() {
  const id = location.hash.split("/")[1] ?? "0.0";
  if (shownFor === `${state.model.name} ${state.model.version} ${id}`) return layout();
  let found;
  try {
    found = await load(id);
  } catch (error) {
    node = null;
    shownFor = null;
    for (const place of ["crumbs", "map", "map-legend"]) $(place).replaceChildren();
    $("map").hidden = true;
    $("cluster").hidden = true;
    $("map-note").textContent = error.message;
    return undefined;
  }
  if (!found) return undefined;
  trouble(null);
  shownFor = `${state.model.name} ${state.model.version} ${id}`;
  node = found;
  draw();
  return undefined;
}

const heat = (item) => HEAT.findLastIndex((least) => item.n_samples / Math.max(1, item.n_labels) >= least) + 1;

function draw() {
  const steps = [...node.path, node];
  $("crumbs").replaceChildren(...steps.map((step, i) => el("li", {}, i === steps.length - 1
    ? el("span", { "aria-current": "location" }, step.title) : el("a", { href: `#index/${step.id}` }, step.title))));
  const more = node.n_more ? `; ${count(node.n_more)} smaller ones are not shown` : "";
  $("map-note").textContent = node.children
    ? `${plural(node.n_labels, "label")} in ${plural(node.children.length + node.n_more, "cluster")}${more}. Click a cluster to go into it.`
    : `${plural(node.n_labels, "label")} of this cluster, ${node.labels.some((entry) => entry.score !== null) ? "those that it stands for most" : "the most frequent"} first${more}.`;
  $("map").hidden = !node.children;
  $("cluster").hidden = Boolean(node.children);
  $("map-legend").hidden = !node.children;
  if (node.children) {
    drawLegend();
    layout();
  } else drawLabels();
  say($("map-note").textContent);
}

function layout() {
  const place = $("map");
  if (!node?.children || place.hidden || !place.clientWidth) return;
  const areas = treemap(node.children.map((child) => Math.max(1, child.n_labels)), place.clientWidth, place.clientHeight);
  place.replaceChildren(...node.children.map((child, i) => area(child, areas[i])));
}

function area(child, { x, y, width, height }) {
  const names = child.typical.map((name) => bdi(name));
  const link = el("a", {
    href: `#index/${child.id}`, class: `area heat-${heat(child)}`, title: `${child.title}: ${child.typical.join(", ")}`,
    "aria-label": `${child.title}, ${plural(child.n_labels, "label")}: ${child.typical.join(", ")}`,
  });
  Object.assign(link.style, { left: `${x}px`, top: `${y}px`, width: `${width}px`, height: `${height}px` });
  const lines = Math.floor((height - 12) / 18);
  if (width > 34 && lines > 0) {
    link.append(el("strong", {}, count(child.n_labels)), ...(width > 64 ? names.slice(0, Math.max(0, lines - 1)) : []));
  }
  link.addEventListener("click", () => grow(link));
  return link;
}

function grow(link) {
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  const place = $("map");
  const { offsetLeft: x, offsetTop: y, offsetWidth: w, offsetHeight: h } = link;
  place.animate([{ transform: "none", opacity: 1 }, {
    transformOrigin: "0 0", opacity: 0.3, transform: `scale(${place.clientWidth / w}, ${place.clientHeight / h}) translate(${-x}px, ${-y}px)`,
  }], { duration: 160, easing: "ease-in" });
}

function drawLegend() {
  const names = ["fewer than 1", ...HEAT.map((least, i) => (i === HEAT.length - 1 ? `${least} and more` : `${least} to ${HEAT[i + 1]}`))].slice(1);
  $("map-legend").replaceChildren("Training samples of a label, on average: ",
    ...names.map((name, i) => el("span", { class: "key" }, el("span", { class: `swatch heat-${i + 1}`, "aria-hidden": "true" }), name)));
}

function drawLabels() {
  const hasScores = node.labels.some((entry) => entry.score !== null);
  const head = ["Label", "Training samples", ...(hasScores ? ["Score of the edge"] : [])];
  const rows = node.labels.map((entry) => {
    const button = el("button", { type: "button", class: "plain" }, bdi(nameOf(entry)));
    button.addEventListener("click", () => showLabel(entry.label));
    const key = keyOf(entry.label);
    return el("tr", { "data-key": key, class: wanted === key ? "wanted" : "" }, el("th", { scope: "row" }, button),
      el("td", {}, count(entry.samples)), hasScores ? el("td", {}, number(entry.score)) : null);
  });
  const table = el("table", {}, el("thead", {}, el("tr", {}, ...head.map((name) => el("th", { scope: "col" }, name)))), el("tbody", {}, ...rows));
  $("cluster").replaceChildren(el("div", { id: "label-facts", class: "facts", hidden: true }), table);
  $("cluster").querySelector(".wanted")?.scrollIntoView({ block: "center" });
  if (wanted) showLabel(JSON.parse(wanted), false);
}

async function showLabel(label, moves = true) {
  let facts;
  try {
    facts = await request(path(`label?${new URLSearchParams({ label: shownLabel(label) })}`));
  } catch (error) {
    trouble(error);
    return;
  }
  wanted = keyOf(facts.label);
  if (moves && facts.clusters.length && !facts.clusters.some((cluster) => cluster.id === node?.id)) {
    location.hash = `#index/${facts.clusters[0].id}`;
    return;
  }
  const place = $("label-facts");
  if (!place) return;
  const clusters = facts.clusters.map((cluster) => el("li", {}, cluster.id === node.id
    ? el("span", {}, cluster.title, " (this one)") : el("a", { href: `#index/${cluster.id}` }, cluster.title),
    cluster.score === null ? null : ` · edge ${number(cluster.score)}`, el("small", {}, ...cluster.typical.flatMap((name, i) => [i ? ", " : "", bdi(name)]))));
  place.hidden = false;
  place.replaceChildren(el("h2", {}, bdi(nameOf(facts))), el("p", { class: "muted" },
    `${plural(facts.samples, "training sample")}; ${facts.clusters.length > 1 ? `${facts.clusters.length} clusters` : "one cluster"}`), el("ul", {}, ...clusters));
  for (const row of $("cluster").querySelectorAll("tbody tr")) row.classList.toggle("wanted", row.dataset.key === wanted);
}

const search = latest((signal, q) => request(`v1/labels?${new URLSearchParams({ q, model: state.model.name, limit: 8 })}`, { signal }));

async function find() {
  const q = $("find").value.trim();
  const place = $("found");
  const answer = q ? await search(q).catch(trouble) : { labels: [] };
  if (!answer) return;
  place.hidden = !q;
  place.replaceChildren(...answer.labels.map((entry) => {
    const button = el("button", { type: "button", class: "chip" }, bdi(nameOf(entry)));
    button.addEventListener("click", () => { place.hidden = true; $("find").value = ""; showLabel(entry.label); });
    return el("li", {}, button);
  }));
  if (q && !answer.labels.length) place.replaceChildren(el("li", { class: "muted" }, "No label has this in its name."));
}

$("find").addEventListener("input", find);
$("find-form").addEventListener("submit", (event) => { event.preventDefault(); $("found").querySelector("button")?.click(); });
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && document.body.dataset.view === "index" && node?.path.length) location.hash = `#index/${node.path.at(-1).id}`;
});
new ResizeObserver(() => layout()).observe($("map"));
on("model", () => { wanted = null; shownFor = null; if (location.hash.startsWith("#index/")) location.hash = "#index"; });
