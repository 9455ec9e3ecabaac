// SPDX-License-Identifier: Apache-2.0
// Starts the page, keeps it in step with the runs, and shows errors where they happen.
import {isReport, readInlined} from './api.js';
import {makeDataPanel, makeLearningPanel, makeMetricPanel, makeSpeedPanel, makeStabilityPanel} from './curves.js';
import {makeDifferencePanel} from './difference.js';
import {buttonElement, el, note, replace} from './dom.js';
import {makeExpertsPanel} from './experts.js';
import {makeFlamePanel} from './flame.js';
import {makeFrontPage} from './front.js';
import {watchGrids} from './grid.js';
import {makeCheckpointsPanel, makeEventsPanel} from './history.js';
import {makeLayersPanel, makeNumericsPanel} from './layers.js';
import {listen} from './live.js';
import {addAges, allRuns, changedRuns, detailsOf, hasPlanner, loadDetails, loadEvents, loadRuns, loadSomeRuns, shownRun} from './runinfo.js';
import {makePipelinePanel} from './pipeline.js';
import {drawPlanner} from './planner.js';
import {isFillingAll, listenToPrint, onFillAll} from './print.js';
import {makeRanksPanel} from './ranks.js';
import {makeHardwarePanel, makeLedgerPanel, makeMemoryPanel} from './resources.js';
import {refreshSeries, restartSeries} from './series.js';
import {drawRange, drawToolbar, listenToKeys, restoreTheme} from './toolbar.js';
import {drawTop} from './top.js';
import {changeView, fragmentOf, listenToFragment, onView, readFragment, unknownRuns, view} from './view.js';
import {makeWaterfallPanel} from './waterfall.js';

const slow_ms = 5000;  // between refreshes of what is not a curve
const list_ms = 500;  // between refreshes of the list of runs
const ages_ms = 10000;  // between updates of the ages of runs
let panels = [];
let front = null;
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

// The list of runs, one run, or the planner.
function showPage() {
  const {page} = view();
  const is_plan = page === 'plan';
  document.getElementById('board').hidden = page !== 'run';
  document.getElementById('front').hidden = page !== 'runs';
  document.getElementById('planner').hidden = !is_plan;
  document.documentElement.classList.toggle('plan', is_plan);
  document.documentElement.classList.toggle('front', page === 'runs');
  document.querySelector('.skip').textContent = is_plan ? 'to the form' : page === 'runs' ? 'to the search' : 'to the charts';
  if (is_plan) drawPlanner(document.getElementById('planner')).catch(showFailure);
}

// The address holds the state of the page, so that a link to a fragment would change it.
function listenToSkip() {
  document.querySelector('.skip').addEventListener('click', (event) => {
    event.preventDefault();
    const {page} = view();
    const target = page === 'plan' ? document.querySelector('#planner form') :
      document.getElementById(page === 'runs' ? 'search' : 'first');
    target?.focus();
  });
}

function drawAll() {
  showPage();
  const {page} = view();
  drawToolbar(document.getElementById('toolbar'));
  if (page === 'runs') drawFront();
  if (page === 'run') {
    drawTop(document.getElementById('top'), connection);
    for (const panel of panels) panel.draw?.();
    drawLargePanel();
    drawRange();
  }
  const run = shownRun();
  const count = allRuns().length;
  document.title = page === 'plan' ? 'Trireme planner' : page === 'run' && run ? `${run.name}: ${run.sentence}` :
    `Trireme board${count > 0 ? `: ${count} ${count === 1 ? 'run' : 'runs'}` : ''}`;
}

function drawFront() {
  const is_first = front === null;
  if (is_first) {
    front = makeFrontPage();
    document.getElementById('front').append(front.node);
  }
  front.draw();
  // The table is painted before the keys of all configurations are read.
  if (!is_first) return;
  window.requestAnimationFrame(() => window.setTimeout(() => {
    window.performance.mark('runs-painted');
    front.loadKeys().catch(showFailure);
  }));
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
  watchGrids([document.getElementById('first'), document.getElementById('more')]);
  onFillAll(() => Promise.all(panels.map(refreshPanel)));
  listenToPrint();
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
  const above = [makeLearningPanel(), makeStabilityPanel(), makeSpeedPanel(), makeDifferencePanel(), makeWaterfallPanel(),
    makeEventsPanel(), makeCheckpointsPanel()];
  const below = [makeRanksPanel(), makeLayersPanel(), makeMemoryPanel(), makeExpertsPanel(), makeNumericsPanel(), makePipelinePanel(),
    makeFlamePanel(), makeHardwarePanel(), makeLedgerPanel(), makeDataPanel(), makeMetricPanel()];
  first.append(...above.map((panel) => panel.node));
  more.append(...below.map((panel) => panel.node));
  panels = [...above, ...below];
  for (const {node} of panels) {
    const heading = node.querySelector('h2');
    heading.replaceChildren(buttonElement(heading.textContent, 'show this panel large, or small again',
        () => changeView({panel: view().panel === node.id ? '' : node.id}), {class: 'enlarge'}));
  }
}

// The panel that the view names is as wide as the page.
function drawLargePanel() {
  for (const {node} of panels) {
    const is_large = view().panel === node.id;
    node.classList.toggle('large', is_large);
    node.querySelector('.enlarge').setAttribute('aria-expanded', String(is_large));
  }
}

function showLargePanel() {
  panels.find(({node}) => node.id === view().panel)?.node.scrollIntoView();
}

let heat_timer = 0;

function showUnknown() {
  const names = unknownRuns();
  if (names.length > 0) showFailure(new Error(`The board has no run ${names.join(', ')}.`));
}

async function viewChanged(_, names) {
  if (view().page === 'run' && names.some((name) => ['page', 'run', 'compare'].includes(name))) {
    await openRun();
    return;
  }
  if (view().page === 'runs') {
    if (names.includes('page')) {
      window.scrollTo(0, 0);
      refreshList(allRuns().map(({id}) => id));
    }
    drawAll();
    return;
  }
  if (names.some((name) => ['x', 'from', 'to', 'speed', 'tag'].includes(name))) restartSeries();
  drawAll();
  if (names.includes('panel')) showLargePanel();
  if (names.some((name) => ['from', 'to', 'column', 'rank'].includes(name))) {
    window.clearTimeout(heat_timer);  // the heat maps follow when the range is at rest
    heat_timer = window.setTimeout(() => panels.filter((panel) => panel.is_wide).forEach(refreshPanel), 150);
  }
}

// Shows the run of the view, and those that it is compared with.
async function openRun() {
  const is_first = panels.length === 0;
  const {run, compare} = view();
  showPage();
  if (is_first || !detailsOf(run)) {
    await Promise.all([run, ...compare].map((id) => loadDetails(id)));  // details first: they list the tags of a run
    if (panels.length === 0) addPanels();
  }
  if (is_first) {
    const first = refresh();  // asks for the curves before anything is drawn
    drawAll();
    watchPanels();
    showLargePanel();
    await first;
    return;
  }
  await refresh();
  restartSeries();
  refreshSlow();
}

// Shows the first page after the runs have been read.
async function showRuns() {
  onView((_, names) => viewChanged(_, names).catch(showFailure));
  window.addEventListener('theme', drawTheme);
  window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', drawTheme);
  if (view().page === 'run') await openRun(); else drawAll();
  showUnknown();
}

function showNoRuns() {
  if (hasPlanner()) changeView({page: 'plan'});
  onView(drawAll);
  drawAll();
  if (!hasPlanner()) replace(document.getElementById('top'), el('h1', {}, 'Trireme board'), note('There is no run yet; the first one appears here when it begins.'));
}

const stale_runs = new Set();
let is_listing = false, read_time = 0;

// Reads these runs of the list again, twice a second at most.
async function refreshList(ids) {
  for (const id of ids) stale_runs.add(id);
  if (is_listing) return;
  is_listing = true;
  try {
    while (stale_runs.size > 0 && !document.hidden) {
      const wait = read_time + list_ms - Date.now();
      if (wait > 0) await new Promise((resolve) => window.setTimeout(resolve, wait));
      read_time = Date.now();
      const wanted = [...stale_runs];
      stale_runs.clear();
      const before = allRuns().length;
      await loadSomeRuns(wanted);
      if (before === 0 && allRuns().length > 0) {
        readFragment();
        await showRuns();
      } else {
        if (front && allRuns().length > before) front.loadKeys().catch(showFailure);
        if (view().page === 'runs') drawAll(); else drawToolbar(document.getElementById('toolbar'));
      }
    }
  } finally {
    is_listing = false;
  }
}

// On the page of a run the list matters only when a run begins or ends.
function listRuns(news) {
  const known = new Map(allRuns().map((run) => [run.id, run.state]));
  const is_list = view().page === 'runs';
  const wanted = changedRuns(news).filter((id) => is_list || known.get(id) !== news.find((one) => one.id === id).state);
  if (wanted.length > 0) refreshList(wanted).catch(showFailure);
}

function refreshPage() {
  if (allRuns().length === 0) return;
  if (view().page === 'run') refresh();
  if (view().page === 'runs') refreshList(allRuns().map(({id}) => id)).catch(showFailure);
}

// A server that was started again may number its runs otherwise; the address names them by keys.
async function showAfterRestart() {
  const before = allRuns().map(({key}) => key);
  if (before.length === 0) return;  // the first run is shown when the stream names it
  const fragment = fragmentOf(view());
  await loadRuns();
  if (before.some((key, id) => allRuns()[id]?.key !== key)) {
    window.history.replaceState(null, '', fragment);
    window.location.reload();
    return;
  }
  refreshPage();
}

function refreshAges() {
  if (view().page !== 'runs' || document.hidden) return;
  addAges();
  drawAll();
}

async function start() {
  forbidMarkup();
  readInlined();
  restoreTheme();
  listenToFragment();
  listenToKeys();
  listenToSkip();
  document.documentElement.classList.toggle('report', isReport());
  await loadRuns();
  readFragment();
  if (allRuns().length > 0) await showRuns(); else showNoRuns();
  document.documentElement.dataset.ready = 'yes';
  listen((runs) => {
    listRuns(runs);
    const is_news = runs.some(({id, revision, step, state}) => {
      const known = detailsOf(id);
      return known && ((revision !== undefined && known.revision !== revision) || known.step !== step || known.state !== state);
    });
    if (is_news && !document.hidden && view().page === 'run') refresh();
  }, (is_connected) => {
    connection = is_connected ? '' : 'The server does not answer; what is shown is the last state it sent.';
    if (view().page === 'run') drawTop(document.getElementById('top'), connection);
    else if (view().page === 'runs') showFailure(connection ? new Error(connection) : null);
    if (is_connected) showAfterRestart().catch(showFailure);
  });
  document.addEventListener('visibilitychange', () => {
    if (!document.hidden) refreshPage();
  });
  if (!isReport()) window.setInterval(refreshAges, ages_ms);
}

start().catch(showFailure);
