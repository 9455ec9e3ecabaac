// SPDX-License-Identifier: Apache-2.0
// Text of numbers. digits() shows a value as the server sent it, for tooltips and tables of raw
// values; the others show at most five significant digits of what was measured. Counts are whole.

// The shortest digits that give the same number; "NaN" and "Infinity" arrive as text.
export function digits(value) {
  return value === null || value === undefined ? '–' : String(value);
}

// The same for 32-bit floats, which tables of ranks and layers consist of.
export function digits32(value) {
  if (!Number.isFinite(value)) return digits(value);
  for (let figures = 1; figures < 9; ++figures) {
    const rounded_value = Number(value.toPrecision(figures));
    if (Math.fround(rounded_value) === Math.fround(value)) return String(rounded_value);
  }
  return String(Number(value.toPrecision(9)));
}

// 41200 -> "41,200"; fractions keep all of their digits.
export function grouped(value) {
  if (typeof value !== 'number' || !Number.isFinite(value)) return digits(value);
  const text = String(value);
  if (text.includes('e')) return text;
  const [whole, fraction] = text.split('.');
  const parts = whole.replace(/\B(?=(\d{3})+$)/g, ',');
  return fraction === undefined ? parts : `${parts}.${fraction}`;
}

function rounded(value, figures) {
  return String(Number(value.toPrecision(figures)));
}

// 3.1752952931830625 -> "3.1753", 8039.730421978884 -> "8,039.7", 1234567.8 -> "1,234,600",
// 0.000020155 -> "2.0155e−5": a measured value that has no unit, or whose unit follows.
export function brief(value, figures = 5) {
  if (typeof value !== 'number' || !Number.isFinite(value)) return digits(value);
  const short = Number(value.toPrecision(figures));
  const size = Math.abs(short);
  if (size !== 0 && (size < 1e-3 || size >= 1e12)) {
    return String(Number(short.toPrecision(figures)).toExponential()).replace('e+', 'e').replace('e-', 'e−');
  }
  return grouped(short);
}

// The same for 32-bit floats: fewer digits if fewer give the same number.
export function brief32(value) {
  return Number.isFinite(value) ? brief(Number(digits32(value))) : digits(value);
}

// 1.9e11 -> "190B", 2176.8 -> "2,177": counts in headings and on axes.
export function compact(value, figures = 3) {
  if (typeof value !== 'number' || !Number.isFinite(value)) return digits(value);
  const size = Math.abs(value);
  for (const [unit, name] of [[1e15, 'Q'], [1e12, 'T'], [1e9, 'B'], [1e6, 'M'], [1e4, 'K']]) {
    if (size >= unit * 0.99995) return rounded(value / (name === 'K' ? 1e3 : unit), figures) + name;
  }
  if (size !== 0 && size < 1e-3) return Number(value.toPrecision(figures)).toExponential().replace('e-', 'e−');
  return grouped(Number(value.toPrecision(Math.max(figures, size >= 1000 ? 4 : figures))));
}

export function bytesText(value) {
  if (typeof value !== 'number') return digits(value);
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let unit = 0;
  while (Math.abs(value) >= 1024 && unit < units.length - 1) {
    value /= 1024;
    ++unit;
  }
  return `${rounded(value, value >= 1000 ? 4 : 3)} ${units[unit]}`;
}

// 0.12345 -> "12.3 %"; a share that is not zero is never shown as zero.
export function percent(share, figures = 3) {
  if (typeof share !== 'number' || !Number.isFinite(share)) return digits(share);
  const size = Math.abs(share) * 100;
  if (size !== 0 && size < 0.01) return share < 0 ? '> −0.01 %' : '< 0.01 %';
  return `${Number(Number((share * 100).toPrecision(figures)).toFixed(2))} %`;
}

export function money(dollars) {
  if (typeof dollars !== 'number') return digits(dollars);
  const text = dollars >= 1000 ? grouped(Math.round(dollars)) : dollars.toFixed(2);
  return `$${text}`;
}

// 570000 -> "6 d 14 h"; 0.0123 -> "12.3 ms".
export function duration(seconds) {
  if (typeof seconds !== 'number' || !Number.isFinite(seconds)) return digits(seconds);
  const size = Math.abs(seconds);
  if (size < 1e-3) return size === 0 ? '0 s' : `${rounded(seconds * 1e6, 3)} µs`;
  if (size < 1) return `${rounded(seconds * 1e3, 3)} ms`;
  if (size < 60) return `${rounded(seconds, 3)} s`;
  const whole = Math.round(size);
  const parts = [[86400, 'd'], [3600, 'h'], [60, 'min'], [1, 's']];
  const first = parts.findIndex(([unit]) => whole >= unit);
  const text = [];
  let rest = whole;
  for (const [unit, name] of parts.slice(first, first + 2)) {
    const count = Math.floor(rest / unit);
    rest -= count * unit;
    if (count > 0 || text.length === 0) text.push(`${count} ${name}`);
  }
  return (seconds < 0 ? '−' : '') + text.join(' ');
}

// Seconds since 1970 -> "2026-11-17 06:52:06" in UTC.
export function utcText(seconds) {
  const date = new Date(seconds * 1000);
  if (typeof seconds !== 'number' || Number.isNaN(date.getTime())) return digits(seconds);
  return date.toISOString().slice(0, 19).replace('T', ' ');
}

export function localText(seconds) {
  const date = new Date(seconds * 1000);
  if (typeof seconds !== 'number' || Number.isNaN(date.getTime())) return '';
  return `${date.toLocaleString()} local time`;
}

// A value of x: a step, a number of tokens, or a time.
export function xText(kind, value) {
  if (kind === 'time') return `${utcText(value)} UTC`;
  return kind === 'tokens' ? `${grouped(value)} tokens` : `step ${grouped(value)}`;
}

// A range of x: "steps 1 – 200".
export function rangeText(kind, from, to) {
  if (kind === 'time') return `${utcText(from)} – ${utcText(to)} UTC`;
  return `${kind === 'tokens' ? 'tokens' : 'steps'} ${grouped(Math.round(from))} – ${grouped(Math.round(to))}`;
}

// The unit of a column of ranks.bin follows from its name.
export function columnText(column, value) {
  if (value === null || value === undefined || Number.isNaN(value)) return 'no data';
  if (column.endsWith('bytes')) return bytesText(value);
  if (column.endsWith('bytes_per_second')) return `${bytesText(value)}/s`;
  if (column.endsWith('_seconds') || /^(wait|late)_/.test(column)) return duration(value);
  if (column.endsWith('_hz')) return `${rounded(value / 1e6, 4)} MHz`;
  if (column.endsWith('_share')) return percent(value);
  if (column.endsWith('_watts')) return `${rounded(value, 4)} W`;
  if (column.endsWith('_celsius')) return `${rounded(value, 3)} °C`;
  return compact(value, 4);
}

// The unit of a tag of metrics.jsonl follows from its name, too.
export function tagText(tag, value) {
  if (typeof value !== 'number' || !Number.isFinite(value)) return digits(value);
  if (/(\(s\)|_seconds|\/seconds)$/.test(tag)) return duration(value);
  if (tag.endsWith('(%)')) return `${brief(value, 4)} %`;
  if (tag.endsWith('(GiB)')) return bytesText(value * 2 ** 30);
  if (tag.endsWith('bytes_per_second')) return `${bytesText(value)}/s`;
  if (tag.endsWith('/bytes')) return bytesText(value);
  if (tag === 'throughput(tps)') return `${brief(value)} tokens/s`;
  if (tag === 'tflops') return `${brief(value)} TFLOP/s`;
  return isCount(tag) ? grouped(value) : brief(value);
}

// Tags whose values are whole numbers of things.
export function isCount(tag) {
  return /^(tokens($|\/)|step$|skipped|clipped$|validation_metrics\/tokens)|(idle_experts|busiest_expert)$/.test(tag);
}
