// SPDX-License-Identifier: Apache-2.0
// What happened, and can I go back: events, failures by phase of recovery, checkpoints.
import {getJson} from './api.js';
import {buttonElement, el, makePanel, note, redraw, replace, scrolledTable, timeElement} from './dom.js';
import {bytesText, digits, duration, grouped, money} from './format.js';
import {markLetter, shownEvents} from './runinfo.js';
import {xOfStep} from './series.js';
import {setCursor, showRange, view, wholeRange} from './view.js';

const kinds_of_interest = new Set(['checkpoint', 'validation', 'exported']);

export function makeEventsPanel() {
  const panel = makePanel('events', 'What happened?', 'events, failures and what they cost');
  const state = {ledger: null, is_all: false};
  const all_button = buttonElement('all', 'also show checkpoints, validations and exports', () => {
    state.is_all = !state.is_all;
    all_button.setAttribute('aria-pressed', String(state.is_all));
    drawEvents(panel, state);
  });
  panel.tools.append(all_button);
  return {
    node: panel.node,
    draw: () => drawEvents(panel, state),
    refresh: async () => {
      const ledger = await getJson(`/api/run/${view().run}/ledger`);
      state.ledger = ledger.missing ? null : ledger;
      drawEvents(panel, state);
    },
  };
}

function drawEvents(panel, state) {
  const events = shownEvents();
  const shown = events.filter((event) => state.is_all || !kinds_of_interest.has(event.kind)).slice(-200).reverse();
  const failures = state.ledger?.failures || [];
  redraw(panel.body,
      failures.length > 0 ? el('div', {class: 'failures'}, failures.map(failureElement)) : null,
      shown.length === 0 ? note(events.length > 0 ? 'Nothing but checkpoints and validations.' :
        'No events: the run has no events.jsonl, or nothing happened yet.') :
      el('ol', {class: 'events scroll', tabindex: '0', 'aria-label': 'events, the latest first'},
          shown.map(eventElement)));
}

function eventElement(event) {
  const where = [event.node, event.rank >= 0 ? `rank ${event.rank}` : '', event.device].filter(Boolean).join(', ');
  const show = () => {
    const x = xOfStep(event.step, event.time);
    const {first, last} = wholeRange();
    if (x === null) return;
    const half = (last - first) / 50;
    showRange(x - half, x + half);
    setCursor(x);
  };
  return el('li', {class: event.severity || 'info'},
      el('span', {class: 'letter', 'aria-hidden': 'true'}, markLetter(event.kind) || '·'),
      el('div', {}, el('p', {class: 'text'}, event.text || event.kind),
          el('p', {class: 'when'}, timeElement(event.time), ` · ${event.kind}`,
              event.step >= 0 ? [' · ', buttonElement(`step ${grouped(event.step)}`, 'show the curves around it', show,
                  {class: 'link'})] : null,
              where ? ` · ${where}` : '',
              event.evidence?.length > 0 ? ` · ${event.evidence.join(', ')}` : ''),
          event.kind === 'recovered' ? partsElement(parts_of_epoch.filter((name) => event.data?.[name] > 0)
              .map((name) => [name, event.data[name]])) : null));
}

const parts_of_epoch = ['detect', 'abort', 'reform', 'restore', 'repeat'];

// Parts of a recovery on one bar. Some may be hours where others are seconds: all have a visible width.
function partsElement(parts) {
  if (parts.length === 0) return null;
  const longest = Math.max(...parts.map(([, seconds]) => seconds), 0);
  const width = (seconds) => Math.max(0.06, seconds / (longest || 1));
  return el('div', {class: 'phases'}, parts.map(([name, seconds], i) =>
    el('span', {class: `phase p${i}`, style: {'flex-grow': String(width(seconds))},
      title: `${name}: ${digits(seconds)} s`}, `${name} ${duration(seconds)}`)));
}

const recovery = [['detect_seconds', 'detect'], ['abort_seconds', 'abort'], ['reform_seconds', 'reform'],
  ['load_seconds', 'load'], ['restart_seconds', 'restart'], ['replay_seconds', 'replay']];

// A failure: the phases of its recovery on one bar, tokens and money lost.
function failureElement(failure) {
  let parts = recovery.filter(([key]) => failure[key] > 0);
  if (parts.some(([key]) => key === 'reform_seconds')) parts = parts.filter(([key]) => key !== 'restart_seconds');
  return el('div', {class: 'failure'},
      el('p', {class: 'text'}, el('strong', {}, failure.reason || 'failure'), ' · ', timeElement(failure.time),
          ` · step ${grouped(failure.step)}`),
      partsElement(parts.map(([key, name]) => [name, failure[key]])),
      el('p', {class: 'lost'}, `lost: ${duration(failure.lost_seconds)}, ${grouped(failure.lost_tokens)} tokens` +
        (typeof failure.lost_dollars === 'number' ? `, ${money(failure.lost_dollars)}` : '')));
}

export function makeCheckpointsPanel() {
  const panel = makePanel('checkpoints', 'Can I go back?', 'checkpoints that can be restored');
  return {
    node: panel.node,
    refresh: async () => {
      const answer = await getJson(`/api/run/${view().run}/checkpoints`);
      const list = answer.checkpoints || [];
      if (list.length === 0) {
        replace(panel.body, note(answer.missing || 'There is no checkpoint: a failure loses the whole run.'));
        return;
      }
      const target = list.find((one) => one.is_rollback_target);
      const about = panel.node.querySelector('.about');
      about.textContent = target ? `a restart continues from step ${grouped(target.step)}` : 'none is known to be good';
      const rows = [...list].sort((a, b) => b.step - a.step).map((one) => [
        el('span', {title: one.folder}, grouped(one.step), one.is_rollback_target ?
          el('span', {class: 'badge'}, 'restart') : null),
        el('span', {title: `${digits(one.age_seconds)} s`}, duration(one.age_seconds)),
        el('span', {title: `${digits(one.bytes)} bytes`}, bytesText(one.bytes)),
        one.verified === true ? 'verified' : one.verified === false ? el('span', {title: one.problem || null, class: 'failed'}, 'damaged') :
          'not verified',
        el('span', {title: one.why || null, class: one.mark === 'bad' ? 'failed' : null}, one.mark || '')]);
      redraw(panel.body, scrolledTable('checkpoints', [{name: 'step', is_number: true},
        {name: 'age', is_number: true}, {name: 'size', is_number: true}, {name: 'content'}, {name: 'mark'}], rows),
      note(answer.keep ? `The newest ${grouped(answer.keep)} are kept, the newest good one, and some older ones.` : 'All are kept.'));
    },
  };
}
