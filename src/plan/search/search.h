// SPDX-License-Identifier: Apache-2.0
// Searches the fastest layout of a job on a number of GPUs. It prices every layout of a space, or
// rejects it because of a rule or its memory, and the result lists the reasons. The best is exact
// under the prices of Pricer. No layout that the engine runs and that fits is rejected, because
// memory is compared by a lower bound (Pricer::bytes_at_least); answer.h confirms its proposals.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plan/price/price.h"

namespace trireme::plan {

// The values that a search may use. An empty list allows all values.
struct Space {
  std::vector<int> tp, cp = {1}, pp, ep, zero, chunks;
  std::vector<int> etp = {1};  // of models with experts
  // Ranks that share a copy of the state; empty: all data ranks, and those of a domain (HSDP).
  std::vector<int> shard;
  std::vector<int64_t> micro_batch;
  std::vector<Kind> pipes;
  std::vector<spec::Recompute> recompute;
  std::vector<Precision> precision = {Precision::bf16};
  // Blocks that stay in bf16 under recipes of fp8, as in Layout.
  int bf16_first = Layout{}.bf16_first, bf16_last = Layout{}.bf16_last;
  std::vector<int> bf16_blocks;
  std::vector<Placement> placement;
  std::vector<int> sequence_parallel;  // 0, 1
  // Kinds of context parallelism; of these each layout is tried with the one that its blocks are
  // fastest with and the one that they need the least memory with (context_choice.h). A ring must
  // be asked for: it merges partial results, and saves little memory.
  std::vector<spec::ContextKind> context_kinds = {
      spec::ContextKind::ulysses, spec::ContextKind::gather, spec::ContextKind::ulysses_gather};
  // Includes layouts that the engine cannot run, as fp4.
  bool unaudited = false;
  // Formats of every layout; the masters of fp32 layouts are f32.
  base::DType grad_dtype = base::DType::f32, master_dtype = base::DType::f32,
              reduce_dtype = base::DType::f32;
  bool deterministic = true;
  // The row budget of every layout and what happens beyond it, as in Layout.
  double row_budget = Layout{}.row_budget, expert_capacity = 0;
  spec::Overflow overflow = spec::Overflow::strict;
};

struct SearchOptions {
  int64_t gpus = 1;
  Space space;
  double memory_fraction = 0.95;  // fraction of a GPU's memory that a layout may use
  size_t alternatives = 8;        // maximum number kept
  size_t fastest = 128;           // maximum number kept
  // Called with every priced layout.
  std::function<void(const Layout&, const Price&)> visit;
};

struct Candidate {
  Layout layout;
  Price price;
};

// A family of layouts with these degrees, none of which is possible. A rule that rejects a family
// with every ep is listed once, with the smallest.
struct Rejected {
  int tp = 1, cp = 1, pp = 1, ep = 1;
  std::string reason;  // the broken rule, or the missing memory
  // Memory that the nearest layout lacks, exact or a lower bound; 0 if a rule is broken.
  double missing_bytes = 0;
  std::optional<Layout> nearest;
};

struct SearchResult {
  std::optional<Candidate> best;
  std::vector<Candidate> front;         // Pareto front of (time, memory)
  std::vector<Candidate> alternatives;  // the best with another value of one field of `best`
  std::vector<Candidate> fastest;       // the fastest that fit, in order
  std::vector<Candidate> families;      // the best of each tp, cp, pp, ep; fastest first
  std::vector<Candidate> precisions;    // the best of each precision; fastest first
  std::vector<Rejected> rejected;
  std::optional<Candidate> smallest;  // the layout that needs the least memory, fitting or not
  int64_t layouts = 0;                // all layouts of the space
  int64_t priced = 0;                 // those with a price
  int64_t pruned = 0;                 // those that a rule forbids
  int64_t too_large = 0;              // priced layouts that do not fit
  double seconds = 0;
};
// Throws ConfigError if the space is empty before rules and memory are checked, or if the machine's
// file lacks what the space needs (feasible.h).
SearchResult search(const Job&, const spec::Machine&, const Stack&, const SearchOptions&);

}  // namespace trireme::plan
