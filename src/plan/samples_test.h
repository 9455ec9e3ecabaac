// SPDX-License-Identifier: Apache-2.0
// For tests of this folder: shipped machines and models, jobs, and random layouts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "config/files/machine_file.h"
#include "config/files/model_file.h"
#include "config/files/stack_file.h"
#include "plan/job.h"
#include "plan/price/price.h"
#include "plan/search/search.h"

#include "spec/layout/layout_text.h"

namespace trireme::plan {

inline std::filesystem::path source_root() {
  return std::filesystem::path(__FILE__).parent_path().parent_path().parent_path();
}

inline spec::Machine shipped_machine(const std::string& name) {
  return config::machine_from_file(name, {source_root() / "machines"});
}

inline Stack shipped_stack(const std::string& name) {
  return config::stack_from_file(name, {source_root() / "stacks"});
}

inline Job job_of(const std::string& model, int64_t global_batch, int64_t seq_len) {
  const spec::ModelDims dims =
      config::model_from_file(model, {source_root() / "configs" / "models"});
  Job job;
  job.model = spec::make_model(dims);
  job.seq_len = std::min(seq_len, job.model.max_seq);
  job.global_batch = global_batch;
  return job;
}

// Gives the blocks behind the first `dense_layers` a mixture of experts.
inline Job with_experts(Job job, int64_t experts, int64_t chosen, int64_t ffn,
                        int64_t shared_ffn = 0, int dense_layers = 0) {
  spec::MoeSpec moe;
  moe.router.experts = experts;
  moe.router.chosen = chosen;
  moe.ffn = ffn;
  moe.shared_ffn = shared_ffn;
  for (size_t i = 1 + static_cast<size_t>(dense_layers); i + 1 < job.model.layers.size(); ++i) {
    auto& block = std::get<spec::BlockSpec>(job.model.layers[i]);
    block.moe = moe;
    block.ffn = 0;
  }
  return job;
}

// Pseudo-random numbers that are the same on every machine.
class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}

  // Returns a number in [0, count).
  size_t below(size_t count) { return static_cast<size_t>(random_() % count); }
  template <typename T>
  T of(const std::vector<T>& all) {
    return all[below(all.size())];
  }
  double between(double low, double high) {
    return low + (high - low) * static_cast<double>(random_() >> 11U) * 0x1p-53;
  }

 private:
  std::mt19937_64 random_;
};

// Fills in the schedule's number of chunks if the text has none.
inline Layout layout_from_text(const std::string& text, int64_t ranks) {
  Layout l = spec::layout_from_text(text, ranks);
  if (l.chunks == 0) l.chunks = l.pp == 1 ? 1 : schedule::chunks_of(l.schedule);
  return l;
}

// Returns a random schedule that the planner prices.
inline Kind any_schedule(Dice& dice) {
  return dice.of<Kind>({Kind::gpipe, Kind::one_f_one_b, Kind::interleaved, Kind::zb_h1, Kind::zb_h2,
                        Kind::zb_v, Kind::dualpipe_v});
}

// Returns a random layout, whether or not a rule forbids it.
inline Layout any_layout(Dice& dice) {
  const std::vector<int> degrees = {1, 1, 2, 4, 8};
  Layout l;
  l.tp = dice.of(degrees);
  l.pp = dice.of(degrees);
  const int ranks = dice.of(degrees);
  spec::set_data_ranks(l, ranks, ranks > 1 ? static_cast<int>(dice.below(4)) : 0);
  l.micro_batch = dice.of<int64_t>({1, 2, 4});
  l.recompute = dice.of<spec::Recompute>(
      {spec::Recompute::none, spec::Recompute::selective, spec::Recompute::full});
  l.sequence_parallel = l.tp > 1 && dice.below(2) == 1;
  if (l.pp > 1) {
    l.schedule = any_schedule(dice);
    l.chunks =
        l.schedule == Kind::interleaved ? dice.of<int>({2, 3, 4}) : schedule::chunks_of(l.schedule);
  } else {
    l.chunks = 1;
  }
  return l;
}

// Returns a random layout that the engine can run.
inline Layout runnable_layout(Dice& dice, const Job& job) {
  while (true) {
    Layout l = any_layout(dice);
    if (has_experts(job)) l.ep = dice.of<int>({1, 2, 4, 8});
    // The planner models interleaving only in complete groups of micro-batches.
    const bool is_whole = l.schedule != Kind::interleaved || micro_batches(job, l) % l.pp == 0;
    if (is_whole && missing_in_engine(job, l).empty()) return l;
  }
}

}  // namespace trireme::plan
