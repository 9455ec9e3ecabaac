// SPDX-License-Identifier: Apache-2.0
// Tools for all charts: which run, compared with which, over which x, range, smoothing, theme; and
// the keys that do the same.
import {buttonElement, el, note, redraw, replace, selectElement} from './dom.js';
import {compact, grouped, rangeText, xText} from './format.js';
import {allRuns, drawnRuns, hasPlanner} from './runinfo.js';
import {shortestEnd} from './series.js';
import {changeView, cursorX, lastFront, moveRange, onCursor, showRange, shownRange, view, wholeRange, zoomRange} from './view.js';

const max_listed = 50;  // runs in a list; more are found on the front page

const smoothings = [['0', 'no smoothing'], ['0.6', 'light smoothing'], ['0.9', 'medium smoothing'],
  ['0.98', 'strong smoothing']];

let drawn_toolbar = '';

// Only if something changed: a list that is open would close.
export function drawToolbar(holder) {
  const {run, compare, x, smooth, log_x, page, from, to} = view();
  const key = JSON.stringify([run, compare, x, smooth, log_x, page, from === null && to === null, allRuns().map((one) => one.name)]);
  if (key === drawn_toolbar) return;
  drawn_toolbar = key;
  redraw(holder, page === 'plan' ? el('h1', {}, 'Planner') : page === 'runs' ? el('h1', {}, 'Runs') : chartTools(), el('span', {class: 'space'}), pageTools());
  drawRange();
}

function pageTools() {
  const {page} = view();
  const is_first = page === 'run' && allRuns().length === 1;
  const to_runs = allRuns().length === 1 && page === 'plan' ? 'run' : 'runs';
  return [
    page !== 'runs' && allRuns().length > 0 && !is_first ? buttonElement('runs', 'back to the runs',
        () => changeView(to_runs === 'run' ? {page: 'run'} : {...lastFront(), page: 'runs'})) : null,
    hasPlanner() && page !== 'plan' ? buttonElement('planner', 'plan another job', () => changeView({page: 'plan'})) : null,
    buttonElement('◐', 'light or dark', switchTheme, {'aria-label': 'light or dark'}),
    buttonElement('?', 'keys (key ?)', showHelp, {'aria-label': 'help'})];
}

function chartTools() {
  const {run, x, smooth, log_x, from, to} = view();
  const runs = allRuns();
  const range = el('span', {class: 'range', id: 'range'});
  const near = smoothings.map(([value]) => value).find((value) => Math.abs(Number(value) - smooth) < 1e-9);
  return [
    runs.length > 1 && runs.length <= max_listed ? selectElement('run', runs.map((one) => [String(one.id), one.name]), String(run),
        (id) => changeView({run: Number(id), from: null, to: null, rank: null, page: 'run'})) : null,
    runs.length > 1 ? compareMenu(runs) : null,
    el('span', {class: 'group', role: 'group', 'aria-label': 'x-axis'}, ['step', 'tokens', 'time'].map((kind) =>
      buttonElement(kind, `x-axis: ${kind}`, () => changeView({x: kind, from: null, to: null}),
          {'aria-pressed': String(x === kind)}))),
    buttonElement('log x', 'logarithmic x-axis', () => changeView({log_x: !log_x}), {'aria-pressed': String(log_x)}),
    selectElement('smoothing of the lines; the spans below them stay', smoothings, near ?? '0',
        (value) => changeView({smooth: Number(value)})),
    el('span', {class: 'group', role: 'group', 'aria-label': 'range'},
        buttonElement('−', 'zoom out (key −)', () => zoomRange(2)),
        buttonElement('+', 'zoom in (key +)', () => zoomRange(0.5)),
        drawnRuns().length > 1 ? buttonElement('shortest', 'show as much as the shortest run has (key s)', showShortest) : null,
        buttonElement('all', 'show the whole run (key 0)', () => changeView({from: null, to: null}),
            {'aria-pressed': String(from === null && to === null)})),
    range];
}

// A run of 60 steps is visible beside one of 3,000.
function showShortest() {
  const end = shortestEnd(drawnRuns());
  if (end !== null) showRange(wholeRange().first, end);
}

function compareMenu(runs) {
  const {run, compare} = view();
  const others = runs.filter((one) => one.id !== run);
  const chosen = compare.filter((id) => id !== run);
  const boxOf = (one) => {
    const box = el('input', {type: 'checkbox', checked: chosen.includes(one.id), on: {change: () => {
      const rest = view().compare.filter((id) => id !== one.id);
      changeView({compare: box.checked ? [...rest, one.id].slice(-7) : rest});
    }}});
    const loss = typeof one.loss === 'number' ? `, loss ${compact(one.loss, 4)}` : '';
    return el('label', {}, box, el('span', {class: 'name'}, one.name),
        el('span', {class: 'muted'}, `${one.group ? `${one.group}, ` : ''}${one.state}, step ${grouped(one.step)}${loss}`));
  };
  const boxes = el('div', {class: 'boxes'});
  const drawBoxes = () => {
    const word = filter.value.toLowerCase();
    const found = others.filter((one) => chosen.includes(one.id) || `${one.name} ${one.group}`.toLowerCase().includes(word))
        .sort((a, b) => chosen.includes(b.id) - chosen.includes(a.id));
    replace(boxes, found.slice(0, max_listed).map(boxOf), found.length > max_listed ?
      note(`${grouped(found.length - max_listed)} more: search, or choose on the page of all runs`) : null);
  };
  const filter = el('input', {type: 'search', 'aria-label': 'search the runs to compare with', placeholder: 'search',
    hidden: others.length <= 8, on: {input: drawBoxes}});
  drawBoxes();
  const menu = el('details', {class: 'menu', id: 'compare'},
      el('summary', {}, chosen.length > 0 ? `compared with ${chosen.length}` : 'compare'),
      el('div', {class: 'choices'}, filter, boxes));
  menu.open = is_menu_open;
  menu.addEventListener('toggle', () => {
    is_menu_open = menu.open;
  });
  return menu;
}

let is_menu_open = false;

// The cursor's x, or the shown range.
export function drawRange() {
  const node = document.getElementById('range');
  if (!node) return;
  const {x} = view();
  const cursor = cursorX();
  const [from, to] = shownRange();
  const whole = wholeRange();
  if (whole.last === 1 && whole.first === 0) return;
  node.textContent = cursor === null ? rangeText(x, from, to) : xText(x, x === 'time' ? cursor : Math.round(cursor));
}

function switchTheme() {
  const root = document.documentElement;
  const is_dark = root.dataset.theme ? root.dataset.theme === 'dark' :
    window.matchMedia('(prefers-color-scheme: dark)').matches;
  root.dataset.theme = is_dark ? 'light' : 'dark';
  try {
    window.localStorage.setItem('trireme-theme', root.dataset.theme);
  } catch {
    // A report from file:// may have no storage: the choice lasts as long as the page.
  }
  window.dispatchEvent(new Event('theme'));
}

export function restoreTheme() {
  try {
    const theme = window.localStorage.getItem('trireme-theme');
    if (theme === 'dark' || theme === 'light') document.documentElement.dataset.theme = theme;
  } catch {
    // As above.
  }
}

const help = [['← →', 'move the range'], ['+ −', 'zoom in and out around the cursor'], ['0', 'show the whole run'],
  ['s', 'show as much as the shortest compared run has'],
  ['drag', 'zoom to a range'], ['shift + drag', 'move the range'], ['double click', 'show the whole run'],
  ['/', 'search the runs'], ['?', 'this help']];

function showHelp() {
  document.getElementById('help')?.remove();
  const dialog = el('dialog', {id: 'help', 'aria-label': 'keys'},
      el('h2', {}, 'Keys'),
      el('dl', {}, help.map(([key, text]) => [el('dt', {}, key), el('dd', {}, text)]).flat()),
      el('p', {class: 'muted'}, 'Every pixel column shows the minimum and the maximum of all its points; ' +
        'triangles at the upper edge are points that are not finite. Letters over vertical lines: R resumed, ' +
        '^ spike, S skipped step, ↶ went back, X failure, ! slow rank, P other plan, H hardware, A alert, N numerics.'),
      el('p', {class: 'muted'}, 'A search has words and conditions, and all of them must hold: ' +
        'llama state=running loss<3 optimizer.lr>=0.001 name~bf16. Its names are the columns of the list and ' +
        'the keys of configurations.'),
      buttonElement('close', 'close (Escape)', () => dialog.close()));
  document.body.append(dialog);
  dialog.showModal();
}

export function listenToKeys() {
  window.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) || view().page === 'plan') return;
    if (view().page === 'runs') {
      if (event.key === '/') {
        event.preventDefault();
        document.getElementById('search')?.focus();
      } else if (event.key === '?') {
        showHelp();
      }
      return;
    }
    const actions = {ArrowLeft: () => moveRange(-0.2), ArrowRight: () => moveRange(0.2), '+': () => zoomRange(0.5),
      '=': () => zoomRange(0.5), '-': () => zoomRange(2), '0': () => changeView({from: null, to: null}), s: showShortest, '?': showHelp};
    const action = actions[event.key];
    if (!action || (event.target.closest?.('.scroll') && event.key.startsWith('Arrow'))) return;
    event.preventDefault();
    action();
  });
  onCursor(drawRange);
}
