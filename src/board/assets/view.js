// SPDX-License-Identifier: Apache-2.0
// What the reader looks at: runs, x-axis, range, choices of panels. It lives in the fragment of the
// URL, so that a link shows the same picture. The cursor is shared by all charts and not in the URL.

const defaults = {
  page: 'run', run: 0, compare: [], x: 'step', from: null, to: null, smooth: 0, log_x: false,
  column: 'step_seconds', sort: 'rank', rank: null, tag: '', speed: 'throughput(tps)', plan: '',
};
const listeners = new Set();
let current = {...defaults};
let cursor = null;
const cursor_listeners = new Set();

export function view() {
  return current;
}

export function readFragment() {
  const found = new URLSearchParams(window.location.hash.slice(1));
  const next = {...defaults};
  const number = (name) => (found.has(name) && Number.isFinite(Number(found.get(name))) &&
    found.get(name) !== '' ? Number(found.get(name)) : null);
  next.page = found.get('page') === 'plan' ? 'plan' : 'run';
  next.run = number('run') ?? 0;
  next.compare = (found.get('compare') || '').split(',').filter((id) => /^\d+$/.test(id)).map(Number);
  if (['step', 'tokens', 'time'].includes(found.get('x'))) next.x = found.get('x');
  next.from = number('from');
  next.to = number('to');
  if (next.from !== null && next.to !== null && next.from >= next.to) next.from = next.to = null;
  next.smooth = Math.min(0.999, Math.max(0, number('smooth') ?? 0));
  next.log_x = found.get('log_x') === '1';
  next.rank = number('rank');
  for (const name of ['column', 'sort', 'tag', 'speed', 'plan']) {
    if (found.has(name)) next[name] = found.get(name);
  }
  current = next;
}

function writeFragment() {
  const text = new URLSearchParams();
  for (const [name, value] of Object.entries(current)) {
    if (String(value) === String(defaults[name]) || value === null) continue;
    text.set(name, value === true ? '1' : String(value));
  }
  window.history.replaceState(null, '', `#${text}`);
}

// Calls `changed(view, names)` after every change, with the names of what changed.
export function onView(changed) {
  listeners.add(changed);
}

export function changeView(patch) {
  const names = Object.keys(patch).filter((name) => String(patch[name]) !== String(current[name]));
  if (names.length === 0) return;
  current = {...current, ...patch};
  writeFragment();
  for (const listener of listeners) listener(current, names);
}

export function listenToFragment() {
  window.addEventListener('hashchange', () => {
    const before = current;
    readFragment();
    const names = Object.keys(current).filter((key) => String(current[key]) !== String(before[key]));
    if (names.length > 0) for (const listener of listeners) listener(current, names);
  });
}

export function cursorX() {
  return cursor;
}

export function setCursor(x) {
  if (x === cursor) return;
  cursor = x;
  for (const listener of cursor_listeners) listener(x);
}

export function onCursor(moved) {
  cursor_listeners.add(moved);
}

// The x-range of the whole run, as the server gave it, for keys and for charts without a choice.
let whole = {first: 0, last: 1};
export function wholeRange() {
  return whole;
}
export function setWholeRange(first, last) {
  whole = {first, last: last > first ? last : first + 1};
}

// [from, to] that is shown now.
export function shownRange() {
  return [current.from ?? whole.first, current.to ?? whole.last];
}

// Shows [from, to], within the run; all of it if the range covers it.
export function showRange(from, to) {
  const {first, last} = whole;
  const is_all = from <= first && to >= last;
  const ends_at_last = to >= last;
  changeView(is_all ? {from: null, to: null} :
    {from: from <= first ? null : from, to: ends_at_last ? null : to});
}

// Moves by a share of the shown width, or zooms around the cursor.
export function moveRange(share) {
  const [from, to] = shownRange();
  const {first, last} = whole;
  const by = Math.max(first - from, Math.min(last - to, share * (to - from)));
  if (by !== 0) showRange(from + by, to + by);
}
export function zoomRange(factor) {
  const [from, to] = shownRange();
  const center = cursor !== null && cursor > from && cursor < to ? cursor : (from + to) / 2;
  const {first, last} = whole;
  const low = Math.max(first, center - (center - from) * factor);
  const high = Math.min(last, center + (to - center) * factor);
  if (high > low) showRange(low, high);
}
