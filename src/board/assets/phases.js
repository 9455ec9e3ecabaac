// SPDX-License-Identifier: Apache-2.0
// Where the phases of a run begin, by its configuration: at a step, or with the first step before
// which so many tokens were read.
import {hasTag, shownRun} from './runinfo.js';
import {seriesOf, xOfStep} from './series.js';
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

// The x before which the run has read `tokens`; null where that is not known.
function xOfTokens(tokens) {
  if (view().x === 'tokens') return tokens;
  const read = seriesOf(view().run, 'tokens');
  const i = read ? read.last.findIndex((count) => count >= tokens) : -1;
  return i < 0 ? null : read.end[i];
}

// Marks of a chart, one for every phase after the first.
export function phaseMarks() {
  return phases().map((phase) => ({kind: 'phase', label: phase.name,
    x: phase.from_step > 1 ? xOfStep(phase.from_step) : xOfTokens(phase.from_tokens)}));
}
