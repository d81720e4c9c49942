// Requests to the service. A problem is told in the words of the service.

import { $ } from "./dom.js";

export class Problem extends Error {
  constructor(status, detail) { super(detail); this.status = status; }
}

let onToken = null;

export async function request(path, { body, signal, as = "json" } = {}) {
  const headers = {};
  const token = sessionStorage.getItem("ramify-token");
  if (token) headers.authorization = `Bearer ${token}`;
  if (body) headers["content-type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, "The service does not answer. Is it still running?");
  }
  if (answer.ok) return as === "text" ? answer.text() : answer.json();
  if (answer.status === 401) {
    await askForToken(token);
    return request(path, { body, signal, as });
  }
  const problem = await answer.json().catch(() => ({}));
  throw new Problem(answer.status, problem.detail ?? `The service answered ${answer.status}.`);
}

function askForToken(refused) {
  onToken ??= new Promise((resolve) => {
    const form = $("token-form");
    $("token-note").textContent = refused ? "This token was refused. Try another one" : "This service needs a token";
    form.hidden = false;
    $("token").focus();
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      sessionStorage.setItem("ramify-token", $("token").value);
      $("token").value = "";
      form.hidden = true;
      onToken = null;
      resolve();
    }, { once: true });
  });
  return onToken;
}

export const suggest = (body, signal) => request("v1/suggest", { body, signal });

// Runs a function with the newest arguments only: what is still under way is aborted.
export function latest(run) {
  let controller = null;
  return async (...given) => {
    controller?.abort();
    const mine = (controller = new AbortController());
    try {
      const result = await run(mine.signal, ...given);
      if (mine === controller) return result;
    } catch (error) {
      if (error.name === "AbortError" || mine !== controller) return undefined;
      throw error;
    }
    return undefined;
  };
}

export function trouble(error) {
  const place = $("trouble");
  place.hidden = !error;
  place.textContent = error ? error.message : "";
}
