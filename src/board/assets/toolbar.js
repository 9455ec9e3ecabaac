// SPDX-License-Identifier: Apache-2.0
// Tools for all charts: which run, compared with which, over which x, range, smoothing, theme; and
// the keys that do the same.
import {buttonElement, el, redraw, selectElement} from './dom.js';
import {compact, grouped, rangeText, xText} from './format.js';
import {allRuns, hasPlanner} from './runinfo.js';
import {changeView, cursorX, moveRange, onCursor, shownRange, view, wholeRange, zoomRange} from './view.js';

const smoothings = [['0', 'no smoothing'], ['0.6', 'light smoothing'], ['0.9', 'medium smoothing'],
  ['0.98', 'strong smoothing']];

let drawn_toolbar = '';

// Only if something changed: a list that is open would close.
export function drawToolbar(holder) {
  const {run, compare, x, smooth, log_x, page, from, to} = view();
  const key = JSON.stringify([run, compare, x, smooth, log_x, page, from === null && to === null, allRuns().map((one) => one.name)]);
  if (key === drawn_toolbar) return;
  drawn_toolbar = key;
  redraw(holder, view().page === 'plan' ? el('h1', {}, 'Planner') : chartTools(), el('span', {class: 'space'}), pageTools());
  drawRange();
}

function pageTools() {
  const is_plan = view().page === 'plan';
  return [
    hasPlanner() && (allRuns().length > 0 || !is_plan) ? buttonElement(is_plan ? 'runs' : 'planner',
        is_plan ? 'back to the runs' : 'plan another job', () => changeView({page: is_plan ? 'run' : 'plan'})) : null,
    buttonElement('◐', 'light or dark', switchTheme, {'aria-label': 'light or dark'}),
    buttonElement('?', 'keys (key ?)', showHelp, {'aria-label': 'help'})];
}

function chartTools() {
  const {run, x, smooth, log_x, from, to} = view();
  const runs = allRuns();
  const range = el('span', {class: 'range', id: 'range'});
  const near = smoothings.map(([value]) => value).find((value) => Math.abs(Number(value) - smooth) < 1e-9);
  return [
    runs.length > 1 ? selectElement('run', runs.map((one) => [String(one.id), one.name]), String(run),
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
        buttonElement('all', 'show the whole run (key 0)', () => changeView({from: null, to: null}),
            {'aria-pressed': String(from === null && to === null)})),
    range];
}

function compareMenu(runs) {
  const {run, compare} = view();
  const boxes = runs.filter((one) => one.id !== run).map((one) => {
    const box = el('input', {type: 'checkbox', checked: compare.includes(one.id), on: {change: () => {
      const others = view().compare.filter((id) => id !== one.id);
      changeView({compare: box.checked ? [...others, one.id].slice(-7) : others});
    }}});
    const loss = typeof one.loss === 'number' ? `, loss ${compact(one.loss, 4)}` : '';
    return el('label', {}, box, el('span', {class: 'name'}, one.name),
        el('span', {class: 'muted'}, `${one.group ? `${one.group}, ` : ''}${one.state}, step ${grouped(one.step)}${loss}`));
  });
  const count = compare.filter((id) => id !== run).length;
  const menu = el('details', {class: 'menu', id: 'compare'},
      el('summary', {}, count > 0 ? `compared with ${count}` : 'compare'), el('div', {class: 'choices'}, boxes));
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
  ['drag', 'zoom to a range'], ['shift + drag', 'move the range'], ['double click', 'show the whole run'],
  ['?', 'this help']];

function showHelp() {
  document.getElementById('help')?.remove();
  const dialog = el('dialog', {id: 'help', 'aria-label': 'keys'},
      el('h2', {}, 'Keys'),
      el('dl', {}, help.map(([key, text]) => [el('dt', {}, key), el('dd', {}, text)]).flat()),
      el('p', {class: 'muted'}, 'Every pixel column shows the minimum and the maximum of all its points; ' +
        'triangles at the upper edge are points that are not finite. Letters over vertical lines: R resumed, ' +
        '^ spike, S skipped step, ↶ went back, X failure, ! slow rank, P other plan, H hardware, A alert, N numerics.'),
      buttonElement('close', 'close (Escape)', () => dialog.close()));
  document.body.append(dialog);
  dialog.showModal();
}

export function listenToKeys() {
  window.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) || view().page !== 'run') return;
    const actions = {ArrowLeft: () => moveRange(-0.2), ArrowRight: () => moveRange(0.2), '+': () => zoomRange(0.5),
      '=': () => zoomRange(0.5), '-': () => zoomRange(2), '0': () => changeView({from: null, to: null}), '?': showHelp};
    const action = actions[event.key];
    if (!action || (event.target.closest?.('.scroll') && event.key.startsWith('Arrow'))) return;
    event.preventDefault();
    action();
  });
  onCursor(drawRange);
}
