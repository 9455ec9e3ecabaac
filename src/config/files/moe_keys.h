// SPDX-License-Identifier: Apache-2.0
// The section [moe] of a model file: mixtures of experts, as fields for the schema.
#pragma once

#include <cstdint>
#include <string>

#include "base/text/json_fwd.h"
#include "config/key_list.h"
#include "spec/model.h"

namespace trireme::config {

struct MoeKeys {
  int64_t experts = 0, experts_per_token = 0, expert_ffn = 0, shared_ffn = 0;
  std::string score = "softmax";
  bool renormalize = false;
  int64_t expert_groups = 1, chosen_groups = 1;
  double routed_scale = 1;
  bool router_bias = false;
  double aux_loss = 0;
  std::string aux_scope = "micro_batch";
  double z_loss = 0, bias_rate = 0;
  int64_t dense_layers = 0, expert_step = 1;
};

// Adds the section and its keys. The three sizes without a default are required in a file that has
// the section: first_missing() returns the name of the first one that is not given, or empty text.
void add_moe_keys(KeyList&, MoeKeys&);
std::string first_missing(const MoeKeys&);
// Is this the name of a key of the section?
bool is_moe_key(const std::string& name);

// Writes the experts of the model. REQUIRES: the values are legal.
void set_moe(const MoeKeys&, spec::ModelDims&);
// Returns the section. REQUIRES: the model has experts.
base::Json moe_to_json(const spec::ModelDims&);

}  // namespace trireme::config
