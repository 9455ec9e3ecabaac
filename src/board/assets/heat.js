// SPDX-License-Identifier: Apache-2.0
// A heat map: rows (ranks, layers) by steps, or by what matrix.axis names. A cell has the largest value of its steps, and where
// there are more rows than pixels a pixel has the largest value of its rows; cells without data stay
// empty. The scale goes from the 1st to the 99.5th percentile, so that an outlier stands out instead
// of hiding the rest.
import {getBytes, isReport, queryText} from './api.js';
import {el, sizeCanvas, watchWidth} from './dom.js';
import {digits32, grouped} from './format.js';
import {cssColor, isDark, textFont, textScale} from './paint.js';
import {onPrint} from './print.js';
import {shownSteps, xOfStep} from './series.js';
import {cursorX, onCursor, setCursor, view} from './view.js';

const light_ramp = [[238, 243, 248], [150, 194, 224], [44, 124, 184], [66, 52, 118], [38, 0, 22]];
const dark_ramp = [[30, 39, 52], [16, 84, 132], [70, 150, 170], [232, 168, 32], [255, 244, 170]];
const min_label_width = 44;
const max_labelled_rows = 48;

// The matrix of one column of a table over the shown range. cell: 'lowest' for the smallest value of
// each cell instead of the largest.
export async function loadHeat(run, table, column, cols, cell) {
  const [from, to] = shownSteps();
  const chosen = isReport() ? {table, column, cell} : {table, column, cell, from, to, cols};
  return parseHeat(await getBytes(`/api/run/${run}/heat` + queryText(chosen)));
}

function parseHeat(buffer) {
  const size = new DataView(buffer).getUint32(0, true);
  const about = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size)));
  return {...about, cols: about.steps.length, values: new Float32Array(buffer, 4 + size)};
}

// options: name, text(value) -> text, rowTitle(row) -> text, rowChosen(row), order() -> rows,
// groups() -> [{label, rows}] in that order.
export class HeatMap {
  constructor(holder, options) {
    this.options = options;
    this.canvas = el('canvas', {});
    this.readout = el('p', {class: 'readout muted'});
    this.holder = el('div', {class: 'heat', role: 'img', tabindex: '0',
      'aria-label': `${options.name}: heat map; its numbers are in the table view`}, this.canvas);
    holder.append(this.holder, this.readout);
    this.matrix = null;
    this.label_width = 84;
    watchWidth(this.holder, () => this.draw());
    onPrint(() => this.draw());
    onCursor(() => this.draw(true));
    this.canvas.addEventListener('pointermove', (event) => this.hover(event));
    this.canvas.addEventListener('pointerleave', () => {
      this.readout.textContent = this.summary();
      setCursor(null);
    });
    this.canvas.addEventListener('click', (event) => {
      const found = this.cellAt(event);
      if (found && options.rowChosen) options.rowChosen(found.row);
    });
  }

  width() {
    return Math.max(50, Math.floor(this.holder.clientWidth - this.label_width - 8));
  }

  set(matrix) {
    this.matrix = matrix;
    this.image = null;
    this.draw();
  }

  summary() {
    if (!this.matrix) return '';
    const {low, high} = this.limits;
    if (low === null) return 'There is no data in this range.';
    const [weak, strong] = isDark() ? ['dark', 'bright'] : ['pale', 'dark'];
    return `${weak}: ${this.options.text(low)}, ${strong}: ${this.options.text(high)} and above` +
      (this.options.rowChosen ? '; click a row for its details' : '');
  }

  // Percentiles over a sample of the cells.
  findLimits() {
    const {values} = this.matrix;
    const stride = Math.max(1, Math.floor(values.length / 50000));
    const sample = [];
    for (let i = 0; i < values.length; i += stride) if (Number.isFinite(values[i])) sample.push(values[i]);
    sample.sort((a, b) => a - b);
    const at = (share) => (sample.length === 0 ? null : sample[Math.min(sample.length - 1, Math.floor(share * sample.length))]);
    return {low: at(0.01), high: at(0.995)};
  }

  render() {
    const {values, cols, rows} = this.matrix;
    const order = this.options.order ? this.options.order(this.matrix) : rows.map((_, i) => i);
    this.order = order;
    this.limits = this.findLimits();
    const height = rows.length <= 40 ? rows.length : Math.min(rows.length, 420);
    const image = new ImageData(Math.max(1, cols), Math.max(1, height));
    const pixels = new Uint32Array(image.data.buffer);
    const table = colorTable();
    const {low, high} = this.limits;
    const factor = high > low ? 255 / (high - low) : 0;
    for (let y = 0; y < height; ++y) {
      const begin = Math.floor(y * order.length / height);
      const end = Math.max(begin + 1, Math.floor((y + 1) * order.length / height));
      for (let x = 0; x < cols; ++x) {
        let most = NaN;
        for (let r = begin; r < end; ++r) {
          const value = values[order[r] * cols + x];
          if (!(value <= most) && value === value) most = value;
        }
        if (most !== most) continue;
        pixels[y * cols + x] = table[Math.max(0, Math.min(255, Math.round((most - low) * factor)))];
      }
    }
    const off = document.createElement('canvas');
    off.width = image.width;
    off.height = image.height;
    off.getContext('2d').putImageData(image, 0, 0);
    this.image = off;
    this.theme = isDark();
  }

  draw(is_cursor_only = false) {
    if (!this.matrix || this.holder.clientWidth === 0) return;
    if (this.matrix.rows.length === 0 || this.matrix.cols === 0) {
      this.limits = {low: null, high: null};
      this.readout.textContent = this.summary();
      return;
    }
    if (!this.image || this.theme !== isDark()) this.render();
    const rows = this.matrix.rows.length;
    const line = 13 * textScale();
    this.row_height = rows <= 12 ? 16 * textScale() : rows <= max_labelled_rows ? line : Math.max(max_labelled_rows * line / rows, 1);
    const height = Math.round(rows * this.row_height);
    const groups = this.groups();
    this.label_width = this.findLabelWidth(groups);
    const width = this.width();
    const context = sizeCanvas(this.canvas, this.holder.clientWidth, height + Math.round(18 * textScale()));
    context.imageSmoothingEnabled = false;
    context.drawImage(this.image, this.label_width, 0, width, height);
    this.drawRows(context, height, groups);
    this.drawSteps(context, width, height);
    this.drawCursor(context, width, height);
    if (!is_cursor_only) this.readout.textContent = this.summary();
  }

  groups() {
    return this.options.groups ? this.options.groups(this.order, this.matrix) :
      this.order.map((row) => ({label: this.matrix.rows[row], rows: 1}));
  }

  // Room for the longest label, but at most 40 % of the picture.
  findLabelWidth(groups) {
    const context = this.canvas.getContext('2d');
    context.font = textFont(11);
    const widest = Math.max(...groups.map(({label}) => context.measureText(label.slice(0, 60)).width));
    return Math.round(Math.min(Math.max(min_label_width, widest + 12), 0.4 * this.holder.clientWidth));
  }

  // Every label has a line of text; where rows are thinner, every second or third one is labelled.
  drawRows(context, height, groups) {
    context.fillStyle = context.strokeStyle = cssColor('--muted');
    context.font = textFont(11);
    context.textAlign = 'right';
    context.textBaseline = 'middle';
    const {label_width} = this;
    const smallest = this.row_height * Math.min(...groups.map(({rows}) => rows));
    const stride = Math.max(1, Math.ceil(12 * textScale() / smallest));
    let row = 0;
    groups.forEach(({label, rows}, i) => {
      const at = (row + rows / 2) * this.row_height;
      row += rows;
      if (i % stride === 0) context.fillText(fitted(context, label, label_width - 11), label_width - 10, at);
    });
    const chosen = this.order.indexOf(this.options.chosen ? this.options.chosen() : -1);
    if (chosen < 0) return;
    const at = (chosen + 0.5) * this.row_height;
    const right = label_width + this.width();
    context.fillStyle = cssColor('--bad');
    for (const [tip, base] of [[label_width, label_width - 8], [right - 1, right + 7]]) {
      context.beginPath();
      context.moveTo(tip, at);
      context.lineTo(base, at - 5);
      context.lineTo(base, at + 5);
      context.fill();
    }
  }

  drawSteps(context, width, height) {
    const {steps, cols} = this.matrix;
    context.fillStyle = cssColor('--muted');
    context.font = textFont(11);
    context.textBaseline = 'top';
    for (const {col, label} of stepLabels(steps, Math.max(2, Math.min(6, Math.floor(width / 110))))) {
      const at = this.label_width + width * (col + 0.5) / cols;
      const half = context.measureText(label).width / 2;
      context.textAlign = 'center';
      context.fillText(label, Math.max(this.label_width + half, Math.min(this.label_width + width - half, at)), height + 4);
    }
  }

  drawCursor(context, width, height) {
    const x = cursorX();
    if (x === null || view().x !== 'step' || this.matrix.axis) return;
    const {steps, cols} = this.matrix;
    const first = steps[0][0], last = steps[cols - 1][1];
    if (x < first || x > last) return;
    const at = this.label_width + (x - first) / Math.max(1, last - first) * width;
    context.strokeStyle = cssColor('--text');
    context.lineWidth = 1;
    context.strokeRect(Math.round(at) + 0.5, 0, 0, height);
  }

  cellAt(event) {
    if (!this.matrix || !this.order) return null;
    const box = this.canvas.getBoundingClientRect();
    const x = event.clientX - box.left - this.label_width, y = event.clientY - box.top;
    const line = Math.floor(y / this.row_height);
    const col = Math.floor(x / this.width() * this.matrix.cols);
    if (line < 0 || line >= this.order.length || col < 0 || col >= this.matrix.cols) return null;
    return {row: this.order[line], col};
  }

  hover(event) {
    const found = this.cellAt(event);
    if (!found) return;
    const {steps, cols, values, rows, axis} = this.matrix;
    const [first, last] = steps[found.col];
    const value = values[found.row * cols + found.col];
    const title = this.options.rowTitle ? this.options.rowTitle(found.row) : rows[found.row];
    if (!axis) setCursor(xOfStep((first + last) / 2));
    const range = first === last ? `${axis || 'step'} ${grouped(first)}` : `${axis || 'step'}s ${grouped(first)} – ${grouped(last)}`;
    this.readout.textContent = `${title}, ${range}: ${this.options.text(value)}`;
    this.readout.title = Number.isNaN(value) ? '' : digits32(value);
  }
}

function colorTable() {
  const ramp = isDark() ? dark_ramp : light_ramp;
  const table = new Uint32Array(256);
  for (let i = 0; i < 256; ++i) {
    const at = i / 255 * (ramp.length - 1);
    const k = Math.min(ramp.length - 2, Math.floor(at));
    const [red, green, blue] = ramp[k].map((low, channel) => Math.round(low + (ramp[k + 1][channel] - low) * (at - k)));
    table[i] = (255 << 24 | blue << 16 | green << 8 | red) >>> 0;
  }
  return table;
}

// At most `count` columns at equal distances with the last step of each, none twice: [{col, label}].
export function stepLabels(steps, count) {
  const stride = Math.max(1, Math.ceil(steps.length / count));
  const labels = [];
  for (let col = 0; col < steps.length; col += stride) {
    const label = grouped(steps[col][1]);
    if (labels.length === 0 || labels[labels.length - 1].label !== label) labels.push({col, label});
  }
  return labels;
}

// The text, or its begin and its end if it is wider than `width` pixels.
function fitted(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let kept = Math.min(text.length, 60);
  const short = () => `${text.slice(0, Math.ceil(kept / 2))}…${text.slice(text.length - Math.floor(kept / 2))}`;
  while (kept > 2 && context.measureText(short()).width > width) --kept;
  return short();
}

export function clipped(text, letters) {
  return text.length <= letters ? text : `${text.slice(0, letters - 1)}…`;
}
