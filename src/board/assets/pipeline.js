// SPDX-License-Identifier: Apache-2.0
// The pipeline of a traced step: planned above traced, on one scale of seconds.
import {getJson} from './api.js';
import {el, makePanel, replace, scrolledTable, selectElement, setEmpty, sizeCanvas, tableButton, watchWidth} from './dom.js';
import {digits, duration} from './format.js';
import {cssColor, seriesColor, textFont} from './paint.js';
import {onPrint} from './print.js';
import {numberTicks} from './ticks.js';
import {view} from './view.js';

const left = 52;
const kinds = [['F', 'forward', 0], ['B', 'backward', 1], ['I', 'input gradient', 1], ['W', 'weight gradient', 2],
  ['BW', 'both gradients', 3]];

export function makePipelinePanel() {
  const panel = makePanel('pipeline', 'Does the pipeline run as planned?', 'planned above traced, on one scale', {class: 'panel wide'});
  const state = {answer: null, step: 0, is_table: false, boxes: []};
  const canvas = el('canvas', {});
  const holder = el('div', {class: 'picture', role: 'img', tabindex: '0',
    'aria-label': 'pipeline: planned and traced actions; their numbers are in the table view'}, canvas);
  const readout = el('p', {class: 'readout muted'});
  const other = el('div', {});
  const choice = el('span', {});
  panel.tools.append(choice, tableButton((is_table) => {
    state.is_table = is_table;
    draw();
  }));
  panel.body.append(holder, readout, other);
  const draw = () => {
    const step = state.answer?.steps?.[state.step];
    if (state.answer) setEmpty(panel.node, step ? null : state.answer.missing || 'No step was traced (--trace-steps).');
    if (!step) return;
    holder.hidden = readout.hidden = state.is_table;
    replace(other, state.is_table ? pipelineTable(step) : pipelineKey(step));
    drawPipeline(canvas, holder.clientWidth, step, state);
  };
  canvas.addEventListener('pointermove', (event) => {
    const frame = canvas.getBoundingClientRect();
    const x = event.clientX - frame.left, y = event.clientY - frame.top;
    const found = state.boxes.find((box) => x >= box.x && x < box.x + box.width && y >= box.y && y < box.y + box.height);
    if (!found) return;
    const {action, kind} = found;
    readout.textContent = `${kind} ${action.action}, rank ${action.rank}, stage ${action.stage}, micro-batch ${action.micro}: ` +
      `${duration(action.begin)} – ${duration(action.end)}, ${duration(action.end - action.begin)}`;
  });
  watchWidth(holder, draw);
  onPrint(draw);
  return {
    node: panel.node, redraw: draw,
    refresh: async () => {
      state.answer = await getJson(`/api/run/${view().run}/pipeline`);
      const steps = state.answer.steps || [];
      state.step = Math.min(state.step, Math.max(0, steps.length - 1));
      replace(choice, steps.length > 1 ? selectElement('step', steps.map((step, i) => [String(i), `step ${step.step}`]),
          String(state.step), (index) => {
            state.step = Number(index);
            draw();
          }) : null);
      draw();
    },
  };
}

function colorOfKind(kind) {
  return seriesColor(kinds.find(([letter]) => letter === kind)?.[2] ?? 3);
}

function drawPipeline(canvas, width, step, state) {
  if (width === 0) return;
  const ranks = Math.max(1, step.pp || 1);
  const lane = Math.max(7, Math.min(22, 150 / ranks));
  const block = ranks * lane + 18;
  const height = 2 * block + 24;
  const context = sizeCanvas(canvas, width, height);
  const all = [...(step.planned || []), ...(step.traced || [])];
  const end = Math.max(1e-9, ...all.map((action) => action.end));
  const x = (seconds) => left + seconds / end * (width - left - 4);
  context.font = textFont(11);
  context.textBaseline = 'middle';
  state.boxes = [];
  [['planned', step.planned], ['traced', step.traced]].forEach(([kind, actions], part) => {
    const top = part * block;
    context.fillStyle = cssColor('--muted');
    context.textAlign = 'left';
    const last = Math.max(0, ...(actions || []).map((action) => action.end));
    context.fillText(actions?.length > 0 ? `${kind}: ${duration(last)}` : `${kind}: none`, left, top + 9);
    context.textAlign = 'right';
    for (let rank = 0; rank < ranks; ++rank) {
      if (lane >= 11 || rank % 4 === 0) context.fillText(`rank ${rank}`, left - 6, top + 18 + (rank + 0.5) * lane);
      context.fillStyle = cssColor('--soft');
      context.fillRect(left, top + 18 + rank * lane, width - left - 4, lane - 2);
      context.fillStyle = cssColor('--muted');
    }
    context.textAlign = 'center';
    for (const action of actions || []) {
      const from = x(action.begin), to = x(action.end), y = top + 18 + action.rank * lane;
      context.fillStyle = colorOfKind(action.kind);
      context.globalAlpha = action.kind === 'F' ? 0.85 : 0.65;
      context.fillRect(from, y, Math.max(0.7, to - from - 0.7), lane - 2);
      context.globalAlpha = 1;
      state.boxes.push({x: from, y, width: Math.max(2, to - from), height: lane, action, kind});
      if (to - from > 20 && lane >= 12) {
        context.fillStyle = cssColor('--card');
        context.fillText(action.action, (from + to) / 2, y + lane / 2 - 0.5);
      }
    }
  });
  context.fillStyle = cssColor('--muted');
  context.textAlign = 'center';
  for (const tick of numberTicks(0, end, width - left, 90, (value) => duration(value))) {
    context.fillText(tick.label, Math.min(width - 24, Math.max(left + 8, x(tick.v))), height - 10);
  }
}

function pipelineKey(step) {
  const found = new Set([...(step.planned || []), ...(step.traced || [])].map((action) => action.kind));
  return el('div', {class: 'swatches'}, kinds.filter(([letter]) => found.has(letter)).map(([letter, name]) =>
    el('span', {}, el('i', {style: {background: colorOfKind(letter)}}), `${letter}: ${name}`)));
}

function pipelineTable(step) {
  const columns = ['kind', 'rank', 'action', 'stage', 'micro-batch', 'begin (s)', 'end (s)'].map((name, i) => ({name, is_number: i === 1 || i > 2}));
  const rows = (kind, actions) => (actions || []).map((action) => [kind, digits(action.rank), action.action, digits(action.stage),
    digits(action.micro), digits(action.begin), digits(action.end)]);
  return scrolledTable('pipeline', columns, [...rows('planned', step.planned), ...rows('traced', step.traced)].slice(0, 4000));
}
