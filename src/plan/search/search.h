// SPDX-License-Identifier: Apache-2.0
// The fastest layout of a job on a number of GPUs: every layout of a space is priced, or left
// out because a rule or its memory forbids it, and the result says which. The best is exact under
// the prices of Pricer. Of layouts that the engine runs none that fits is left out: what is too
// large is so by a lower bound (Pricer::bytes_at_least), and answer.h confirms what it proposes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plan/price/price.h"

namespace trireme::plan {

// What may vary. An empty list: all values that there are.
struct Space {
  std::vector<int> tp, cp = {1}, pp, ep, zero, chunks;
  // Ranks that share a copy of the state; empty: all data ranks, or those inside a domain (HSDP).
  std::vector<int> shard;
  std::vector<int64_t> micro_batch;
  std::vector<Kind> pipes;
  std::vector<spec::Recompute> recompute;
  std::vector<Precision> precision = {Precision::bf16};
  std::vector<Placement> placement;
  std::vector<int> sequence_parallel;  // 0, 1
  // Layouts that the engine cannot run yet: cp, ep, fp8.
  bool unaudited = false;
  // Every layout has these formats; the masters of fp32 layouts are f32.
  base::DType grad_dtype = base::DType::f32, master_dtype = base::DType::f32,
              reduce_dtype = base::DType::f32;
  bool deterministic = true;
};

struct SearchOptions {
  int64_t gpus = 1;
  Space space;
  double memory_fraction = 0.95;  // of a processor's memory that a layout may take
  size_t alternatives = 8;        // that are kept
  size_t fastest = 128;           // that are kept
  // Called with every layout that was priced.
  std::function<void(const Layout&, const Price&)> visit;
};

struct Candidate {
  Layout layout;
  Price price;
};

// Layouts that share what is named, none of which can be had.
struct Rejected {
  int tp = 1, cp = 1, pp = 1, ep = 1;
  std::string reason;  // the rule that is broken, or the memory that is missing
  // Memory that the nearest layout lacks: as the engine would allocate it, or at least. 0: a rule.
  double missing_bytes = 0;
  std::optional<Layout> nearest;
};

struct SearchResult {
  std::optional<Candidate> best;
  std::vector<Candidate> front;         // none of it is better than another in time and memory both
  std::vector<Candidate> alternatives;  // the best of those that differ from `best` in one thing
  std::vector<Candidate> fastest;       // that fit, in order
  std::vector<Candidate> families;      // the best of each tp, cp, pp, ep; fastest first
  std::vector<Rejected> rejected;
  std::optional<Candidate> smallest;  // in memory; where nothing fits, what comes nearest
  int64_t layouts = 0;                // in the space
  int64_t priced = 0;                 // of them, in time and memory
  int64_t pruned = 0;                 // of them, left out because a rule forbids them
  int64_t too_large = 0;              // of those that were priced
  double seconds = 0;
};
// Throws ConfigError where the space is empty before anything is priced, or the machine's file does
// not describe what it needs (feasible.h).
SearchResult search(const Job&, const spec::Machine&, const Stack&, const SearchOptions&);

}  // namespace trireme::plan
