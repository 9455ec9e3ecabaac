// SPDX-License-Identifier: Apache-2.0
// Parts of the planner's page: cards, pairs of label and value, tables that become cards on a phone.
import {el} from './dom.js';

export function planCard(title, about, ...children) {
  return el('section', {class: 'panel plan-card'}, el('h2', {}, title), about ? el('p', {class: 'about'}, about) : null, ...children);
}

// rows: [[label, value, remark]]; null rows are left out.
export function pairList(rows) {
  return el('dl', {class: 'pairs'}, rows.filter((row) => row).map(([label, value, remark]) =>
    el('div', {}, el('dt', {}, label), el('dd', {}, value, remark ? el('span', {class: 'muted'}, ' ', remark) : null))));
}

// Large figures: [[label, value, remark]].
export function bigFigures(rows) {
  return el('dl', {class: 'big-figures'}, rows.filter((row) => row).map(([label, value, remark]) =>
    el('div', {}, el('dt', {}, label), el('dd', {}, value), remark ? el('dd', {class: 'muted'}, remark) : null)));
}

// columns: [{name, is_number}]; a cell of a narrow page has the name of its column beside it.
export function cardTable(caption, columns, rows) {
  const align = (column) => (column.is_number ? 'number' : null);
  return el('table', {class: 'card-table'},
      el('caption', {class: 'unseen'}, caption),
      el('thead', {}, el('tr', {}, columns.map((column) => el('th', {scope: 'col', class: align(column)}, column.name)))),
      el('tbody', {}, rows.map((row) => el('tr', {}, row.map((cell, i) =>
        el('td', {class: align(columns[i]), 'data-label': columns[i].name}, el('span', {}, cell)))))));
}

// The first rows, and a line that opens the others.
export function longTable(caption, columns, rows, count) {
  const rest = rows.slice(count);
  return el('div', {}, cardTable(caption, columns, rows.slice(0, count)), rest.length === 0 ? null :
    el('details', {}, el('summary', {}, `${rest.length} more`), cardTable(`${caption}, more`, columns, rest)));
}

export function textList(title, lines) {
  if (!lines || lines.length === 0) return null;
  return el('div', {}, el('h3', {}, title), el('ul', {class: 'plain'}, lines.map((line) => el('li', {}, line))));
}

export function verdictLine(is_good, word, text) {
  return el('p', {class: 'sentence'}, el('span', {class: `lamp ${is_good ? 'good' : 'bad'}`},
      el('span', {class: 'dot', 'aria-hidden': 'true'}), word), el('span', {class: 'text'}, text));
}
