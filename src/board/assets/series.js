// SPDX-License-Identifier: Apache-2.0
// The points that charts draw. All charts ask through this file, so that one request per run and
// range serves every chart, and a newer request replaces an older one.
import {getJson, inlinedAnswer, isReport, queryText} from './api.js';
import {bucketsOf, lowerBound} from './buckets.js';
import {setWholeRange, shownRange, view} from './view.js';

const users = new Set();
const stored = new Map();  // "run tag" -> buckets
const begins = new Map();  // run -> seconds since 1970 at its begin
const ends = new Map();  // run -> the last x of all its points
let key_of_stored = '';
let controller = null;
let is_wanted = false, asked_width = 0;
let asking = null;  // the promise of the requests that are under way

// user: {needs(): [{run, tag}], width(): pixels, draw()}.
export function addSeriesUser(user) {
  users.add(user);
}

export function setRunBegin(run, seconds) {
  begins.set(run, seconds);
}

export function seriesOf(run, tag) {
  return stored.get(`${run} ${tag}`) || null;
}

// The smallest of the last x of these runs; null if one is not known yet.
export function shortestEnd(runs) {
  const found = runs.map((run) => ends.get(run));
  return found.length === 0 || found.includes(undefined) ? null : Math.min(...found);
}

// The width in pixels that the last request was for.
export function askedWidth() {
  return asked_width;
}

// Runs that are compared by time all begin where the first one begins.
function shiftOf(run) {
  if (view().x !== 'time' || run === view().run) return 0;
  return (begins.get(view().run) ?? 0) - (begins.get(run) ?? 0);
}

// Asks for what the charts need now; ends when they have it.
export function refreshSeries() {
  is_wanted = true;
  asking = asking || askAll().finally(() => {
    asking = null;
  });
  return asking;
}

async function askAll() {
  do {
    is_wanted = false;
    await askOnce();
  } while (is_wanted);
}

// A new range or axis makes the answer under way worthless.
export function restartSeries() {
  window.performance.mark('curves-asked');
  if (controller) controller.abort();
  const key = `${view().x} ${view().run}`;
  if (key !== key_of_stored) {
    stored.clear();
    ends.clear();
    key_of_stored = key;
  }
  drawUsers();
  return refreshSeries();
}

function drawUsers() {
  for (const user of users) user.draw();
}

async function askOnce() {
  const tags = new Map();
  let px = 200;
  for (const user of users) {
    for (const {run, tag} of user.needs()) {
      if (!tags.has(run)) tags.set(run, new Set());
      tags.get(run).add(tag);
      px = Math.max(px, user.width());
    }
  }
  if (view().x !== 'step' && tags.has(view().run)) tags.get(view().run).add('step');
  asked_width = px;
  px = Math.min(4000, Math.ceil(px * Math.min(2, window.devicePixelRatio || 1)));
  controller = new AbortController();
  const {signal} = controller;
  const key = `${view().x} ${view().run}`;
  const asked = [];
  for (const [run, set] of tags) {
    const list = [...set];
    for (let i = 0; i < list.length; i += 32) {
      asked.push(askRun(run, list.slice(i, i + 32), px, signal));
    }
  }
  try {
    const answers = await Promise.all(asked);
    if (signal.aborted || answers.length === 0) return;
    if (key !== key_of_stored) stored.clear();
    key_of_stored = key;
    let first = Infinity, last = -Infinity;
    for (const {run, answer, shift} of answers) {
      if (isFinite(answer.first) && answer.first !== null) first = Math.min(first, answer.first + shift);
      if (isFinite(answer.last) && answer.last !== null) last = Math.max(last, answer.last + shift);
      if (answer.last !== null && isFinite(answer.last)) ends.set(run, Math.max(ends.get(run) ?? -Infinity, answer.last + shift));
      for (const [tag, buckets] of Object.entries(answer.series)) {
        stored.set(`${run} ${tag}`, shift === 0 ? buckets : {...buckets,
          x: buckets.x.map((x) => x + shift), end: buckets.end.map((x) => x + shift)});
      }
    }
    if (last >= first) setWholeRange(first, last);
    drawUsers();
    window.requestAnimationFrame(() => window.performance.mark('curves-drawn'));
  } catch (error) {
    if (error.name !== 'AbortError') throw error;
  }
}

async function askRun(run, tags, px, signal) {
  const shift = shiftOf(run);
  const {x, from, to} = view();
  if (isReport()) return {run, shift, answer: answerOfReport(run, tags, x, px)};
  const moved = (value) => (value === null ? null : value - shift);
  const path = `/api/run/${run}/series` + queryText({tag: tags, from: moved(from), to: moved(to), x, px});
  return {run, shift, answer: await getJson(path, signal)};
}

const raw_columns = new Map();

// All points of a tag of a report with their x, or null.
function rawColumns(run, tag, x) {
  const name = `${run} ${tag} ${x}`;
  if (raw_columns.has(name)) return raw_columns.get(name);
  const path = (of) => `/api/run/${run}/raw` + queryText({tag: of, format: 'json'});
  const raw = inlinedAnswer(path(tag === 'step' ? 'loss_metrics/global_avg_loss' : tag));
  let found = null;
  if (raw) {
    let xs = x === 'time' ? raw.time : raw.step;
    if (x === 'tokens') {
      const tokens = inlinedAnswer(path('tokens'));
      xs = tokens ? raw.step.map((step) => interpolate(tokens.step, tokens.value, step)) : null;
    }
    if (xs) found = {xs, values: tag === 'step' ? raw.step : raw.value};
  }
  raw_columns.set(name, found);
  return found;
}

function answerOfReport(run, tags, x, px) {
  const answer = {first: Infinity, last: -Infinity, series: {}};
  const columns = tags.map((tag) => [tag, rawColumns(run, tag, x)]);
  for (const [, found] of columns) {
    if (!found || found.xs.length === 0) continue;
    answer.first = Math.min(answer.first, found.xs[0]);
    answer.last = Math.max(answer.last, found.xs[found.xs.length - 1]);
  }
  for (const [tag, found] of columns) {
    if (found) {
      answer.series[tag] = bucketsOf(found.xs, found.values, view().from ?? answer.first,
          view().to ?? answer.last, px);
      continue;
    }
    const coarse = x === 'step' &&
      inlinedAnswer(`/api/run/${run}/series` + queryText({tag, x: 'step', px: 2000}));
    if (!coarse || !coarse.series[tag]) continue;
    answer.series[tag] = coarse.series[tag];
    answer.first = Math.min(answer.first, coarse.first);
    answer.last = Math.max(answer.last, coarse.last);
  }
  return answer;
}

// The y at x of a line through points with rising x.
export function interpolate(xs, ys, x) {
  if (xs.length === 0) return x;
  const i = lowerBound(xs, x);
  if (i >= xs.length) return ys[ys.length - 1];
  if (i === 0 || xs[i] === x) return ys[i];
  return ys[i - 1] + (ys[i] - ys[i - 1]) * (x - xs[i - 1]) / (xs[i] - xs[i - 1]);
}

// The x of a step of the run that is shown; null if it is not known.
export function xOfStep(step, time) {
  if (view().x === 'step') return step;
  if (view().x === 'time' && time !== undefined) return time;
  const steps = seriesOf(view().run, 'step');
  return steps && steps.x.length > 0 ? interpolate(steps.last, steps.end, step) : null;
}

// The step at an x of the run that is shown; x itself if it is not known.
export function stepOfX(x) {
  const steps = view().x === 'step' ? null : seriesOf(view().run, 'step');
  return steps && steps.x.length > 0 ? interpolate(steps.end, steps.last, x) : x;
}

// The shown range as steps, [null, null] for all, for answers that know only steps.
export function shownSteps() {
  const {x, from, to, run} = view();
  if (from === null && to === null) return [null, null];
  if (x === 'step') return [from === null ? null : Math.floor(from), to === null ? null : Math.ceil(to)];
  const steps = seriesOf(run, 'step');
  if (!steps || steps.x.length === 0) return [null, null];
  const [low, high] = shownRange();
  return [Math.floor(interpolate(steps.end, steps.last, low)), Math.ceil(interpolate(steps.end, steps.last, high))];
}
