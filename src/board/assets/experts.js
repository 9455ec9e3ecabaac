// SPDX-License-Identifier: Apache-2.0
// Are the experts busy? Figures of the routers of every block, from the tags experts/block_N/...:
// blocks by steps for a chosen figure, which experts were the busiest of their block, and the last
// value of every figure over all blocks.
import {el, makePanel, redraw, scrolledTable, selectElement, setEmpty, tableButton} from './dom.js';
import {brief, digits, grouped, percent} from './format.js';
import {HeatMap} from './heat.js';
import {hasTag, shownRun} from './runinfo.js';
import {addSeriesUser, refreshSeries, seriesOf, stepOfX} from './series.js';
import {isFillingAll} from './print.js';
import {lowerBound} from './buckets.js';
import {shownRange, view} from './view.js';

const times = (value) => `${brief(value, 3)} ×`;

// `is_lowest`: low is bad. `summary`: name in the list of last values.
const router_figures = [
  {name: 'expert_max_over_mean', title: 'rows of the busiest expert over the mean', summary: 'busiest expert over the mean', text: times},
  {name: 'rank_max_over_mean', title: 'rows of the busiest rank over the mean', summary: 'busiest rank over the mean', text: times},
  {name: 'idle_experts', title: 'experts without rows', summary: 'experts without rows', text: grouped},
  {name: 'dropped', title: 'dropped pairs of a token and an expert', summary: 'dropped pairs', text: percent},
  {name: 'lost', title: 'tokens without any row', summary: 'tokens without any row', text: percent},
  {name: 'entropy', title: 'entropy of the scores (1: equal)', summary: 'mean entropy of the scores', text: (value) => brief(value, 4), is_lowest: true},
  {name: 'budget_used', title: 'used part of the row budget', summary: 'used row budget', text: percent},
  {name: 'largest_bias', title: 'largest bias of a router', summary: 'largest bias', text: (value) => brief(value, 3)},
];

// Not a figure of its own: blocks by experts.
const busiest = {name: 'expert_max_over_mean', key: 'busiest', title: 'experts that were the busiest: most rows over the mean', text: times};
const choices_of_figure = [router_figures[0], busiest, ...router_figures.slice(1)].map((figure) => ({key: figure.name, ...figure}));

const tagOf = (block, name) => `experts/block_${block}/${name}`;

// The blocks that have a router, in their order.
function blocksOf(run, name) {
  const found = (run?.tags || []).map((tag) => /^experts\/block_(\d+)\/(\w+)$/.exec(tag)).filter((parts) => parts && parts[2] === name);
  return found.map((parts) => Number(parts[1])).sort((a, b) => a - b);
}

// The matrix of a figure: a column for each bucket of the first block that has points.
function matrixOf(run, blocks, figure) {
  const series = blocks.map((block) => seriesOf(run, tagOf(block, figure.name)));
  const first = series.find((buckets) => buckets && buckets.x.length > 0);
  if (!first) return null;
  const [from, to] = shownRange();
  const begin = lowerBound(first.end, from);
  const shown = first.x.slice(begin).filter((x) => x <= to).map((x, i) => [x, first.end[begin + i]]);
  const values = new Float32Array(blocks.length * shown.length).fill(NaN);
  series.forEach((buckets, row) => {
    const at = new Map((buckets?.end || []).map((end, i) => [end, i]));
    shown.forEach(([, end], col) => {
      const i = at.get(end);
      const value = i === undefined ? null : figure.is_lowest ? buckets.min[i] : buckets.max[i];
      if (value !== null) values[row * shown.length + col] = figure.is_lowest ? -value : value;
    });
  });
  return {rows: blocks.map((block) => `block ${block}`), cols: shown.length, values,
    steps: shown.map((range) => range.map((x) => Math.round(stepOfX(x))))};
}

// Blocks by experts: the largest load with which an expert was the busiest one of its block, over the
// last step of every bucket; nothing where it never was.
function busiestMatrix(run, blocks) {
  const pairs = [];
  let experts = Number(shownRun()?.config?.model?.dims?.moe?.experts) || 0;
  const [from, to] = shownRange();
  blocks.forEach((block, row) => {
    const loads = seriesOf(run, tagOf(block, busiest.name)), names = seriesOf(run, tagOf(block, 'busiest_expert'));
    const at = new Map((names?.end || []).map((end, i) => [end, names.last[i]]));
    (loads?.end || []).forEach((end, i) => {
      if (end < from || end > to || typeof at.get(end) !== 'number' || typeof loads.last[i] !== 'number') return;
      pairs.push([row, at.get(end), loads.last[i]]);
      experts = Math.max(experts, at.get(end) + 1);
    });
  });
  if (pairs.length === 0) return null;
  const values = new Float32Array(blocks.length * experts).fill(NaN);
  for (const [row, expert, load] of pairs) {
    const cell = row * experts + expert;
    if (!(values[cell] >= load)) values[cell] = load;
  }
  return {rows: blocks.map((block) => `block ${block}`), cols: experts, values, axis: 'expert',
    steps: Array.from({length: experts}, (_, expert) => [expert, expert])};
}

// The last value of every figure over all blocks.
function lastFigures(run) {
  return router_figures.map((figure) => {
    const buckets = seriesOf(run, `experts/${figure.name}`);
    if (!buckets || buckets.x.length === 0) return null;
    const value = buckets.last[buckets.last.length - 1];
    return el('div', {title: digits(value)}, el('dt', {}, figure.summary), el('dd', {}, figure.text(value)));
  }).filter(Boolean);
}

export function makeExpertsPanel() {
  const panel = makePanel('experts', 'Are the experts busy?', '', {class: 'panel two'});
  const picture = el('div', {}), table = el('div', {hidden: true}), summary = el('dl', {class: 'columns'});
  const about = panel.node.querySelector('.about');
  let figure = choices_of_figure[0];
  const blocks = () => blocksOf(shownRun(), figure.name);
  const sign = () => (figure.is_lowest ? -1 : 1);
  const heat = new HeatMap(picture, {name: 'blocks by steps',
    text: (value) => (Number.isNaN(value) ? figure.key === busiest.key ? 'never the busiest' : 'no data' : figure.text(sign() * value)), rowTitle: (row) => titleOf(row)});
  const titleOf = (row) => {
    const block = blocks()[row];
    const names = seriesOf(view().run, tagOf(block, 'busiest_expert'));
    const is_load = figure.key === 'expert_max_over_mean' && names && names.x.length > 0;
    return `block ${block}${is_load ? ` (at last expert ${grouped(names.last[names.last.length - 1])})` : ''}`;
  };
  const draw = () => {
    const list = blocks();
    setEmpty(panel.node, list.length > 0 ? null : 'The model has no experts.');
    if (list.length === 0) return;
    const is_by_expert = figure.key === busiest.key;
    about.textContent = `${figure.title}; blocks by ${is_by_expert ? 'experts' : 'steps'}`;
    const matrix = is_by_expert ? busiestMatrix(view().run, list) : matrixOf(view().run, list, figure);
    if (!matrix || matrix.cols === 0) return;
    heat.set(matrix);
    redraw(summary, lastFigures(view().run));
    if (table.hidden) return;
    redraw(table, scrolledTable(figure.title, [{name: 'block'}, {name: 'step', is_number: true}, {name: figure.title, is_number: true}],
        list.flatMap((block) => {
          const buckets = seriesOf(view().run, tagOf(block, figure.name));
          return (buckets?.end || []).map((x, i) => [`block ${block}`, digits(Math.round(stepOfX(x))), digits(buckets.last[i])]).slice(-500);
        })));
  };
  const isNear = () => {
    const box = panel.node.getBoundingClientRect();
    return isFillingAll() || (box.height > 0 && box.top < window.innerHeight + 400 && box.bottom > -400);
  };
  addSeriesUser({
    width: () => heat.width(), draw,
    needs: () => {
      if (panel.node.hidden || !isNear()) return [];
      const run = view().run;
      const tags = blocks().flatMap((block) => [tagOf(block, figure.name), tagOf(block, 'busiest_expert')]);
      return [...tags, ...router_figures.map(({name}) => `experts/${name}`)].filter((tag) => hasTag(run, tag)).map((tag) => ({run, tag}));
    },
  });
  panel.tools.append(selectElement('figure of the routers', choices_of_figure.map(({key, title}) => [key, title]), figure.key, (key) => {
    figure = choices_of_figure.find((one) => one.key === key);
    refreshSeries();
  }), tableButton((is_table) => {
    table.hidden = !is_table;
    picture.hidden = is_table;
    draw();
  }));
  panel.body.append(picture, table, summary);
  return {node: panel.node, draw, redraw: draw, refresh: async () => {
    draw();
    if (blocks().length > 0) await refreshSeries();
  }};
}
