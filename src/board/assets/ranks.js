// SPDX-License-Identifier: Apache-2.0
// Who is slow: ranks by steps for a chosen column of ranks.bin; a click on a row gives the rank's
// own curve against the median, and all of its counters.
import {inlinedKeys, isReport} from './api.js';
import {el, makePanel, redraw, replace, scrolledTable, selectElement, setEmpty, sizeCanvas, tableButton} from './dom.js';
import {columnText, digits32} from './format.js';
import {HeatMap, loadHeat} from './heat.js';
import {columnName} from './names.js';
import {cssColor, paintSeries, seriesColor, textFont} from './paint.js';
import {onPrint} from './print.js';
import {shownRun} from './runinfo.js';
import {changeView, view} from './view.js';

// In a report, only the columns that it carries.
function columnsShown() {
  const all = shownRun()?.rank_columns || [];
  if (!isReport()) return all;
  const keys = inlinedKeys(`/api/run/${view().run}/heat?table=ranks`).map((key) => new URLSearchParams(key.split('?')[1]).get('column'));
  return all.filter((column) => keys.includes(column));
}

function columnShown() {
  const columns = columnsShown();
  return columns.includes(view().column) ? view().column : columns.find((name) => name === 'compute_seconds') || columns[0];
}

function coordText(coord) {
  return Object.entries(coord || {}).map(([axis, index]) => `${axis} ${index}`).join(' ');
}

function rankTitle(row) {
  const rank = shownRun()?.ranks?.[row];
  return rank ? `rank ${rank.rank} on ${rank.node} (${rank.device}; ${coordText(rank.coord)})` : `rank ${row}`;
}

export function makeRanksPanel() {
  const panel = makePanel('ranks', 'Who is slow?', 'ranks by steps; the largest value of each cell', {class: 'panel wide'});
  const state = {matrix: null, is_table: false, counters: null};
  const picture = el('div', {}), table = el('div', {hidden: true}), detail = el('div', {});
  const heat = new HeatMap(picture, {
    name: 'ranks by steps', text: (value) => columnText(columnShown() || '', value), rowTitle: rankTitle,
    rowChosen: (row) => changeView({rank: view().rank === row ? null : row}), chosen: () => view().rank ?? -1,
    order: orderOfRanks, groups: groupsOfRanks,
  });
  const tools = el('span', {class: 'tools'});
  panel.tools.append(tools, tableButton((is_table) => {
    state.is_table = picture.hidden = is_table;
    table.hidden = !is_table;
    drawRankTable(table, state);
  }));
  panel.body.append(picture, table, detail);
  onPrint(() => drawRankDetail(detail, state));
  let drawn = '';
  const draw = () => {
    const columns = columnsShown();
    const key = JSON.stringify([columns, columnShown(), view().sort, view().rank]);
    if (key === drawn) {
      heat.draw();
      return;
    }
    drawn = key;
    redraw(tools, columns.length > 0 ? selectElement('column', columns.map((name) => [name, columnName(name)]), columnShown(),
        (column) => changeView({column})) : null,
    selectElement('order of rows', [['rank', 'by rank'], ['node', 'by node'], ['stage', 'by stage'], ['worst', 'highest first']],
        view().sort, (sort) => changeView({sort})));
    heat.image = null;
    heat.draw();
    drawRankTable(table, state);
    drawRankDetail(detail, state);
  };
  return {
    node: panel.node, draw, redraw: () => drawRankDetail(detail, state), is_wide: true,
    refresh: async () => {
      const column = columnShown();
      if (!column) {
        setEmpty(panel.node, 'The run has no ranks.bin yet: metrics.ranks_freq sets how often it is written.');
        return;
      }
      setEmpty(panel.node, null);
      state.matrix = await loadHeat(view().run, 'ranks', column, heat.width());
      heat.set(state.matrix);
      await loadCounters(state);
      drawRankTable(table, state);
      drawRankDetail(detail, state);
    },
  };
}

// All columns of the last record, only while a rank is chosen.
async function loadCounters(state) {
  if (view().rank === null || isReport() || !state.matrix || state.matrix.cols === 0) return;
  state.counters = await lastRecord(columnsShown());
}

// column -> values by rank, of the last record.
export async function lastRecord(columns) {
  const found = new Map();
  await Promise.all(columns.map(async (column) => {
    const matrix = await loadHeat(view().run, 'ranks', column, isReport() ? undefined : 64);
    const {values, cols, rows} = matrix;
    found.set(column, rows.map((_, row) => {
      for (let col = cols - 1; col >= 0; --col) if (Number.isFinite(values[row * cols + col])) return values[row * cols + col];
      return NaN;
    }));
  }));
  return new Map(columns.map((column) => [column, found.get(column)]));
}

function keysOfRanks(matrix) {
  const ranks = shownRun()?.ranks || [];
  const {values, cols, rows} = matrix;
  if (view().sort === 'worst') {
    return rows.map((_, row) => {
      let sum = 0, count = 0;
      for (let col = 0; col < cols; ++col) {
        const value = values[row * cols + col];
        if (Number.isFinite(value)) {
          sum += value;
          ++count;
        }
      }
      return count > 0 ? -sum / count : Infinity;
    });
  }
  const names = new Map();
  return rows.map((_, row) => {
    const key = groupOfRank(ranks[row]);
    if (!names.has(key)) names.set(key, names.size);
    return names.get(key);
  });
}

function groupOfRank(rank) {
  if (!rank) return '';
  if (view().sort === 'stage') return `stage ${rank.coord?.pp ?? 0}`;
  return view().sort === 'node' ? rank.node : '';
}

function orderOfRanks(matrix) {
  const keys = keysOfRanks(matrix);
  return matrix.rows.map((_, row) => row).sort((a, b) => keys[a] - keys[b] || a - b);
}

function groupsOfRanks(order, matrix) {
  if (view().sort === 'rank' || view().sort === 'worst') {
    return order.map((row) => ({label: matrix.rows[row], rows: 1}));
  }
  const ranks = shownRun()?.ranks || [];
  const groups = [];
  for (const row of order) {
    const label = groupOfRank(ranks[row]);
    if (groups.length > 0 && groups[groups.length - 1].label === label) ++groups[groups.length - 1].rows;
    else groups.push({label, rows: 1});
  }
  return groups;
}

// For every rank: mean, largest, last value of the shown range.
function drawRankTable(holder, state) {
  if (!state.is_table || !state.matrix) return;
  const {values, cols, rows} = state.matrix;
  const body = orderOfRanks(state.matrix).map((row) => {
    let sum = 0, count = 0, most = NaN, last = NaN;
    for (let col = 0; col < cols; ++col) {
      const value = values[row * cols + col];
      if (!Number.isFinite(value)) continue;
      sum += value;
      ++count;
      last = value;
      if (!(value <= most)) most = value;
    }
    const rank = shownRun()?.ranks?.[row];
    const cell = (value) => (count > 0 ? digits32(value) : '–');
    return [rows[row], rank?.node ?? '', coordText(rank?.coord), cell(sum / count), cell(most), cell(last)];
  });
  const numbers = ['mean of cells', 'largest', 'last'].map((name) => ({name, is_number: true}));
  replace(holder, scrolledTable(`${columnName(columnShown())} by rank`, [{name: 'rank'}, {name: 'node'}, {name: 'place'}, ...numbers], body));
}

function drawRankDetail(holder, state) {
  const row = view().rank;
  const {matrix} = state;
  if (row === null || !matrix || row >= matrix.rows.length) {
    replace(holder);
    return;
  }
  const canvas = el('canvas', {role: 'img', 'aria-label': `${columnName(columnShown())} of ${rankTitle(row)} and the median of all ranks`});
  const counters = [...(state.counters || [])].map(([column, values]) => {
    const all = values.filter(Number.isFinite).sort((a, b) => a - b);
    const median = all.length > 0 ? all[all.length >> 1] : NaN;
    return el('div', {title: `${digits32(values[row])}; median of all ranks ${digits32(median)}`}, el('dt', {}, columnName(column)),
        el('dd', {}, columnText(column, values[row])));
  });
  replace(holder, el('h3', {}, rankTitle(row)), el('div', {class: 'picture'}, canvas),
      el('p', {class: 'note'}, 'solid: this rank; dashed: median of all ranks'),
      el('dl', {class: 'columns'}, counters));
  drawRankCurve(canvas, matrix, row, holder.clientWidth);
}

function drawRankCurve(canvas, {values, cols, rows}, row, width) {
  if (width === 0) return;
  const context = sizeCanvas(canvas, width, 110);
  const curve = (of) => {
    const mean = Array.from({length: cols}, (_, col) => of(col)).map((value) => (Number.isFinite(value) ? value : null));
    const x = mean.map((_, col) => col);
    return {x, end: x, min: mean, max: mean, mean, last: mean, bad: mean.map(() => 0)};
  };
  const own = curve((col) => values[row * cols + col]);
  const median = curve((col) => {
    const all = rows.map((_, other) => values[other * cols + col]).filter(Number.isFinite).sort((a, b) => a - b);
    return all[all.length >> 1];
  });
  const all = [...own.mean, ...median.mean].filter((value) => value !== null);
  const low = Math.min(...all), high = Math.max(...all);
  const area = {left: 64, top: 8, width: width - 68, height: 94};
  const scale = {...area, x: (col) => area.left + (col + 0.5) / cols * area.width,
    y: (value) => area.top + area.height * (1 - (value - low) / (high - low || 1))};
  context.fillStyle = cssColor('--muted');
  context.font = textFont(11);
  context.textAlign = 'right';
  context.fillText(columnText(columnShown(), high), 58, 14);
  context.fillText(columnText(columnShown(), low), 58, 104);
  paintSeries(context, scale, median, {color: seriesColor(6), dash: [6, 4], is_line_only: true});
  paintSeries(context, scale, own, {color: seriesColor(1), is_line_only: true});
}
