// SPDX-License-Identifier: Apache-2.0
// Helpers of the tests of rules of thumb and of known answers: shipped models and machines, the
// fastest layout of a space, and the rows of docs/rules-of-thumb.md. Functions that return rows
// assert the numbers in them.
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

// Searches with Trireme's stack. The result has no best if nothing fits.
plan::SearchResult fastest(const plan::Job&, const spec::Machine&, int64_t gpus,
                           const plan::Space& space = {});
// Returns the seconds of the best layout. REQUIRES: a layout fits.
double fastest_seconds(const plan::Job&, const spec::Machine&, int64_t gpus,
                       const plan::Space& space = {});

// Three common layouts of 70B on 1,024 GPUs.
struct ThreeLayouts {
  plan::Space b, a, c;  // tp 8 pp 2 ZeRO-1; tp 8 ZeRO-3; ZeRO-3 alone
};
ThreeLayouts three_layouts();

// Simulates a pipeline of equal stages whose forward, input gradient and weight gradient take the
// same time.
sim::Result simulated(const std::string& schedule, int ranks, int micro_batches, int chunks = 1);

// Published numbers of parameters, written as literals so that they are independent of spec.
constexpr double llama2_7b_params = 6'738'415'616, llama2_13b_params = 13'015'864'320,
                 llama3_70b_params = 70'553'706'496, llama3_405b_params = 405'853'388'800;

// FLOPs of Llama 3 70B per token, counted by hand.
struct HandFlops {
  double products = 0;   // forward products of all blocks
  double down = 0;       // of these, the last product of each block
  double attention = 0;  // forward causal attention of all blocks
  double head = 0;       // forward product of the head

  // Backward takes twice the FLOPs of products, and 2.5 times those of flash attention.
  double model() const { return 3 * (products + head) + 3.5 * attention; }
};
HandFlops llama3_70b_flops(double seq_len);

// What a test compares Trireme's number with.
enum class Evidence : uint8_t {
  formula,     // a formula with literal numbers in the test
  published,   // a published figure
  arithmetic,  // nothing: no function of Trireme computes it
  none,        // nothing: the row has no number
  regression,  // the planner's own numbers: guards against changes, no evidence that they are right
  count
};

struct Row {
  std::string rule, ours, verdict;
  Evidence evidence = Evidence::regression;
};
std::vector<Row> state_rows();
std::vector<Row> step_rows();
std::vector<Row> sharding_rows();
std::vector<Row> placement_rows();
std::vector<Row> memory_contradictions();
std::vector<Row> rate_contradictions();
std::vector<Row> failure_contradictions();

}  // namespace trireme::tests
