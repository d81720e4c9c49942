"use strict";
// Shows the OpenAPI document. All content is set as text, never as HTML.

const FORM = "application/x-www-form-urlencoded";

function element(tag, options = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (name === "class") made.className = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

function resolved(schema, api) {
  if (!schema || !schema.$ref) return schema || {};
  return schema.$ref.slice(2).split("/").reduce((value, key) => value[key], api);
}

function typeOf(schema, api) {
  const found = resolved(schema, api);
  if (found.anyOf) return found.anyOf.map((part) => typeOf(part, api)).filter((name) => name !== "null").join(" or ");
  if (found.type === "array") return `list of ${typeOf(found.items, api) || "values"}`;
  return found.type || found.title || "value";
}

function table(rows) {
  const body = element("tbody");
  for (const row of rows) body.append(element("tr", {}, ...row.map((cell) => element("td", {}, cell))));
  return element("table", {}, body);
}

function fieldRows(schema, api) {
  const found = resolved(schema, api);
  const items = found.type === "array" ? resolved(found.items, api) : found;
  const required = new Set(items.required || []);
  return Object.entries(items.properties || {}).map(([name, field]) => [
    element("code", {}, name + (required.has(name) ? " *" : "")),
    typeOf(field, api),
    field.description || "",
  ]);
}

function exampleOf(schema) {
  return schema.example || (schema.examples || [])[0] || {};
}

function tryPart(method, path, operation, kind, schema) {
  const parameters = (operation.parameters || []).map((parameter) => {
    const id = `${operation.operationId}-${parameter.name}`;
    const input = element("input", { id, name: parameter.name });
    if (parameter.required) input.value = parameter.example ?? "";
    return { parameter, input, label: element("label", { for: id }, parameter.name) };
  });
  const body = schema && element("textarea", { "aria-label": "Body of the request", spellcheck: "false" });
  if (body) {
    const example = exampleOf(schema);
    body.value = kind === FORM ? new URLSearchParams(example).toString() : JSON.stringify(example, null, 1);
  }
  const button = element("button", { type: "button" }, "Send");
  const answer = element("pre", { hidden: "", "aria-live": "polite" });
  button.addEventListener("click", async () => {
    let target = path;
    const query = new URLSearchParams();
    for (const { parameter, input } of parameters) {
      if (parameter.in === "path") target = target.replace(`{${parameter.name}}`, encodeURIComponent(input.value));
      else if (input.value) query.set(parameter.name, input.value);
    }
    const headers = {};
    const token = document.getElementById("token").value;
    if (token) headers.authorization = `Bearer ${token}`;
    if (body) headers["content-type"] = kind;
    answer.hidden = false;
    answer.textContent = "…";
    try {
      const url = target.slice(1) + (query.size ? `?${query}` : "");
      const response = await fetch(url, { method: method.toUpperCase(), headers, body: body ? body.value : undefined });
      const text = await response.text();
      let shown = text;
      try { shown = JSON.stringify(JSON.parse(text), null, 1); } catch { /* not JSON */ }
      answer.textContent = `${response.status}\n${shown}`;
    } catch (error) {
      answer.textContent = `The service did not answer: ${error.message}`;
    }
  });
  const rows = parameters.map(({ label, input }) => [label, input]);
  return element("div", {}, element("h3", {}, "Try it"), ...(rows.length ? [table(rows)] : []), ...(body ? [body] : []),
    button, answer);
}

function route(path, method, operation, api) {
  const content = element("div", { class: "content" });
  if (operation.description) content.append(element("p", {}, operation.description));
  if ((operation.parameters || []).length) {
    content.append(element("h3", {}, "Parameters"), table(operation.parameters.map((parameter) => [
      element("code", {}, parameter.name + (parameter.required ? " *" : "")),
      `${typeOf(parameter.schema, api)} (${parameter.in})`, parameter.description || "",
    ])));
  }
  let kind = null;
  let schema = null;
  if (operation.requestBody) {
    [kind, { schema }] = Object.entries(operation.requestBody.content)[0];
    schema = resolved(schema, api);
    content.append(element("h3", {}, `Request (${kind})`), table(fieldRows(schema, api)));
  }
  const answers = Object.entries(operation.responses).map(([status, { description, content: bodies }]) => {
    const [type, body] = Object.entries(bodies || {})[0] || ["", {}];
    return [element("code", {}, status), description, element("span", { class: "soft" }, `${type} ${typeOf(body.schema, api)}`)];
  });
  content.append(element("h3", {}, "Answers"), table(answers), tryPart(method, path, operation, kind, schema));
  return element("details", {}, element("summary", {},
    element("span", { class: `method ${method}` }, method.toUpperCase()), element("code", {}, path),
    element("span", { class: "soft" }, operation.summary || "")), content);
}

async function show() {
  const routes = document.getElementById("routes");
  try {
    const api = await (await fetch("openapi.json")).json();
    document.getElementById("about").textContent = `${api.info.summary || ""} Version ${api.info.version}.`;
    const groups = new Map();
    for (const [path, methods] of Object.entries(api.paths)) {
      for (const [method, operation] of Object.entries(methods)) {
        const tag = (operation.tags || ["other"])[0];
        if (!groups.has(tag)) groups.set(tag, element("section", {}, element("h2", {}, tag)));
        groups.get(tag).append(route(path, method, operation, api));
      }
    }
    routes.replaceChildren(...groups.values());
  } catch (error) {
    routes.textContent = `The OpenAPI document could not be loaded: ${error.message}`;
  }
}

show();
