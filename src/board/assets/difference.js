// SPDX-License-Identifier: Apache-2.0
// The keys in which the configurations of compared runs differ, as a table.
import {makePanel, note, redraw, scrolledTable} from './dom.js';
import {detailsOf, drawnRuns, runName} from './runinfo.js';

// Adds "section.key" -> text; as the server does for lists of runs (flat_config.cpp).
function addConfigValues(value, key, out) {
  if (value !== null && typeof value === 'object' && !Array.isArray(value)) {
    for (const [name, inner] of Object.entries(value)) addConfigValues(inner, key ? `${key}.${name}` : name, out);
  } else if (key && !key.startsWith('program.') && value !== null && value !== undefined) {
    out.set(key, typeof value === 'string' ? value : JSON.stringify(value));
  }
  return out;
}

// Returns [[key, text or undefined by run]] of the keys that differ.
export function configDifferences(configs) {
  const flat = configs.map((config) => addConfigValues(config, '', new Map()));
  const keys = [...new Set(flat.flatMap((one) => [...one.keys()]))].sort();
  return keys.map((key) => [key, ...flat.map((one) => one.get(key))])
      .filter(([, first, ...others]) => others.some((text) => text !== first));
}

// Shown while runs are compared.
export function makeDifferencePanel() {
  const panel = makePanel('difference', 'How do they differ?', 'keys of the configurations', {class: 'panel two', hidden: true});
  let drawn = '';
  const draw = () => {
    const runs = drawnRuns();
    panel.node.hidden = runs.length < 2;
    const key = JSON.stringify(runs.map((run) => [runName(run), detailsOf(run)?.config]));
    if (panel.node.hidden || key === drawn) return;
    drawn = key;
    const rows = configDifferences(runs.map((run) => detailsOf(run)?.config));
    if (rows.length === 0) {
      redraw(panel.body, note('The configurations are equal.'));
      return;
    }
    const table = scrolledTable('differences of configurations', [{name: 'key'}, ...runs.map((run) => ({name: runName(run)}))],
        rows.map(([name, ...texts]) => [name, ...texts.map((text) => text ?? '–')]));
    table.classList.add('difference');
    redraw(panel.body, table);
  };
  return {node: panel.node, draw};
}
