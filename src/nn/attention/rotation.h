// SPDX-License-Identifier: Apache-2.0
// Norm, limit and rotation of q and k between projection and attention. Formulas, slots and
// operations are described in spec/facts/rotation_facts.cpp, in the same order.
#pragma once

#include "nn/layer.h"

namespace trireme::nn {

// Writes what attention reads to `qk`, or rotates in place if the block does not keep its
// projection (BlockSpec::keeps_projection); then `qk` is empty. `block` is a rank's block along tp.
// REQUIRES: it has RoPE.
void rotate(Pass&, const spec::BlockSpec& block, Tensor qkv, Tensor qk);

// Turns the gradients of what attention reads into those of the projection, in place.
void rotate_back(Pass&, const spec::BlockSpec& block, Tensor dqkv);

}  // namespace trireme::nn
