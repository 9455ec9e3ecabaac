// SPDX-License-Identifier: Apache-2.0
// Decoder: a model that continues sequences token by token. Keys and values of earlier tokens are
// kept in a cache, so that a step computes one token of each sequence and is limited by the time to
// read the weights once.
//
// It has room for `sequences` sequences in slots. prefill() replaces the sequence of a slot, step()
// appends one token to some of them. The logits of a sequence have the same bits whatever the other
// slots contain: prompts are computed one by one, and a step uses ops whose rows are independent.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/device.h"
#include "device/memory.h"
#include "engine/decode/decode_experts.h"
#include "spec/memory/decode_memory.h"

namespace trireme::engine {

class Decoder {
 public:
  // The device must outlive the decoder. Takes the memory of spec::decode_memory(); throws
  // OutOfMemory if the device has less. Weights are undefined until they are written.
  Decoder(device::Device&, const spec::ModelSpec&, const spec::DecodePlan&, const spec::Backend&);
  ~Decoder();

  // REQUIRES: a parameter of the model (spec::params_of) that is not tied, or by its saved name an
  // own tensor that forward passes read (spec::decode_state), with all its elements. The latter are
  // zero until they are written.
  void write_weights(const std::string& name, std::span<const float> values);

  // Replaces the sequence of a slot by `tokens`. REQUIRES: 1 to capacity tokens of the vocabulary.
  void prefill(int64_t slot, std::span<const int32_t> tokens);

  struct Next {
    int64_t slot = 0;
    int32_t token = 0;
  };
  // Appends a token to each of these sequences. REQUIRES: slots differ, are filled, and have fewer
  // than capacity tokens.
  void step(std::span<const Next> next);

  // Returns the logits after the last token of a sequence, valid until the next call that changes
  // it. prefill() and step() have waited for them.
  std::span<const float> logits(int64_t slot) const;
  int64_t length(int64_t slot) const { return lengths_[static_cast<size_t>(slot)]; }

  const spec::DecodePlan& plan() const { return plan_; }
  spec::DecodeMemory measured() const;
  device::Stream& stream() { return *stream_; }
  bool is_captured() const { return graph_ != nullptr; }  // steps are replayed from a graph

 private:
  struct Arenas;
  struct Layer {
    std::vector<device::Tensor> params;
    device::Tensor cache;        // of a block
    device::Tensor router_bias;  // of a block with experts; may be empty
  };
  // Rows of a batch in the decode_inputs integers, on the host.
  struct Row {
    int32_t token = 0, position = 0, cache_row = -1, first_row = 0, length = 0;
  };
  void set_row(int64_t row, const Row&);
  void upload_rows();
  device::Tensor input(int64_t which, int64_t rows) const;
  void run_layers(int64_t rows, bool is_prompt);
  void run_block(const spec::BlockSpec&, const Layer&, int64_t rows, bool is_prompt);
  // Both read the norm in h_ and add their result to x; run_experts() overwrites h_.
  void run_feed_forward(const spec::BlockSpec&, const Layer&, device::Tensor x, bool is_prompt);
  void run_experts(const spec::MoeSpec&, const Layer&, device::Tensor x, bool is_prompt);
  // Norms, limits and rotates q and k in place.
  void rotate(const spec::BlockSpec&, const Layer&, device::Tensor qkv);
  void run_head(device::Tensor x, device::Tensor logits);
  void queue_step(int64_t rows);
  void check_slot(int64_t slot) const;
  void download_logits(int64_t row, int64_t slot, int64_t count);

  spec::ModelSpec model_;
  spec::DecodePlan plan_;
  std::unique_ptr<device::Stream> stream_;
  std::unique_ptr<Arenas> arenas_;
  std::vector<Layer> layers_;
  std::map<std::string, device::Tensor> by_name_;
  device::Tensor x_, h_, stats_, qkv_, qk_rstd_, o_, up_, act_, workspace_, logits_;
  device::Tensor inputs_;
  device::Tensor rope_table_;
  std::unique_ptr<DecodeExperts> experts_;
  std::unique_ptr<device::HostBuffer> host_inputs_, host_logits_;
  std::vector<int64_t> lengths_;  // by slot; 0: empty
  int64_t steps_ = 0;
  std::unique_ptr<device::Graph> graph_;  // a captured step of all slots
};

}  // namespace trireme::engine
