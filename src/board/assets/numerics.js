// SPDX-License-Identifier: Apache-2.0
// Which block loses its numbers: matrices of blocks by steps, for a chosen figure of 8-bit numbers
// (numerics.bin). The worst value of a cell is the smallest one for some figures.
import {inlinedKeys, isReport} from './api.js';
import {el, makePanel, note, redraw, replace, scrolledTable, selectElement, tableButton} from './dom.js';
import {columnText, grouped} from './format.js';
import {HeatMap, loadHeat} from './heat.js';
import {shownRun} from './runinfo.js';
import {view} from './view.js';

const numeric_figures = [
  {column: 'flushed_share', title: 'flushed to zero'},
  {column: 'amax_bits', title: 'largest magnitude (log2)'},
  {column: 'snr_db', title: 'signal to noise', is_lowest: true},
  {column: 'headroom_bits', title: 'headroom', is_lowest: true},
  {column: 'saturated_share', title: 'saturated'},
];

// In a report, only the figures that it carries.
function figuresShown() {
  if (!isReport()) return numeric_figures;
  const keys = inlinedKeys(`/api/run/${view().run}/heat?table=numerics`).map((key) => new URLSearchParams(key.split('?')[1]).get('column'));
  return numeric_figures.filter(({column}) => keys.includes(column));
}

// "blocks.3 act" -> ["blocks.3", "act"]
const partsOf = (row) => row.split(' ');

// The rows of one kind of matrix; all rows if `kind` is empty.
function rowsOfKind(matrix, kind) {
  if (!kind) return matrix;
  const {cols, values} = matrix;
  const kept = matrix.rows.map((_, row) => row).filter((row) => partsOf(matrix.rows[row])[1] === kind);
  const part = new Float32Array(kept.length * cols);
  kept.forEach((row, at) => part.set(values.subarray(row * cols, (row + 1) * cols), at * cols));
  return {...matrix, rows: kept.map((row) => matrix.rows[row]), values: part};
}

// Where low is bad, the picture has the negative values, so that dark means bad everywhere.
function turned(matrix, figure) {
  return figure.is_lowest ? {...matrix, values: matrix.values.map((value) => -value)} : matrix;
}

export function makeNumericsPanel() {
  const panel = makePanel('numerics', 'Which block loses its numbers?',
      'matrices in 8 bits by steps; the worst value of each cell', {class: 'panel two'});
  const holder = el('div', {}), table = el('div', {hidden: true}), empty = el('div', {}), tools = el('span', {class: 'tools'});
  let figure = numeric_figures[0], kind = '', matrix = null;
  const heat = new HeatMap(holder, {
    name: 'figures of 8-bit numbers, matrices by steps',
    text: (value) => columnText(figure.column, figure.is_lowest ? -value : value),
    groups: (order, shown) => {
      const groups = [];
      for (const row of order) {
        const [block, role] = partsOf(shown.rows[row]);
        const label = kind ? `${block} ${role}` : block;
        if (groups.at(-1)?.label === label) ++groups.at(-1).rows; else groups.push({label, rows: 1});
      }
      return groups;
    },
  });
  const drawTable = () => {
    if (table.hidden || !matrix || matrix.cols === 0) return;
    const {values, cols, rows, steps} = matrix;
    const last = cols - 1;
    replace(table, scrolledTable(figure.title, [{name: 'block'}, {name: 'matrix'},
      {name: `${figure.title}, steps ${grouped(steps[last][0])} – ${grouped(steps[last][1])}`, is_number: true}],
    rows.map((name, row) => [...partsOf(name), columnText(figure.column, values[row * cols + last])])));
  };
  const load = async () => {
    const all = await loadHeat(view().run, 'numerics', figure.column, heat.width(), figure.is_lowest ? 'lowest' : undefined);
    matrix = rowsOfKind(all, kind);
    heat.set(turned(matrix, figure));
    drawTable();
  };
  const drawTools = () => {
    const kinds = [...new Set((shownRun()?.numerics || []).map((row) => partsOf(row)[1]))];
    redraw(tools,
        selectElement('figure', figuresShown().map(({column, title}) => [column, title]), figure.column, (column) => {
          figure = numeric_figures.find((one) => one.column === column);
          load();
        }),
        selectElement('matrix', [['', 'all matrices'], ...kinds.map((name) => [name, name])], kind, (name) => {
          kind = name;
          load();
        }));
  };
  panel.tools.append(tools, tableButton((is_table) => {
    table.hidden = !is_table;
    holder.hidden = is_table;
    drawTable();
  }));
  panel.body.append(holder, table, empty);
  let drawn = '';
  return {
    node: panel.node, is_wide: true,
    redraw: () => heat.draw(),
    refresh: async () => {
      const rows = shownRun()?.numerics || [];
      if (rows.length === 0) {
        replace(empty, note('The run has no numerics.bin: no products of its blocks are in 8 bits.'));
        holder.hidden = true;
        return;
      }
      replace(empty);
      holder.hidden = !table.hidden;
      if (figuresShown().length > 0 && !figuresShown().includes(figure)) figure = figuresShown()[0];
      if (drawn !== rows.join()) drawTools();
      drawn = rows.join();
      await load();
    },
  };
}
