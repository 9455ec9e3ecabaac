// SPDX-License-Identifier: Apache-2.0
#include "train/run/validation.h"

#include <algorithm>
#include <array>

#include "spec/parallel/data_parallel.h"
#include "train/batches/batches.h"
#include "train/weights/sequence_loss.h"

namespace trireme::train {
namespace {

// Adds the losses of this round's samples, those of the first data rank first. Ranks exchange a few
// samples at a time, because a gather is limited in size.
void add_round(Rank& rank, const spec::Plan& plan, const std::vector<SequenceLoss>& own,
               ValidationSum& sum) {
  using Some = std::array<SequenceLoss, 16>;
  const auto data_ranks = static_cast<size_t>(spec::data_ranks(plan.mesh));
  // Ranks that differ along other axes have the same micro-batch and the same losses. In the
  // world's order of ranks tp and cp are the fastest axes and pp the slowest; data ranks are
  // numbered in that order.
  const auto copies = static_cast<size_t>(plan.mesh[spec::Axis::cp] * plan.mesh[spec::Axis::tp]);
  std::vector<std::vector<SequenceLoss>> losses(data_ranks);
  for (size_t first = 0; first < own.size(); first += Some{}.size()) {
    const size_t count = std::min(Some{}.size(), own.size() - first);
    Some mine{};
    std::copy_n(own.begin() + static_cast<ptrdiff_t>(first), count, mine.begin());
    const std::vector<Some> all = rank.gather(mine);
    for (size_t at = 0; at < data_ranks; ++at) {
      const Some& theirs = all[at * copies];
      losses[at].insert(losses[at].end(), theirs.begin(),
                        theirs.begin() + static_cast<ptrdiff_t>(count));
    }
  }
  for (const std::vector<SequenceLoss>& of_rank : losses) {
    for (const SequenceLoss& loss : of_rank) {
      sum.loss_sum += loss.loss_sum;
      sum.tokens += loss.tokens;
      sum.bytes += loss.bytes;
    }
  }
}

// Rows that the experts of all ranks left out in evaluations. Collective.
int64_t dropped_rows(engine::Engine& engine, Rank& rank) {
  int64_t own = 0, all = 0;
  for (const engine::RouterUpdate::LayerStats& layer : engine.router_stats()) {
    own += static_cast<int64_t>(layer.stats[static_cast<size_t>(layer.at.dropped())]);
  }
  for (const int64_t of_rank : rank.gather(own)) all += of_rank;
  return all;
}

}  // namespace

ValidationSum validate(engine::Engine& engine, Rank& rank, const data::SampleProvider& sampler,
                       int64_t samples, std::span<const int32_t> token_bytes) {
  const spec::Plan& plan = engine.plan();
  const int64_t sequences = plan.layout.micro_batch;
  const int64_t wanted = validated_samples(samples, sampler.samples());
  const int64_t microbatches = (wanted + sequences - 1) / sequences;
  const int64_t data_ranks = spec::data_ranks(plan.mesh);
  const int64_t own = spec::data_rank(plan.mesh, rank.coord());

  SequentialBatches batches(sampler, sequences, wanted);
  std::vector<float> token_losses(static_cast<size_t>(plan.microbatch_tokens()));
  ValidationSum sum;
  engine.clear_router_stats();
  for (int64_t first = 0; first < microbatches; first += data_ranks) {
    // A rank without a remaining micro-batch takes part with one that has no labels.
    batches.seek(std::min(first + own, microbatches));
    engine.evaluate(batches, token_losses);
    std::vector<SequenceLoss> own_losses =
        sequence_losses(token_losses, batches.labels(), sequences);
    add_bytes(batches.labels(), token_bytes, own_losses);
    add_round(rank, plan, own_losses, sum);
  }
  if (engine.has_routers()) sum.dropped = dropped_rows(engine, rank);
  return sum;
}

}  // namespace trireme::train
