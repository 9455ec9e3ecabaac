// SPDX-License-Identifier: Apache-2.0
// Tables by layer: norms of gradients (layers.bin), and figures of 8-bit numbers (numerics.bin).
import {el, makePanel, replace, scrolledTable, selectElement, setEmpty, tableButton} from './dom.js';
import {brief32, digits32, grouped} from './format.js';
import {HeatMap, loadHeat} from './heat.js';
import {shownRun} from './runinfo.js';
import {view} from './view.js';

// Columns and their names; `is_lowest`: low is bad, and a cell has its smallest value.
const figures_of = {
  layers: [{column: 'grad_norm', title: 'norm of the gradient'}],
  numerics: [
    {column: 'flushed_share', title: 'share flushed'},
    {column: 'amax_bits', title: 'log2 of the largest value'},
    {column: 'snr_db', title: 'signal to noise, dB', is_lowest: true},
    {column: 'headroom_bits', title: 'headroom, bits', is_lowest: true},
    {column: 'saturated_share', title: 'share saturated'},
  ],
};

const why_missing = {
  layers: 'The run has no layers.bin.',
  numerics: 'The run has no numerics.bin: no block is in 8 bits.',
};

function makeTablePanel(name, question, about) {
  const panel = makePanel(name, question, about, {class: 'panel two'});
  const holder = el('div', {}), table = el('div', {hidden: true});
  const figures = figures_of[name];
  let figure = figures[0], matrix = null;
  const text = (value) => (Number.isNaN(value) ? 'no data' : brief32(value));
  const heat = new HeatMap(holder, {name: about, text: (value) => text(figure.is_lowest ? -value : value)});
  const drawTable = () => {
    if (table.hidden || !matrix || matrix.cols === 0) return;
    const {values, cols, rows, steps} = matrix;
    const [first, last] = steps[cols - 1];
    replace(table, scrolledTable(figure.title, [{name: 'layer'},
      {name: `${figure.title}, worst of steps ${grouped(first)} – ${grouped(last)}`, is_number: true}],
    rows.map((row, at) => [row, digits32(values[at * cols + cols - 1])])));
  };
  const refresh = async () => {
    if ((shownRun()?.[name] || []).length === 0) {
      setEmpty(panel.node, why_missing[name]);
      return;
    }
    setEmpty(panel.node, null);
    matrix = await loadHeat(view().run, name, figure.column, heat.width(), figure.is_lowest ? 'lowest' : null);
    // Dark is bad in every picture.
    heat.set(figure.is_lowest ? {...matrix, values: matrix.values.map((value) => -value)} : matrix);
    drawTable();
  };
  if (figures.length > 1) {
    panel.tools.append(selectElement('figure', figures.map((one) => [one.column, one.title]), figure.column, (column) => {
      figure = figures.find((one) => one.column === column);
      refresh();
    }));
  }
  panel.tools.append(tableButton((is_table) => {
    table.hidden = !is_table;
    holder.hidden = is_table;
    drawTable();
  }));
  panel.body.append(holder, table);
  return {node: panel.node, is_wide: true, redraw: () => heat.draw(), refresh};
}

export const makeLayersPanel = () => makeTablePanel('layers', 'Which layer is unstable?', 'norm of the gradient, layers by steps');
export const makeNumericsPanel = () => makeTablePanel('numerics', 'Which block loses its numbers?', 'matrices in 8 bits by steps');
