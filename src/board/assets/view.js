// SPDX-License-Identifier: Apache-2.0
// What the reader looks at: the page, its runs, x-axis, range, choices of panels, search and order of
// the list. It lives in the fragment of the URL, so that a link shows the same picture. The cursor is
// shared by all charts and not in the URL.

const defaults = {
  page: 'run', run: 0, compare: [], x: 'step', from: null, to: null, smooth: 0, log_x: false,
  column: 'step_seconds', sort: 'rank', rank: null, tag: '', speed: 'throughput(tps)', plan: '', panel: '',
  search: '', state: '', order: '', group: '', columns: '',
};
const texts = ['column', 'sort', 'tag', 'speed', 'plan', 'panel', 'search', 'state', 'order', 'group', 'columns'];
// A change of these is a step that the browser's buttons go back and forward over.
const places = ['page', 'run', 'compare', 'x', 'panel', 'state', 'order', 'group', 'columns'];
// In a link a run has its key, which does not depend on the other runs of the board.
let naming = {keyOf: String, idOf: () => null, firstPage: () => 'run'};
let unknown = [];
const listeners = new Set();
let current = {...defaults};
let cursor = null;
const cursor_listeners = new Set();
let last_front = null;

export function view() {
  return current;
}

// keyOf(id) and idOf(key), which is null for an unknown key; firstPage(): what an address without a
// fragment shows.
export function nameRuns(functions) {
  naming = functions;
}

// Keys of the fragment that belong to no run.
export function unknownRuns() {
  return unknown;
}

// Returns the numbers of the runs of one entry; a link of an earlier version has them with commas.
function idsOf(text) {
  const whole = naming.idOf(text);
  if (whole !== null) return [whole];
  const parts = text.split(',').map((part) => naming.idOf(part));
  if (!parts.includes(null)) return parts;
  unknown.push(text);
  return [];
}

export function readFragment() {
  const found = new URLSearchParams(window.location.hash.slice(1));
  const next = {...defaults};
  unknown = [];
  const number = (name) => (found.has(name) && Number.isFinite(Number(found.get(name))) &&
    found.get(name) !== '' ? Number(found.get(name)) : null);
  const runs = found.has('run') ? idsOf(found.get('run')) : [];
  next.run = runs[0] ?? 0;
  next.compare = [...new Set(found.getAll('compare').filter((text) => text !== '').flatMap(idsOf))];
  const has_run = runs.length > 0 || (!found.has('run') && next.compare.length > 0);
  next.page = ['plan', 'runs'].includes(found.get('page')) ? found.get('page') :
    has_run ? 'run' : naming.firstPage();
  if (['step', 'tokens', 'time'].includes(found.get('x'))) next.x = found.get('x');
  next.from = number('from');
  next.to = number('to');
  if (next.from !== null && next.to !== null && next.from >= next.to) next.from = next.to = null;
  next.smooth = Math.min(0.999, Math.max(0, number('smooth') ?? 0));
  next.log_x = found.get('log_x') === '1';
  next.rank = number('rank');
  for (const name of texts) {
    if (found.has(name)) next[name] = found.get(name);
  }
  current = next;
}

// Returns the fragment that shows this view.
export function fragmentOf(shown) {
  const text = new URLSearchParams();
  if (shown.page === 'run') text.set('run', naming.keyOf(shown.run)); else text.set('page', shown.page);
  for (const id of shown.compare) text.append('compare', naming.keyOf(id));
  for (const [name, value] of Object.entries(shown)) {
    if (['page', 'run', 'compare'].includes(name) || value === null || String(value) === String(defaults[name])) continue;
    text.set(name, value === true ? '1' : String(value));
  }
  return `#${text}`;
}

// The fragment of a run alone, for links.
export function fragmentOfRun(id) {
  return fragmentOf({...defaults, run: id});
}

// Calls `changed(view, names)` after every change, with the names of what changed.
export function onView(changed) {
  listeners.add(changed);
}

export function changeView(patch) {
  const names = Object.keys(patch).filter((name) => String(patch[name]) !== String(current[name]));
  if (names.length === 0) return;
  if (current.page === 'runs') last_front = current;
  current = {...current, ...patch};
  const is_place = names.some((name) => places.includes(name));
  window.history[is_place ? 'pushState' : 'replaceState'](null, '', fragmentOf(current));
  for (const listener of listeners) listener(current, names);
}

export function listenToFragment() {
  window.addEventListener('hashchange', () => {
    const before = current;
    if (before.page === 'runs') last_front = before;
    readFragment();
    const names = Object.keys(current).filter((key) => String(current[key]) !== String(before[key]));
    if (names.length > 0) for (const listener of listeners) listener(current, names);
  });
}

// How the list of runs was shown last: search, state, order, group and columns.
export function lastFront() {
  const {search, state, order, group, columns} = last_front || defaults;
  return {search, state, order, group, columns};
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
