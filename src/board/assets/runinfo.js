// SPDX-License-Identifier: Apache-2.0
// What is known about the runs: the list, the details of those that are shown, and the events of
// the first one. Panels read it here; main.js loads it.
import {getJson} from './api.js';
import {setRunBegin, xOfStep} from './series.js';
import {view} from './view.js';

let list = [];
let has_planner = false;
const details = new Map();
let events_of_run = {run: -1, next: 0, events: []};

export async function loadRuns() {
  const answer = await getJson('/api/runs');
  list = answer.runs || [];
  has_planner = Boolean(answer.plan);
}

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
