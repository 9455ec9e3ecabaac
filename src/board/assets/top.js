// SPDX-License-Identifier: Apache-2.0
// The top of the page: one sentence, the lamp with its text, and the figures that are always wanted.
import {el, redraw} from './dom.js';
import {compact, digits, duration, grouped, localText, money, utcText} from './format.js';
import {shownRun} from './runinfo.js';

const lamp_words = {good: 'good', warning: 'look here', bad: 'in trouble', off: 'not running'};

export function drawTop(holder, connection) {
  const run = shownRun();
  if (!run) return;
  const lamp = run.lamp in lamp_words ? run.lamp : 'off';
  redraw(holder,
      el('h1', {class: 'unseen'}, run.name),
      el('p', {class: 'sentence', role: 'status'},
          el('span', {class: `lamp ${lamp}`}, el('span', {class: 'dot', 'aria-hidden': 'true'}),
              run.state && run.lamp === 'off' ? run.state : lamp_words[lamp]),
          el('span', {class: 'text'}, run.sentence || run.state || '')),
      el('dl', {class: 'figures'},
          figure('run', run.name, run.group ? `${run.name}, group ${run.group}, in ${run.folder}` : `${run.name}, in ${run.folder}`),
          figure('step', run.steps ? `${grouped(run.step)} of ${grouped(run.steps)}` : grouped(run.step),
              run.steps ? `${(100 * run.step / run.steps).toFixed(1)} %` : ''),
          figure('tokens', compact(run.tokens), grouped(run.tokens)),
          etaFigure(run), figure('cost so far', run.dollars === null || run.dollars === undefined ?
            'no price' : money(run.dollars), run.dollars === null || run.dollars === undefined ?
            'the machine file has no price per hour' : `$${digits(run.dollars)}`),
          restorableFigure(run),
          figure('attempt', digits(run.attempt), `began ${utcText(run.begin_time)} UTC`)),
      ...problems(run, connection));
}

function figure(name, text, detail) {
  return el('div', {class: 'figure', title: detail || null}, el('dt', {}, name), el('dd', {}, text));
}

function etaFigure(run) {
  const eta = run.eta_seconds;
  if (!eta) return figure('remaining', run.state === 'done' ? 'done' : 'unknown', '');
  const end = run.last_time + eta.mid;
  return figure('remaining', `${duration(eta.mid)} (${duration(eta.low)} – ${duration(eta.high)})`,
      `ends ${utcText(end)} UTC, ${localText(end)}; between ${utcText(run.last_time + eta.low)} and ` +
      `${utcText(run.last_time + eta.high)}`);
}

function restorableFigure(run) {
  const found = run.restorable;
  if (!found) return figure('can go back to', 'nothing', 'there is no checkpoint that can be restored');
  return figure('can go back to', `step ${grouped(found.step)}, ${duration(found.age_seconds)} old`, '');
}

let are_problems_open = false;

// A lost connection at once; what is wrong with files of the run on request.
function problems(run, connection) {
  const lines = run.problems || [];
  const list = el('details', {class: 'problems', open: are_problems_open},
      el('summary', {}, lines.length === 1 ? '1 file is missing or damaged' : `${lines.length} notes on missing or damaged files`),
      el('ul', {}, lines.slice(0, 30).map((line) => el('li', {}, line))));
  list.addEventListener('toggle', () => {
    are_problems_open = list.open;
  });
  return [connection ? el('p', {class: 'problems', role: 'alert'}, connection) : null, lines.length > 0 ? list : null];
}
