// The evaluation report of the model, in a tree of its own so that its style and that of the page do not meet.

import { request } from "./api.js";
import { $, el } from "./dom.js";
import { state } from "./state.js";

let root = null;
let shown = null;

export async function showReport() {
  const { model } = state;
  if (shown === `${model.name} ${model.version}`) return;
  const note = $("report-note");
  if (!root) {
    root = $("report").attachShadow({ mode: "open" });
    root.addEventListener("click", follow);
  }
  root.replaceChildren();
  note.hidden = false;
  note.textContent = "…";
  shown = null;
  let text;
  try {
    text = await request(`v1/models/${encodeURIComponent(model.name)}/report`, { as: "text" });
  } catch (error) {
    if (error.status !== 404) note.textContent = error.message;
    else note.replaceChildren("No report yet. This command writes one, which then appears here: ", el("code", {}, error.message.split(": ").at(-1)));
    return;
  }
  // Style sheets are taken out first: the policy of the page applies to a parsed document, too.
  const styles = [];
  const rest = text.replace(/<style>([^]*?)<\/style>/g, (_, style) => { styles.push(style); return ""; });
  const report = new DOMParser().parseFromString(rest, "text/html");
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(styles.join("\n"));
  root.adoptedStyleSheets = [sheet];
  for (const node of report.querySelectorAll("script, style, link, meta, iframe, object, base, form")) node.remove();
  for (const main of report.querySelectorAll("main")) main.replaceWith(...main.childNodes); // the page has one
  root.append(...document.adoptNode(report.body).childNodes);
  note.hidden = true;
  shown = `${model.name} ${model.version}`;
}

function follow(event) {
  const link = event.target.closest("a[href^='#']");
  if (!link) return;
  event.preventDefault();
  root.getElementById(link.getAttribute("href").slice(1))?.scrollIntoView({ behavior: "smooth" });
}
