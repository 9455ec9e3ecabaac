// SPDX-License-Identifier: Apache-2.0
// Numbers of the planner's page: rounded to three digits or more, each with its unit, its place in the
// answer (data-path) and all of its digits as tooltip.
import {el} from './dom.js';
import {digits, grouped} from './format.js';

const gib = 2 ** 30;

function fixed(value, decimals) {
  const [whole, fraction] = Math.abs(value).toFixed(decimals).split('.');
  return (value < 0 ? '−' : '') + grouped(Number(whole)) + (fraction ? `.${fraction}` : '');
}

function significant(value, figures) {
  if (value === 0) return '0';
  const decimals = Math.max(0, figures - 1 - Math.floor(Math.log10(Math.abs(value)) + 1e-12));
  return fixed(value, Math.min(decimals, 20));
}

function memoryText(bytes) {
  const size = Math.abs(bytes);
  if (size >= 0.9995 * gib) return `${significant(bytes / gib, 3)} GiB`;
  if (size >= 0.9995 * 2 ** 20) return `${significant(bytes / 2 ** 20, 3)} MiB`;
  return size >= 1023.5 ? `${significant(bytes / 1024, 3)} KiB` : `${fixed(bytes, 0)} B`;
}

function stepText(seconds) {
  const size = Math.abs(seconds);
  if (size >= 1 || size === 0) return `${significant(seconds, 4)} s`;
  return size >= 1e-3 ? `${significant(seconds * 1e3, 4)} ms` : `${significant(seconds * 1e6, 4)} µs`;
}

// 8030261248 -> "8.03 B"
function amountText(count) {
  if (count < 1e5) return fixed(count, 0);
  const units = [[1e12, 'T'], [1e9, 'B'], [1e6, 'M'], [1e3, 'K']];
  const [unit, name] = units.find(([size]) => count >= size * 0.9995);
  return `${significant(count / unit, 3)} ${name}`;
}

// "7 days", "6.97 days", "12.3 hours"
function daysText(days) {
  const of = (value, unit) => `${Number.isInteger(value) ? fixed(value, 0) : significant(value, 3)} ${unit}`;
  if (days >= 2) return of(days, 'days');
  return days * 24 >= 2 ? of(days * 24, 'hours') : of(days * 24 * 60, 'minutes');
}

function dollarsText(dollars) {
  if (dollars >= 999.5e6) return `$${significant(dollars / 1e9, 3)} B`;
  if (dollars >= 999.5e3) return `$${significant(dollars / 1e6, 3)} M`;
  return `$${fixed(dollars, dollars < 100 ? 2 : 0)}`;
}

const textOf = {
  bytes: memoryText, step: stepText, amount: amountText, days: daysText, dollars: dollarsText,
  count: (value) => fixed(value, 0),
  price: (value) => `$${fixed(value, 2)}`,
  hours: (value) => fixed(value, value < 100 ? 1 : 0),
  rate: (value) => `${fixed(value, 0)} tokens/s`,
  ratio: (value) => fixed(value, value < 99.95 ? 1 : 0),
  percent: (value) => `${value !== 0 && Math.abs(value) < 0.001 ? significant(value * 100, 1) : fixed(value * 100, 1)} %`,
  change: (value) => `${value > 0 ? '+' : ''}${fixed(value * 100, 1)} %`,
  band: (value) => `±${fixed(value * 100, 0)} %`,
};

export function planText(kind, value) {
  return typeof value === 'number' && Number.isFinite(value) ? textOf[kind](value) : '–';
}

// Returns the value at "best.items.weights" of an answer; undefined if there is none.
export function valueAt(answer, path) {
  return path.split('.').reduce((value, name) => value?.[name], answer);
}

// Returns functions that show numbers of an answer: figure('best.seconds', 'step').
export function figuresOf(answer) {
  const show = (kind, path, value, more) => el('span', {class: 'figure-text', 'data-path': path, title: digits(value), ...more},
      planText(kind, value));
  return {
    figure: (path, kind) => show(kind, path, valueAt(answer, path)),
    // A share of another number of the answer.
    share: (path, over) => show('percent', path, valueAt(answer, path) / valueAt(answer, over), {'data-over': over}),
    // The lower or upper end of a band: the number times 1 - band or 1 + band.
    end: (path, kind, band, sign) => show(kind, path, valueAt(answer, path) * (1 + sign * valueAt(answer, band)),
        {'data-band': band, 'data-sign': sign}),
  };
}
