// SPDX-License-Identifier: Apache-2.0
// Collectives by time: groups of ranks on top, their operations below, layers at the bottom; the
// width is seconds, the strong part of a box is the part that compute waited for. A click zooms in.
import {getJson} from './api.js';
import {el, makePanel, replace, scrolledTable, selectElement, setEmpty, sizeCanvas, tableButton, watchWidth} from './dom.js';
import {bytesText, digits, duration, grouped, percent} from './format.js';
import {clipped} from './heat.js';
import {cssColor, seriesColor, textFont} from './paint.js';
import {onPrint} from './print.js';
import {view} from './view.js';

const row_height = 22;

export function makeFlamePanel() {
  const panel = makePanel('collectives', 'Which collectives take time?', 'collectives of traced steps', {class: 'panel two'});
  const state = {answer: null, rank: 'all', path: [], is_table: false, boxes: []};
  const canvas = el('canvas', {});
  const holder = el('div', {class: 'picture', role: 'img', tabindex: '0',
    'aria-label': 'collectives: flame graph; its numbers are in the table view'}, canvas);
  const readout = el('p', {class: 'readout muted'});
  const table = el('div', {});
  const choice = el('span', {});
  panel.tools.append(choice, tableButton((is_table) => {
    state.is_table = is_table;
    draw();
  }));
  panel.body.append(holder, readout, table);
  const draw = () => {
    const rows = state.answer?.rows;
    if (state.answer) setEmpty(panel.node, rows ? null : state.answer.missing || 'No step was traced (--trace-steps).');
    if (!rows) return;
    holder.hidden = readout.hidden = state.is_table;
    replace(table, state.is_table ? flameTable(rows) : null);
    const tree = flameTree(rows.filter((row) => state.rank === 'all' || String(row.rank) === state.rank));
    drawFlame(canvas, holder.clientWidth, tree, state);
    if (!readout.textContent) readout.textContent = 'strong: compute waited; pale: hidden behind compute';
  };
  const boxAt = (event) => {
    const frame = canvas.getBoundingClientRect();
    const x = event.clientX - frame.left, y = event.clientY - frame.top;
    return state.boxes.find((box) => x >= box.x && x < box.x + box.width && y >= box.y && y < box.y + row_height);
  };
  canvas.addEventListener('pointermove', (event) => {
    const node = boxAt(event)?.node;
    if (node) readout.textContent = flameText(node);
  });
  canvas.addEventListener('click', (event) => {
    const box = boxAt(event);
    if (!box) return;
    state.path = box.path.join() === state.path.join() ? box.path.slice(0, -1) : box.path;
    draw();
  });
  watchWidth(holder, draw);
  onPrint(draw);
  return {
    node: panel.node, redraw: draw,
    refresh: async () => {
      state.answer = await getJson(`/api/run/${view().run}/collectives`);
      const ranks = [...new Set((state.answer.rows || []).map((row) => row.rank))].sort((a, b) => a - b);
      replace(choice, ranks.length > 0 ? selectElement('rank', [['all', 'all ranks'], ...ranks.map((rank) => [String(rank), `rank ${rank}`])],
          state.rank, (rank) => {
            state.rank = rank;
            draw();
          }) : null);
      draw();
    },
  };
}

function flameTree(rows) {
  const root = {name: 'all', seconds: 0, exposed: 0, bytes: 0, calls: 0, parts: new Map()};
  for (const row of rows) {
    let node = root;
    for (const name of [null, row.group, row.op, row.layer || 'no layer']) {
      if (name !== null) {
        if (!node.parts.has(name)) node.parts.set(name, {name, seconds: 0, exposed: 0, bytes: 0, calls: 0, parts: new Map()});
        node = node.parts.get(name);
      }
      node.seconds += row.seconds;
      node.exposed += row.exposed_seconds;
      node.bytes += row.bytes;
      node.calls += row.calls;
    }
  }
  return root;
}

function flameText(node) {
  return `${node.name}: ${duration(node.seconds)}, compute waited ${duration(node.exposed)} ` +
    `(${percent(node.seconds > 0 ? node.exposed / node.seconds : 0, 2)}), ${grouped(node.calls)} calls, ${bytesText(node.bytes)}`;
}

function drawFlame(canvas, width, root, state) {
  if (width === 0) return;
  const context = sizeCanvas(canvas, width, 4 * row_height);
  context.font = textFont(11);
  context.textBaseline = 'middle';
  state.boxes = [];
  const palette = new Map([...root.parts.keys()].sort().map((name, i) => [name, i]));
  const drawBox = (node, x, box_width, depth, path, color) => {
    state.boxes.push({x, y: depth * row_height, width: box_width, node, path});
    context.fillStyle = color;
    context.globalAlpha = depth === 0 ? 0.12 : 0.22;
    context.fillRect(x, depth * row_height, Math.max(0.5, box_width - 1), row_height - 1);
    context.globalAlpha = depth === 0 ? 0.2 : 0.5;
    const share = node.seconds > 0 ? Math.min(1, node.exposed / node.seconds) : 0;
    context.fillRect(x, depth * row_height, Math.max(0, (box_width - 1) * share), row_height - 1);
    context.globalAlpha = 1;
    context.fillStyle = cssColor('--text');
    const letters = Math.floor((box_width - 8) / 6.2);
    if (letters >= 3) context.fillText(clipped(node.name, letters), x + 4, depth * row_height + row_height / 2);
    let from = x;
    const focus = state.path[depth];
    for (const part of [...node.parts.values()].sort((a, b) => b.seconds - a.seconds)) {
      if (focus !== undefined && node.parts.has(focus) && part.name !== focus) continue;
      const part_width = focus !== undefined && part.name === focus ? box_width : box_width * part.seconds / (node.seconds || 1);
      if (part_width >= 0.5) {
        const next = depth === 0 ? seriesColor(palette.get(part.name)) : color;
        drawBox(part, from, part_width, depth + 1, [...path, part.name], next);
      }
      from += part_width;
    }
  };
  drawBox(root, 0, width, 0, [], cssColor('--muted'));
}

function flameTable(rows) {
  const columns = ['rank', 'group', 'operation', 'layer', 'calls', 'seconds', 'exposed seconds', 'bytes'].map((name, i) =>
    ({name, is_number: i === 0 || i > 3}));
  return scrolledTable('collectives', columns, rows.slice(0, 2000).map((row) => [digits(row.rank), row.group, row.op,
    row.layer || '', digits(row.calls), digits(row.seconds), digits(row.exposed_seconds), digits(row.bytes)]));
}
