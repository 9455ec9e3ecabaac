// SPDX-License-Identifier: Apache-2.0
// A line chart. dygraphs draws the frame: axes, grid and ticks. The series are drawn by paint.js,
// because each has its own x and a span per bucket. Range and cursor are shared by all charts.
import {bucketAt, isFinitePoint, lowerBound} from './buckets.js';
import {chartTable} from './chart_table.js';
import {buttonElement, el, replace, sizeCanvas, svgElement, tableButton, watchWidth} from './dom.js';
import {brief, digits, tagText} from './format.js';
import {paintMarks} from './marks.js';
import {cssColor, paintBetween, paintSeries, seriesColor, seriesDash, textFont, textScale} from './paint.js';
import {isFillingAll, isPrinting, onFillAll, onPrint} from './print.js';
import {addSeriesUser, askedWidth, refreshSeries, seriesOf} from './series.js';
import {logTicks, numberTicks, timeTicks} from './ticks.js';
import {changeView, cursorX, onCursor, setCursor, showRange, shownRange, view} from './view.js';

// options: lines() -> [{run, tag, label, style, derive}] with style {color, dash: indices, dots,
// is_line_only}; derive(buckets) makes a line for reference out of the tag's points;
// between() -> [{run, low, high, color}]; bands() -> [{low, high, label}] of constant height;
// marks() -> [{x, letter, kind, text, label}]; needs() -> [{run, tag}] beside the lines; log_y; name, for the table and the screen reader.
export function makeChart(panel, options) {
  keepFramePlugins();
  const chart = new LineChart(panel, options);
  addSeriesUser(chart);
  onCursor(() => chart.moveCursor());
  watchWidth(chart.holder, () => {
    chart.resize();
    if (chart.is_near && chart.width() > askedWidth()) refreshSeries();
  });
  // A chart far below the window asks for nothing until the reader comes near.
  onFillAll(() => (chart.is_near === false ? refreshSeries() : null));
  onPrint(() => chart.resize());
  new IntersectionObserver((entries) => {
    const was_near = chart.is_near;
    chart.is_near = entries[entries.length - 1].isIntersecting;
    if (chart.is_near && was_near === false) refreshSeries();
  }, {rootMargin: '300px'}).observe(chart.holder);
  return chart;
}

// Only axes and grid of dygraphs are used; its legend would need inline styles and markup.
function keepFramePlugins() {
  window.Dygraph.PLUGINS = window.Dygraph.PLUGINS.filter((plugin) =>
    /^(Axes|Gridline) Plugin$/.test(plugin.prototype.toString()));
}

class LineChart {
  constructor(panel, options) {
    this.options = options;
    this.is_table = false;
    this.is_scheduled = false;
    this.is_near = null;  // not known yet
    this.lines = [];
    this.values = [];
    this.is_log_y = Boolean(options.log_y);
    this.frame_div = el('div', {class: 'frame'});
    this.overlay = el('canvas', {class: 'overlay'});
    this.holder = el('div', {class: 'chart', role: 'img', tabindex: '0',
      'aria-label': `${options.name}: line chart; its numbers are in the table view`},
    this.frame_div, this.overlay);
    this.table_holder = el('div', {class: 'chart-table', hidden: true});
    this.legend = el('div', {class: 'legend'});
    panel.body.append(this.holder, this.table_holder, this.legend);
    this.log_button = buttonElement('log', 'logarithmic y-axis', () => {
      this.is_log_y = !this.is_log_y;
      this.draw();
    });
    panel.tools.append(this.log_button, tableButton((is_table) => this.switchTable(is_table)));
    this.addPointer();
  }

  needs() {
    if (this.is_near === null) this.is_near = this.holder.getBoundingClientRect().top < window.innerHeight + 300;
    if (!this.is_near && !this.is_table && !isFillingAll()) return [];
    const found = this.options.lines().map(({run, tag}) => ({run, tag}));
    for (const {run, low, high} of this.betweens()) found.push({run, tag: low}, {run, tag: high});
    if (this.options.needs) found.push(...this.options.needs());
    return found;
  }

  width() {
    return this.holder.clientWidth || 400;
  }

  betweens() {
    return this.options.between ? this.options.between() : [];
  }

  bands() {
    return this.options.bands ? this.options.bands() : [];
  }

  switchTable(is_table) {
    this.is_table = is_table;
    this.holder.hidden = this.is_table;
    this.table_holder.hidden = !this.is_table;
    this.draw();
  }

  resize() {
    if (this.frame) {
      this.frame.destroy();
      this.frame = null;
    }
    this.draw();
  }

  // Draws with the next frame, once, however often it is called until then; on paper at once.
  draw() {
    if (isPrinting()) {
      this.drawNow();
      return;
    }
    if (this.is_scheduled) return;
    this.is_scheduled = true;
    window.requestAnimationFrame(() => {
      this.is_scheduled = false;
      this.drawNow();
    });
  }

  drawNow() {
    this.lines = this.options.lines().map((line) => {
      const buckets = seriesOf(line.run, line.tag);
      return {...line, buckets: buckets && line.derive ? line.derive(buckets) : buckets};
    });
    this.log_button.setAttribute('aria-pressed', String(this.is_log_y));
    this.drawLegend();
    if (this.is_table) {
      chartTable(this.table_holder, this.options.name, this.lines.filter((line) => !line.derive));
      return;
    }
    const has_points = this.lines.some(({buckets}) => buckets && buckets.x.length > 0);
    if (this.holder.clientWidth === 0 || (!has_points && !this.frame)) return;
    const range = shownRange();
    const [low, high] = this.yRange(range);
    this.is_log_x = view().log_x && range[0] > 0;
    const settings = {
      dateWindow: range, valueRange: [low, high], logscale: this.is_log_y && low > 0,
      plotter: (event) => this.paint(event.drawingContext, event.plotArea),
      axes: {
        x: {ticker: (from, to, pixels) => this.xTicks(from, to, pixels), logscale: this.is_log_x,
          axisLabelWidth: Math.round(60 * textScale()), drawGrid: false},
        y: {ticker: (from, to, pixels) => (this.is_log_y && low > 0 ?
          logTicks(from, to, pixels, 26) : numberTicks(from, to, pixels, 34)), axisLabelWidth: Math.round(46 * textScale())},
      },
      gridLineColor: cssColor('--grid'), axisLineColor: cssColor('--grid'),
    };
    const file = [[range[0], low], [range[1], high]];
    if (this.frame) {
      this.frame.updateOptions({file, ...settings});
    } else {
      this.frame = new window.Dygraph(this.frame_div, file, {
        labels: ['x', 'y'], interactionModel: {},
        axisLabelFontSize: Math.round(11 * textScale()), highlightCircleSize: 0, gridLineWidth: 1, axisTickSize: 2,
        rightGap: 8, ...settings});
    }
    this.moveCursor();
  }

  xTicks(from, to, pixels) {
    if (view().x === 'time') return timeTicks(from, to, pixels, 72);
    return this.is_log_x ? logTicks(from, to, pixels, 64) : numberTicks(from, to, pixels, 62);
  }

  // Over the shown part of all series; constant bands count if they are near the data.
  yRange([from, to]) {
    let low = Infinity, high = -Infinity;
    const add = (min, max) => {
      if (this.is_log_y && min <= 0) min = max > 0 ? max : Infinity;
      if (min < low) low = min;
      if (max > high) high = max;
    };
    for (const {buckets, derive} of this.lines) {
      if (!buckets || derive) continue;
      for (let i = lowerBound(buckets.end, from); i < buckets.x.length && buckets.x[i] <= to; ++i) {
        if (buckets.min[i] !== null) add(buckets.min[i], buckets.max[i]);
      }
    }
    if (low === Infinity) return [0, 1];
    const size = Math.max(Math.abs(low), Math.abs(high));
    for (const band of this.bands()) {
      if (band.high < 4 * size && band.low > -4 * size) add(band.low, band.high);
    }
    if (this.is_log_y && low > 0) {
      const margin = Math.max(1.05, (high / low) ** 0.06);
      return [low / margin, high * margin];
    }
    const margin = high > low ? (high - low) * 0.07 : Math.abs(high) * 0.1 || 1;
    return [low >= 0 && low - margin < 0 ? 0 : low - margin, high + margin];
  }

  scaleOf(area) {
    const [x0, x1] = this.frame_range || shownRange();
    const [y0, y1] = this.value_range;
    const is_log_y = this.is_log_y && y0 > 0;
    const fx = this.is_log_x ? Math.log : Number;
    const ax = area.w / (fx(x1) - fx(x0)), bx = area.x - ax * fx(x0);
    const fy = is_log_y ? Math.log : Number;
    const ay = -area.h / (fy(y1) - fy(y0)), by = area.y - ay * fy(y1);
    return {
      x: this.is_log_x ? (value) => ax * Math.log(value) + bx : (value) => ax * value + bx,
      y: is_log_y ? (value) => ay * Math.log(Math.max(value, y0 * 1e-3)) + by : (value) => ay * value + by,
      inverse: (pixel) => (this.is_log_x ? Math.exp((pixel - bx) / ax) : (pixel - bx) / ax),
      left: area.x, top: area.y, width: area.w, height: area.h,
    };
  }

  paint(context, area) {
    this.value_range = this.yRange(shownRange());
    this.frame_range = shownRange();
    const scale = this.scaleOf(area);
    this.scale = scale;
    // Where the plot is and what it shows, for tests that read pixels.
    this.holder.dataset.plot = [area.x, area.y, area.w, area.h].map(Math.round).join(' ');
    this.holder.dataset.drawn = this.lines[0]?.buckets ? `${this.lines[0].tag} ${window.innerWidth}` : '';
    for (const band of this.bands()) this.paintBand(context, scale, band);
    for (const {run, low, high, color} of this.betweens()) {
      const first = seriesOf(run, low), second = seriesOf(run, high);
      if (first && second) paintBetween(context, scale, first, second, seriesColor(color));
    }
    // The first line is on top, and those with markers are over it.
    const ordered = [...this.lines].reverse().sort((a, b) => Number(a.style.dots ?? false) - Number(b.style.dots ?? false));
    for (const {buckets, style} of ordered) {
      if (!buckets) continue;
      paintSeries(context, scale, buckets, {...style, color: seriesColor(style.color),
        dash: seriesDash(style.dash ?? style.color), smooth: style.is_line_only ? 0 : view().smooth});
    }
    paintMarks(context, scale, this.options.marks ? this.options.marks() : []);
  }

  paintBand(context, scale, band) {
    const top = Math.max(scale.top, scale.y(band.high));
    const bottom = Math.min(scale.top + scale.height, scale.y(band.low));
    if (bottom < top) return;
    context.fillStyle = cssColor('--band');
    context.fillRect(scale.left, top, scale.width, Math.max(1.5, bottom - top));
    context.fillStyle = cssColor('--muted');
    context.font = textFont(11);
    context.textAlign = 'right';
    context.fillText(band.label, scale.left + scale.width - 4, top + 12 < scale.top + scale.height ? top + 12 : top - 4);
  }

  addPointer() {
    let start = null, is_pan = false, range = null;
    const at = (event) => event.clientX - this.overlay.getBoundingClientRect().left;
    this.overlay.addEventListener('pointerdown', (event) => {
      if (event.button !== 0 || !this.scale) return;
      start = at(event);
      is_pan = event.shiftKey;
      range = shownRange();
      this.overlay.setPointerCapture(event.pointerId);
    });
    this.overlay.addEventListener('pointermove', (event) => {
      if (!this.scale) return;
      const now = at(event);
      if (start !== null && is_pan) {
        const by = (start - now) * (range[1] - range[0]) / this.scale.width;
        showRange(range[0] + by, range[1] + by);
        return;
      }
      this.selection = start !== null && Math.abs(now - start) > 3 ? [start, now] : null;
      const x = this.scale.inverse(now);
      setCursor(now >= this.scale.left && now <= this.scale.left + this.scale.width ? x : null);
      this.moveCursor();
    });
    this.overlay.addEventListener('pointerup', () => {
      if (this.selection) {
        const [low, high] = this.selection.slice().sort((a, b) => a - b).map(this.scale.inverse);
        this.selection = null;
        start = null;
        showRange(low, high);
      }
      start = null;
    });
    this.overlay.addEventListener('pointerleave', () => {
      if (start === null) setCursor(null);
    });
    this.overlay.addEventListener('dblclick', () => changeView({from: null, to: null}));
  }

  moveCursor() {
    if (this.is_table || !this.scale || this.holder.clientWidth === 0) return;
    const {left, top, width, height} = this.scale;
    const context = sizeCanvas(this.overlay, this.holder.clientWidth, this.holder.clientHeight);
    context.clearRect(0, 0, this.holder.clientWidth, this.holder.clientHeight);
    if (this.selection) {
      context.fillStyle = cssColor('--band');
      context.fillRect(this.selection[0], top, this.selection[1] - this.selection[0], height);
    }
    const x = cursorX();
    this.showValues(x);
    if (x === null) return;
    const at = this.scale.x(x);
    if (at < left || at > left + width) return;
    context.strokeStyle = cssColor('--muted');
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(Math.round(at) + 0.5, top);
    context.lineTo(Math.round(at) + 0.5, top + height);
    context.stroke();
    for (const {buckets, style, derive} of this.lines) {
      if (derive) continue;
      const i = buckets ? bucketAt(buckets, x) : -1;
      if (i < 0 || !isFinitePoint(buckets.last[i])) continue;
      context.fillStyle = seriesColor(style.color);
      context.beginPath();
      context.arc(this.scale.x(buckets.end[i]), this.scale.y(buckets.last[i]), 3, 0, 7);
      context.fill();
    }
  }

  drawLegend() {
    this.values = [];
    replace(this.legend, this.lines.map(({label, tag, style}) => {
      const value = el('span', {class: 'value'});
      this.values.push(value);
      return el('span', {class: 'item', title: tag}, swatch(style), el('span', {class: 'name'}, label), value);
    }));
    this.showValues(cursorX());
  }

  // The value at the cursor, or the last one, with the span of its bucket; all digits in the tooltip.
  showValues(x) {
    this.lines.forEach(({tag, buckets, derive}, line) => {
      const node = this.values[line];
      const i = !buckets || buckets.x.length === 0 ? -1 : x === null ? buckets.x.length - 1 : bucketAt(buckets, x);
      if (i < 0) {
        node.textContent = 'no data';
        return;
      }
      if (derive) {
        node.textContent = `≈ ${brief(buckets.mean[i], 3)}`;
        return;
      }
      const spanOf = (text) => (buckets.min[i] !== buckets.max[i] && buckets.min[i] !== null ?
        ` (${text(buckets.min[i])} … ${text(buckets.max[i])})` : '');
      const bad = buckets.bad[i] ? `, ${buckets.bad[i]} not finite` : '';
      node.textContent = tagText(tag, buckets.last[i]);
      node.title = `${digits(buckets.last[i])}${spanOf(digits)}${bad}: the last of the points drawn here`;
      if (x !== null) node.textContent += spanOf((value) => tagText(tag, value)) + bad;
    });
  }
}

// A short piece of the line, as in the chart.
function swatch(style) {
  return svgElement('svg', {class: 'swatch', width: 22, height: 8, 'aria-hidden': 'true'},
      svgElement('line', {x1: 0, y1: 4, x2: 22, y2: 4, stroke: seriesColor(style.color), 'stroke-width': 2,
        'stroke-dasharray': seriesDash(style.dash ?? style.color).join(' ') || 'none'}));
}
