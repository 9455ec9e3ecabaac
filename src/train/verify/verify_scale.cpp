// SPDX-License-Identifier: Apache-2.0
#include "train/verify/verify_scale.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/shape.h"
#include "spec/context/context_parallel.h"
#include "spec/parallel/data_parallel.h"
#include "train/verify/verify_experts.h"

namespace trireme::train {
namespace {

// Enough blocks for every buffer that layers share to be reused.
int layers_for(const spec::Layout& l) { return std::clamp(l.prefetch + 2, 3, 6); }

// Returns the layers of each stage of the small model: as in the full one, up to a few, so that a
// stage of one layer, of the embedding alone or of the head alone stays one.
std::vector<int> small_stages(const spec::Plan& full, int layers) {
  const int max = full.layout.shards_params() ? layers_for(full.layout) : 2;
  std::vector<int> sizes;
  for (int stage = 0; stage < full.stages(); ++stage) {
    const auto at = static_cast<size_t>(stage);
    const int end = stage + 1 < full.stages() ? full.first_layer_of_stage[at + 1] : layers;
    sizes.push_back(std::min(end - full.first_layer_of_stage[at], max));
  }
  return sizes;
}

// Returns the first layer of each of these stages.
std::vector<int> cut_of(const std::vector<int>& sizes) {
  std::vector<int> first(sizes.size(), 0);
  std::partial_sum(sizes.begin(), sizes.end() - 1, first.begin() + 1);
  return first;
}

// Returns the key/value heads: with the same ranks that share a head along tp or under Ulysses, and
// enough for the buffers of gathered keys to be reused.
int64_t small_kv_heads(int64_t full, const spec::Layout& l) {
  if (full % l.tp != 0) return full;
  const int64_t ulysses = std::max(l.ulysses, 1);
  if (full % (l.tp * ulysses) != 0) return full;
  const bool gathers = l.cp / ulysses > 1 && spec::has_gather(l.context_kind);
  return std::min(full, (gathers ? 3 : 2) * l.tp * ulysses);
}

// Returns what sizes of products must be multiples of.
int64_t grain_of(const spec::Layout& l) {
  return spec::is_fp8(l.precision) ? spec::recipe_of(l.precision).fp8->grain() : 1;
}

// With products in 8 bits: heads of the full size, as many as their grain needs.
void keep_grain(spec::ModelDims& d, const spec::ModelDims& full, const spec::Layout& l) {
  const int64_t grain = grain_of(l), kv_heads = full.kv_heads == 0 ? full.heads : full.kv_heads;
  if (grain == 1) return;
  d.head_dim = full.head_dim == 0 ? full.hidden / full.heads : full.head_dim;
  const int64_t unit = d.kv_heads;
  while (d.kv_heads + unit <= kv_heads && d.kv_heads * d.head_dim / l.tp % grain != 0) {
    d.kv_heads += unit;
  }
  if (d.kv_heads * d.head_dim / l.tp % grain != 0) d.kv_heads = kv_heads;
  d.heads = full.heads / kv_heads * d.kv_heads;
}

// Some blocks are in 8 bits, and some at both ends are not, if that is so in the full model.
void keep_bf16_blocks(spec::Layout& l, int layers) {
  if (!spec::is_fp8(l.precision)) return;
  l.bf16_first = std::min(l.bf16_first, 1);
  l.bf16_last = std::min(l.bf16_last, 1);
  std::erase_if(l.bf16_blocks, [layers](int block) { return block >= layers - 2; });
}

spec::ModelDims small_model(const spec::ModelDims& full, const spec::Layout& l,
                            const spec::Backend& backend) {
  constexpr int64_t width = 48, ffn_of_a_rank = 24, rows = 48;
  const int64_t tp = l.tp;
  spec::ModelDims d = full;
  d.layers = std::min(d.layers, layers_for(l));
  const int64_t kv_heads = d.kv_heads == 0 ? d.heads : d.kv_heads;
  const int64_t queries = d.heads / kv_heads;
  const int64_t head_dim = d.head_dim == 0 ? d.hidden / d.heads : d.head_dim;
  // cuDNN's attention does not support all sizes; the CPU's does.
  d.head_dim = std::min<int64_t>(head_dim, backend.name == "cuda" ? 64 : 8);
  d.kv_heads = small_kv_heads(kv_heads, l);
  d.heads = queries * d.kv_heads;
  keep_grain(d, full, l);
  const int64_t grain = grain_of(l);
  d.hidden = std::min(d.hidden, base::round_up(width, std::lcm(8 * tp, grain)));
  d.ffn = std::min(d.ffn, base::round_up(ffn_of_a_rank, grain) * tp);
  // With tp rows per rank and any remainder the last rank still has a row.
  d.vocab = std::min(d.vocab, tp * std::max((rows + tp - 1) / tp, tp) + d.vocab % tp);
  return d;
}

void shrink_data_axes(spec::Layout& l, int max_ranks, std::vector<std::string>& notes) {
  if (int64_t{l.tp} * l.cp * l.pp > max_ranks) {
    throw base::ConfigError(
        fmt::format("tp = {}, cp = {}, pp = {}: verify runs at most {} ranks in one process", l.tp,
                    l.cp, l.pp, max_ranks));
  }
  const int hosted = l.hosted_workers();
  const auto shrink = [&](int& degree, const char* name) {
    const int64_t ranks = l.ranks();
    if (ranks <= max_ranks || degree <= 2) return;
    notes.push_back(
        fmt::format("{} = {} runs as 2: the layout has {} ranks, verify runs at most {}", name,
                    degree, ranks, max_ranks));
    degree = 2;
  };
  shrink(l.dp_replicate, "dp");
  shrink(l.dp_shard, "zero");
  if (l.ranks() > max_ranks) {
    throw base::ConfigError(
        fmt::format("dp = {}, zero = {}, cp = {}, tp = {}, pp = {}: verify runs at most {} ranks "
                    "in one process",
                    l.dp_replicate, l.dp_shard, l.cp, l.tp, l.pp, max_ranks));
  }
  l.logical_dp = hosted * l.data_ranks();
  shrink_expert_axes(l, notes);
}

}  // namespace

ScaledJob scale_down(const spec::ModelDims& dims, const spec::Workload& work,
                     const spec::Plan& full, const spec::Backend& backend, int max_ranks) {
  constexpr int64_t max_tokens = 16;  // of a sequence
  constexpr int64_t max_sequences = 2;
  constexpr int max_microbatches = 3;
  const spec::Layout& full_layout = full.layout;
  ScaledJob job{dims, work, full_layout, {}};
  spec::Layout& l = job.layout;
  job.work.global_batch = 0;
  shrink_data_axes(l, max_ranks, job.notes);
  job.dims = small_model(dims, full_layout, backend);
  if (full.stages() > 1) {
    const std::vector<int> sizes = small_stages(full, dims.layers + 2);
    job.dims.layers = std::accumulate(sizes.begin(), sizes.end(), 0) - 2;
    l.first_layers = cut_of(sizes);
  }
  scale_experts(job.dims, l, job.notes);

  const int64_t tp = full_layout.tp, cp = full_layout.cp;
  int64_t& seq_len = job.work.seq_len;
  // Rows of a sequence that cp needs, and at least two of them for every chunk.
  const int64_t unit = cp == 1 ? 1 : spec::context_unit(l.context_slices, l.cp), step = unit * tp;
  seq_len =
      std::min(seq_len, base::round_up(std::max(max_tokens, 2 * unit), step) + seq_len % step);
  job.dims.max_seq = std::min(dims.max_seq, work.seq_len == dims.max_seq ? seq_len : 2 * seq_len);
  if (l.recompute_blocks > 0 && l.recompute_blocks < dims.layers) {  // some, still
    l.recompute_blocks = std::min(l.recompute_blocks, (job.dims.layers + 1) / 2);
  }
  l.micro_batch = std::min(l.micro_batch, max_sequences);
  // Sequence parallelism splits the tokens of a micro-batch that a rank along cp has.
  if (full.microbatch_tokens() / cp % tp == 0) {
    while (l.micro_batch * seq_len / cp % tp != 0) ++l.micro_batch;
  }
  while (l.micro_batch * seq_len / cp % grain_of(l) != 0) ++l.micro_batch;
  keep_bf16_blocks(l, job.dims.layers);
  // Enough for every schedule to fill its pipeline, with the same remainder modulo pp; a custom
  // schedule fixes the number.
  const int workers = full_layout.hosted_workers();
  const int filled = full_layout.pp == 1 ? 0 : (2 * full_layout.pp + workers - 1) / workers;
  const int max = std::max(max_microbatches, filled);
  if (!full_layout.custom_schedule && l.accumulation > max) {
    l.accumulation = max + (l.accumulation - max) % full_layout.pp;
  }
  if (full.head_chunk_rows < full.microbatch_tokens() / cp) {
    l.head_chunk_rows = (l.micro_batch * seq_len / cp + 1) / 2;
  }
  if (full_layout.ffn_rows > 0 && full_layout.ffn_rows < full.rank_tokens()) {  // tiles, still
    const int64_t tokens = l.micro_batch * seq_len / full_layout.cp;
    l.ffn_rows = std::min(full_layout.ffn_rows, std::max<int64_t>(tp, (tokens + 1) / 2));
  }
  return job;
}

}  // namespace trireme::train
