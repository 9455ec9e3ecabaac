// SPDX-License-Identifier: Apache-2.0
// The answer for a model on a number of GPUs: the layout, its time, memory and cost, and what else was found.
import {el, note} from './dom.js';
import {memoryCard, timeCard} from './planner_bars.js';
import {figuresOf, planText} from './planner_format.js';
import {bigFigures, pairList, planCard, textList, verdictLine} from './planner_parts.js';
import {fewerCard, fixCard, neighbourCard, recipeCard, rejectedCard, textbookCard} from './planner_tables.js';

export const gpuCount = (count) => `${planText('count', count)} GPU${count === 1 ? '' : 's'}`;

// Rows of a layout: what is split over how many ranks.
export function layoutRows(layout, at, {figure}) {
  const of = (name) => figure(`${at}.layout.${name}`, 'count');
  const is_experts = layout.ep > 1 || layout.etp > 1;
  return [
    ['tensor parallel', of('tp'), layout.sequence_parallel ? 'ranks, with sequence parallel' : layout.tp > 1 ? 'ranks' : '(not split)'],
    layout.cp > 1 ? ['context parallel', of('cp'), 'ranks share a sequence'] : null,
    ['pipeline', of('pp'), layout.pp > 1 ? `stages of ranks, ${layout.schedule}` : '(no stages)'],
    layout.pp > 1 && layout.chunks > 1 ? ['chunks of a rank', of('chunks'), ''] : null,
    ['data parallel', of('dp'), 'copies or shards'],
    ['ZeRO stage', of('zero'), ['nothing is sharded', 'optimizer sharded', 'optimizer and gradients sharded', 'all state sharded (FSDP)'][layout.zero]],
    is_experts ? ['expert parallel', of('ep'), layout.etp > 1 ? `ranks; ${layout.etp} share each expert` : 'ranks share the experts'] : null,
    ['micro-batch', of('micro_batch'), layout.micro_batch === 1 ? 'sequence' : 'sequences'],
    ['recompute', layout.recompute], ['number format', layout.precision]];
}

// The run, if the question has its tokens or its days.
export function runRows(run, at, band, {figure, end}) {
  if (!run) return [];
  return [
    ['the run takes', figure(`${at}.days`, 'days'), ['from ', end(`${at}.days`, 'days', band, -1), ' to ', end(`${at}.days`, 'days', band, 1)]],
    ['GPU-hours', figure(`${at}.gpu_hours`, 'hours'), ['for ', figure(`${at}.steps`, 'count'), ' steps']],
    typeof run.dollars === 'number' ? ['it costs', figure(`${at}.dollars`, 'dollars'),
      ['from ', end(`${at}.dollars`, 'dollars', band, -1), ' to ', end(`${at}.dollars`, 'dollars', band, 1)]] : null];
}

export function stepRows(at, shown, {figure, end}) {
  const band = `${at}.band.time`;
  return [
    ['a step takes', figure(`${at}.seconds`, 'step'), [figure(band, 'band'), ': from ', end(`${at}.seconds`, 'step', band, -1), ' to ', end(`${at}.seconds`, 'step', band, 1)]],
    ['speed', figure(`${at}.tokens_per_second`, 'rate'), ''],
    ['MFU', figure(`${at}.mfu`, 'percent'), ['HFU ', figure(`${at}.hfu`, 'percent'), shown.hfu > shown.mfu * 1.001 ? ', with recompute' : '']]];
}

function questionText(answer) {
  const active = answer.active_parameters < answer.parameters ? `, ${planText('amount', answer.active_parameters)} active` : '';
  return `${planText('amount', answer.parameters)} parameters${active}; ${planText('count', answer.global_batch)} sequences of ` +
    `${planText('count', answer.seq_len)} tokens a step`;
}

// Returns the cards. `tools` are the buttons that copy the command and save the configuration; `apply` asks
// again with a change that fits.
export function modelCards(answer, tools, apply) {
  const at = answer.best ? 'best' : 'nearest';
  const shown = answer[at];
  const figures = figuresOf(answer);
  const {figure} = figures;
  if (!shown) {
    return [el('section', {class: 'panel wide'}, verdictLine(false, 'no layout', `${answer.model} on ${gpuCount(answer.gpus)}, ${answer.machine}`),
        el('p', {class: 'muted'}, questionText(answer)), tools, textList('Assumed', answer.assumed)), fixCard(answer, figures, apply), rejectedCard(answer, figures)];
  }
  const {run} = shown;
  const memory = ['memory of a GPU', figure(`${at}.bytes`, 'bytes'), ['of ', figure('memory_bytes', 'bytes'),
    ...(shown.headroom_bytes < 0 ? [] : [', ', figure(`${at}.headroom_bytes`, 'bytes'), ' free'])]];
  return [
    el('section', {class: 'panel wide', id: 'plan-verdict'},
        verdictLine(shown.fits && at === 'best', at === 'best' ? 'fits' : 'does not fit', `${answer.model} on ${gpuCount(answer.gpus)}, ${answer.machine}`),
        el('p', {class: 'plan-layout'}, at === 'best' ? '' : 'needs the least memory: ', shown.name), el('p', {class: 'muted'}, questionText(answer)),
        bigFigures([...stepRows(at, shown, figures), memory, ...runRows(run, `${at}.run`, `${at}.band.time`, figures)]),
        answer.batch_efficiency < 1 ? el('p', {class: 'note'}, 'With this batch a token brings ', figure('batch_efficiency', 'percent'),
            ' of the progress of a small batch.') : null,
        run ? null : note('Give the tokens of the run to see its days and its cost.'),
        tools, textList('Warnings', shown.band?.warnings), textList('Assumed', answer.assumed), textList('Ignored', answer.ignored),
        shown.confirmed?.problem ? note(`The engine cannot run it: ${shown.confirmed.problem}`) : null),
    at === 'best' ? null : fixCard(answer, figures, apply),
    memoryCard(answer, at, shown, figures),
    timeCard(answer, at, shown, figures),
    planCard('Which layout is it?', shown.layout.text, pairList(layoutRows(shown.layout, at, figures))),
    textbookCard(answer, figures),
    neighbourCard(answer, figures), fewerCard(answer, figures), recipeCard(answer, figures),
    el('section', {class: 'panel wide plan-schedule'}), rejectedCard(answer, figures),
    el('p', {class: 'note wide'}, figure('search.layouts', 'count'), ' layouts: ', figure('search.priced', 'count'), ' priced, ',
        figure('search.too_large', 'count'), ' of them too large, ', figure('search.pruned', 'count'), ' ruled out.')];
}
