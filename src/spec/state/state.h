// SPDX-License-Identifier: Apache-2.0
// StateTensor: one persistent tensor of a layer, which outlives a step and is part of a checkpoint:
// fp32 weights, the optimizer's tensors, and the layer's own statistics. Facts::state lists those
// of a layer. Prediction, engine, the end of a step and checkpoints walk that list, so a new tensor
// needs an entry there and no other change.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "spec/parallel/shard.h"
#include "spec/recipe.h"

namespace trireme::spec {

struct Param;

// The elements of a tensor: one for each element of these parameters of the layer, sharded as the
// optimizer's update of the bucket (updated_range()), or a tensor apart.
enum class StateCover : uint8_t {
  all,       // parameters
  matrices,  // those with Param::matrices
  others,    // all except matrices
  own,       // StateTensor::shard
};

// What the end of a step does with an own tensor, over all ranks that have a copy of the layer.
enum class StateReduction : uint8_t {
  none,  // nothing: all ranks compute the same values
  max,   // all ranks receive the maximum
  // All ranks receive the sum over ranks with different tokens: along dp, zero, cp and, under
  // sequence parallelism, tp. Otherwise ranks along tp have the same values, which count once.
  sum,
};

struct StateTensor {
  std::string name;                      // "weight", "adamw.first_moment"
  std::string saved_as;                  // first part of its names in checkpoints: "weight", "m"
  base::DType dtype = base::DType::f32;  // in memory; checkpoints contain fp32
  StateCover covers = StateCover::all;
  bool is_param = false;  // its memory is that of the parameters
  // An own tensor, which is f32, has a shape, cuts along tp, and a reduction.
  ShardSpec shard = {};
  StateReduction reduction = StateReduction::none;
  // Forward passes read this own tensor: it also exists under an inference plan.
  bool is_input = false;
  bool operator==(const StateTensor&) const = default;

  bool is_own() const { return covers == StateCover::own; }
};

// Returns the tensors that exist under an inference plan: own tensors that forward passes read.
std::vector<StateTensor> inference_state(std::span<const StateTensor>);
// Does the tensor have elements for this parameter?
bool covers(const StateTensor&, const Param&);
// Returns the name of a tensor in checkpoints: "m/blocks.0.norm1.weight"; `owner` is the name of
// the parameter, or of the layer for an own tensor.
std::string saved_name(const StateTensor&, std::string_view owner);

// The tensor of fp32 weights that every optimizer has.
constexpr const char* weight_state = "weight";

enum class OptimizerKind : uint8_t { adamw, muon, count };
std::string_view name_of(OptimizerKind);
std::optional<OptimizerKind> optimizer_from_name(std::string_view);

struct OptimizerTypes {
  OptimizerKind kind = OptimizerKind::adamw;
  // u16: the low parts of split fp32 weights whose high parts are the parameters
  // (base/split_float.h).
  base::DType master = base::DType::f32;
  bool operator==(const OptimizerTypes&) const = default;
};

// Names of optimizers' tensors.
constexpr const char* first_moment_state = "adamw.first_moment";
constexpr const char* second_moment_state = "adamw.second_moment";
constexpr const char* momentum_state = "muon.momentum";

// Returns the weights and the optimizer's tensors of any layer, weights first. AdamW has two
// moments of all parameters. Muon has one momentum of matrices, and AdamW's moments of the others.
std::vector<StateTensor> optimizer_state(const OptimizerTypes&, const Recipe&);

}  // namespace trireme::spec
