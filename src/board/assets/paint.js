// SPDX-License-Identifier: Apache-2.0
// Drawing of series on a canvas. Every bucket draws the span from its minimum to its maximum, so a
// spike of one step is visible at any width; the line goes over it, and is broken where points are
// missing. Points that are not finite become marks at the upper edge.
import {gapLimit} from './buckets.js';
import {isPrinting} from './print.js';

// Colours that readers with any kind of colour vision can tell apart (Okabe and Ito), and a dash
// pattern for each, so that no line is known by its colour alone.
const light_colors = ['#0072B2', '#D55E00', '#007a5a', '#a8457d', '#8a6100', '#3a7ca5', '#4d4d4d', '#000000'];
const dark_colors = ['#56B4E9', '#E69F00', '#2fbf95', '#e29cc3', '#F0E442', '#ff8a4c', '#b8c4ce', '#ffffff'];
const dashes = [[], [7, 3], [2, 3], [10, 3, 2, 3], [4, 2], [1, 2], [12, 4], [6, 2, 2, 2, 2, 2]];

let dark_query = null;
export function isDark() {
  const chosen = document.documentElement.dataset.theme;
  if (chosen === 'dark' || chosen === 'light') return chosen === 'dark';
  dark_query = dark_query || window.matchMedia('(prefers-color-scheme: dark)');
  return dark_query.matches;
}

export function seriesColor(index) {
  const colors = isDark() ? dark_colors : light_colors;
  return colors[index % colors.length];
}

export function seriesDash(index) {
  return dashes[index % dashes.length];
}

// A colour of the style sheet: cssColor('--muted'). Kept by theme: to ask for a style in the middle of
// drawing makes the browser lay out the page.
const css_colors = new Map();
export function cssColor(name) {
  const key = `${isDark()} ${name}`;
  if (!css_colors.has(key)) {
    css_colors.set(key, window.getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  }
  return css_colors.get(key);
}

// Text on canvases grows with that of the page: 1 at the usual size. Kept by what it depends on, as the colours are.
const text_scales = new Map();
export function textScale() {
  const key = `${window.innerWidth} ${isPrinting()}`;
  if (!text_scales.has(key)) {
    text_scales.set(key, parseFloat(window.getComputedStyle(document.documentElement).fontSize) / 16 || 1);
  }
  return text_scales.get(key);
}

export function textFont(pixels, weight = 400) {
  return `${weight} ${Math.round(10 * pixels * textScale()) / 10}px system-ui, sans-serif`;
}

// scale: {x(value), y(value), left, top, width, height} in pixels.
export function paintSeries(context, scale, buckets, style) {
  const count = buckets.x.length;
  if (count === 0) return;
  const gap = gapLimit(buckets);
  context.save();
  context.beginPath();
  context.rect(scale.left, scale.top, scale.width, scale.height);
  context.clip();
  if (!style.is_line_only) paintSpans(context, scale, buckets, style, gap);
  const is_smoothed = style.smooth > 0 && count > 2;
  const {mean} = buckets;
  if (is_smoothed) {
    paintLine(context, scale, buckets, mean, {...style, alpha: 0.35, width: 1}, gap);
    paintLine(context, scale, buckets, smoothed(mean, style.smooth), {...style, alpha: 1, width: 2}, gap);
  } else {
    paintLine(context, scale, buckets, mean, {alpha: 1, width: 1.5, ...style}, gap);
  }
  if (!style.is_line_only) paintBad(context, scale, buckets);
  context.restore();
}

function paintSpans(context, scale, buckets, style, gap) {
  const {x, end, min, max} = buckets;
  context.fillStyle = style.color;
  context.globalAlpha = 0.22;
  context.beginPath();  // one path: spans that touch are not painted twice
  let has_spans = false;
  for (let i = 0; i < x.length; ++i) {
    if (min[i] === null || min[i] === max[i]) continue;
    has_spans = true;
    const left = scale.x(x[i]);
    const next = i + 1 < x.length && x[i + 1] - end[i] <= gap ? scale.x(x[i + 1]) : scale.x(end[i]);
    const top = scale.y(max[i]);
    context.rect(left, top, Math.max(1, next - left), Math.max(1, scale.y(min[i]) - top));
  }
  if (!has_spans) return;
  context.fill();
  const edge = {color: style.color, alpha: 0.5, width: 1, dash: []};
  paintLine(context, scale, buckets, max, edge, gap);
  paintLine(context, scale, buckets, min, edge, gap);
}

function paintLine(context, scale, buckets, values, style, gap) {
  const {x, end} = buckets;
  context.strokeStyle = style.color;
  context.globalAlpha = style.alpha;
  context.lineWidth = style.width;
  context.setLineDash(style.dash || []);
  context.lineJoin = 'round';
  context.beginPath();
  let is_open = false;
  const alone = [];
  for (let i = 0; i < x.length; ++i) {
    if (values[i] === null) {
      is_open = false;
      continue;
    }
    if (i > 0 && x[i] - end[i - 1] > gap) is_open = false;
    const at = scale.x((x[i] + end[i]) / 2), y = scale.y(values[i]);
    if (is_open) {
      context.lineTo(at, y);
    } else {
      context.moveTo(at, y);
      const has_next = i + 1 < x.length && values[i + 1] !== null && x[i + 1] - end[i] <= gap;
      if (!has_next) alone.push([at, y]);
    }
    is_open = true;
  }
  if (style.dots) paintUnderlay(context, style);
  context.stroke();
  context.setLineDash([]);
  context.fillStyle = style.color;
  const radius = 1.5;
  if (style.dots) paintDots(context, scale, buckets, values);
  else for (const [at, y] of alone) context.fillRect(at - radius, y - radius, 2 * radius, 2 * radius);
  context.globalAlpha = 1;
}

// A light edge under a line that lies on the spans of another one.
function paintUnderlay(context, style) {
  context.save();
  context.strokeStyle = cssColor('--card');
  context.lineWidth = style.width + 2.5;
  context.setLineDash([]);
  context.stroke();
  context.restore();
}

const dot_distance = 11;  // between markers, in pixels

// Markers at the points, at most one in `dot_distance` pixels, and one at the last point.
function paintDots(context, scale, {end}, values) {
  const last = values.findLastIndex((value) => value !== null);
  let before = -Infinity;
  context.strokeStyle = cssColor('--card');
  context.lineWidth = 1.5;
  values.forEach((value, i) => {
    if (value === null || (scale.x(end[i]) - before < dot_distance && i !== last)) return;
    before = scale.x(end[i]);
    context.beginPath();
    context.arc(before, scale.y(value), 3.2, 0, 7);
    context.fill();
    context.stroke();
  });
}

// An exponential mean over the buckets; drawn over the line, never instead of it.
export function smoothed(values, weight) {
  let mean = null;
  return values.map((value) => {
    if (value === null) return null;
    mean = mean === null ? value : weight * mean + (1 - weight) * value;
    return mean;
  });
}

function paintBad(context, scale, buckets) {
  context.fillStyle = cssColor('--bad');
  for (let i = 0; i < buckets.x.length; ++i) {
    if (!buckets.bad[i]) continue;
    const at = scale.x((buckets.x[i] + buckets.end[i]) / 2);
    context.beginPath();
    context.moveTo(at - 5, scale.top + 11);  // below the letters of events
    context.lineTo(at + 5, scale.top + 11);
    context.lineTo(at, scale.top + 20);
    context.fill();
  }
}

// The area between two series with the same buckets, for example the losses of all ranks.
export function paintBetween(context, scale, low, high, color) {
  const count = Math.min(low.x.length, high.x.length);
  context.save();
  context.beginPath();
  context.rect(scale.left, scale.top, scale.width, scale.height);
  context.clip();
  context.globalAlpha = 0.16;
  context.fillStyle = color;
  context.beginPath();
  for (let i = 0; i < count; ++i) {
    if (low.min[i] === null || high.max[i] === null || low.x[i] !== high.x[i]) continue;
    const left = scale.x(low.x[i]);
    const right = i + 1 < count ? scale.x(low.x[i + 1]) : scale.x(low.end[i]);
    const top = scale.y(high.max[i]);
    context.rect(left, top, Math.max(1, right - left), Math.max(1, scale.y(low.min[i]) - top));
  }
  context.fill();
  context.restore();
}
