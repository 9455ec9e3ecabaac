// SPDX-License-Identifier: Apache-2.0
// Where the rest goes: from the seconds of useful work to the seconds of a step, term by term,
// predicted above measured. The terms and the residual sum to the step; a click on a term shows
// the findings that concern it.
import {getJson} from './api.js';
import {buttonElement, el, makePanel, note, redraw, tableButton, tableElement} from './dom.js';
import {digits, duration, percent} from './format.js';
import {changeView, view} from './view.js';

// Terms that a cause makes longer.
const terms_of_cause = {
  slow_rank: ['late', 'tp', 'cp', 'ep', 'data', 'pp', 'bubble', 'closing', 'kernels', 'compute'],
  slow_link: ['tp', 'cp', 'ep', 'data', 'pp'], stage_imbalance: ['pp', 'bubble'],
  data_starvation: ['data_wait', 'input'], host_pauses: ['host'], throttled_clock: ['kernels', 'compute', 'late'],
  needless_recompute: ['recompute'], slow_save: ['saves'], stale_machine_file: ['kernels', 'compute', 'tp', 'data'],
};

export function makeWaterfallPanel() {
  const panel = makePanel('waterfall', 'Where does the rest go?', 'seconds of a step');
  const state = {diagnosis: null, chosen: null, is_table: false, open: new Set()};
  panel.tools.append(tableButton((is_table) => {
    state.is_table = is_table;
    drawWaterfall(panel, state);
  }));
  return {
    node: panel.node,
    refresh: async () => {
      state.diagnosis = await getJson(`/api/run/${view().run}/diagnosis`);
      drawWaterfall(panel, state);
    },
  };
}

function drawWaterfall(panel, state) {
  const {diagnosis} = state;
  const fall = diagnosis?.waterfall;
  const about = panel.node.querySelector('.about');
  if (!fall || !fall.is_measured) {
    about.textContent = 'seconds of a step';
    redraw(panel.body, note(diagnosis?.missing || 'No step has been measured yet.'), findingsList(state));
    return;
  }
  about.textContent = `${duration(fall.measured_seconds)} a step` +
    (fall.predicted_seconds ? `, predicted ${duration(fall.predicted_seconds)}` : ', nothing was predicted');
  const terms = [...fall.terms, {id: 'residual', label: 'residual (unexplained)', predicted: null, measured: fall.residual}];
  if (state.is_table) {
    const rows = terms.map((term) => [term.label, digits(term.predicted), digits(term.measured)]);
    rows.push(['sum: a step', digits(fall.predicted_seconds), digits(fall.measured_seconds)]);
    redraw(panel.body, tableElement('seconds of a step by term',
        [{name: 'term'}, {name: 'predicted', is_number: true}, {name: 'measured', is_number: true}], rows));
    return;
  }
  const total = Math.max(fall.measured_seconds, fall.predicted_seconds || 0);
  const from = {predicted: 0, measured: 0};
  const rows = terms.filter((term) => term.measured || term.predicted).map((term) => {
    const row = termRow(term, from, total, fall.measured_seconds);
    row.setAttribute('aria-expanded', String(state.chosen === term.id));
    row.addEventListener('click', () => {
      state.chosen = state.chosen === term.id ? null : term.id;
      drawWaterfall(panel, state);
    });
    from.predicted += term.predicted || 0;
    from.measured += term.measured;
    return state.chosen === term.id ? [row, termDetail(term, state)] : [row];
  });
  redraw(panel.body, el('div', {class: 'waterfall'}, rows.flat()),
      el('p', {class: 'key'}, el('span', {class: 'box predicted'}), 'predicted ',
          el('span', {class: 'box measured'}), 'measured; click a term for advice'),
      findingsList(state));
}

function termRow(term, from, total, measured_total) {
  const bar = (kind, begin, seconds) => {
    const left = Math.min(begin, begin + seconds);
    return el('span', {class: `bar ${kind} ${term.id === 'useful' ? 'useful' : ''}`, style: {
      left: `${100 * Math.max(0, left) / total}%`, width: `${100 * Math.abs(seconds) / total}%`}});
  };
  const difference = typeof term.predicted === 'number' ? term.measured - term.predicted : 0;
  const is_worse = difference > 0.02 * measured_total;
  return el('button', {type: 'button', class: `term${is_worse ? ' worse' : ''}`,
    title: `${term.label}: measured ${digits(term.measured)} s, predicted ${digits(term.predicted)}`},
  el('span', {class: 'label'}, term.label),
  el('span', {class: 'track', 'aria-hidden': 'true'},
      typeof term.predicted === 'number' ? bar('predicted', from.predicted, term.predicted) : null,
      bar('measured', from.measured, term.measured)),
  el('span', {class: 'seconds'}, (term.id === 'residual' && term.measured > 0 ? '+' : '') + duration(term.measured)),
  el('span', {class: 'share'}, percent(term.measured / measured_total)));
}

function termDetail(term, state) {
  const related = (state.diagnosis.findings || []).filter((finding) =>
    (terms_of_cause[finding.cause] || []).includes(term.id));
  const difference = typeof term.predicted === 'number' ? term.measured - term.predicted : null;
  return el('div', {class: 'detail'},
      el('p', {title: `measured ${digits(term.measured)} s, predicted ${digits(term.predicted)} s`},
          `measured ${duration(term.measured)}` + (difference === null ? '; nothing was predicted' :
            `, predicted ${duration(term.predicted)}: ${difference > 0 ? 'slower' : 'faster'} by ${duration(Math.abs(difference))}`)),
      related.length > 0 ? related.map((finding) => findingElement(finding, state, `${term.id} ${finding.cause}`)) : el('p', {}, 'No finding concerns this term.'));
}

function findingsList(state) {
  const findings = state.diagnosis?.findings || [];
  if (findings.length === 0) return null;
  return el('div', {class: 'findings'}, el('h3', {}, findings.length === 1 ? 'Cause' : 'Causes, the largest first'),
      findings.map((finding) => findingElement(finding, state, finding.cause)));
}

// `key` keeps it open when it is drawn again.
function findingElement(finding, state, key) {
  const node = el('details', {class: 'finding', open: state.open.has(key)},
      el('summary', {}, el('span', {class: 'title'}, finding.title),
          finding.share > 0 ? el('span', {class: 'share'}, percent(finding.share, 2)) : null),
      el('p', {class: 'advice'}, finding.advice),
      el('ul', {}, (finding.evidence || []).map((line) => el('li', {}, line))),
      finding.rank >= 0 ? buttonElement(`show rank ${finding.rank}`, 'its row in the heat map of ranks', () => {
        changeView({rank: finding.rank});
        document.getElementById('ranks')?.scrollIntoView({block: 'start'});
      }) : null);
  node.addEventListener('toggle', () => (node.open ? state.open.add(key) : state.open.delete(key)));
  return node;
}
