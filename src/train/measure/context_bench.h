// SPDX-License-Identifier: Apache-2.0
// The cost of cutting attention for context parallelism: what `trireme bench attention` measures.
// One device runs the calls of all ranks along cp one after the other; transfers are left out.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/text/json_fwd.h"
#include "config/config.h"
#include "spec/parallel/token_slice.h"

namespace trireme::train {

struct ContextBenchOptions {
  spec::ContextKind kind = spec::ContextKind::gather;  // ulysses, gather or ring
  int cp = 2;
  int64_t seq_len = 4096, heads = 8, kv_heads = 2, head_dim = 128;
  int64_t documents = 0;       // their mean length in tokens; 0: one document
  std::string dtype = "auto";  // f32, bf16 or auto: bf16 on a GPU
  config::System system;
  std::function<void(std::string_view what)> measured;  // after each figure; may be empty
};
constexpr int context_bench_figures = 4;  // times that are measured

struct ContextBench {
  struct Times {
    double whole_seconds = 0;  // of one call over the whole sequence
    double ranks_seconds = 0;  // of the calls of all ranks
    double overhead() const { return ranks_seconds / whole_seconds - 1; }
  };
  Times forward, backward;
  int64_t calls = 0;          // of attention in a forward of all ranks
  int64_t pairs = 0;          // (query, key) pairs of one head
  double pairs_max_mean = 1;  // of a rank, over ranks
  base::DType dtype = base::DType::f32;
  int64_t bytes = 0;  // of all tensors
  std::string hardware;
};

// Throws ConfigError for options that do not divide, and OutOfMemory before anything is timed.
ContextBench bench_context(const ContextBenchOptions&);

base::Json to_json(const ContextBenchOptions&, const ContextBench&);

}  // namespace trireme::train
