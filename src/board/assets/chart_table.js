// SPDX-License-Identifier: Apache-2.0
// The numbers of a chart as a table, with every digit that the server sent, and all points as CSV.
import {inlinedAnswer, isReport, queryText} from './api.js';
import {lowerBound} from './buckets.js';
import {el, note, replace, saveText, scrolledTable} from './dom.js';
import {digits, utcText} from './format.js';
import {shownRange, view} from './view.js';

const max_rows = 4000;

export function chartTable(holder, name, lines) {
  const shown = lines.filter(({buckets}) => buckets && buckets.x.length > 0);
  if (shown.length === 0) {
    replace(holder, note('There are no points in this range.'));
    return;
  }
  const [from, to] = shownRange();
  const rows = new Map();
  const has_spans = shown.map(({buckets}) => buckets.min.some((min, i) => min !== buckets.max[i]));
  const columns = [{name: view().x === 'time' ? 'time (UTC)' : view().x, is_number: true}];
  let width = 0;
  shown.forEach(({label, buckets}, line) => {
    const begin = width;
    width += has_spans[line] ? 3 : 1;
    columns.push({name: label, is_number: true});
    if (has_spans[line]) columns.push({name: 'min', is_number: true}, {name: 'max', is_number: true});
    for (let i = lowerBound(buckets.end, from); i < buckets.x.length && buckets.x[i] <= to; ++i) {
      const x = buckets.end[i];
      if (!rows.has(x)) rows.set(x, []);
      rows.get(x)[begin] = digits(buckets.last[i]);
      if (has_spans[line]) {
        rows.get(x)[begin + 1] = digits(buckets.min[i]);
        rows.get(x)[begin + 2] = digits(buckets.max[i]);
      }
    }
  });
  const xs = [...rows.keys()].sort((a, b) => a - b).slice(-max_rows);
  const body = xs.map((x) => [view().x === 'time' ? utcText(x) : digits(x),
    ...Array.from({length: width}, (_, i) => rows.get(x)[i] ?? '')]);
  const top = holder.querySelector('.scroll')?.scrollTop ?? 0;
  replace(holder, el('p', {class: 'note'}, 'All points as CSV: ', shown.map((line, i) =>
    [i > 0 ? ', ' : '', csvLink(line)]).flat()), scrolledTable(name, columns, body));
  holder.querySelector('.scroll').scrollTop = top;
}

function csvLink({run, tag, label}) {
  const file = `${tag.replace(/[^A-Za-z0-9._-]+/g, '_')}.csv`;
  if (!isReport()) {
    return el('a', {href: `/api/run/${run}/raw` + queryText({tag, format: 'csv'}), download: file}, label);
  }
  const raw = inlinedAnswer(`/api/run/${run}/raw` + queryText({tag, format: 'json'}));
  if (!raw) return el('span', {title: 'the report has only the summary of this tag'}, label);
  const save = (event) => {
    event.preventDefault();
    const lines = raw.step.map((step, i) => `${step},${digits(raw.time[i])},${digits(raw.value[i])}`);
    saveText(file, `step,time,value\n${lines.join('\n')}\n`, 'text/csv');
  };
  return el('a', {href: '#', on: {click: save}}, label);
}
