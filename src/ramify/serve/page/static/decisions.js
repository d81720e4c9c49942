// Labels that were accepted and rejected, as training data for later.

import { $, el, keyOf, plural } from "./dom.js";
import { emit, input, state } from "./state.js";

const records = new Map(); // by text: its fields, its labels with true or false
let saved = true;

const textKey = () => JSON.stringify(input());

export function decisionOf(label) {
  return records.get(textKey())?.labels.get(keyOf(label))?.accepted;
}

// Accepts or rejects a label of the present text; the same again takes it back. Returns what holds now.
export function decide(entry, accepted) {
  const key = textKey();
  const text = input();
  if (text === null) return undefined;
  const record = records.get(key) ?? { text, labels: new Map(), model: state.model };
  records.set(key, record);
  const same = record.labels.get(keyOf(entry.label))?.accepted === accepted;
  if (same) record.labels.delete(keyOf(entry.label));
  else record.labels.set(keyOf(entry.label), { label: entry.label, accepted });
  if (!record.labels.size) records.delete(key);
  saved = false;
  summarize();
  emit("decision");
  return same ? undefined : accepted;
}

export function asJsonLines() {
  const lines = [...records.values()].map(({ text, labels, model }) => {
    const chosen = (accepted) => [...labels.values()].filter((one) => one.accepted === accepted).map((one) => one.label);
    const fields = typeof text === "string" ? { text } : text;
    return JSON.stringify({ ...fields, labels: chosen(true), rejected: chosen(false), model: model.name, version: model.version });
  });
  return lines.map((line) => `${line}\n`).join("");
}

function summarize() {
  const all = [...records.values()].flatMap((record) => [...record.labels.values()]);
  const accepted = all.filter((one) => one.accepted).length;
  $("decided").textContent = all.length
    ? `${accepted} accepted, ${all.length - accepted} rejected in ${plural(records.size, "text")}`
    : "✓ accepts a label, ✗ rejects it.";
  $("download").disabled = !all.length;
}

function download() {
  const url = URL.createObjectURL(new Blob([asJsonLines()], { type: "application/jsonl" }));
  el("a", { href: url, download: "decisions.jsonl" }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
  saved = true;
}

export function startDecisions() {
  $("download").addEventListener("click", download);
  addEventListener("beforeunload", (event) => { if (!saved && records.size) event.preventDefault(); });
}
