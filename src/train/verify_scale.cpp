// SPDX-License-Identifier: Apache-2.0
#include "train/verify_scale.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/shape.h"
#include "spec/data_parallel.h"

namespace trireme::train {
namespace {

// Blocks enough for every buffer that layers share to be used again.
int layers_for(const spec::SplitOptions& split) { return std::clamp(split.prefetch + 2, 3, 6); }

// Layers of each stage of the small model: as the whole one has, up to a few, so that a stage of
// one layer, of the embedding alone or of the head alone stays one.
std::vector<int> small_stages(const spec::Plan& full, int layers, const spec::SplitOptions& split) {
  const int most = split.residency.params ? layers_for(split) : 2;
  std::vector<int> sizes;
  for (int stage = 0; stage < full.stages(); ++stage) {
    const auto at = static_cast<size_t>(stage);
    const int end = stage + 1 < full.stages() ? full.first_layer_of_stage[at + 1] : layers;
    sizes.push_back(std::min(end - full.first_layer_of_stage[at], most));
  }
  return sizes;
}

// The cut of these stages. The first layer of each.
std::vector<int> cut_of(const std::vector<int>& sizes) {
  std::vector<int> first(sizes.size(), 0);
  std::partial_sum(sizes.begin(), sizes.end() - 1, first.begin() + 1);
  return first;
}

spec::ModelDims small_model(const spec::ModelDims& whole, const spec::SplitOptions& split,
                            const spec::Backend& backend) {
  constexpr int64_t width = 48, ffn_of_a_rank = 24, rows = 48;
  const int64_t tp = split.tp;
  spec::ModelDims d = whole;
  d.layers = std::min(d.layers, layers_for(split));
  const int64_t kv_heads = d.kv_heads == 0 ? d.heads : d.kv_heads;
  const int64_t queries = d.heads / kv_heads;
  const int64_t head_dim = d.head_dim == 0 ? d.hidden / d.heads : d.head_dim;
  // cuDNN's attention has sizes that it does not take; the CPU's takes all.
  d.head_dim = std::min<int64_t>(head_dim, backend.name == "cuda" ? 64 : 8);
  d.kv_heads = kv_heads % tp == 0 ? std::min(kv_heads, 2 * tp) : kv_heads;
  d.heads = queries * d.kv_heads;
  d.hidden = std::min(d.hidden, base::round_up(width, 8 * tp));
  d.ffn = std::min(d.ffn, ffn_of_a_rank * tp);
  // With tp rows a rank and any rest the last rank still has one.
  d.vocab = std::min(d.vocab, tp * std::max((rows + tp - 1) / tp, tp) + d.vocab % tp);
  return d;
}

void shrink_data_axes(spec::SplitOptions& split, int most_ranks, std::vector<std::string>& notes) {
  if (int64_t{split.tp} * split.pp > most_ranks) {
    throw base::ConfigError(
        fmt::format("tp = {}, pp = {}: verify runs at most {} ranks in one process", split.tp,
                    split.pp, most_ranks));
  }
  const int hosted = split.logical_dp == 0 ? 0 : split.logical_dp / (split.dp * split.zero);
  const auto shrink = [&](int& degree, const char* name) {
    const auto ranks = int64_t{split.dp} * split.zero * split.tp * split.pp;
    if (ranks <= most_ranks || degree <= 2) return;
    notes.push_back(fmt::format("{} = {} runs as 2: all ranks would be {}, at most {} fit", name,
                                degree, ranks, most_ranks));
    degree = 2;
  };
  shrink(split.dp, "dp");
  shrink(split.zero, "zero");
  const int ranks = split.dp * split.zero;
  if (ranks * split.tp * split.pp > most_ranks) {
    throw base::ConfigError(fmt::format(
        "dp = {}, zero = {}, tp = {}, pp = {}: verify runs at most {} ranks in one process",
        split.dp, split.zero, split.tp, split.pp, most_ranks));
  }
  split.logical_dp = hosted * ranks;
}

}  // namespace

ScaledJob scale_down(const spec::ModelDims& dims, const spec::OneRankOptions& one_rank,
                     const spec::SplitOptions& split, const spec::Plan& full,
                     const spec::Backend& backend, int most_ranks) {
  constexpr int64_t most_tokens = 16;  // of a sequence
  constexpr int64_t most_sequences = 2;
  constexpr int most_microbatches = 3;
  ScaledJob job{dims, one_rank, split, {}};
  shrink_data_axes(job.split, most_ranks, job.notes);
  job.dims = small_model(dims, split, backend);
  if (full.stages() > 1) {
    const std::vector<int> sizes = small_stages(full, dims.layers + 2, split);
    job.dims.layers = std::accumulate(sizes.begin(), sizes.end(), 0) - 2;
    job.split.first_layer_of_stage = cut_of(sizes);
  }

  spec::OneRankOptions& o = job.one_rank;
  const int64_t tp = split.tp;
  o.seq_len = std::min(o.seq_len, base::round_up(most_tokens, tp) + o.seq_len % tp);
  job.dims.max_seq =
      std::min(dims.max_seq, one_rank.seq_len == dims.max_seq ? o.seq_len : 2 * o.seq_len);
  if (o.recompute_blocks > 0 && o.recompute_blocks < dims.layers) {  // some, still
    o.recompute_blocks = std::min(o.recompute_blocks, (job.dims.layers + 1) / 2);
  }
  o.microbatch_sequences = std::min(o.microbatch_sequences, most_sequences);
  // Sequence parallelism cuts the tokens of a micro-batch.
  if (full.microbatch_tokens() % tp == 0) {
    while (o.microbatch_sequences * o.seq_len % tp != 0) ++o.microbatch_sequences;
  }
  // Enough for every schedule to fill its pipeline, with the same rest over pp; one's own has its
  // number.
  const int workers = split.logical_dp == 0 ? 1 : split.logical_dp / (split.dp * split.zero);
  const int filled = split.pp == 1 ? 0 : (2 * split.pp + workers - 1) / workers;
  const int most = std::max(most_microbatches, filled);
  if (!split.own_schedule && o.microbatches > most) {
    o.microbatches = most + (o.microbatches - most) % split.pp;
  }
  if (full.head_chunk_rows < full.microbatch_tokens()) {
    o.head_chunk_rows = (o.microbatch_sequences * o.seq_len + 1) / 2;
  }
  return job;
}

}  // namespace trireme::train
