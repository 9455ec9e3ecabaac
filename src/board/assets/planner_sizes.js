// SPDX-License-Identifier: Apache-2.0
// Answers without a model (the sizes that GPUs can train in a time or for a sum) and with a deadline.
import {buttonElement, el, note} from './dom.js';
import {gpuCount, layoutRows, runRows, stepRows} from './planner_answer.js';
import {figuresOf, planText} from './planner_format.js';
import {bigFigures, cardTable, pairList, planCard, textList, verdictLine} from './planner_parts.js';

const count = (name) => ({name, is_number: true});

function shapeText(shape) {
  if (!shape) return '';
  const of = (name) => planText('count', shape[name]);
  return `${of('layers')} layers of width ${of('hidden')}, ${of('heads')} heads of ${of('head_dim')}, feed-forward ${of('ffn')}, vocabulary ${of('vocab')}`;
}

// `plan` asks for the plan of a model on these GPUs.
function sizeTable(answer, list, caption, {figure}, plan) {
  const has_price = typeof answer.dollars_per_gpu_hour === 'number';
  const rows = answer[list].map((row, i) => {
    const at = `${list}.${i}`;
    const name = el('span', {title: shapeText(row.shape)}, el('b', {}, row.model), ' ', el('span', {class: 'muted'}, row.fits ? row.what : row.reason));
    const cell = (place, kind) => (row.fits ? figure(`${at}.${place}`, kind) : '–');
    const button = list === 'models' && row.fits ? buttonElement('plan it', `plan ${row.model} on these GPUs`, () => plan(row)) : '';
    return [name, figure(`${at}.parameters`, 'amount'), cell('tokens', 'amount'), cell('tokens_per_parameter', 'ratio'), cell('best.run.days', 'days'),
      ...(has_price ? [cell('best.run.dollars', 'dollars')] : []), cell('best.mfu', 'percent'), cell('best.bytes', 'bytes'), button];
  });
  const columns = [{name: 'model', is_number: false}, count('size'), count('tokens'), count('tokens a parameter'), count('time'),
    ...(has_price ? [count('cost')] : []), count('MFU'), count('memory'), {name: 'next', is_number: false}];
  return cardTable(caption, list === 'models' ? columns : columns.slice(0, -1), list === 'models' ? rows : rows.map((row) => row.slice(0, -1)));
}

export function sizeCards(answer, tools, planRow) {
  const figures = figuresOf(answer);
  const {figure} = figures;
  const list = answer.sizes.length > 0 ? 'sizes' : 'models';
  const first = answer[list][0];
  const at = `${list}.0`;
  const limit = `${planText('days', answer.days)}${answer.budget ? ` for ${planText('dollars', answer.budget)}` : ''}`;
  const price = typeof answer.dollars_per_gpu_hour === 'number' ? ['price of a GPU-hour', figure('dollars_per_gpu_hour', 'price')] : null;
  const shapes = answer.sizes.filter((row) => row.shape).map((row) => `${row.model}: ${shapeText(row.shape)}`);
  const verdict = first.fits ? `${planText('amount', first.parameters)} parameters on ${planText('amount', first.tokens)} tokens: ${first.what}` :
    `${first.model}: ${first.reason}`;
  return [
    el('section', {class: 'panel wide', id: 'plan-verdict'}, verdictLine(first.fits, first.fits ? 'possible' : 'not possible', verdict),
        el('p', {class: 'muted'}, `what ${gpuCount(answer.gpus)}, ${answer.machine}, can train in ${limit}`),
        bigFigures([['size', figure(`${at}.parameters`, 'amount'), 'parameters'],
          first.fits ? ['tokens', figure(`${at}.tokens`, 'amount'), [figure(`${at}.tokens_per_parameter`, 'ratio'), ' a parameter']] : null,
          ['time', figure('days', 'days')], answer.budget ? ['budget', figure('budget', 'dollars')] : null, price,
          ...(first.fits ? [...stepRows(`${at}.best`, first.best, figures),
            ...runRows(first.best.run, `${at}.best.run`, `${at}.best.band.time`, figures).slice(1)] : [])]),
        tools,
        textList('Assumed', answer.assumed),
        textList('Warnings', first.best?.band?.warnings)),
    answer.sizes.length === 0 ? null : el('section', {class: 'panel wide'}, el('h2', {}, 'Which size, on how many tokens?'),
        el('p', {class: 'about'}, 'models made for this time: compute-optimal, or smaller ones that see more tokens and cost less to use'),
        sizeTable(answer, 'sizes', 'sizes', figures, planRow), textList('Shapes', shapes)),
    answer.models.length === 0 ? null : el('section', {class: 'panel wide'}, el('h2', {}, answer.sizes.length > 0 ? 'And known models?' : 'How far does it get?'),
        el('p', {class: 'about'}, 'trained for the whole time'), sizeTable(answer, 'models', 'models', figures, planRow)),
    first.fits ? planCard('Which layout is it?', first.best.layout.text, pairList(layoutRows(first.best.layout, `${at}.best`, figures))) : null];
}

// `planGpus` asks for the plan on a number of GPUs.
export function deadlineCards(answer, tools, planGpus) {
  const figures = figuresOf(answer);
  const {figure, end} = figures;
  const {best} = answer;
  const text = best ? `${gpuCount(answer.gpus)}, ${answer.machine}: finished in time` : 'No number of GPUs that was tried finishes in time';
  const is_tight = best && best.run.days * (1 + best.band.time) > answer.deadline_days;
  const trials = answer.trials.map((trial, i) => [figure(`trials.${i}.gpus`, 'count'),
    typeof trial.days === 'number' ? figure(`trials.${i}.days`, 'days') : '–', trial.is_enough ? 'enough' : trial.reason]);
  return [
    el('section', {class: 'panel wide', id: 'plan-verdict'}, verdictLine(Boolean(best), best ? 'in time' : 'not in time', text),
        el('p', {class: 'muted'}, `${answer.model} on ${planText('amount', answer.tokens)} tokens within ${planText('days', answer.deadline_days)}: ` +
          `${planText('count', answer.global_batch)} sequences of ${planText('count', answer.seq_len)} tokens a step`),
        bigFigures([best ? ['GPUs', figure('gpus', 'count')] : null, ['deadline', figure('deadline_days', 'days')],
          ...(best ? [...runRows(best.run, 'best.run', 'best.band.time', figures), ...stepRows('best', best, figures),
            ['memory of a GPU', figure('best.bytes', 'bytes'), [figure('best.headroom_bytes', 'bytes'), ' free']]] : [])]),
        is_tight ? el('p', {class: 'problems'}, 'At the slow end of its band the run takes ', end('best.run.days', 'days', 'best.band.time', 1),
            '; restarts, evaluation and queues come on top.') : null,
        best ? null : note('Give more days, a larger batch, or formats of 8 bits under "limits".'),
        best ? el('div', {class: 'plan-tools'}, buttonElement(`show the plan of ${gpuCount(answer.gpus)}`, 'the same job without its deadline',
            () => planGpus(answer.gpus))) : null, tools,
        textList('Warnings', best?.band?.warnings), textList('Assumed', answer.assumed)),
    planCard('Which numbers were tried?', answer.ruled_out ? `fewer than ${gpuCount(answer.first_gpus)} ${answer.ruled_out}` : 'whole domains of GPUs',
        trials.length > 0 ? cardTable('trials', [count('GPUs'), count('time'), {name: 'verdict', is_number: false}], trials) :
          note('No number up to the most that are allowed can be enough.')),
    best ? planCard('Which layout is it?', best.layout.text, pairList(layoutRows(best.layout, 'best', figures))) : null];
}
