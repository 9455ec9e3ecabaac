// SPDX-License-Identifier: Apache-2.0
// Time by term and memory by item of a layout, as bars with their numbers.
import {el} from './dom.js';
import {planCard} from './planner_parts.js';

// Colours are variables of the style sheet, so that a change of theme needs no new drawing.
const partColor = (i) => `var(--part-${i % 8})`;

function partRow(color, name, meaning, share, ...numbers) {
  return el('div', {class: 'part-row'},
      el('span', {class: 'part-name'}, color ? el('i', {style: {background: color}, 'aria-hidden': 'true'}) : null, name),
      el('span', {class: 'track', 'aria-hidden': 'true'}, el('span', {class: 'part-bar', style: {
        width: `${100 * Math.min(1, share)}%`, background: color || 'var(--edge)'}})),
      numbers.map((number) => el('span', {class: 'part-number'}, number)),
      meaning ? el('span', {class: 'part-meaning'}, meaning) : null);
}

// `at` is the place of the layout in the answer: 'best'.
export function timeCard(answer, at, shown, {figure, share}) {
  const rows = Object.entries(shown.terms).filter(([, value]) => value !== 0).sort((a, b) => b[1] - a[1]);
  return planCard('Where does a step spend its time?', 'seconds of the slowest rank; the terms add up to the step',
      el('div', {class: 'part-rows'}, rows.map(([name, value], i) => partRow(partColor(i), name, answer.meanings.terms[name],
          value / shown.seconds, figure(`${at}.terms.${name}`, 'step'), share(`${at}.terms.${name}`, `${at}.seconds`)))));
}

// Every item is seen in the bar, also one of a thousandth of the memory: a segment has a least width.
export function memoryCard(answer, at, shown, {figure, share}) {
  const items = Object.entries(shown.items).filter(([, value]) => value > 0);
  const free = shown.headroom_bytes;
  const segment = ([name, value], i) => el('span', {class: 'segment', style: {'flex-grow': value, background: partColor(i),
    color: 'var(--on-part)'}, title: name}, el('span', {class: 'segment-name'}, name));
  const whole = shown.bytes + Math.max(0, free);
  const over = free < 0 ? el('p', {class: 'problems'}, 'The layout needs ', figure(`${at}.bytes`, 'bytes'), ' of ', figure('memory_bytes', 'bytes'), '.') : null;
  const saved = shown.phases?.save_host_bytes > 0 ? el('p', {class: 'note'}, 'A checkpoint takes ', figure(`${at}.phases.save_host_bytes`, 'bytes'),
      ' of host memory for each GPU while it is saved.') : null;
  return planCard('What fills the memory of a GPU?', 'the rank with the highest total',
      el('div', {class: 'segments', role: 'img', 'aria-label': 'shares of the memory; the numbers follow'}, items.map(segment),
          free > 0 ? el('span', {class: 'segment free', style: {'flex-grow': free}, title: 'free'}, el('span', {class: 'segment-name'}, 'free')) : null),
      over,
      el('div', {class: 'part-rows'}, items.map(([name, value], i) => partRow(partColor(i), name, answer.meanings.items[name],
          value / whole, figure(`${at}.items.${name}`, 'bytes'), share(`${at}.items.${name}`, 'memory_bytes'))),
      free > 0 ? partRow(null, 'free', '', free / whole, figure(`${at}.headroom_bytes`, 'bytes'), share(`${at}.headroom_bytes`, 'memory_bytes')) : null,
      partRow(null, 'needed', 'all items together', shown.bytes / whole, figure(`${at}.bytes`, 'bytes'), share(`${at}.bytes`, 'memory_bytes'))), saved);
}
