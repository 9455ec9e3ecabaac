# SPDX-License-Identifier: Apache-2.0
"""Scripts that tests run in a page: boxes and contrast of what is shown, pixels of charts, buckets."""

# Boxes of what must not overlap: panels among each other, and the controls of every bar.
BOXES = """
const boxes = (nodes) => nodes.map((node) => {
  const box = node.getBoundingClientRect();
  return [node.id || node.textContent.slice(0, 20), box.left, box.top, box.right, box.bottom];
}).filter((box) => box[3] > box[1] && box[4] > box[2]);
const groups = [boxes([...document.querySelectorAll('.panel')])];
for (const bar of document.querySelectorAll('#toolbar, .tools, .legend, .figures')) {
  groups.push(boxes([...bar.querySelectorAll('button, select, summary, .item, .figure')]));
}
return [groups, document.documentElement.scrollWidth, window.innerWidth];
"""

# Texts whose contrast with what is behind them is below 4.5.
CONTRAST = """
const parse = (text) => {
  const found = (text.match(/[\\d.]+/g) || []).map(Number);
  return [found[0] || 0, found[1] || 0, found[2] || 0, found.length > 3 ? found[3] : 1];
};
const over = (top, below) => top.slice(0, 3).map((c, i) => c * top[3] + below[i] * (1 - top[3])).concat(1);
const light = (color) => {
  const [r, g, b] = color.map((c) => c / 255).map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behind = (node) => {
  const layers = [];
  for (let one = node; one; one = one.parentElement) layers.push(parse(getComputedStyle(one).backgroundColor));
  return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]);
};
const low = [];
let count = 0;
for (const node of document.querySelectorAll('body *')) {
  const has_text = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
  if (!has_text || node.getClientRects().length === 0 || node.closest('.unseen, .skip, noscript')) continue;
  ++count;
  const background = behind(node);
  const text = over(parse(getComputedStyle(node).color), background);
  const [a, b] = [light(text), light(background)].sort((x, y) => y - x);
  const ratio = (a + 0.05) / (b + 0.05);
  if (ratio < 4.5) low.push([node.tagName, node.className, node.textContent.slice(0, 30), ratio]);
}
return [count, low];
"""

# Coloured pixels near columns of a chart, given as shares of its width: blue of the first line, red of
# marks at the upper edge; `high` are blue ones in the upper half.
COLUMN_PIXELS = """
const [panel, shares] = arguments;
const chart = document.querySelector(`#${panel} .chart`);
const [left, top, width, height] = chart.dataset.plot.split(' ').map(Number);
const canvases = [...chart.querySelectorAll('.frame canvas')];
return shares.map((share) => {
  const x = Math.round(left + share * width);
  const count = {blue: 0, red: 0, high: 0};
  for (const canvas of canvases) {
    const {data} = canvas.getContext('2d').getImageData(x - 2, top, 5, height);
    for (let y = 0; y < height; ++y) {
      for (let i = 0; i < 5; ++i) {
        const [r, g, b, a] = data.subarray(4 * (5 * y + i), 4 * (5 * y + i) + 4);
        if (a < 40) continue;
        if (b > r + 40) {
          ++count.blue;
          if (y > 24 && y < height / 2) ++count.high;
        }
        if (r > b + 60 && y < 24) ++count.red;
      }
    }
  }
  return count;
});
"""

# Notes every text that a page draws on a canvas; runs before the scripts of the page.
NOTE_CANVAS_TEXTS = """
window.canvas_texts = new Set();
const fill = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function(text, ...rest) {
  window.canvas_texts.add(String(text));
  return fill.call(this, text, ...rest);
};
"""

# Numbers with more than six significant digits in the texts of a page and of its canvases: [[number,
# text, where]]. Tooltips and tables of raw values (.chart-table) may have more. A whole number with
# separators is a count, unless a unit of something measured follows; dates and names are none.
LONG_NUMBERS = """
const dates = /\\d{4}-\\d\\d-\\d\\d([ T]\\d\\d:\\d\\d(:\\d\\d)?)?/g;
const numbers = /(?<![\\w.,:\\/-])(\\d[\\d,]*\\.\\d+([eE][-−+]?\\d+)?(?!\\d|\\.\\d)|\\d[\\d,]*([eE][-−+]?\\d+)?(?![\\w:\\/-]|[.,]\\d))/g;
const units = /^\\s*(bytes|B|[KMGT]iB|s|ms|µs|seconds|%|x|×|dollars|FLOP|W|Hz|tokens\\/s)(?![\\w])/;
const isLong = (number, rest) => {
  const [mantissa] = number.split(/[eE]/);
  const is_whole = !mantissa.includes('.') && mantissa === number;
  let figures = mantissa.replace(/[,.]/g, '').replace(/^0+/, '');
  if (is_whole) figures = figures.replace(/0+$/, '');
  return figures.length > 6 && !(is_whole && number.includes(',') && !units.test(rest));
};
const found = [];
let count = 0;
const look = (text, where) => {
  const plain = text.replace(dates, '');
  for (const match of plain.matchAll(numbers)) {
    ++count;
    if (isLong(match[0], plain.slice(match.index + match[0].length))) found.push([match[0], text.slice(0, 80), where]);
  }
};
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
for (let node = walker.nextNode(); node; node = walker.nextNode()) {
  const parent = node.parentElement;
  if (parent.closest('script, style, noscript, .chart-table')) continue;
  look(node.textContent, parent.closest('[id]')?.id || parent.tagName);
}
for (const text of window.canvas_texts || []) look(text, 'canvas');
return [count, found];
"""

# Buckets of random series against plain loops over all points; returns what differs.
CHECK_BUCKETS = """
return import('/app/buckets.js').then(({bucketsOf}) => {
  let seed = 5;
  const random = () => (seed = seed * 48271 % 2147483647) / 2147483647;
  const wrong = [];
  for (let round = 0; round < 300; ++round) {
    const count = 1 + Math.floor(random() * 400), px = 1 + Math.floor(random() * 60);
    const xs = [], values = [];
    let x = 0;
    for (let i = 0; i < count; ++i) {
      x += 1 + (random() < 0.05 ? Math.floor(random() * 50) : 0);
      xs.push(x);
      values.push(random() < 0.03 ? 'NaN' : random() < 0.02 ? 100 : random());
    }
    const from = random() < 0.5 ? xs[0] : xs[Math.floor(random() * count)];
    const to = Math.max(from + 1, random() < 0.5 ? x : xs[Math.floor(random() * count)]);
    const found = bucketsOf(xs, values, from, to, px);
    const shown = xs.map((_, i) => i).filter((i) => xs[i] >= from && xs[i] <= to);
    let seen = 0, bad = 0;
    found.x.forEach((first, k) => {
      const inside = xs.map((_, i) => i).filter((i) => xs[i] >= first && xs[i] <= found.end[k]);
      const finite = inside.map((i) => values[i]).filter((value) => typeof value === 'number');
      seen += inside.filter((i) => xs[i] >= from && xs[i] <= to).length;
      bad += found.bad[k];
      const is_right = finite.length === 0 ? found.min[k] === null && found.max[k] === null && found.mean[k] === null :
        found.min[k] === Math.min(...finite) && found.max[k] === Math.max(...finite) &&
        Math.abs(found.mean[k] - finite.reduce((sum, value) => sum + value, 0) / finite.length) < 1e-9;
      if (!is_right || found.bad[k] !== inside.length - finite.length || found.last[k] !== values[inside[inside.length - 1]]) {
        wrong.push(`round ${round}, bucket ${k}`);
      }
    });
    if (seen !== shown.length) wrong.push(`round ${round}: ${seen} of ${shown.length} points`);
    if (found.x.length > px + 3) wrong.push(`round ${round}: ${found.x.length} buckets for ${px} pixels`);
  }
  return wrong;
});
"""
