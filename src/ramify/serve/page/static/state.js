// What all views share: the models, the model in use, the text. Views listen to what changes.

export const state = { models: [], model: null, texts: {}, without: new Set(), selected: null };

const listeners = new Map();

export function on(event, listener) {
  listeners.set(event, [...(listeners.get(event) ?? []), listener]);
}

export function emit(event) {
  for (const listener of listeners.get(event) ?? []) listener();
}

export const fieldsOf = (model) => (model.input === "fields" && model.fields.length ? model.fields : [""]);

// The text as the service takes it: a string, or an object of text fields; null if there is none.
export function input() {
  const fields = fieldsOf(state.model);
  const texts = fields.map((name) => state.texts[name] ?? "");
  if (!texts.some((text) => text.trim())) return null;
  if (fields.length === 1 && fields[0] === "") return texts[0];
  return Object.fromEntries(fields.map((name, i) => [name, texts[i]]).filter(([, text]) => text));
}

export const wholeText = () => fieldsOf(state.model).map((name) => state.texts[name] ?? "").filter(Boolean).join("\n");
