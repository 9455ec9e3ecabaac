// SPDX-License-Identifier: Apache-2.0
// Words for names of files: columns of ranks.bin, tags of metrics.jsonl, classes of the ledger, items
// of memory. A name without an entry is shown with blanks for underscores.

const axis_words = {tp: 'tensor ranks', cp: 'context ranks', ep: 'expert ranks', data: 'data ranks',
  pp: 'pipeline ranks', closing: 'the end of the step', input: 'the upload of batches'};

const column_words = {
  steps: 'steps of the record', step_seconds: 'time of a step', max_step_seconds: 'longest step',
  compute_seconds: 'compute', gap_seconds: 'gaps of the host', data_seconds: 'waiting for batches',
  save_seconds: 'waiting for saves', work: 'work (rows or pairs)', memory_bytes: 'memory', memory_limit_bytes: 'limit of memory',
  host_bytes: 'memory of the host', cpu_share: 'use of the CPU', clock_hz: 'clock', max_clock_hz: 'highest clock',
  power_watts: 'power', temperature_celsius: 'temperature', ecc_errors: 'memory errors (ECC)',
  throttle_reasons: 'reasons of throttling', sm_share: 'busy multiprocessors', tensor_share: 'busy tensor cores',
  nvlink_bytes_per_second: 'NVLink traffic', pcie_bytes_per_second: 'PCIe traffic',
};

export function columnName(column) {
  const [, kind, axis] = /^(wait|late)_(\w+?)(?:_seconds)?$/.exec(column) || [];
  if (axis in axis_words) return kind === 'wait' ? `waiting for ${axis_words[axis]}` : `late for ${axis_words[axis]}`;
  return column_words[column] || column.replaceAll('_', ' ');
}

const class_words = {
  startup: 'start', restore: 'loading a checkpoint', warmup: 'warm-up', useful: 'useful steps', skipped: 'skipped steps',
  repeated: 'repeated steps', data_wait: 'waiting for data', straggler: 'waiting for slow ranks',
  exposed_save: 'waiting for saves', validation: 'validation', exporting: 'export of weights', sdc_check: 'checks of hardware',
  detect: 'detecting a failure', abort: 'aborting', reform: 'forming a new group', degraded: 'fewer ranks than planned',
  idle_spare: 'idle spares', queue: 'waiting in the queue', planned_stop: 'planned stop', closing: 'closing', unknown: 'unknown',
};

export function className(name) {
  return class_words[name] || name.replaceAll('_', ' ');
}

const tag_words = {
  'loss_metrics/global_avg_loss': 'training loss', 'loss_metrics/min': 'lowest loss of a data rank',
  'loss_metrics/median': 'median loss of data ranks', 'loss_metrics/max': 'highest loss of a data rank',
  'validation_metrics/loss': 'validation loss', 'validation_metrics/tokens': 'tokens of a validation',
  'validation_metrics/bits_per_byte': 'validation, bits per byte', grad_norm: 'norm of the gradient',
  update_norm: 'norm of the update', clip_limit: 'limit of clipping', clipped: 'clipped', skipped: 'skipped', lr: 'learning rate',
  'throughput(tps)': 'tokens per second', tflops: 'TFLOP/s', 'mfu(%)': 'MFU', 'hfu(%)': 'HFU', tokens: 'tokens so far',
  epoch: 'epoch', 'time_metrics/end_to_end(s)': 'time of a step', 'time_metrics/data_loading(s)': 'waiting for batches',
  'memory/max_active(GiB)': 'memory', skipped_steps: 'skipped steps so far', loss_scale: 'loss scale',
  samples: 'hash of the samples', 'tokens/trained': 'trained tokens', 'tokens/masked': 'masked tokens', 'tokens/padding': 'padding',
  'checkpoint/stall_seconds': 'steps waited for a checkpoint', 'checkpoint/durable_seconds': 'until a checkpoint is durable',
  'checkpoint/bytes': 'size of a checkpoint', 'checkpoint/bytes_per_second': 'speed of a checkpoint',
  'export/seconds': 'export of weights', 'export/bytes': 'size of an export',
  'context/pairs_max_over_mean': 'pairs of the busiest rank over the mean',
  'context/exposed_transfers(s)': 'waiting for transfers of context', 'experts/exposed_transfers(s)': 'waiting for rows of experts',
};

const data_prefix = 'loss_metrics/by_data/';

// The names of data sets for which the run has a loss of its own.
export function dataSetsOf(tags) {
  return (tags || []).filter((tag) => tag.startsWith(data_prefix)).map((tag) => tag.slice(data_prefix.length));
}

export function dataSetTag(name) {
  return data_prefix + name;
}

export function tagName(tag) {
  if (tag.startsWith(data_prefix)) return `loss on ${tag.slice(data_prefix.length)}`;
  return tag_words[tag] || tag;
}
