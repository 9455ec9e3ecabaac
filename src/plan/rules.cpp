// SPDX-License-Identifier: Apache-2.0
// broken_rule(): which layouts a model and a batch can have.
#include <fmt/format.h>

#include "plan/price.h"

namespace trireme::plan {

std::string broken_rule(const Job& job, const Layout& l) {
  const auto& block = std::get<spec::BlockSpec>(job.model.layers.at(1));
  const auto divides = [](int64_t whole, int64_t part) { return part > 0 && whole % part == 0; };
  if (!divides(block.heads, l.tp)) {
    return fmt::format("heads = {} do not divide by tp = {}", block.heads, l.tp);
  }
  if (!divides(block.kv_heads, l.tp) && !divides(l.tp, block.kv_heads)) {
    return fmt::format("kv_heads = {} do not divide by tp = {}", block.kv_heads, l.tp);
  }
  if (!divides(block.ffn, l.tp)) {
    return fmt::format("ffn = {} does not divide by tp = {}", block.ffn, l.tp);
  }
  if (!divides(job.seq_len, 2 * l.cp) && l.cp > 1) {
    return fmt::format("seq_len = {} does not divide by 2 cp = {}", job.seq_len, 2 * l.cp);
  }
  if (l.sequence_parallel && !divides(l.micro_batch * job.seq_len / l.cp, l.tp)) {
    return fmt::format("{} tokens of a micro-batch do not divide by tp = {}",
                       l.micro_batch * job.seq_len / l.cp, l.tp);
  }
  if (!divides(job.global_batch, int64_t{l.dp} * l.micro_batch)) {
    return fmt::format("batch = {} does not divide by dp x micro-batch = {} x {}", job.global_batch,
                       l.dp, l.micro_batch);
  }
  const int64_t m = l.micro_batches(job);
  if (int64_t{l.pp} * l.chunks > job.model.blocks() + 2) {
    return fmt::format("pp x chunks = {} x {} are more stages than the {} layers", l.pp, l.chunks,
                       job.model.blocks() + 2);
  }
  if (l.pp > 1 && l.pipe == Pipe::interleaved && !divides(m, l.pp)) {
    return fmt::format("{} micro-batches do not divide by pp = {}, as interleaving needs", m, l.pp);
  }
  if (l.pp > 1 && l.pipe == Pipe::dualpipe_v && m < 2 * l.pp) {
    return fmt::format("{} micro-batches are fewer than 2 pp = {}, as DualPipeV needs", m,
                       2 * l.pp);
  }
  if (job.experts) {
    if (!divides(job.experts->count, l.ep)) {
      return fmt::format("{} experts do not divide by ep = {}", job.experts->count, l.ep);
    }
    if (!divides(int64_t{l.dp} * l.cp, l.ep)) {
      return fmt::format("dp x cp = {} x {} does not divide by ep = {}", l.dp, l.cp, l.ep);
    }
  } else if (l.ep > 1) {
    return fmt::format("ep = {}: the model has no experts", l.ep);
  }
  return {};
}

}  // namespace trireme::plan
