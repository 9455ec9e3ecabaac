// SPDX-License-Identifier: Apache-2.0
// The planner's page: a question, and the answer that `trireme plan --json` gives to it. Every number is
// one of that answer; data-path names the place where it stands there (planner_format.js).
import {getJson, queryText} from './api.js';
import {buttonElement, el, note, replace, saveText} from './dom.js';
import {modelCards} from './planner_answer.js';
import {makePlannerForm, planExamples} from './planner_form.js';
import {deadlineCards, sizeCards} from './planner_sizes.js';
import {changeView, view} from './view.js';

let planForm = null, planAnswer = null;
let asked = null;  // the question that is shown, as in the address
let is_asked = false;  // by a button of the page, not by the address

export async function drawPlanner(holder) {
  if (!planForm) {
    const choices = await getJson('/api/plan/choices');
    if (!planForm) {
      planForm = makePlannerForm(choices, ask);
      planAnswer = el('div', {id: 'plan-answer', 'aria-live': 'polite'});
      replace(holder, planForm.node, planAnswer);
    }
  }
  if (view().plan === asked) return;
  asked = view().plan;
  const question = new URLSearchParams(asked);
  planForm.fill(question);
  if (question.has('machine')) await askPlan(question);
  else replace(planAnswer, startCard());
}

function startCard() {
  return el('section', {class: 'panel wide'}, el('h2', {}, 'What do you want to know?'),
      el('p', {class: 'about'}, 'Fill in the form, or begin with an example. No GPU is needed, and nothing leaves this machine.'),
      el('div', {class: 'start-cards'}, planExamples.map(({text, about, question}) =>
        el('button', {type: 'button', on: {click: () => ask(new URLSearchParams(question))}}, el('b', {}, text), el('span', {class: 'muted'}, about)))));
}

function ask(question) {
  asked = null;
  is_asked = true;
  const text = question.toString();
  if (view().plan !== text) changeView({plan: text});
  else drawPlanner(document.getElementById('planner'));
}

async function askPlan(question) {
  const started = asked;
  replace(planAnswer, note('Pricing every layout …'));
  try {
    const answer = await getJson('/api/plan' + queryText(Object.fromEntries(question)));
    if (started !== asked) return;
    planForm.showError('');
    replace(planAnswer, cardsOf(answer, question));
    // On a phone the answer is below the form.
    if (is_asked && planAnswer.getBoundingClientRect().top > window.innerHeight / 2) planAnswer.scrollIntoView();
    is_asked = false;
    if (!answer.question && (answer.best || answer.nearest)?.layout.pp > 1) await drawPlanSchedule(answer.best || answer.nearest, question, started);
  } catch (error) {
    if (started !== asked) return;
    // Advice for a shell does not help here.
    const text = error.message.replace(/; run [^;]*--help`? for the options$/, '');
    replace(planAnswer, el('p', {class: 'failed', role: 'alert'}, text));
    planForm.showError(text);
  }
}

function cardsOf(answer, question) {
  const with_changes = (changes, removed) => {
    const next = new URLSearchParams(question);
    for (const name of removed) next.delete(name);
    for (const [name, value] of Object.entries(changes)) next.set(name, String(value));
    return next;
  };
  const of_gpus = (gpus) => with_changes({gpus}, ['deadline']);
  if (answer.question === 'sizes') {
    return sizeCards(answer, planTools(question, null), (row) => ask(with_changes({model: row.model, seq_len: row.seq_len,
      batch: row.global_batch, tokens: `${Number((row.tokens / 1e9).toPrecision(4))}B`}, ['days', 'budget', 'batch_tokens'])));
  }
  if (answer.question === 'deadline') {
    return deadlineCards(answer, planTools(question, answer.best ? of_gpus(answer.gpus) : null), (gpus) => ask(of_gpus(gpus)));
  }
  return modelCards(answer, planTools(question, answer.best && (answer.stack || 'trireme') === 'trireme' ? question : null),
      (change) => ask(with_changes(...changeOf(change))));
}

// A change as the planner names it, "16 GPUs with --grad-dtype bf16" or "without --tp and --pp": the
// parameters that it sets, and those that it removes.
function changeOf(text) {
  const options = [...text.matchAll(/--([a-z0-9-]+)(?: ([^\s-]\S*))?/g)].map(([, name, value]) => [name.replaceAll('-', '_'), value]);
  if (text.startsWith('without ')) return [{}, options.map(([name]) => name)];
  const gpus = /^(\d+) GPUs/.exec(text);
  return [{...Object.fromEntries(options), ...(gpus ? {gpus: gpus[1]} : {}), ...(text.startsWith('a layout that') ? {unaudited: 1} : {})}, ['layout']];
}

// The words of the command; a shell reads them back as they are.
export function planCommand(question) {
  const quoted = (word) => (/^[\w.,:=+@%/-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);
  return ['trireme', 'plan', ...[...question].map(([name, value]) => {
    const option = `--${name.replaceAll('_', '-')}`;
    return name === 'unaudited' ? option : `${option} ${quoted(value)}`;
  })].join(' ');
}

// A browser gives its clipboard to pages of this machine or over TLS, and if the reader allows it; otherwise
// the selected line is copied as with the keyboard.
async function copyLine(field) {
  const is_copied = await window.navigator.clipboard?.writeText(field.value).then(() => true, () => false);
  if (is_copied) return;
  field.focus();
  field.select();
  if (!document.execCommand('copy')) throw new Error('The browser gives no clipboard; the line is selected, so press Ctrl-C.');
}

// `runnable` is the question whose answer `trireme train` can run, or null.
function planTools(question, runnable) {
  const command = planCommand(question);
  const field = el('input', {class: 'command', readonly: true, value: command, 'aria-label': 'the same question as a command', size: 40});
  const state = el('span', {class: 'muted', role: 'status'});
  const tried = (action, done) => async () => {
    try {
      await action();
      state.textContent = done;
    } catch (error) {
      state.textContent = error.message;
    }
  };
  const saveToml = async () => {
    const {toml, missing} = await getJson('/api/plan/toml' + queryText(Object.fromEntries(runnable)));
    if (!toml) throw new Error(`There is no configuration: ${missing}`);
    saveText('plan.toml', toml, 'application/toml');
  };
  return el('div', {class: 'plan-tools'}, field,
      buttonElement('copy as command', 'copy the line that gives this answer in a terminal', tried(() => copyLine(field), 'copied')),
      runnable ? buttonElement('download the TOML', 'the configuration for trireme train that runs this layout', tried(saveToml, 'saved as plan.toml')) : null,
      state);
}

async function drawPlanSchedule(shown, question, started) {
  const holder = planAnswer.querySelector('.plan-schedule');
  const {svg, missing} = await getJson('/api/plan/schedule' + queryText(Object.fromEntries(question)));
  if (started !== asked || !holder) return;
  // As an image the picture cannot run scripts, load anything or change styles of the page.
  holder.append(el('h2', {}, 'Which order do the ranks work in?'), svg ? el('div', {class: 'scroll-x', tabindex: '0', role: 'region', 'aria-label': 'schedule'},
      el('img', {alt: `schedule ${shown.layout.schedule} of ${shown.layout.pp} ranks`, src: `data:image/svg+xml,${encodeURIComponent(svg)}`})) : note(missing));
}
