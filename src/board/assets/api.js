// SPDX-License-Identifier: Apache-2.0
// Answers of the server. A report (report.html) carries them in <script id="inlined"> and asks no
// server: answers that are not in it are reported as missing.

let inlined = null;

export function readInlined() {
  const holder = document.getElementById('inlined');
  inlined = holder ? JSON.parse(holder.textContent) : null;
}

export function isReport() {
  return inlined !== null;
}

export function inlinedAnswer(path) {
  return inlined === null ? undefined : inlined[path];
}

// Keys of inlined answers that begin with `prefix`.
export function inlinedKeys(prefix) {
  return Object.keys(inlined || {}).filter((key) => key.startsWith(prefix));
}

// Is the page about to be replaced? Its requests are then aborted, in Firefox with a NetworkError.
let isLeft = false;
const stays_after_ms = 1000;  // a user may decide to stay
window.addEventListener('beforeunload', () => {
  isLeft = true;
  window.setTimeout(() => {
    isLeft = false;
  }, stays_after_ms);
});
window.addEventListener('pageshow', () => {
  isLeft = false;
});

// The result of a request; none, ever, if the page is left: its end is no failure to report.
async function ofThisPage(request) {
  try {
    return await request;
  } catch (error) {
    if (isLeft) return new Promise(() => {});
    throw error;
  }
}

async function fetched(path, signal) {
  const asked = path === '/api/runs' ? window.early_runs : undefined;  // see early.js; for the first time
  window.early_runs = undefined;
  const answer = await (asked || window.fetch(path, {signal, credentials: 'same-origin', cache: 'no-store'}));
  if (answer.ok) return answer;
  let text = `${path.split('?')[0]}: ${answer.status}`;
  try {
    text = (await answer.json()).error || text;
  } catch {
    // The body is no JSON: the status is all there is.
  }
  if (answer.status === 401) text = 'The token is missing or wrong: open the URL that `trireme board` printed.';
  throw new Error(text);
}

export async function getJson(path, signal) {
  if (inlined !== null) {
    if (path in inlined) return inlined[path];
    return {missing: 'not part of this report'};
  }
  return ofThisPage(fetched(path, signal).then((answer) => answer.json()));
}

export async function getBytes(path, signal) {
  if (inlined !== null) {
    const found = inlined[path];
    if (!found) throw new Error('not part of this report');
    return Uint8Array.from(window.atob(found.base64), (letter) => letter.charCodeAt(0)).buffer;
  }
  return ofThisPage(fetched(path, signal).then((answer) => answer.arrayBuffer()));
}

// {a: 1, b: ['x', 'y'], c: null} -> "?a=1&b=x&b=y"; what is null is left out.
export function queryText(parameters) {
  const parts = [];
  for (const [name, value] of Object.entries(parameters)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one === null || one === undefined || one === '') continue;
      parts.push(`${name}=${encodeURIComponent(one)}`);
    }
  }
  return parts.length > 0 ? `?${parts.join('&')}` : '';
}
