// SPDX-License-Identifier: Apache-2.0
// What is known about the runs: the list, the details of those that are shown, and the events of
// the first one. Panels read it here; main.js loads it.
import {getJson, isReport} from './api.js';
import {setRunBegin, xOfStep} from './series.js';
import {nameRuns, view} from './view.js';

const max_asked = 100;  // more runs than these are asked for with the whole list

let list = [];
let list_time = 0;
let has_planner = false;
const details = new Map();
let events_of_run = {run: -1, next: 0, events: []};

export async function loadRuns() {
  const answer = await getJson('/api/runs');
  list = answer.runs || [];
  list_time = Date.now();
  has_planner = Boolean(answer.plan);
}

// Reads some runs of the list again, and those that are new.
export async function loadSomeRuns(ids) {
  if (ids.length === 0) return;
  if (ids.length > max_asked || ids.length >= list.length) {
    await loadRuns();
    return;
  }
  const answer = await getJson(`/api/runs?ids=${ids.join()}`);
  const next = [...list];
  for (const run of answer.runs || []) next[run.id] = run;
  if (next.length < answer.count || next.includes(undefined)) await loadRuns(); else list = next;
}

// Ages of runs as of now; they were true when the list was read.
export function addAges() {
  const seconds = (Date.now() - list_time) / 1000;
  list_time = Date.now();
  list = list.map((run) => (typeof run.age_seconds === 'number' ? {...run, age_seconds: run.age_seconds + seconds} : run));
}

// The numbers of the runs of which `news` of the server says more than the list has.
export function changedRuns(news) {
  return news.filter((one) => {
    const known = list[one.id];
    return !known || ['revision', 'state', 'lamp', 'step', 'is_analysed'].some((name) =>
      one[name] !== undefined && one[name] !== known[name]);
  }).map(({id}) => id);
}

nameRuns({
  keyOf: (id) => list[id]?.key ?? String(id),
  idOf: (key) => list.find((run) => run.key === key)?.id ??
    (/^\d{1,6}$/.test(key) && Number(key) < list.length ? Number(key) : null),
  firstPage: () => (list.length > 1 && !isReport() ? 'runs' : 'run'),
});

export function allRuns() {
  return list;
}

export function hasPlanner() {
  return has_planner;
}

export function runName(id) {
  const found = list.find((run) => run.id === id);
  return found ? found.name : `run ${id}`;
}

export async function loadDetails(id) {
  const answer = await getJson(`/api/run/${id}`);
  details.set(id, answer);
  setRunBegin(id, answer.begin_time);
}

export function detailsOf(id) {
  return details.get(id) || null;
}

// The run that the page is about.
export function shownRun() {
  return detailsOf(view().run);
}

export function hasTag(id, tag) {
  const found = detailsOf(id);
  return found !== null && Array.isArray(found.tags) && found.tags.includes(tag);
}

// The runs that are drawn: the shown one first.
export function drawnRuns() {
  const others = view().compare.filter((id) => id !== view().run && details.has(id));
  return [view().run, ...others];
}

export async function loadEvents() {
  const run = view().run;
  if (events_of_run.run !== run) events_of_run = {run, next: 0, events: []};
  const answer = await getJson(`/api/run/${run}/events?since=${events_of_run.next}`);
  if (events_of_run.run !== run || !Array.isArray(answer.events)) return;
  const known = new Set(events_of_run.events.map((event) => event.index));
  const fresh = answer.events.filter((event) => !known.has(event.index));
  events_of_run.events.push(...fresh);
  // A file that was replaced begins again.
  if (answer.next < events_of_run.next) events_of_run.events = answer.events;
  events_of_run.next = answer.next ?? events_of_run.next;
}

export function shownEvents() {
  return events_of_run.run === view().run ? events_of_run.events : [];
}

const marked = {resume: 'R', spike: '^', skip: 'S', rollback: '↶', verdict: 'X', straggler: '!', replan: 'P',
  alert: 'A', hardware: 'H', numerics: 'N'};

// Marks for charts: what happened, as letters over vertical lines.
export function eventMarks() {
  return shownEvents().filter((event) => event.kind in marked).map((event) => ({
    x: xOfStep(event.step, event.time), letter: marked[event.kind],
    kind: event.severity === 'error' ? 'error' : 'mark', text: event.text}));
}

export function markLetter(kind) {
  return marked[kind] || '';
}
