// SPDX-License-Identifier: Apache-2.0
// Buckets of points: what /series answers, {x, end, min, max, last, mean, bad}, one entry per bucket.
// A report has all points and makes its buckets here, by the same rule: every point is in exactly
// one bucket, min and max are over all finite points of it.

export function bucketsOf(xs, values, from, to, px) {
  const found = {x: [], end: [], min: [], max: [], last: [], mean: [], bad: []};
  let begin = lowerBound(xs, from);
  let stop = lowerBound(xs, to);
  while (stop < xs.length && xs[stop] <= to) ++stop;
  begin = Math.max(0, begin - 1);  // one point outside at each side, so that lines reach the edges
  stop = Math.min(xs.length, stop + 1);
  const width = Math.max(to - from, Number.MIN_VALUE) / px;
  let i = begin;
  while (i < stop) {
    const bucket = Math.floor((xs[i] - from) / width);
    let min = null, max = null, sum = 0, count = 0, bad = 0;
    const first = i;
    for (; i < stop && (i === first || Math.floor((xs[i] - from) / width) === bucket); ++i) {
      const value = values[i];
      if (typeof value !== 'number' || !Number.isFinite(value)) {
        ++bad;
        continue;
      }
      min = min === null || value < min ? value : min;
      max = max === null || value > max ? value : max;
      sum += value;
      ++count;
    }
    found.x.push(xs[first]);
    found.end.push(xs[i - 1]);
    found.min.push(min);
    found.max.push(max);
    found.last.push(values[i - 1]);
    found.mean.push(count > 0 ? (count === 1 ? min : sum / count) : null);
    found.bad.push(bad);
  }
  return found;
}

// Index of the first element that is not below `value`.
export function lowerBound(sorted, value) {
  let low = 0, high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

// Index of the bucket at x: the one that contains it, or else the nearest; -1 if there is none.
export function bucketAt(buckets, x) {
  const count = buckets.x.length;
  if (count === 0) return -1;
  let i = lowerBound(buckets.x, x);
  if (i < count && buckets.x[i] === x) return i;
  if (i === 0) return 0;
  if (i === count || x <= buckets.end[i - 1]) return i - 1;
  return x - buckets.end[i - 1] <= buckets.x[i] - x ? i - 1 : i;
}

// The distance between neighbours above which the line is broken: four times the median one.
export function gapLimit(buckets) {
  const count = buckets.x.length;
  if (count < 3) return Infinity;
  const sample = [];
  const stride = Math.max(1, Math.floor(count / 256));
  for (let i = 1; i < count; i += stride) sample.push(buckets.x[i] - buckets.x[i - 1]);
  sample.sort((a, b) => a - b);
  return 4 * sample[sample.length >> 1];
}

export function isFinitePoint(value) {
  return typeof value === 'number' && Number.isFinite(value);
}
