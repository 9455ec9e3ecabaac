// SPDX-License-Identifier: Apache-2.0
// The front page: all runs in a table, with search, order, groups, and a choice of runs to compare.
import {getJson} from './api.js';
import {buttonElement, el, makePanel, replace, selectElement} from './dom.js';
import {grouped} from './format.js';
import {allRuns} from './runinfo.js';
import {differingKeys, groupRuns, listFieldOf, list_fields, orderRuns, searchOf, setConfigs, stateOf} from './runlist.js';
import {makeRunTable} from './runtable.js';
import {changeView, view} from './view.js';

const max_compared = 8;
const groupings = ['state', 'group', 'tags'];

// Returns {node, draw(), loadKeys()}.
export function makeFrontPage() {
  const search = el('input', {type: 'search', id: 'search', placeholder: 'llama  loss<3  optimizer.lr=0.001',
    'aria-label': 'search: words, and conditions such as loss<3', title: 'words and conditions (key /); see ?', autocomplete: 'off', spellcheck: 'false',
    on: {input: () => changeView({search: search.value})}});
  const states = el('span', {class: 'group', role: 'group', 'aria-label': 'state'});
  const choices = el('span', {class: 'choices-of-list'});
  const count = el('span', {class: 'muted count', role: 'status'});
  const compare = buttonElement('compare', 'compare the chosen runs', () => openChosen());
  const clear = buttonElement('clear', 'choose no run', () => changeView({compare: []}));
  const failure = el('p', {class: 'failed', role: 'alert'});
  const table = makeRunTable({
    order: (id) => changeView({order: nextOrder(id, view().order)}),
    choose: (id, is_chosen) => {
      const others = view().compare.filter((one) => one !== id);
      changeView({compare: is_chosen ? [...others, id].slice(-max_compared) : others});
    }});
  const panel = makePanel('runs', 'Runs', '', {class: 'panel front'});
  panel.node.querySelector('header').remove();
  panel.node.removeAttribute('aria-labelledby');
  panel.node.setAttribute('aria-label', 'runs');
  panel.body.append(el('div', {class: 'front-tools'}, search, states, choices, count, el('span', {class: 'space'}), compare, clear),
      failure, table.node);
  let drawn_tools = '';

  const drawTools = () => {
    const {state, group, columns, order} = view();
    const all = allRuns();
    const numbers = new Map();
    for (const run of all) numbers.set(stateOf(run), (numbers.get(stateOf(run)) || 0) + 1);
    const bad = all.filter((run) => run.lamp === 'bad' || run.lamp === 'warning').length;
    const key = JSON.stringify([state, group, columns, order, [...numbers], bad, all.length, differingKeys()]);
    if (key === drawn_tools) return;
    drawn_tools = key;
    const stateButton = (value, text, title) => buttonElement(text, title, () => changeView({state: value}),
        {'aria-pressed': String(state === value)});
    const focused = [states, choices].some((one) => one.contains(document.activeElement)) ? document.activeElement.title : null;
    replace(states, stateButton('', `all ${grouped(all.length)}`, 'runs of every state'),
        [...numbers].sort().map(([name, runs]) => stateButton(name, `${name} ${grouped(runs)}`, `only runs whose state is ${name}`)),
        bad > 0 || state === 'trouble' ? stateButton('trouble', `look here ${grouped(bad)}`, 'only runs with a warning or in trouble') : null);
    const keys = [...new Set([...groupings, ...differingKeys(), ...(group ? [group] : [])])];
    const extra = columns ? columns.split(',') : [];
    const orders = [['', 'newest first'], ...Object.entries(list_fields).flatMap(([id, {title}]) =>
      [[id, `${title} ↑`], [`-${id}`, `${title} ↓`]])];
    replace(choices,
        el('span', {class: 'order-of-list'}, selectElement('sort by', orders, order, (name) => changeView({order: name}))),
        selectElement('group by', [['', 'no groups'], ...keys.map((name) => [name, `by ${name}`])], group,
            (name) => changeView({group: name})),
        selectElement('add or remove a column', [['', 'columns'], ...differingKeys().map((name) =>
          [name, `${extra.includes(name) ? '✓ ' : ''}${name}`])], '', (name) => changeView({
          columns: (extra.includes(name) ? extra.filter((one) => one !== name) : [...extra, name]).join()})));
    if (focused) [...states.children, ...choices.children].find((one) => one.title === focused)?.focus();
  };

  const draw = () => {
    const {search: text, state, order, group, columns, compare: chosen} = view();
    if (document.activeElement !== search) search.value = text;
    drawTools();
    let problem = '';
    const attempt = (make, otherwise) => {
      try {
        return make();
      } catch (error) {
        problem = error.message;
        return otherwise();
      }
    };
    const is_found = attempt(() => searchOf(text), () => () => true);
    const found = allRuns().filter((run) => is_found(run) &&
      (state === '' || stateOf(run) === state || (state === 'trouble' && (run.lamp === 'bad' || run.lamp === 'warning'))));
    const ordered = attempt(() => orderRuns(found, order), () => orderRuns(found, ''));
    const groups = attempt(() => groupRuns(ordered, group), () => groupRuns(ordered, ''));
    const extra = (columns ? columns.split(',') : []).filter((name) => attempt(() => Boolean(listFieldOf(name)), () => false));
    failure.textContent = problem;
    failure.hidden = problem === '';
    table.draw(groups, {order, columns: extra, chosen, key: [text, state, group].join('\n')});
    count.textContent = found.length === allRuns().length ? `${grouped(found.length)} runs` :
      `${grouped(found.length)} of ${grouped(allRuns().length)} runs`;
    compare.textContent = chosen.length > 0 ? `compare ${chosen.length}` : 'compare';
    compare.disabled = chosen.length < 2;
    clear.hidden = chosen.length === 0;
    window.performance.mark('runs-drawn');
  };

  const openChosen = () => {
    const [run, ...others] = view().compare;
    changeView({page: 'run', run, compare: others, from: null, to: null, rank: null});
  };

  // Keys of configurations, for searches, groups and columns.
  const loadKeys = async () => {
    setConfigs(await getJson('/api/configs'));
    draw();
  };

  return {node: panel.node, draw, loadKeys};
}

// Pressed again, a heading turns the order; pressed a third time, it gives it up.
function nextOrder(id, order) {
  const first = list_fields[id]?.down ? `-${id}` : id;
  const second = first.startsWith('-') ? id : `-${id}`;
  return order === first ? second : order === second ? '' : first;
}
