// SPDX-License-Identifier: Apache-2.0
// Memory by item against its limit, the state of the hardware, and the ledger of time and money.
import {getJson} from './api.js';
import {el, makePanel, note, redraw, replace, scrolledTable, setEmpty, tableButton, tableElement, timeElement} from './dom.js';
import {brief, bytesText, columnText, digits, digits32, duration, grouped, money, percent} from './format.js';
import {className, columnName} from './names.js';
import {seriesColor} from './paint.js';
import {lastRecord} from './ranks.js';
import {shownEvents, shownRun} from './runinfo.js';
import {view} from './view.js';

// A horizontal bar of parts: [{name, size, color, text}], on a scale that ends at `total`.
function stackElement(parts, total) {
  return el('div', {class: 'stack', 'aria-hidden': 'true'}, parts.filter((part) => part.size > 0).map((part) =>
    el('span', {title: part.text, style: {width: `${100 * part.size / total}%`, background: part.color}})));
}

function keyElement(parts) {
  return el('div', {class: 'swatches'}, parts.filter((part) => part.size > 0).map((part) =>
    el('span', {}, el('i', {style: {background: part.color}}), part.text)));
}

export function makeMemoryPanel() {
  const panel = makePanel('memory', 'Does it fit?', 'memory of a device by item');
  let answer = null;
  let is_table = false;
  const draw = () => drawMemory(panel, answer, is_table);
  panel.tools.append(tableButton((chosen) => {
    is_table = chosen;
    draw();
  }));
  return {
    node: panel.node, redraw: draw,
    refresh: async () => {
      answer = await getJson(`/api/run/${view().run}/memory`);
      draw();
    },
  };
}

function drawMemory(panel, answer, is_table) {
  if (!answer) return;
  const items = Object.entries(answer.predicted || {});
  const used = (answer.measured_bytes_by_rank || []).filter(Number.isFinite);
  const is_empty = answer.missing || (items.length === 0 && used.length === 0);
  setEmpty(panel.node, is_empty ? answer.missing || 'Memory was neither predicted nor measured.' : null);
  if (is_empty) return;
  const predicted = items.reduce((sum, [, bytes]) => sum + bytes, 0);
  const most = used.length > 0 ? Math.max(...used) : null;
  const host = (answer.host_bytes_by_rank || []).filter(Number.isFinite);
  const limits = (answer.limit_bytes_by_rank || []).filter(Number.isFinite);
  const limit = answer.limit_bytes || (limits.length > 0 ? Math.min(...limits) : null);
  if (is_table) {
    const rows = items.map(([name, bytes]) => [`predicted: ${name}`, digits(bytes)]);
    rows.push(['predicted: sum', digits(predicted)], ['measured: largest rank', digits(most)], ['limit', digits(limit)],
        ['host: largest rank', digits(host.length > 0 ? Math.max(...host) : null)]);
    replace(panel.body, tableElement('memory', [{name: 'item'}, {name: 'bytes', is_number: true}], rows));
    return;
  }
  // A limit far above what is used would make its parts invisible; it is left outside then.
  const used_bytes = Math.max(predicted, most || 0);
  const is_limit_far = limit > 12 * used_bytes;
  const total = (is_limit_far ? 1.5 * used_bytes : Math.max(limit || 0, used_bytes)) * 1.02;
  const parts = items.map(([name, size], i) => ({name, size, color: seriesColor(i), text: `${name} ${bytesText(size)}`}));
  const row = (name, stack) => el('div', {class: 'stack-row'}, el('span', {}, name), el('div', {class: 'stack-holder'}, stack,
      limit && !is_limit_far ? el('span', {class: 'limit', title: `limit ${bytesText(limit)}`, style: {left: `${100 * limit / total}%`}}) : null));
  replace(panel.body,
      row('predicted', stackElement(parts, total)),
      most !== null ? row('used', stackElement([{size: most, color: 'var(--measured)', text: bytesText(most)}], total)) : null,
      el('p', {class: 'note'}, [`predicted ${bytesText(predicted)}`, most !== null ? `used ${bytesText(most)} (largest rank)` : 'not measured',
        limit ? `limit ${bytesText(limit)}${is_limit_far ? ' (outside of the picture)' : ''}, ${percent(used_bytes / limit)} of it used` : 'limit unknown',
        host.length > 0 ? `host ${bytesText(Math.max(...host))} (largest rank)` : ''].filter(Boolean).join(' · ')),
      keyElement(parts));
}

const hardware_columns = ['clock_hz', 'max_clock_hz', 'power_watts', 'temperature_celsius', 'ecc_errors', 'throttle_reasons',
  'sm_share', 'tensor_share', 'nvlink_bytes_per_second', 'pcie_bytes_per_second', 'cpu_share', 'host_bytes'];

export function makeHardwarePanel() {
  const panel = makePanel('hardware', 'Is the hardware healthy?', 'last record of all ranks; events of devices');
  return {
    node: panel.node,
    refresh: async () => {
      const columns = hardware_columns.filter((column) => shownRun()?.rank_columns?.includes(column));
      const record = await lastRecord(columns).catch(() => new Map());
      const rows = columns.filter((column) => record.has(column)).map((column) => {
        const sorted = record.get(column).map((value, rank) => [value, rank]).filter(([value]) => Number.isFinite(value)).sort((a, b) => a[0] - b[0]);
        if (sorted.length === 0) return null;
        const cell = ([value, rank]) => el('span', {title: `rank ${rank}: ${digits32(value)}`}, columnText(column, value));
        return [columnName(column), cell(sorted[0]), cell(sorted[sorted.length >> 1]), cell(sorted[sorted.length - 1])];
      }).filter(Boolean);
      const devices = new Map();
      for (const event of shownEvents().filter((one) => one.kind === 'hardware')) {
        const name = [event.node, event.device || (event.rank >= 0 ? `rank ${event.rank}` : '')].filter(Boolean).join(', ') || 'unknown device';
        devices.set(name, (devices.get(name) || 0) + 1);
      }
      setEmpty(panel.node, rows.length + devices.size > 0 ? null : 'The run has no counters of devices.');
      const repeated = [...devices].sort((a, b) => b[1] - a[1]).slice(0, 5);
      replace(panel.body, rows.length > 0 ? tableElement('hardware', [{name: 'counter'}, {name: 'min', is_number: true},
        {name: 'median', is_number: true}, {name: 'max', is_number: true}], rows) : null,
      repeated.length > 0 ? el('div', {}, el('h3', {}, 'Devices with events'), el('ul', {class: 'plain'}, repeated.map(([name, count]) =>
        el('li', {}, `${name}: ${grouped(count)}`)))) : null);
    },
  };
}

export function makeLedgerPanel() {
  const panel = makePanel('ledger', 'What did it cost?', 'every second of every device, by class', {class: 'panel two'});
  let answer = null;
  let is_table = false;
  const draw = () => drawLedger(panel, answer, is_table);
  panel.tools.append(tableButton((chosen) => {
    is_table = chosen;
    draw();
  }));
  return {
    node: panel.node, redraw: draw,
    refresh: async () => {
      answer = await getJson(`/api/run/${view().run}/ledger`);
      draw();
    },
  };
}

function drawLedger(panel, ledger, is_table) {
  if (!ledger) return;
  const classes = Object.entries(ledger.seconds || {}).filter(([, seconds]) => seconds > 0).sort((a, b) => b[1] - a[1]);
  const is_empty = ledger.missing || classes.length === 0;
  setEmpty(panel.node, is_empty ? ledger.missing || 'The run has no phases.jsonl yet.' : null);
  if (is_empty) return;
  const total = classes.reduce((sum, [, seconds]) => sum + seconds, 0);
  const parts = classes.map(([name, size], i) => ({name, size, color: name === 'useful' ? 'var(--useful)' :
    name === 'unknown' ? 'var(--predicted)' : seriesColor(i < 2 ? i : i + 1), text: `${className(name)} ${percent(size / total)}`}));
  panel.node.querySelector('.about').textContent = `useful ${percent(ledger.useful_share)} of ${duration(total)} on ` +
    `${grouped(ledger.devices)} ${ledger.devices === 1 ? 'device' : 'devices'}` +
    (typeof ledger.price_per_hour === 'number' ? ` at ${money(ledger.price_per_hour)} an hour` : '; no price is known');
  const number = (name) => ({name, is_number: true});
  const exact = (value, text) => el('span', {title: digits(value)}, is_table ? digits(value) : text);
  const rows = classes.map(([name, seconds]) => [className(name), exact(seconds, duration(seconds)), percent(seconds / total),
    exact(ledger.device_hours?.[name], brief(ledger.device_hours?.[name], 4)),
    ledger.dollars ? exact(ledger.dollars[name], money(ledger.dollars[name])) : '–']);
  const tokens = Object.entries(ledger.tokens || {}).map(([name, count]) => `${name} ${grouped(count)}`).join(' · ');
  const attempts = (ledger.attempts || []).map((one) => [digits(one.attempt), timeElement(one.begin), duration(one.end - one.begin),
    grouped(one.steps), one.end_reason]);
  redraw(panel.body, stackElement(parts, total), keyElement(parts.slice(0, 8)),
      el('p', {class: 'note'}, `tokens: ${tokens || 'not counted'}`),
      scrolledTable('ledger', [{name: 'class'}, number('time'), number('share'), number('device-hours'), number('dollars')], rows),
      attempts.length > 0 ? el('h3', {}, 'Attempts') : null,
      attempts.length > 0 ? scrolledTable('attempts', [number('attempt'), {name: 'begin (UTC)'}, number('duration'), number('steps'), {name: 'end'}],
          attempts) : null);
}
