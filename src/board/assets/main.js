// SPDX-License-Identifier: Apache-2.0
// Starts the page, keeps it in step with the runs, and shows errors where they happen.
import {isReport, readInlined} from './api.js';
import {makeDataPanel, makeLearningPanel, makeMetricPanel, makeSpeedPanel, makeStabilityPanel} from './curves.js';
import {el, note, replace} from './dom.js';
import {makeExpertsPanel} from './experts.js';
import {makeFlamePanel} from './flame.js';
import {watchGrids} from './grid.js';
import {makeCheckpointsPanel, makeEventsPanel} from './history.js';
import {makeLayersPanel, makeNumericsPanel} from './layers.js';
import {listen} from './live.js';
import {allRuns, detailsOf, hasPlanner, loadDetails, loadEvents, loadRuns, shownRun} from './runinfo.js';
import {makePipelinePanel} from './pipeline.js';
import {drawPlanner} from './planner.js';
import {isFillingAll, listenToPrint, onFillAll} from './print.js';
import {makeRanksPanel} from './ranks.js';
import {makeHardwarePanel, makeLedgerPanel, makeMemoryPanel} from './resources.js';
import {refreshSeries, restartSeries} from './series.js';
import {drawRange, drawToolbar, listenToKeys, restoreTheme} from './toolbar.js';
import {drawTop} from './top.js';
import {changeView, listenToFragment, onView, readFragment, view} from './view.js';
import {makeWaterfallPanel} from './waterfall.js';

const slow_ms = 5000;  // between refreshes of what is not a curve
let panels = [];
let connection = '';
let is_refreshing = false, is_stale = false, is_slow_running = false, slow_time = 0;

// dygraphs writes labels of ticks as markup; this policy makes markup text.
function forbidMarkup() {
  if (!window.trustedTypes) return;
  window.trustedTypes.createPolicy('default', {
    createHTML: (text) => text.replace(/[&<>"']/g, (letter) => `&#${letter.charCodeAt(0)};`),
    createScript: () => null,
    createScriptURL: () => null,
  });
}

// The board, or the planner.
function showPage() {
  const is_plan = view().page === 'plan';
  document.getElementById('board').hidden = is_plan;
  document.getElementById('planner').hidden = !is_plan;
  document.documentElement.classList.toggle('plan', is_plan);
  document.querySelector('.skip').textContent = is_plan ? 'to the form' : 'to the charts';
  if (is_plan) drawPlanner(document.getElementById('planner')).catch(showFailure);
}

// The address holds the state of the page, so that a link to a fragment would change it.
function listenToSkip() {
  document.querySelector('.skip').addEventListener('click', (event) => {
    event.preventDefault();
    const target = view().page === 'plan' ? document.querySelector('#planner form') : document.getElementById('first');
    target?.focus();
  });
}

function drawAll() {
  showPage();
  drawTop(document.getElementById('top'), connection);
  drawToolbar(document.getElementById('toolbar'));
  for (const panel of panels) panel.draw?.();
  drawRange();
  const run = shownRun();
  document.title = view().page === 'plan' ? 'Trireme planner' : run ? `${run.name}: ${run.sentence}` : 'Trireme board';
}

function drawTheme() {
  drawAll();
  for (const panel of panels) panel.redraw?.();
}

// A panel that is far below the window waits until the reader comes near.
function isNear(panel) {
  if (panel.node.hidden || isFillingAll()) return true;
  const box = panel.node.getBoundingClientRect();
  return box.height > 0 && box.top < window.innerHeight + 400 && box.bottom > -400;
}

async function refreshPanel(panel) {
  if (!panel.refresh) return;
  if (!isNear(panel)) {
    panel.is_stale = true;
    return;
  }
  panel.is_stale = false;
  try {
    await panel.refresh();
    panel.node.querySelector('.failed')?.remove();
  } catch (error) {
    panel.node.querySelector('.failed')?.remove();
    panel.node.append(el('p', {class: 'failed'}, error.message));
  }
}

async function refreshSlow() {
  if (is_slow_running) return;
  is_slow_running = true;
  slow_time = Date.now();
  await Promise.all(panels.map(refreshPanel));
  is_slow_running = false;
}

function watchPanels() {
  const observer = new IntersectionObserver((entries) => {
    for (const panel of panels) {
      if (panel.is_stale && entries.some((entry) => entry.isIntersecting && entry.target === panel.node)) refreshPanel(panel);
    }
  }, {rootMargin: '400px'});
  for (const panel of panels) observer.observe(panel.node);
}

// After news: details and curves at once, the rest at most every five seconds.
async function refresh() {
  if (is_refreshing) {
    is_stale = true;
    return;
  }
  is_refreshing = true;
  try {
    do {
      is_stale = false;
      const ids = [view().run, ...view().compare.filter((id) => id !== view().run && id < allRuns().length)];
      const curves = refreshSeries();
      await Promise.all([...ids.map((id) => loadDetails(id)), loadEvents().catch(() => {}), curves]);
      drawAll();
      if (Date.now() - slow_time > slow_ms) refreshSlow();
    } while (is_stale);
    showFailure(null);
  } catch (error) {
    showFailure(error);
  } finally {
    is_refreshing = false;
  }
}

function showFailure(error) {
  const holder = document.getElementById('failure');
  replace(holder, error ? note(error.message) : null);
}

function addPanels() {
  const first = document.getElementById('first');
  const more = document.getElementById('more');
  const above = [makeLearningPanel(), makeStabilityPanel(), makeSpeedPanel(), makeWaterfallPanel(),
    makeEventsPanel(), makeCheckpointsPanel()];
  const below = [makeRanksPanel(), makeLayersPanel(), makeMemoryPanel(), makeExpertsPanel(), makeNumericsPanel(), makePipelinePanel(),
    makeFlamePanel(), makeHardwarePanel(), makeLedgerPanel(), makeDataPanel(), makeMetricPanel()];
  first.append(...above.map((panel) => panel.node));
  more.append(...below.map((panel) => panel.node));
  panels = [...above, ...below];
  watchGrids([first, more]);
  onFillAll(() => Promise.all(panels.map(refreshPanel)));
}

let heat_timer = 0;

async function viewChanged(_, names) {
  if (names.includes('run') || names.includes('compare')) {
    await refresh();  // details first: they list the tags of a run
    restartSeries();
    refreshSlow();
    return;
  }
  if (names.some((name) => ['x', 'from', 'to', 'speed', 'tag'].includes(name))) restartSeries();
  drawAll();
  if (names.some((name) => ['from', 'to', 'column', 'rank'].includes(name))) {
    window.clearTimeout(heat_timer);  // the heat maps follow when the range is at rest
    heat_timer = window.setTimeout(() => panels.filter((panel) => panel.is_wide).forEach(refreshPanel), 150);
  }
}

// Loads the first runs and begins to show one.
async function showRuns() {
  if (!allRuns().some((run) => run.id === view().run)) changeView({run: allRuns()[0].id});
  const others = view().compare.filter((id) => allRuns().some((run) => run.id === id));
  await Promise.all([view().run, ...others].map((id) => loadDetails(id)));
  addPanels();
  const first = refresh();  // asks for the curves before anything is drawn
  drawAll();
  watchPanels();
  onView(viewChanged);
  window.addEventListener('theme', drawTheme);
  window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', drawTheme);
  await first;
  listenToPrint();
}

function showNoRuns() {
  if (hasPlanner()) changeView({page: 'plan'});
  onView(drawAll);
  drawAll();
  if (!hasPlanner()) replace(document.getElementById('top'), el('h1', {}, 'Trireme board'), note('There is no run yet; the first one appears here when it begins.'));
}

let is_listing = false;

// Updates the list of runs when one has begun or ended.
async function listRuns(runs) {
  const known = new Map(allRuns().map((run) => [run.id, run.state]));
  if (is_listing || runs.every(({id, state}) => known.get(id) === state)) return;
  is_listing = true;
  try {
    await loadRuns();
    if (known.size === 0 && allRuns().length > 0) {
      await showRuns();
    } else {
      drawToolbar(document.getElementById('toolbar'));
    }
  } finally {
    is_listing = false;
  }
}

async function start() {
  forbidMarkup();
  readInlined();
  restoreTheme();
  readFragment();
  listenToFragment();
  listenToKeys();
  listenToSkip();
  document.documentElement.classList.toggle('report', isReport());
  await loadRuns();
  if (allRuns().length > 0) await showRuns(); else showNoRuns();
  document.documentElement.dataset.ready = 'yes';
  listen((runs) => {
    listRuns(runs).catch(showFailure);
    const is_news = runs.some(({id, revision, step, state}) => {
      const known = detailsOf(id);
      return known && ((revision !== undefined && known.revision !== revision) || known.step !== step || known.state !== state);
    });
    if (is_news && !document.hidden) refresh();
  }, (is_connected) => {
    connection = is_connected ? '' : 'The server does not answer; what is shown is the last state it sent.';
    drawTop(document.getElementById('top'), connection);
    if (is_connected && allRuns().length > 0) refresh();
  });
  document.addEventListener('visibilitychange', () => {
    if (!document.hidden && allRuns().length > 0) refresh();
  });
}

start().catch(showFailure);
