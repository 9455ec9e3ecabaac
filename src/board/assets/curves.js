// SPDX-License-Identifier: Apache-2.0
// The panels with curves over steps: learning, stability, speed, data, and any other metric.
import {makeChart} from './chart.js';
import {buttonElement, el, makePanel, note, replace, selectElement, setEmpty} from './dom.js';
import {brief, digits, duration} from './format.js';
import {dataSetTag, dataSetsOf, tagName} from './names.js';
import {smoothed} from './paint.js';
import {phaseMarks, phaseTags} from './phases.js';
import {drawnRuns, eventMarks, hasTag, runName, shownRun} from './runinfo.js';
import {refreshSeries} from './series.js';
import {changeView, view} from './view.js';

const loss = 'loss_metrics/global_avg_loss';

// Lines of one tag for all drawn runs; with one run its other tags, too.
function linesOf(tag, label, others) {
  const runs = drawnRuns();
  if (runs.length > 1) {
    return runs.filter((run) => hasTag(run, tag)).map((run) =>
      ({run, tag, label: runName(run), style: {color: runs.indexOf(run)}}));
  }
  const [run] = runs;
  const all = [{tag, label, style: {color: 0, dash: 0}}, ...others];
  return all.filter((line) => hasTag(run, line.tag)).map((line) => ({...line, run}));
}

const validation = 'validation_metrics/loss';

// Training and validation; of a mixture also the loss on each data set.
function learningLines(is_by_data) {
  const runs = drawnRuns();
  if (runs.length > 1) {
    return runs.flatMap((run, color) => [
      {run, tag: loss, label: runName(run), style: {color}},
      {run, tag: validation, label: `${runName(run)}, validation`, style: {color, dash: 5, dots: true}}])
        .filter((line) => hasTag(line.run, line.tag));
  }
  const sets = is_by_data ? dataSetsOf(shownRun()?.tags).slice(0, 6) : [];
  return linesOf(loss, 'training', [
    {tag: validation, label: 'validation', style: {color: 1, dash: 0, dots: true}},
    ...sets.map((name, i) => ({tag: dataSetTag(name), label: name, style: {color: 2 + i, width: 1.2, is_line_only: true}}))]);
}

export function makeLearningPanel() {
  const panel = makePanel('learning', 'Is it learning?', 'loss in nats per token');
  let is_by_data = true;
  const button = buttonElement('by data', 'also the loss on each data set of the mixture', () => {
    is_by_data = !is_by_data;
    refreshSeries();
  });
  panel.tools.append(button);
  const chart = makeChart(panel, {
    name: 'loss', marks: () => [...phaseMarks(), ...eventMarks()],
    lines: () => learningLines(is_by_data), needs: phaseTags,
    between: () => (drawnRuns().length === 1 && hasTag(view().run, 'loss_metrics/min') ?
      [{run: view().run, low: 'loss_metrics/min', high: 'loss_metrics/max', color: 0}] : []),
  });
  const draw = () => {
    button.hidden = drawnRuns().length > 1 || dataSetsOf(shownRun()?.tags).length === 0;
    button.setAttribute('aria-pressed', String(is_by_data));
    chart.draw();
  };
  return {node: panel.node, draw};
}

// About where a step is skipped: a multiple of the running norm.
function skipLine() {
  const multiple = shownRun()?.config?.training?.skip_norm_multiple;
  if (!(multiple > 0)) return [];
  const derive = (buckets) => {
    const mean = smoothed(buckets.mean, 0.9).map((norm) => (norm === null ? null : norm * multiple));
    return {...buckets, mean, min: mean, max: mean, last: mean, bad: mean.map(() => 0)};
  };
  return [{tag: 'grad_norm', label: `skipped above ${brief(multiple)} × mean`, derive, style: {color: 6, dash: 2, is_line_only: true}}];
}

export function makeStabilityPanel() {
  const panel = makePanel('stability', 'Is it stable?', 'norms of gradient and update');
  const chart = makeChart(panel, {
    name: 'gradient norm', log_y: true, marks: eventMarks,
    lines: () => linesOf('grad_norm', 'gradient', [
      {tag: 'clip_limit', label: 'clip', style: {color: 6, dash: 1, is_line_only: true}},
      {tag: 'update_norm', label: 'update', style: {color: 1, dash: 2}}, ...skipLine()]),
  });
  return {node: panel.node, draw: () => chart.draw()};
}

const speeds = [['throughput(tps)', 'tokens/s'], ['mfu(%)', 'MFU %'], ['hfu(%)', 'HFU %'],
  ['time_metrics/end_to_end(s)', 'seconds per step'], ['tflops', 'TFLOP/s']];

export function makeSpeedPanel() {
  const panel = makePanel('speed', 'As fast as planned?', '');
  const about = panel.node.querySelector('.about');
  const why = note('');
  const choice = selectElement('measure of speed', speeds, view().speed, (speed) => changeView({speed}));
  panel.tools.append(choice);
  const chart = makeChart(panel, {
    name: 'speed', marks: eventMarks, bands: () => predictedBand(view().speed),
    lines: () => linesOf(view().speed, 'measured', []),
  });
  panel.body.append(why);
  const draw = () => {
    choice.value = view().speed;
    const prediction = shownRun()?.prediction;
    const is_predicted = Boolean(prediction?.seconds);
    about.textContent = is_predicted ? `predicted ${duration(prediction.seconds)} a step` : 'nothing was predicted';
    why.textContent = is_predicted ? '' : prediction?.why || '';
    why.hidden = why.textContent === '';
    about.title = is_predicted ? `MFU = ${prediction.mfu_formula || ''}; model FLOPs of a step ` +
      `${digits(prediction.model_flops)}, peak of a device ${digits(prediction.peak_flops)} ` +
      `(${prediction.peak_source || 'source unknown'})` : '';
    chart.draw();
  };
  return {node: panel.node, draw};
}

// The predicted range of a measure of speed.
function predictedBand(tag) {
  const prediction = shownRun()?.prediction;
  if (!prediction || !prediction.seconds) return [];
  const {seconds, band = 0, tokens_per_step, ranks, peak_flops} = prediction;
  const range = (value, is_time) => {
    if (!Number.isFinite(value)) return [];
    const low = is_time ? value * (1 - band) : value / (1 + band);
    const high = is_time ? value * (1 + band) : value / Math.max(0.05, 1 - band);
    return [{low, high, label: 'predicted'}];
  };
  const rate = (flops) => 100 * flops / (seconds * ranks * peak_flops);
  switch (tag) {
    case 'throughput(tps)': return range(tokens_per_step / seconds, false);
    case 'time_metrics/end_to_end(s)': return range(seconds, true);
    case 'mfu(%)': return peak_flops ? range(rate(prediction.model_flops), false) : [];
    case 'hfu(%)': return peak_flops ? range(rate(prediction.hardware_flops), false) : [];
    default: return [];
  }
}

const data_tags = ['time_metrics/data_loading(s)', 'tokens/masked', 'tokens/padding', 'tokens/trained', 'epoch'];

export function makeDataPanel() {
  const panel = makePanel('data', 'What does it read?', 'position in the data, tokens by kind, waiting for batches');
  let chosen = data_tags[0], drawn = '';
  const tags = () => [...data_tags, ...dataSetsOf(shownRun()?.tags).map(dataSetTag)]
      .filter((tag) => hasTag(view().run, tag)).map((tag) => [tag, tagName(tag)]);
  const holder = el('span', {});
  panel.tools.append(holder);
  const chart = makeChart(panel, {name: 'data',
    lines: () => linesOf(chosen, tags().find(([tag]) => tag === chosen)?.[1] || chosen, [])});
  const draw = () => {
    if (!hasTag(view().run, chosen) && tags().length > 0) chosen = tags()[0][0];
    setEmpty(panel.node, tags().length > 0 ? null : 'The run reports neither its position in the data nor tokens by kind.');
    if (drawn !== `${chosen} ${tags()}`) {
      drawn = `${chosen} ${tags()}`;
      replace(holder, selectElement('what to show', tags(), chosen, (tag) => {
        chosen = tag;
        refreshSeries();
      }));
    }
    chart.draw();
  };
  return {node: panel.node, draw};
}

export function makeMetricPanel() {
  const panel = makePanel('metric', 'Any metric', 'every tag of metrics.jsonl', {class: 'panel wide'});
  const holder = el('span', {});
  panel.tools.append(holder);
  const tag = () => (hasTag(view().run, view().tag) ? view().tag :
    hasTag(view().run, 'lr') ? 'lr' : shownRun()?.tags?.[0] || '');
  const chart = makeChart(panel, {name: 'metric', marks: eventMarks, lines: () => linesOf(tag(), tagName(tag()), [])});
  let drawn = '';
  const draw = () => {
    const names = shownRun()?.tags || [];
    if (drawn !== names.join()) {
      drawn = names.join();
      replace(holder, selectElement('metric', names.map((name) => [name, tagName(name) === name ? name : `${tagName(name)} (${name})`]), tag(),
          (name) => changeView({tag: name})));
    }
    chart.draw();
  };
  return {node: panel.node, draw};
}
