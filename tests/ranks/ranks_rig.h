// SPDX-License-Identifier: Apache-2.0
// Shared by the tests of several ranks: a layout of a job, which runs as threads of this process,
// and the results of every rank after some steps.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "comm/mesh.h"
#include "comm/threads.h"
#include "engine/engine.h"
#include "spec/parallel/data_parallel.h"
#include "tests/engine/rig.h"

namespace trireme::tests {

struct Layout {
  spec::ModelDims dims;
  int dp = 1, zero = 1;
  int stage = 0;  // ZeRO stage
  int tp = 1;
  bool sequence_parallel = false;
  int cp = 1;
  spec::ContextKind context_kind = spec::ContextKind::gather;
  spec::ContextSlices context_slices = spec::ContextSlices::zigzag;
  int ulysses = 0;
  int ep = 1, etp = 1;
  double row_budget = 64;  // more than any routing needs
  spec::Overflow overflow = spec::Overflow::strict;
  double expert_capacity = 0;
  int pp = 1;
  std::string schedule = "1f1b";
  int chunks = 0;
  std::vector<int> cut;  // empty: balanced
  bool keep_params = false;
  int send_buffers = 2;
  std::string recipe = "fp32";
  base::DType grad = base::DType::f32, master = base::DType::f32;
  int logical_dp = 24;
  int microbatches = 1;  // per worker
  int sequences = 1;     // per micro-batch
  int64_t seq_len = 6;
  bool documents = false;  // sequences are cut at random
  spec::ReduceWhen reduce = spec::ReduceWhen::once;
  base::DType reduce_dtype = base::DType::f32;
  int prefetch = 1;
  bool prefetch_after = false;
  spec::Recompute recompute = spec::Recompute::none;
  int64_t ffn_rows = 0;
  spec::OptimizerKind optimizer = spec::OptimizerKind::adamw;
  device::StreamMode streams = device::StreamMode::inline_calls;
  bool split_backward = false;
  float adam_eps = 1e-8F;
  bool on_gpu = false;   // all ranks on the first GPU
  bool capture = false;  // steps are replayed, if the communicators support it
  // Thread ranks are said to be on nodes of so many ranks, in the order of the world; 0: on one.
  int ranks_a_node = 0;
};
std::string to_string(const Layout&);
int ranks_of(const Layout&);
// Layouts with equal keys must give equal bits. Different models must have different names.
std::string bits_key(const Layout&);

// One rank of a running layout.
struct RankRig {
  device::Device& device;
  const spec::ModelSpec& model;
  engine::Engine& engine;
  comm::Mesh& mesh;
  engine::MicrobatchSource& source;  // this rank's micro-batches of a step
  std::function<void()> next_step;   // advances the source
  bool is_gpu = false;
};

spec::Plan plan_of(const Layout&, const spec::ModelSpec&);
spec::Backend backend_of(const Layout&);
// Builds all ranks and runs `body` on each.
void run_layout(const Layout&, const std::function<void(RankRig&)>& body);

// Runs `body` on one rank of a layout; ranks may be threads or processes.
void run_rank(const Layout&, comm::Communicator& world, device::Device&,
              const std::function<void(RankRig&)>& body);

// Runs one step of a layout on thread ranks and expects the predicted memory, ledger and bytes sent
// on every rank. `ranks_a_node` as in Layout.
void train_settled(const spec::ModelDims&, const spec::Layout&, bool on_gpu, int ranks_a_node = 0);
// Does so for `count` random layouts of both families, of at most 8 ranks, on one node or on nodes
// of 2 or 4 ranks.
void train_random_layouts(uint64_t seed, int count, bool on_gpu);
// The same for models with experts: routers, scopes of the auxiliary loss, shared experts and dense
// blocks of all kinds; row budgets that no step exceeds, or that drop pairs.
void train_random_experts(uint64_t seed, int count, bool on_gpu);

// Returns the SHA-256 of the weights after `steps`. Expects the same hash and the predicted memory,
// ledger and bytes sent on every rank.
std::string train_layout(const Layout&, int steps);

// The results of a layout, as whole parameters: gradients of the first step, weights after the
// last.
struct Results {
  std::map<std::string, std::vector<float>> grads, weights;
  std::vector<double> losses;  // by step
  std::vector<float> norms;
};
// Expects on every rank the same as train_layout().
Results results_of(const Layout&, int steps);

}  // namespace trireme::tests
