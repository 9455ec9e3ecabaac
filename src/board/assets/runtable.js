// SPDX-License-Identifier: Apache-2.0
// The table of runs: one row for each run, headings that sort. Rows that did not change keep their
// elements, so that focus and selection stay while runs go on; rows below the window are made when
// the reader comes near.
import {buttonElement, el} from './dom.js';
import {compact, duration, grouped, money} from './format.js';
import {listFieldOf, list_fields, stateOf} from './runlist.js';
import {sparkline} from './sparkline.js';
import {fragmentOfRun} from './view.js';

const rows_a_time = 30;
const no_value = '–';

const orDash = (value, text) => (value === null || value === undefined ? no_value : text(value));
// Equal digits after the point let a column of losses be compared.
const lossText = (value) => (typeof value === 'number' && Math.abs(value) < 1000 ? value.toFixed(4) : compact(value, 5));
const fullText = (value) => (value === null || value === undefined ? null : String(value));

// show(run): a text or an element; full(run): its tooltip with every digit.
const list_columns = [
  {id: 'state', show: stateElement},
  {id: 'curve', title: 'loss over steps', show: (run) => sparkline(run.curve)},
  {id: 'loss', is_number: true, show: (run) => orDash(run.loss, lossText), full: (run) => fullText(run.loss)},
  {id: 'validation', is_number: true, show: (run) => orDash(run.validation_loss, lossText),
    full: (run) => fullText(run.validation_loss)},
  {id: 'speed', is_number: true, show: (run) => orDash(run.tokens_per_second, (value) => compact(value, 4)),
    full: (run) => fullText(run.tokens_per_second)},
  {id: 'mfu', is_number: true, show: (run) => orDash(run.mfu_percent, (value) => `${compact(value, 3)} %`),
    full: (run) => fullText(run.mfu_percent)},
  {id: 'cost', is_number: true, show: (run) => orDash(run.dollars, money), full: (run) => fullText(run.dollars)},
  {id: 'step', is_number: true, show: (run) => (run.steps ? `${grouped(run.step)} of ${grouped(run.steps)}` : grouped(run.step))},
  {id: 'age', is_number: true, show: (run) => orDash(run.age_seconds, (value) => duration(Math.max(0, Math.round(value))))},
  {id: 'sentence', show: (run) => el('div', {class: 'clamp'}, run.sentence || ''), full: (run) => run.sentence},
];

function stateElement(run) {
  return el('span', {class: `lamp ${run.lamp}`}, el('span', {class: 'dot', 'aria-hidden': 'true'}), stateOf(run));
}

// on: {order(field id), choose(run id, is chosen)}. Returns {node, draw(groups, options)}.
export function makeRunTable(on) {
  const head = el('tr', {});
  const body = el('tbody', {});
  const more = buttonElement('', 'show more runs', () => grow(), {class: 'more'});
  const table = el('table', {class: 'runs'}, el('caption', {class: 'unseen'}, 'runs'), el('thead', {}, head), body);
  const node = el('div', {class: 'run-table'}, table, more);
  const rows = new Map();  // by run
  const closed = new Set();  // names of groups
  let shown = {groups: [], options: {order: '', columns: [], chosen: []}, limit: rows_a_time, head: ''};

  const nearness = new IntersectionObserver((entries) => {
    if (entries.some((entry) => entry.isIntersecting)) grow();
  }, {rootMargin: '600px'});
  const grow = () => {
    shown.limit += rows_a_time;
    drawBody();
    nearness.unobserve(more);  // and asks again: it may still be near
    nearness.observe(more);
  };
  nearness.observe(more);

  // Draws {name, runs} groups; the first rows alone if the search or the order is a new one.
  const draw = (groups, options) => {
    const is_other = options.order !== shown.options.order || options.key !== shown.options.key;
    shown = {...shown, groups, options, limit: is_other ? rows_a_time : shown.limit};
    drawHead();
    drawBody();
  };

  const drawHead = () => {
    const {order, columns} = shown.options;
    const key = JSON.stringify([order, columns]);
    if (shown.head === key) return;
    shown.head = key;
    const focused = document.activeElement?.closest?.('th')?.dataset.column;
    const heading = (id, title, is_number, class_name) => {
      const is_down = order === `-${id}`, is_up = order === id;
      const text = el('button', {type: 'button', title: `sort by ${title}`, on: {click: () => on.order(id)}}, title,
          el('span', {'aria-hidden': 'true', class: 'arrow'}, is_up ? ' ↑' : is_down ? ' ↓' : ''));
      return el('th', {scope: 'col', 'data-column': id, 'aria-sort': is_up ? 'ascending' : is_down ? 'descending' : null,
        class: is_number ? `${class_name} number` : class_name}, text);
    };
    head.replaceChildren(
        el('th', {scope: 'col', class: 'col-choose'}, el('span', {class: 'unseen'}, 'compare')), heading('name', 'run', false, 'col-name'),
        ...list_columns.map(({id, title, is_number}) => (id === 'curve' ?
          el('th', {scope: 'col', class: `col-${id}`}, title) : heading(id, list_fields[id].title, is_number, `col-${id}`))),
        ...columns.map((name) => heading(name, name, false, 'col-key')));
    if (focused) [...head.children].find((one) => one.dataset.column === focused)?.querySelector('button').focus();
  };

  const drawBody = () => {
    const {groups, options, limit} = shown;
    const focused = body.contains(document.activeElement) ? document.activeElement : null;
    const fields = options.columns.map((name) => listFieldOf(name));
    const wanted = [];
    let left = limit, count = 0;
    for (const {name, runs} of groups) {
      count += runs.length;
      if (left <= 0) continue;
      if (name !== null) wanted.push(groupRow(name, runs));
      if (closed.has(name)) continue;
      for (const run of runs.slice(0, left)) wanted.push(rowOf(run, fields));
      left -= runs.length;
    }
    if (wanted.length !== body.children.length || wanted.some((row, i) => row !== body.children[i])) {
      body.replaceChildren(...wanted);
      focused?.focus({preventScroll: true});
    }
    table.setAttribute('aria-rowcount', String(count + 1));
    more.hidden = left >= 0;
    more.textContent = `more of ${grouped(count)} runs`;
  };

  const groupRow = (name, runs) => {
    const best = Math.min(...runs.map((run) => run.validation_loss ?? run.loss).filter(Number.isFinite));
    const is_open = !closed.has(name);
    const button = buttonElement(`${is_open ? '▾' : '▸'} ${name}`, is_open ? 'hide the runs of this group' : 'show the runs of this group',
        () => {
          if (is_open) closed.add(name); else closed.delete(name);
          drawBody();
        }, {class: 'link', 'aria-expanded': String(is_open)});
    const about = `${grouped(runs.length)} ${runs.length === 1 ? 'run' : 'runs'}` +
      (Number.isFinite(best) ? `, lowest loss ${lossText(best)}` : '');
    return el('tr', {class: 'group-row'}, el('th', {scope: 'rowgroup', colspan: String(2 + list_columns.length +
      shown.options.columns.length)}, button, el('span', {class: 'muted'}, ` ${about}`)));
  };

  const rowOf = (run, fields) => {
    const {columns, chosen} = shown.options;
    if (!rows.has(run.id)) rows.set(run.id, newRow(run));
    const row = rows.get(run.id);
    row.box.checked = chosen.includes(run.id);
    row.node.classList.toggle('chosen', row.box.checked);
    const key = columns.join('\n') + fields.map(({value}) => value(run)).join('\n');
    if (row.run === run && row.key === key) return row.node;
    Object.assign(row, {run, key});
    row.link.textContent = run.name;
    row.link.title = run.folder;
    row.link.href = fragmentOfRun(run.id);
    row.box.setAttribute('aria-label', `compare ${run.name}`);
    row.group.textContent = run.group || '';
    row.tags.replaceChildren(...(run.tags || []).map((tag) => el('span', {class: 'tag'}, tag)));
    const cells = list_columns.map(({id, is_number, show, full}) =>
      el('td', {class: is_number ? `col-${id} number` : `col-${id}`, title: full ? full(run) : null}, show(run)));
    const keys = fields.map(({value}) => el('td', {class: 'col-key'}, orDash(value(run), String)));
    row.node.replaceChildren(row.first, row.second, ...cells, ...keys);
    return row.node;
  };

  const newRow = (run) => {
    const box = el('input', {type: 'checkbox', on: {change: () => on.choose(run.id, box.checked)}});
    const link = el('a', {});
    const group = el('span', {class: 'muted'});
    const tags = el('span', {});
    return {run: null, key: '', box, link, group, tags, node: el('tr', {}),
      first: el('td', {class: 'col-choose'}, box), second: el('th', {scope: 'row', class: 'col-name'}, link, ' ', group, ' ', tags)};
  };

  return {node, draw};
}
