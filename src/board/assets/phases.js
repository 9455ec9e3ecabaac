// SPDX-License-Identifier: Apache-2.0
// Where the phases of a run begin, by its configuration: at a step, or with the first step before
// which so many tokens were read.
import {hasTag, shownRun} from './runinfo.js';
import {interpolate, seriesOf, xOfStep} from './series.js';
import {view} from './view.js';

function phases() {
  const list = shownRun()?.config?.phase;
  return (Array.isArray(list) ? list : []).map((phase, i) => ({...phase, name: phase.name || `phase ${i + 2}`}))
      .filter((phase) => phase.from_step > 1 || phase.from_tokens > 0);
}

// What phaseMarks() needs of the run's series.
export function phaseTags() {
  const is_needed = view().x !== 'tokens' && phases().some((phase) => phase.from_tokens > 0);
  return is_needed && hasTag(view().run, 'tokens') ? [{run: view().run, tag: 'tokens'}] : [];
}

// The x of the first step before which the run has read `tokens`; null if it has not yet.
function xOfTokens(tokens) {
  if (view().x === 'tokens') return tokens;
  const read = seriesOf(view().run, 'tokens');
  if (!read || read.x.length === 0 || read.last[read.last.length - 1] < tokens) return null;
  const x = interpolate(read.last, read.end, tokens);
  return view().x === 'step' ? Math.ceil(x - 1e-9) + 1 : x;
}

// Marks of a chart, one for every phase after the first.
export function phaseMarks() {
  return phases().map((phase) => ({kind: 'phase', label: phase.name,
    x: phase.from_step > 1 ? xOfStep(phase.from_step) : xOfTokens(phase.from_tokens)}));
}
