// SPDX-License-Identifier: Apache-2.0
#include "train/setup/host/host_buffers.h"

#include "base/shape.h"
#include "engine/step/signal_ring.h"
#include "spec/facts/op_shapes.h"
#include "spec/memory/predict.h"
#include "spec/parallel/data_parallel.h"

namespace trireme::train {
namespace {

int64_t batch_bytes(const spec::Plan& plan) {
  int64_t by_microbatch = 0;
  for (const base::TensorSpec& input : spec::input_specs(spec::local_shape_of(plan))) {
    by_microbatch += base::bytes_of(input);
  }
  return base::bytes_of(spec::batch_counts_spec()) + plan.schedule.microbatches * by_microbatch;
}

int64_t signal_bytes(const spec::Plan& plan) {
  if (plan.inference) return 0;
  constexpr int64_t cache_line = 64;
  const int64_t by_step =
      spec::step_state_bytes + spec::step_totals_bytes(plan.layers(), spec::data_ranks(plan.mesh));
  return engine::SignalRing::slots * base::round_up(by_step, cache_line);
}

}  // namespace

int64_t host_buffer_bytes(const spec::Plan& plan) { return batch_bytes(plan) + signal_bytes(plan); }

}  // namespace trireme::train
