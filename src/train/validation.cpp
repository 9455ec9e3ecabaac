// SPDX-License-Identifier: Apache-2.0
#include "train/validation.h"

#include <algorithm>

#include "spec/data_parallel.h"
#include "train/batches.h"

namespace trireme::train {

engine::EvalReport validate(engine::Engine& engine, Rank& rank, const data::Sampler& sampler,
                            int64_t microbatches) {
  const spec::Plan& plan = engine.plan();
  const int64_t sequences = plan.microbatch_sequences;
  // The last micro-batch may have sequences without labels.
  const int64_t whole = (sampler.samples() + sequences - 1) / sequences;
  const int64_t count = microbatches < 0 ? whole : std::min(whole, microbatches);
  const int64_t data_ranks = spec::data_ranks(plan.mesh);
  const int64_t own = spec::data_rank(plan.mesh, rank.coord());

  SequentialBatches batches(sampler, sequences);
  engine::EvalReport sum;
  for (int64_t first = 0; first < count; first += data_ranks) {
    // A rank for which nothing is left takes part with a micro-batch without labels.
    batches.seek(first + own < count ? first + own : whole);
    const std::vector<engine::EvalReport> parts = rank.gather(engine.evaluate(batches));
    // Ranks that differ along other axes have the same micro-batch and the same loss. Those along
    // tp are neighbours in the world, those along pp are furthest apart, and data ranks are
    // numbered in its order.
    const auto copies = static_cast<size_t>(plan.mesh[spec::Axis::tp]);
    for (size_t at = 0; at < static_cast<size_t>(data_ranks); ++at) {
      sum.loss_sum += parts[at * copies].loss_sum;
      sum.tokens += parts[at * copies].tokens;
    }
  }
  return sum;
}

}  // namespace trireme::train
