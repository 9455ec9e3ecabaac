// SPDX-License-Identifier: Apache-2.0
// The list of runs as data: what its columns show, which runs a search finds, their order and their
// groups. `trireme runs --filter` has the same language of searches.

const state_order = ['failed', 'died', 'running', 'stopped', 'done', 'unknown'];

// What a search, an order or a group may name; value(run) is a number, a text or null. `down`: the
// largest first when its heading is pressed first.
export const list_fields = {
  name: {title: 'run', value: (run) => run.name},
  state: {title: 'state', value: stateOf,
    order: (run) => [run.lamp === 'bad' ? 0 : run.lamp === 'warning' ? 1 : 2, state_order.indexOf(run.state)].join()},
  loss: {title: 'loss', value: (run) => run.loss},
  validation: {title: 'validation', value: (run) => run.validation_loss},
  speed: {title: 'tokens/s', value: (run) => run.tokens_per_second, down: true},
  mfu: {title: 'MFU', value: (run) => run.mfu_percent, down: true},
  cost: {title: 'cost', value: (run) => run.dollars, down: true},
  step: {title: 'step', value: (run) => run.step, down: true},
  steps: {title: 'steps', value: (run) => run.steps, down: true},
  age: {title: 'age', value: (run) => run.age_seconds},
  begin: {title: 'begin', value: (run) => run.begin_time, down: true},
  group: {title: 'group', value: (run) => run.group || null},
  tags: {title: 'tags', value: (run) => (run.tags?.length > 0 ? run.tags.join(', ') : null)},
  folder: {title: 'folder', value: (run) => run.folder},
  lamp: {title: 'lamp', value: (run) => run.lamp},
  sentence: {title: 'what is going on', value: (run) => run.sentence},
};

// The state, as far as the files of the run have been read.
export function stateOf(run) {
  return run.state === 'unknown' && run.is_analysed === false ? 'reading' : run.state;
}

// configs: {keys: {key: [text by run]}, same: {key: text}}.
let configs = {keys: {}, same: {}};

export function setConfigs(found) {
  configs = {keys: found.keys || {}, same: found.same || {}};
}

// The keys of configurations that differ between the runs.
export function differingKeys() {
  return Object.keys(configs.keys);
}

// "lr" stands for "optimizer.lr" if no other key ends with it. Throws Error for an unknown name.
export function listFieldOf(name) {
  if (Object.hasOwn(list_fields, name)) return list_fields[name];
  const all = [...Object.keys(configs.keys), ...Object.keys(configs.same)];
  const found = all.includes(name) ? [name] : all.filter((key) => key.endsWith(`.${name}`));
  if (found.length > 1) throw new Error(`${name}: may be ${found.slice(0, 3).join(', ')}; write the whole key`);
  if (found.length === 0) throw new Error(`${name}: no column and no key of a configuration has this name`);
  const [key] = found;
  return {title: key, value: (run) => (Object.hasOwn(configs.same, key) ? configs.same[key] : configs.keys[key][run.id] ?? null)};
}

function isNumberText(text) {
  return text !== '' && Number.isFinite(Number(text));
}

function numberOf(value) {
  if (typeof value === 'number') return value;
  if (value === 'Infinity' || value === '-Infinity' || value === 'NaN') return Number(value);
  return typeof value === 'string' && isNumberText(value) ? Number(value) : null;
}

// Compares as `op` says: numbers if both are, or else texts without regard to case.
function isMatch(value, op, wanted) {
  if (value === null || value === undefined) return op === '!=';
  const text = String(value).toLowerCase();
  if (op === '~') return text.includes(wanted.toLowerCase());
  const number = numberOf(value);
  const are_numbers = number !== null && isNumberText(wanted);
  const [left, right] = are_numbers ? [number, Number(wanted)] : [text, wanted.toLowerCase()];
  switch (op) {
    case '=':
    case '==': return left === right;
    case '!=': return left !== right;
    case '<': return left < right;
    case '<=': return left <= right;
    case '>': return left > right;
    default: return left >= right;
  }
}

// Returns run -> boolean for a search such as `llama loss<3 optimizer.lr=0.001 state!=done`: every
// part must hold; a word is looked for in names, groups, tags, folders and sentences. Throws Error.
export function searchOf(text) {
  const parts = text.match(/(?:[^\s"]|"[^"]*")+/g) || [];
  const tests = parts.map((part) => {
    const plain = part.replaceAll('"', '');
    const found = /^([A-Za-z_][^\s=<>!~]*)(<=|>=|!=|==?|<|>|~)(.*)$/.exec(plain);
    if (!found) {
      const word = plain.toLowerCase();
      return (run) => wordsOf(run).includes(word);
    }
    const [, name, op, wanted] = found;
    const {value} = listFieldOf(name);
    if (wanted === '') return () => true;  // the reader still writes
    if (/^[=<>!~]/.test(wanted)) throw new Error(`${plain}: write one of = != < <= > >= ~ and a value, as in loss<3`);
    return (run) => isMatch(value(run), op, wanted);
  });
  return (run) => tests.every((test) => test(run));
}

const words_of_runs = new WeakMap();

function wordsOf(run) {
  if (!words_of_runs.has(run)) {
    words_of_runs.set(run, [run.name, run.group, ...(run.tags || []), run.key, run.folder, run.state, run.sentence]
        .filter(Boolean).join('\n').toLowerCase());
  }
  return words_of_runs.get(run);
}

// Sorts by a field, "-loss" the largest first; runs without a value are the last ones. Without an
// order those that go on come first, the latest begun at the top, then those that wrote last.
export function orderRuns(runs, order) {
  const rows = [...runs];
  if (!order) {
    const place = (run) => (run.state === 'running' ? 0 : 1);
    const seconds = (run) => (run.state === 'running' ? -(run.begin_time || Infinity) : run.age_seconds ?? Infinity);
    return rows.sort((a, b) => place(a) - place(b) || compareValues(seconds(a), seconds(b)) || b.id - a.id);
  }
  const is_down = order.startsWith('-');
  const field = listFieldOf(is_down ? order.slice(1) : order);
  const keyed = rows.map((run) => {
    const value = (field.order || field.value)(run);
    const number = numberOf(value);
    return {run, number: Number.isNaN(number) ? Infinity : number,
      text: value === null || value === undefined ? null : String(value).toLowerCase()};
  });
  keyed.sort((a, b) => {
    if (a.text === null || b.text === null) return (a.text === null) - (b.text === null) || a.run.id - b.run.id;
    const are_texts = a.number === null && b.number === null;
    const by = are_texts ? compareValues(a.text, b.text) : compareValues(a.number ?? Infinity, b.number ?? Infinity);
    return (is_down ? -by : by) || a.run.id - b.run.id;
  });
  return keyed.map(({run}) => run);
}

function compareValues(a, b) {
  return a < b ? -1 : a > b ? 1 : 0;
}

// Returns [{name, runs}] in the order of their first run; without a field one group without a name.
export function groupRuns(runs, name) {
  if (!name) return [{name: null, runs}];
  const {value} = listFieldOf(name);
  const groups = new Map();
  for (const run of runs) {
    const key = value(run);
    const title = key === null || key === undefined || key === '' ? 'none' : String(key);
    if (!groups.has(title)) groups.set(title, {name: title, runs: []});
    groups.get(title).runs.push(run);
  }
  return [...groups.values()];
}
