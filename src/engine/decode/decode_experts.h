// SPDX-License-Identifier: Apache-2.0
// DecodeExperts: the routed experts of a block, for the rows of a decoder's batch. The ops are
// those of nn/experts/expert_feed_forward.cpp on one rank, so a row's experts and its result do not
// depend on other rows of the batch.
#pragma once

#include <span>

#include "device/device.h"
#include "device/memory.h"
#include "spec/memory/decode_memory.h"

namespace trireme::engine {

class DecodeExperts {
 public:
  // Takes spec::decode_expert_tensors() from the arena.
  DecodeExperts(device::Arena&, const spec::DecodeExpertTensors&, const spec::Backend&);

  struct Batch {
    std::span<const device::Tensor> params;  // of the block
    device::ConstTensor bias;                // [E] f32 of the router; empty: it has none
    device::ConstTensor h;                   // [T, D]: norm of the stream
    bool is_prompt = false;
  };
  // Chooses experts for every row and computes their results, which add() reads.
  // REQUIRES: at most the plan's rows.
  void run(device::Stream&, const spec::MoeSpec&, const Batch&);
  // x += shared (optional) + the results of a token's experts, for the rows of the last run().
  void add(device::Stream&, device::ConstTensor shared, device::Tensor x);

 private:
  spec::Backend backend_;
  device::Tensor logits_, choice_, weights_, place_, pair_, counts_, starts_, row_weight_, rows_,
      up_, act_;
  spec::ExpertRows last_;
};

}  // namespace trireme::engine
