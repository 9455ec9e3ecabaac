// SPDX-License-Identifier: Apache-2.0
// The planner's form: three kinds of questions, examples of each, and errors beside the field they concern.
import {buttonElement, el, note} from './dom.js';

export const questionKinds = [
  {kind: 'plan', label: 'plan a model', about: 'Does it fit, how fast is it, what does it cost?'},
  {kind: 'sizes', label: 'what can I train?', about: 'Which size, in a time or for a sum?'},
  {kind: 'deadline', label: 'how many GPUs?', about: 'The fewest that finish by a deadline.'}];

// A field belongs to `kinds` of questions; `start` is its first value, or one by kind.
const planFields = [
  {name: 'model', label: 'model', list: 'models', kinds: ['plan', 'sizes', 'deadline'], start: {plan: 'llama3.1-8b', deadline: 'llama3.1-8b', sizes: ''}},
  {name: 'machine', label: 'GPU', list: 'machines', kinds: ['plan', 'sizes', 'deadline'], start: 'h100'},
  {name: 'gpus', label: {plan: 'GPUs', sizes: 'GPUs', deadline: 'GPUs at most'}, kinds: ['plan', 'sizes', 'deadline'], start: {plan: '64', sizes: '8', deadline: ''}, hint: '64'},
  {name: 'days', label: 'days', kinds: ['sizes'], start: '7', hint: '7'},
  {name: 'budget', label: 'dollars at most', kinds: ['sizes'], start: '', hint: '5k'},
  {name: 'tokens', label: 'tokens of the run', kinds: ['plan', 'deadline'], start: {plan: '', deadline: '160B'}, hint: '2T'},
  {name: 'deadline', label: 'days, or a date', kinds: ['deadline'], start: '30', hint: '30 or 2027-01-31'},
  {name: 'batch_tokens', label: 'batch in tokens', kinds: ['plan', 'sizes', 'deadline'], start: {plan: '4M', deadline: '4M', sizes: ''}, hint: 'by size'},
  {name: 'seq_len', label: 'sequence in tokens', kinds: ['plan', 'sizes', 'deadline'], start: {plan: '8192', deadline: '8192', sizes: ''}, hint: '4096'},
  {name: 'price', label: '$ of a GPU-hour', kinds: ['plan', 'sizes', 'deadline'], start: '', hint: '2.50'},
  {name: 'stack', label: 'training program', list: 'stacks', kinds: ['plan', 'sizes', 'deadline'], start: 'trireme'}];

const limitFields = [['memory_fraction', 'part of memory', '0.95'], ['tp', 'tensor parallel', '1,2,8'], ['pp', 'pipeline', '1,4'], ['cp', 'context', '1,4'],
  ['ep', 'experts', '1,8'], ['zero', 'ZeRO stages', '1,3'], ['micro_batch', 'micro-batch', '1,2'], ['schedule', 'schedules', '1f1b'],
  ['recompute', 'recompute', 'none,full'], ['precision', 'number formats', 'bf16,fp8-tensor'], ['layout', 'a layout to price', 'tp=8 sp zero=1'],
  ['batch', 'batch in sequences', '512'], ['critical_batch', 'critical batch', '8M'], ['grad_dtype', 'gradients', 'f32'],
  ['master_dtype', 'master weights', 'f32'], ['determinism', 'determinism', 'l1']];

export const planExamples = [
  {text: '70B on 256 H100', about: 'The layout, seconds a step, memory, days and dollars of 2 T tokens.',
    question: {model: 'llama3.1-70b', machine: 'h100', gpus: '256', batch_tokens: '4M', seq_len: '8192', tokens: '2T', price: '2.5'}},
  {text: '8 H100 for 7 days', about: 'Which size of model to train, and on how many tokens.',
    question: {machine: 'h100', gpus: '8', days: '7', price: '2.5'}},
  {text: 'my 1B within 10 days', about: 'The fewest GPUs that train it on 100 B tokens by then.',
    question: {model: 'llama3.2-1b', machine: 'h100', batch_tokens: '1M', seq_len: '4096', tokens: '100B', deadline: '10', price: '2.5'}}];

export function kindOfQuestion(question) {
  if (question.has('deadline')) return 'deadline';
  return question.has('days') || question.has('budget') ? 'sizes' : 'plan';
}

// A number as people write it: "$5,000" is 5000.
function plainNumber(text) {
  const bare = text.replace(/^\$\s*/, '');
  return /^\d{1,3}(,\d{3})+(\.\d+)?[a-z]?$/i.test(bare) ? bare.replaceAll(',', '') : bare;
}

// Returns {node, fill(question), showError(message)}; calls ask(parameters) with a question.
export function makePlannerForm(choices, ask) {
  const inputs = new Map();  // by name: {node, label, text, error, field}
  let kind = 'plan';
  const startOf = (field, of) => (typeof field.start === 'object' ? field.start[of] : field.start ?? '');

  const optionsOf = (field) => {
    const names = choices[field.list] || [];
    const any = field.name === 'model' ? [el('option', {value: ''}, 'any: compare sizes')] : [];
    return [...any, ...names.map((name) => el('option', {value: name}, name))];
  };
  const addInput = (field, holder) => {
    const attributes = {name: field.name, id: `plan-${field.name}`, 'aria-describedby': `plan-${field.name}-error`};
    const node = field.list ? el('select', attributes, optionsOf(field)) :
      el('input', {...attributes, size: 10, autocomplete: 'off', spellcheck: 'false', placeholder: field.hint});
    const text = el('span', {});
    const error = el('span', {class: 'field-error', id: `plan-${field.name}-error`});
    const label = el('label', {}, text, node, error);
    inputs.set(field.name, {node, label, text, error, field});
    holder.push(label);
  };

  const main = [], limits = [];
  for (const field of planFields) addInput(field, main);
  for (const [name, label, hint] of limitFields) addInput({name, label, hint, kinds: ['plan', 'sizes', 'deadline'], start: ''}, limits);

  const tabs = questionKinds.map((one) => el('input', {type: 'radio', name: 'kind', value: one.kind, on: {change: () => setKind(one.kind)}}));
  const about = el('p', {class: 'about'});
  const more = el('details', {}, el('summary', {}, 'limits: which layouts may be used'), el('div', {class: 'fields'}, limits),
      note('Lists as 1,2,8. An empty field leaves the choice to the planner.'));

  // Fields that the reader has not changed take the first value of the kind of question.
  function setKind(next) {
    for (const {node, label, text, field} of inputs.values()) {
      const is_shown = field.kinds.includes(next);
      if (field.kinds.includes(kind) && is_shown && node.value === startOf(field, kind)) node.value = startOf(field, next);
      if (field.name === 'model' && next !== 'sizes' && node.value === '') node.value = startOf(field, next);
      label.hidden = !is_shown;
      text.textContent = typeof field.label === 'object' ? field.label[next] : field.label;
    }
    kind = next;
    tabs.forEach((tab) => {
      tab.checked = tab.value === kind;
    });
    about.textContent = questionKinds.find((one) => one.kind === kind).about;
    fitSequence();
  }

  // No sequence is longer than the model allows.
  function fitSequence() {
    const {node} = inputs.get('seq_len');
    const longest = choices.max_seq?.[inputs.get('model').node.value];
    if (longest && Number(node.value) > longest) node.value = String(longest);
  }

  function fill(question) {
    const next = kindOfQuestion(question);
    const is_empty = [...question].length === 0;
    for (const {node, field} of inputs.values()) {
      const start = is_empty || field.list ? startOf(field, next) : '';
      const wanted = question.get(field.name) ?? start;
      node.value = wanted;
      // Names of files are found in any case of letters.
      if (field.list && node.value !== wanted) node.value = [...node.options].find((one) => one.value.toLowerCase() === wanted.toLowerCase())?.value ?? start;
    }
    kind = next;
    setKind(next);
    if (limitFields.some(([name]) => question.has(name))) more.open = true;
    showError('');
  }

  function parameters() {
    const chosen = new URLSearchParams();
    for (const {node, field} of inputs.values()) {
      const text = node.value.trim();
      if (!text || !field.kinds.includes(kind) || (field.name === 'stack' && text === 'trireme')) continue;
      chosen.set(field.name, field.list || limitFields.some(([name]) => name === field.name) ? text : plainNumber(text));
    }
    return chosen;
  }

  // The field that a message names as an option, or as the first word.
  function showError(message) {
    for (const {node, error} of inputs.values()) {
      error.textContent = '';
      node.removeAttribute('aria-invalid');
    }
    if (!message) return;
    const name = (/--([a-z][a-z-]*)/.exec(message)?.[1] ?? /^[a-z_]+/.exec(message)?.[0] ?? '').replaceAll('-', '_');
    const found = inputs.get(message.includes('--batch SEQUENCES or --batch-tokens') && name === 'batch' ? 'batch_tokens' : name);
    if (!found || found.label.hidden) return;
    if (more.contains(found.node)) more.open = true;
    found.node.setAttribute('aria-invalid', 'true');
    found.error.textContent = message;
    found.node.focus();
  }

  inputs.get('model').node.addEventListener('change', fitSequence);
  const submit = (event) => {
    event.preventDefault();
    ask(parameters());
  };
  const node = el('form', {class: 'panel question', tabindex: '-1', 'aria-label': 'Plan a job', on: {submit}},
      el('fieldset', {class: 'kinds'}, el('legend', {class: 'unseen'}, 'kind of question'),
          questionKinds.map((one, i) => el('label', {}, tabs[i], el('span', {}, one.label)))),
      about, el('div', {class: 'fields'}, main), more, el('button', {type: 'submit', class: 'main'}, 'plan'),
      el('div', {class: 'examples'}, el('span', {class: 'muted'}, 'for example: '),
          planExamples.map(({text, question}) => buttonElement(text, 'ask this question', () => ask(new URLSearchParams(question))))));
  setKind('plan');
  return {node, fill, showError};
}
