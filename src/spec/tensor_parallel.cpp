// SPDX-License-Identifier: Apache-2.0
#include "spec/tensor_parallel.h"

#include <algorithm>
#include <numeric>

#include "spec/data_parallel.h"

namespace trireme::spec {
namespace {

constexpr int64_t most_buffer_bytes = int64_t{64} << 20;

const HeadSpec& head_of(const ModelSpec& model) { return std::get<HeadSpec>(model.layers.back()); }

int64_t sent(const std::vector<CommCost>& costs, int ranks) {
  int64_t bytes = 0;
  for (const CommCost& cost : costs) bytes += sent_bytes(cost, ranks);
  return bytes;
}

// The divisors of `value` next to `wanted`.
std::string nearest_divisors(int64_t value, int64_t wanted) {
  int64_t below = std::min(wanted, value), above = wanted;
  while (value % below != 0) --below;
  while (above <= value && value % above != 0) ++above;
  return above > value ? fmt::format("{}", below) : fmt::format("{} or {}", below, above);
}

}  // namespace

Range summed_along_tp(const BucketLayout& layout, bool sequence_parallel) {
  return {sequence_parallel ? layout.by_rows.begin : layout.partial.begin, layout.partial.end};
}

std::vector<Range> counted_along_tp(const BucketLayout& layout, Range held, const Coord& coord) {
  if (coord[Axis::tp] == 0) return {held};
  std::vector<Range> counted;
  for (const Range& cut : layout.cut) {
    const Range common{std::max(cut.begin, held.begin), std::min(cut.end, held.end)};
    if (common.begin < common.end) counted.push_back(common);
  }
  return counted;
}

base::TensorSpec tensor_buffer(const ModelSpec& model, const Plan& plan) {
  const int64_t ranks = plan.mesh[Axis::tp];
  if (ranks == 1) return {};
  // A sum of the stream arrives as a whole, a small one from every rank.
  const int64_t stream =
      plan.microbatch_tokens() * head_of(model).width * base::size_of(plan.recipe.storage);
  const int64_t small = ranks * small_all_reduce_elements * base::size_of(base::DType::f32);
  return {{std::max(small, std::min(stream, most_buffer_bytes))}, base::DType::u8};
}

TensorTraffic predict_tensor_traffic(const ModelSpec& model, const Plan& plan, int pp_rank) {
  TensorTraffic sum;
  const int ranks = plan.mesh[Axis::tp];
  if (ranks == 1) return sum;
  const int64_t leaves = hosted_workers(plan) * reduce_rounds(plan);
  for (const int layer : layers_of_rank(model, plan, pp_rank)) {
    const Facts f = facts(model, layer, local_shape_of(plan), plan.recipe,
                          plan.recompute[static_cast<size_t>(layer)], Backend{});
    sum.forward += plan.schedule.microbatches * sent(f.f_comm, ranks);
    sum.backward += plan.schedule.microbatches *
                    (sent(f.r_comm, ranks) + sent(f.b_comm, ranks) + sent(f.w_comm, ranks));
    const Range range = summed_along_tp(bucket_layout(f.params, plan.mesh), plan.sequence_parallel);
    sum.grads += leaves * sent_bytes({CommKind::all_reduce, Axis::tp, range.end - range.begin,
                                      plan.recipe.grad},
                                     ranks);
  }
  return sum;
}

void check_tensor_axis(const ModelSpec& model, const Plan& plan,
                       const std::function<void(const std::string& rule)>& broken) {
  const int64_t tp = plan.mesh[Axis::tp];
  if (tp < 1) {
    broken(fmt::format("tp = {}: at least 1", tp));
    return;
  }
  if (tp == 1) {
    if (plan.sequence_parallel) broken("sequence parallelism needs tp > 1");
    return;
  }
  if (plan.inference) broken(fmt::format("tp = {}: inference runs on one rank", tp));
  const auto* block = std::get_if<BlockSpec>(&model.layers.at(1));
  if (block != nullptr) {
    const int64_t heads = std::gcd(block->heads, block->kv_heads);
    const auto divides = [&](const char* name, int64_t value) {
      if (value % tp == 0) return;
      broken(fmt::format("tp = {}: {} = {} does not divide by it; heads and kv_heads allow tp = {}",
                         tp, name, value, nearest_divisors(heads, tp)));
    };
    divides("heads", block->heads);
    divides("kv_heads", block->kv_heads);
    if (block->ffn % tp != 0) {
      broken(fmt::format("tp = {}: ffn = {} does not divide by it; use tp = {}, or ffn = {}", tp,
                         block->ffn, nearest_divisors(block->ffn, tp),
                         nearest_multiples(block->ffn, tp)));
    }
  }
  const int64_t vocab = head_of(model).vocab;
  if ((tp - 1) * ((vocab + tp - 1) / tp) >= vocab) {
    broken(fmt::format("tp = {}: a vocabulary of {} leaves a rank without a row", tp, vocab));
  }
  if (plan.sequence_parallel && plan.microbatch_tokens() % tp != 0) {
    broken(
        fmt::format("sequence parallelism over tp = {}: {} tokens in a micro-batch do not divide "
                    "by it; use {} tokens",
                    tp, plan.microbatch_tokens(), nearest_multiples(plan.microbatch_tokens(), tp)));
  }
}

}  // namespace trireme::spec
