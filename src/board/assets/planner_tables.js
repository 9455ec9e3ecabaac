// SPDX-License-Identifier: Apache-2.0
// Other layouts than the answer: slower and faster ones, on fewer GPUs, what a textbook does, what would
// make a job fit, and what was rejected and why.
import {buttonElement, el, note} from './dom.js';
import {cardTable, longTable, planCard, textList} from './planner_parts.js';

const numeric = (name) => ({name, is_number: true});
const words = (name) => ({name, is_number: false});

// Cells of a layout: [[column, cell]], the same for all rows of a table.
function layoutCells(place, one, has_run, {figure}) {
  const cells = [[numeric('a step'), figure(`${place}.seconds`, 'step')], [numeric('memory'), figure(`${place}.bytes`, 'bytes')]];
  if (has_run) cells.push([numeric('run time'), figure(`${place}.run.days`, 'days')], [numeric('cost'), figure(`${place}.run.dollars`, 'dollars')]);
  return [...cells, [words('layout'), `${one.fits ? '' : 'does not fit: '}${one.name}`]];
}

function tableOf(caption, rows, count) {
  if (rows.length === 0) return null;
  const columns = rows[0].map(([column]) => column);
  return longTable(caption, columns, rows.map((row) => row.map(([, cell]) => cell)), count);
}

const hasRun = (list) => list.some((one) => one.run);

function changeRows(answer, name, figures) {
  const list = answer[name] || [];
  return list.map((one, i) => [[numeric('change'), figures.figure(`${name}.${i}.time_change`, 'change')],
    ...layoutCells(`${name}.${i}`, one, hasRun(list), figures)]);
}

// Layouts beside the answer: the one that was asked for, faster but less simple ones, slower ones.
export function neighbourCard(answer, figures) {
  const passed = changeRows(answer, 'passed_over', figures);
  const others = changeRows(answer, 'alternatives', figures);
  const asked = answer.asked ? [layoutCells('asked', answer.asked, hasRun([answer.asked]), figures)] : [];
  if (!answer.best && asked.length === 0) return null;
  return el('section', {class: 'panel wide', id: 'plan-neighbours'}, el('h2', {}, 'What else would work?'),
      asked.length > 0 ? [el('h3', {}, 'The layout you gave'), tableOf('your layout', asked, 1)] : null,
      passed.length > 0 ? [el('h3', {}, 'Faster, but less simple'), tableOf('faster layouts', passed, 5),
        el('p', {class: 'note'}, 'The answer is the simplest layout within ', figures.figure('tolerance', 'percent'), ' of the fastest.')] : null,
      el('h3', {}, 'Neighbours, and the best of each other kind'), tableOf('other layouts', others, 8) || note('There is no other layout.'));
}

export function fewerCard(answer, figures) {
  const list = answer.fewer || [];
  if (list.length === 0) return null;
  const rows = list.map((one, i) => [[numeric('GPUs'), figures.figure(`fewer.${i}.layout.gpus`, 'count')],
    [numeric('speed a GPU'), figures.figure(`fewer.${i}.throughput_share`, 'percent')], ...layoutCells(`fewer.${i}`, one, hasRun(list), figures)]);
  return el('section', {class: 'panel wide'}, el('h2', {}, 'And with fewer GPUs?'),
      el('p', {class: 'about'}, 'the same job; speed a GPU relative to the answer'), tableOf('fewer GPUs', rows, 6));
}

export function recipeCard(answer, figures) {
  const list = answer.precisions || [];
  if (list.length === 0) return null;
  const rows = list.map((one, i) => (one.best ? [one.precision, figures.figure(`precisions.${i}.time_change`, 'change'),
    figures.figure(`precisions.${i}.best.seconds`, 'step'), one.best.name] : [one.precision, '–', '–', `no layout: ${one.reason}`]));
  return el('section', {class: 'panel wide'}, el('h2', {}, 'Which number format?'), el('p', {class: 'about'}, 'the best layout with each recipe'),
      cardTable('recipes', [words('recipe'), numeric('change'), numeric('a step'), words('layout')], rows));
}

export function textbookCard(answer, figures) {
  const book = answer.textbook;
  if (!book || book.steps.length === 0) return null;
  const compared = typeof book.seconds === 'number' && typeof book.time_change === 'number';
  return planCard('What would a textbook do?', book.name || 'rules of thumb of the field',
      compared ? el('p', {}, figures.figure('textbook.seconds', 'step'), ' a step, ', figures.figure('textbook.time_change', 'change'),
          ' against the answer', book.fits ? '.' : ', but it does not fit.') : null,
      el('ol', {class: 'plain'}, book.steps.map(({what, why}) => el('li', {}, el('b', {}, what), `: ${why}`))),
      textList('Where the answer differs', book.departures));
}

// If nothing fits: what the state takes, and the changes that were tried and help. `apply` asks again with one.
export function fixCard(answer, figures, apply) {
  const list = answer.change_layouts || [];
  const rows = list.map((one, i) => [[words('change'), el('span', {}, buttonElement('plan it', `plan the job with ${one.change}`, () => apply(one.change)),
    ` ${one.change}`)], ...layoutCells(`change_layouts.${i}`, one, hasRun(list), figures)]);
  const {figure} = figures;
  return el('section', {class: 'panel wide', id: 'plan-changes'}, el('h2', {}, 'What would make it fit?'),
      answer.state ? el('p', {}, 'Weights, gradients and optimizer take ', figure('state.bytes', 'bytes'), ' (',
          figure('state.bytes_per_parameter', 'count'), ' bytes for each parameter): at least ', figure('state.min_gpus', 'count'),
          ' GPUs can hold them.') : null,
      tableOf('changes', rows, 8) || note('No change that was tried makes it fit.'));
}

// A rule, or the memory that the nearest layout lacks. Splits that break the same rule share a row.
export function rejectedCard(answer, {figure}) {
  const list = answer.rejected || [];
  const split = (one, i) => el('span', {class: 'split'}, ['tp', 'cp', 'pp', 'ep'].filter((axis) => one[axis] > 1 || axis === 'tp' || axis === 'pp')
    .map((axis) => [` ${axis} `, figure(`rejected.${i}.${axis}`, 'count')]).flat());
  const rows = new Map();  // by reason: [splits, text]
  list.forEach((one, i) => {
    const is_large = one.missing_bytes > 0;
    const key = is_large ? `memory ${i}` : one.reason;
    if (!rows.has(key)) {
      rows.set(key, [[], el('span', {}, is_large ? ['too large: at least ', figure(`rejected.${i}.missing_bytes`, 'bytes'), ' more than a GPU may use'] : one.reason)]);
    }
    rows.get(key)[0].push(split(one, i));
  });
  return el('section', {class: 'panel wide', id: 'plan-rejected'}, el('h2', {}, 'Why not another split?'),
      el('p', {class: 'about'}, 'numbers of ranks for which no layout is possible or fits'),
      list.length > 0 ? longTable('rejected', [words('split'), words('reason')],
          [...rows.values()].map(([splits, reason]) => [el('span', {}, splits), reason]), 6) : note('A layout fits for every split that is possible.'));
}
