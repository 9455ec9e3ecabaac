// SPDX-License-Identifier: Apache-2.0
// The planner's page: a question, and the answer that `trireme plan --json` gives to it. Every number
// is a number of that answer, with its digits; data-path names the place where it stands there.
import {getJson, queryText} from './api.js';
import {el, note, replace, tableElement} from './dom.js';
import {bytesText, compact, digits, duration, percent} from './format.js';
import {seriesColor} from './paint.js';
import {changeView, view} from './view.js';

const fields = [['gpus', 'GPUs', '64'], ['batch_tokens', 'batch (tokens)', '4e6'], ['seq_len', 'sequence (tokens)', '8192'],
  ['tokens', 'tokens of the run', ''], ['price', '$ per GPU-hour', '']];
const limits = [['memory_fraction', 'part of memory', '0.95'], ['tp', 'tensor parallel', 'any'], ['pp', 'pipeline', 'any'],
  ['cp', 'context', 'any'], ['ep', 'experts', 'any'], ['zero', 'ZeRO stages', 'any'], ['micro_batch', 'micro-batch', 'any'],
  ['schedule', 'schedules', 'any'], ['recompute', 'recompute', 'any'], ['precision', 'precisions', 'bf16'], ['layout', 'layout to price', 'none']];

let choices = null;
let asked = '';

export async function drawPlanner(holder) {
  if (!choices) choices = await getJson('/api/plan/choices');
  const question = new URLSearchParams(view().plan);
  if (!holder.querySelector('form')) replace(holder, plannerForm(question), el('div', {id: 'plan-answer', 'aria-live': 'polite'}));
  if (question.has('model') && view().plan !== asked) {
    asked = view().plan;
    await askPlan(holder.querySelector('#plan-answer'), Object.fromEntries(question));
  }
}

function plannerForm(question) {
  const inputs = {};
  const labelled = (name, text, node) => {
    inputs[name] = node;
    return el('label', {}, el('span', {}, text), node);
  };
  const select = (name, text, options) => labelled(name, text, el('select', {name}, options.map((option) =>
    el('option', {value: option, selected: question.get(name) === option}, option))));
  const input = ([name, text, hint]) => labelled(name, text, el('input', {name, value: question.get(name) ??
    (fields.some((field) => field[0] === name) ? hint : ''), placeholder: hint, size: 10, autocomplete: 'off', spellcheck: 'false'}));
  const submit = (event) => {
    event.preventDefault();
    const chosen = new URLSearchParams();
    for (const [name, node] of Object.entries(inputs)) if (node.value.trim()) chosen.set(name, node.value.trim());
    asked = '';
    changeView({plan: chosen.toString()});
    if (view().plan === chosen.toString()) drawPlanner(document.getElementById('planner'));
  };
  return el('form', {class: 'panel question', tabindex: '-1', 'aria-label': 'Plan a job', on: {submit}},
      el('h2', {}, 'Plan a job'),
      el('div', {class: 'fields'}, select('model', 'model', choices.models || []), select('machine', 'machine', choices.machines || []),
          fields.map(input), select('stack', 'training program', ['trireme', ...(choices.stacks || []).filter((name) => name !== 'trireme')])),
      el('details', {}, el('summary', {}, 'limits: which layouts may be used'), el('div', {class: 'fields'}, limits.map(input)),
          note('Lists as 1,2,8; an empty field leaves the choice to the planner.')),
      el('button', {type: 'submit', class: 'main'}, 'plan'));
}

async function askPlan(holder, question) {
  replace(holder, note('Pricing every layout …'));
  const started = asked;
  try {
    const answer = await getJson('/api/plan' + queryText(question));
    if (started !== asked) return;
    drawPlan(holder, answer);
    const shown = answer.best || answer.nearest;
    if (!shown || !(shown.layout?.pp > 1)) return;
    const {svg} = await getJson('/api/plan/schedule' + queryText(question));
    if (started !== asked || !svg) return;
    // As an image the picture cannot run scripts, load anything or change styles of the page.
    holder.querySelector('.plan-schedule')?.append(el('h2', {}, 'Schedule'), el('img', {
      alt: `schedule ${shown.layout.schedule} of ${shown.layout.pp} ranks`, src: `data:image/svg+xml,${encodeURIComponent(svg)}`}));
  } catch (error) {
    if (started === asked) replace(holder, el('p', {class: 'failed'}, error.message));
  }
}

// A number of the answer, with all of its digits.
function exact(path, value) {
  return el('span', {'data-path': path}, digits(value));
}

function drawPlan(holder, answer) {
  const key = answer.best ? 'best' : 'nearest';
  const shown = answer[key];
  if (answer.error || !shown) {
    replace(holder, el('p', {class: 'failed'}, answer.error || 'The planner gave no layout.'));
    return;
  }
  const number = (name) => ({name, is_number: true});
  replace(holder,
      el('section', {class: 'panel'},
          el('p', {class: 'sentence'}, el('span', {class: `lamp ${shown.fits ? 'good' : 'bad'}`}, el('span', {class: 'dot', 'aria-hidden': 'true'}),
              shown.fits ? 'fits' : 'does not fit'), el('span', {class: 'text'}, shown.layout.text)),
          el('p', {}, `${shown.kind}: ${duration(shown.seconds)} a step, ${compact(shown.tokens_per_second)} tokens/s, MFU ${percent(shown.mfu)}, ` +
            `${bytesText(shown.bytes)} of ${bytesText(answer.memory_bytes)}`),
          plainList('Changes that would fit', answer.changes), plainList('Assumed', answer.assumed),
          plainList('Ignored', answer.ignored), plainList('Warnings', shown.band?.warnings),
          tableElement('the answer', [{name: 'figure'}, number('value')], [
            ['seconds per step', exact(`${key}.seconds`, shown.seconds)], ['tokens per second', exact(`${key}.tokens_per_second`, shown.tokens_per_second)],
            ['MFU', exact(`${key}.mfu`, shown.mfu)], ['HFU', exact(`${key}.hfu`, shown.hfu)],
            ['bytes of the largest rank', exact(`${key}.bytes`, shown.bytes)], ['bytes free', exact(`${key}.headroom_bytes`, shown.headroom_bytes)],
            ['band of time', exact(`${key}.band.time`, shown.band?.time)], ['band of memory', exact(`${key}.band.memory`, shown.band?.memory)],
            ...runRows(answer, key)])),
      barPanel('Time by term', 'seconds of a step', shown.terms, `${key}.terms`, shown.seconds),
      barPanel('Memory by item', 'bytes of the largest rank', shown.items, `${key}.items`, Math.max(shown.bytes, answer.memory_bytes)),
      el('section', {class: 'panel wide plan-schedule'}),
      el('section', {class: 'panel wide'}, el('h2', {}, 'Neighbours'), neighbourTable([...neighbours(answer, 'alternatives'),
        ...neighbours(answer, 'fewer'), ...neighbours(answer, 'better'), ...neighbours(answer, 'change_layouts')])),
      el('section', {class: 'panel wide'}, el('h2', {}, 'Why not another one?'), (answer.rejected || []).length > 0 ?
        tableElement('rejected', [number('tp'), number('cp'), number('pp'), number('ep'), {name: 'reason'}, number('missing bytes')],
            answer.rejected.map((one, i) => [...['tp', 'cp', 'pp', 'ep'].map((axis) => exact(`rejected.${i}.${axis}`, one[axis])),
              one.reason, exact(`rejected.${i}.missing_bytes`, one.missing_bytes)])) : note('No layout was rejected by a rule.')));
}

function runRows(answer, key) {
  const run = answer[key].run;
  return Object.entries(run || {}).filter(([, value]) => typeof value === 'number').map(([name, value]) =>
    [`run: ${name.replaceAll('_', ' ')}`, exact(`${key}.run.${name}`, value)]);
}

function plainList(title, lines) {
  if (!lines || lines.length === 0) return null;
  return el('div', {}, el('h3', {}, title), el('ul', {class: 'plain'}, lines.map((line) => el('li', {}, line))));
}

function barPanel(title, about, values, path, total) {
  const rows = Object.entries(values || {}).filter(([, value]) => value !== 0);
  return el('section', {class: 'panel'}, el('h2', {}, title), el('p', {class: 'about'}, about),
      el('div', {class: 'bars'}, rows.map(([name, value], i) => el('div', {class: 'bar-row'}, el('span', {}, name),
          el('span', {class: 'track', 'aria-hidden': 'true'}, el('span', {class: 'bar measured', style: {
            left: '0', width: `${100 * Math.min(1, Math.abs(value) / total)}%`, background: seriesColor(i)}})),
          exact(`${path}.${name}`, value)))));
}

function neighbours(answer, list) {
  return (answer[list] || []).map((one, i) => ({one, path: `${list}.${i}`}));
}

function neighbourTable(list) {
  if (list.length === 0) return note('There are none.');
  const columns = ['layout', 'GPUs', 'seconds per step', 'tokens per second', 'MFU', 'bytes', 'change of time'].map((name, i) => ({name, is_number: i > 0}));
  return el('div', {class: 'scroll'}, tableElement('neighbours', columns, list.map(({one, path}) => [one.layout.text,
    exact(`${path}.layout.gpus`, one.layout.gpus), exact(`${path}.seconds`, one.seconds), exact(`${path}.tokens_per_second`, one.tokens_per_second),
    exact(`${path}.mfu`, one.mfu), exact(`${path}.bytes`, one.bytes), exact(`${path}.time_change`, one.time_change)])));
}
