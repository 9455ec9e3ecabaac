// SPDX-License-Identifier: Apache-2.0
// What the tests of rules of thumb and of known answers share: shipped models and machines, the
// fastest layout of a space, and the rows of docs/rules-of-thumb.md. Functions that give rows
// assert what the rows say.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/search/search.h"
#include "sim/sim.h"
#include "spec/machine.h"
#include "spec/model.h"

namespace trireme::tests {

// Names as in configs/models and machines.
spec::ModelSpec shipped_model(const std::string& name);
spec::Machine shipped_machine(const std::string& name);
spec::Stack shipped_stack(const std::string& name);
spec::ModelSpec llama2(int64_t billions);  // 7 or 13
spec::ModelSpec bloom_176b();
plan::Job job_of(spec::ModelSpec model, int64_t seq_len, int64_t sequences);

// With Trireme's own stack. No best: nothing fits.
plan::SearchResult fastest(const plan::Job&, const spec::Machine&, int64_t gpus,
                           const plan::Space& space = {});
// Seconds of the best. REQUIRES: something fits.
double fastest_seconds(const plan::Job&, const spec::Machine&, int64_t gpus,
                       const plan::Space& space = {});

// The three layouts of 70B on 1,024 GPUs that the field compares.
struct ThreeLayouts {
  plan::Space b, a, c;  // tp 8 pp 2 ZeRO-1; tp 8 ZeRO-3; ZeRO-3 alone
};
ThreeLayouts three_layouts();

// A pipeline of equal stages whose forward, input gradient and weight gradient take the same time.
sim::Result played(const std::string& schedule, int ranks, int micro_batches, int chunks = 1);

struct Row {
  std::string saying, ours, verdict;
};
std::vector<Row> state_rows();
std::vector<Row> step_rows();
std::vector<Row> sharding_rows();
std::vector<Row> placement_rows();
std::vector<Row> memory_contradictions();
std::vector<Row> rate_contradictions();
std::vector<Row> failure_contradictions();

}  // namespace trireme::tests
