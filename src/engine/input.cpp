// SPDX-License-Identifier: Apache-2.0
#include "engine/input.h"

#include "base/check.h"
#include "base/error.h"
#include "spec/predict.h"

namespace trireme::engine {

void set_equal_sequences(const HostMicrobatch& batch, int64_t sequences, int64_t seq_len) {
  const auto tokens = static_cast<int64_t>(batch.tokens.size());
  TRIREME_CHECK(sequences * seq_len == tokens, "{} x {} of {} tokens", sequences, seq_len, tokens);
  for (int64_t t = 0; t < tokens; ++t) {
    batch.positions[static_cast<size_t>(t)] = static_cast<int32_t>(t % seq_len);
  }
  for (int64_t s = 0; s <= tokens; ++s) {
    batch.seq_offsets[static_cast<size_t>(s)] =
        static_cast<int32_t>(s < sequences ? s * seq_len : tokens);
  }
}

InputStaging::InputStaging(device::Device& device, device::Arena& arena,
                           const spec::LocalShape& shape, int microbatches, int64_t vocab)
    : shape_(shape), vocab_(vocab), copy_(device.make_stream("copy")) {
  for (int m = 0; m < microbatches; ++m) {
    std::vector<device::Tensor> tensors;
    for (const base::TensorSpec& spec : spec::input_specs(shape)) {
      tensors.push_back(arena.take(spec));
      host_.emplace_back(static_cast<size_t>(spec.shape.elements()));
    }
    device_.push_back({tensors[0], tensors[1], tensors[2], tensors[3]});
    tensors_.push_back(std::move(tensors));
  }
  ready_.resize(static_cast<size_t>(microbatches));
}

void InputStaging::load(MicrobatchSource& source, int count, device::Stream& compute) {
  TRIREME_CHECK(count <= static_cast<int>(device_.size()), "{} micro-batches of {}", count,
                device_.size());
  copy_->synchronize();  // the host arrays are free when the last uploads are done
  copy_->wait(compute.record());
  for (int m = 0; m < count; ++m) {
    std::vector<int32_t>* host = &host_[static_cast<size_t>(m) * 4];
    const HostMicrobatch batch{host[0], host[1], host[2], host[3]};
    source.fill(m, batch);
    check(m, batch);
    for (size_t i = 0; i < 4; ++i) {
      copy_->upload(tensors_[static_cast<size_t>(m)][i], std::as_bytes(std::span(host[i])));
    }
    ready_[static_cast<size_t>(m)] = copy_->record();
  }
}

void InputStaging::check(int index, const HostMicrobatch& batch) const {
  const auto refuse = [index](const char* what, size_t at, int64_t found, int64_t limit) {
    throw base::ConfigError(fmt::format("micro-batch {}: {} {} at token {} is not below {}", index,
                                        what, found, at, limit));
  };
  const auto tokens = static_cast<int32_t>(shape_.tokens);
  for (size_t t = 0; t < batch.tokens.size(); ++t) {
    if (batch.tokens[t] < 0 || batch.tokens[t] >= vocab_) {
      refuse("token", t, batch.tokens[t], vocab_);
    }
    if (batch.labels[t] >= vocab_) refuse("label", t, batch.labels[t], vocab_);
    if (batch.positions[t] < 0 || batch.positions[t] >= shape_.seq_len) {
      refuse("position", t, batch.positions[t], shape_.seq_len);
    }
  }
  int32_t last = 0;
  bool is_legal = batch.seq_offsets.front() == 0 && batch.seq_offsets.back() == tokens;
  for (const int32_t offset : batch.seq_offsets) {
    is_legal = is_legal && offset >= last && offset - last <= shape_.seq_len;
    last = offset;
  }
  if (!is_legal) {
    throw base::ConfigError(fmt::format(
        "micro-batch {}: sequence offsets must rise from 0 to {} in steps of at most {}", index,
        tokens, shape_.seq_len));
  }
}

}  // namespace trireme::engine
