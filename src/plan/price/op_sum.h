// SPDX-License-Identifier: Apache-2.0
// The time of a layer's operations and of its collectives along tp, summed up from its facts.
#pragma once

#include <vector>

#include "plan/job.h"
#include "plan/price/layer_cost.h"
#include "plan/stack.h"
#include "spec/facts/facts.h"
#include "spec/machine.h"

namespace trireme::plan {

// The inputs from which the facts of one layer are priced.
struct Pricing {
  const Job& job;
  const spec::Machine& machine;
  const Stack& stack;
  const LayerKey& key;
  spec::LocalShape shape;
  spec::Recipe recipe;
  double streaming;  // factor on bytes
  // The precision of products of another program, which its facts do not tell: they are in bf16,
  // and quantising is added here. The engine's facts have the formats of all ops.
  Precision products;
  const spec::MoeSpec* moe = nullptr;  // of the block
};

// Returns the back end whose facts are priced. Other programs are priced without a fixed order of
// sums, and without rows between the groups of experts.
spec::Backend backend_of(const Job&, const Stack&);

struct OpSum {
  double seconds = 0, attention = 0, products = 0, kernels = 0;
  double flops = 0, product_flops = 0;
};

// The phase whose ops are summed.
enum class Pass : uint8_t { forward, input_gradient, weight_gradient };

// `shape` is the attention of whole sequences; along cp an op has a part of its pairs or heads.
OpSum sum_of(const Pricing&, const std::vector<spec::OpCost>&, const spec::AttentionShape& shape,
             Pass);

// Returns the exposed seconds of collectives along tp, the innermost axis.
double tp_seconds(const Pricing&, const std::vector<spec::CommCost>&);

}  // namespace trireme::plan
