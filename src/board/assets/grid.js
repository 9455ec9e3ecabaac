// SPDX-License-Identifier: Apache-2.0
// The grid of panels: rows without holes, and one line at the end for the panels without data.
import {el, replace} from './dom.js';
import {onPrintLayout} from './print.js';

// Spans of panels by row: wishes are 1, 2 or Infinity (all columns). What is left over in a row is
// given to its panels in turn, the widest first.
export function spansOf(wishes, columns) {
  const spans = [];
  let row = [];
  const close = () => {
    const order = row.map((_, i) => i).sort((a, b) => row[b] - row[a] || a - b);
    let free = columns - row.reduce((sum, span) => sum + span, 0);
    for (let i = 0; free > 0; i = (i + 1) % row.length, --free) ++row[order[i]];
    spans.push(...row);
    row = [];
  };
  for (const wish of wishes) {
    const span = Math.min(wish, columns);
    if (row.length > 0 && row.reduce((sum, one) => sum + one, span) > columns) close();
    row.push(span);
  }
  if (row.length > 0) close();
  return spans;
}

// The tracks themselves would include those that the spans of a wider window made.
function columnsOf(grid) {
  return Number(window.getComputedStyle(grid).getPropertyValue('--columns'));
}

function arrange(grids, missing) {
  const empty = [];
  for (const grid of grids) {
    const shown = [...grid.children].filter((panel) => !panel.hidden);
    const columns = columnsOf(grid);
    const wishes = shown.map(({classList}) => (classList.contains('wide') || classList.contains('large') ? Infinity : classList.contains('two') ? 2 : 1));
    spansOf(wishes, columns).forEach((span, i) => shown[i].style.setProperty('grid-column', `span ${span}`));
    empty.push(...[...grid.children].filter((panel) => panel.hidden && panel.dataset.empty));
  }
  missing.hidden = empty.length === 0;
  const titles = empty.map((panel) => panel.querySelector('h2').textContent);
  const text = `No data for: ${titles.join(' · ')}`;
  const reasons = empty.map((panel, i) => el('li', {}, el('strong', {}, titles[i]), ` ${panel.dataset.empty}`));
  if (missing.dataset.drawn === text + reasons.map((one) => one.textContent).join()) return;
  missing.dataset.drawn = text + reasons.map((one) => one.textContent).join();
  replace(missing, el('summary', {}, text), el('ul', {class: 'plain'}, reasons));
}

// Keeps the grids arranged when panels appear, disappear or the window changes.
export function watchGrids(grids) {
  const missing = el('details', {class: 'missing', hidden: true});
  grids[grids.length - 1].after(missing);
  const draw = () => arrange(grids, missing);
  const watched = {subtree: true, childList: false, attributes: true, attributeFilter: ['data-empty', 'class', 'hidden']};
  const changes = new MutationObserver(draw);
  const sizes = new ResizeObserver(draw);
  for (const grid of grids) {
    changes.observe(grid, watched);
    sizes.observe(grid);
  }
  onPrintLayout(draw);
  draw();
}
