// SPDX-License-Identifier: Apache-2.0
// A small picture of a curve: [[x], [y]] as a line over the whole width, without axes. The first
// twentieth may leave the picture at the top: the loss of an untrained model would flatten the rest.
import {isFinitePoint} from './buckets.js';
import {svgElement} from './dom.js';
import {compact} from './format.js';

const spark_width = 120, spark_height = 26;

export function sparkline([xs, ys] = [[], []]) {
  const points = [];
  let bad = 0;
  for (let i = 0; i < xs.length; ++i) {
    if (isFinitePoint(ys[i])) points.push([xs[i], ys[i]]); else ++bad;
  }
  if (points.length === 0) {
    return svgElement('svg', {class: 'spark', width: spark_width, height: spark_height, role: 'img',
      'aria-label': bad > 0 ? 'the loss is not finite' : 'no loss yet'});
  }
  const first = xs[0], last = xs[xs.length - 1];
  const late = points.filter(([x]) => x >= first + (last - first) / 20);
  const seen = late.length > 0 ? late : points;
  let low = Infinity, high = -Infinity;
  for (const [, y] of seen) {
    low = Math.min(low, y);
    high = Math.max(high, y);
  }
  const scale_x = last > first ? (spark_width - 4) / (last - first) : 0;
  const scale_y = high > low ? (spark_height - 4) / (high - low) : 0;
  const at = ([x, y]) => `${(2 + (x - first) * scale_x).toFixed(1)},` +
    `${(high > low ? 2 + (high - y) * scale_y : spark_height / 2).toFixed(1)}`;
  const end = points[points.length - 1];
  const [end_x, end_y] = at(end).split(',');
  const label = `loss from ${compact(points[0][1], 4)} to ${compact(end[1], 4)}` +
    (bad > 0 ? `, ${bad} points are not finite` : '');
  return svgElement('svg', {class: bad > 0 ? 'spark bad' : 'spark', width: spark_width, height: spark_height,
    viewBox: `0 0 ${spark_width} ${spark_height}`, role: 'img', 'aria-label': label},
  svgElement('polyline', {points: points.map(at).join(' ')}),
  svgElement('circle', {cx: end_x, cy: end_y, r: 2}));
}
