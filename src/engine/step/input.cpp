// SPDX-License-Identifier: Apache-2.0
#include "engine/step/input.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "base/token_label.h"
#include "engine/step/query_chunks.h"
#include "spec/memory/predict.h"

namespace trireme::engine {

namespace {

// What is stored in front of the micro-batches: the end of kernels::StepSums, and the beginning of
// kernels::StepCounts.
struct BatchCounts {
  uint64_t samples = 0;
  int64_t masked = 0, padding = 0;
};
const int64_t bytes_of_counts = base::bytes_of(spec::batch_counts_spec());

int64_t bytes_of_batch(const spec::LocalShape& shape) {
  int64_t bytes = 0;
  for (const base::TensorSpec& spec : spec::input_specs(shape)) bytes += base::bytes_of(spec);
  return bytes;
}

}  // namespace

void set_equal_sequences(const HostMicrobatch& batch, int64_t sequences, int64_t seq_len) {
  const auto tokens = static_cast<int64_t>(batch.tokens.size());
  TRIREME_CHECK(sequences * seq_len == tokens,
                "{} sequences of {} tokens in a micro-batch of {} tokens", sequences, seq_len,
                tokens);
  for (int64_t t = 0; t < tokens; ++t) {
    batch.positions[static_cast<size_t>(t)] = static_cast<int32_t>(t % seq_len);
  }
  for (int64_t s = 0; s <= tokens; ++s) {
    batch.seq_offsets[static_cast<size_t>(s)] =
        static_cast<int32_t>(s < sequences ? s * seq_len : tokens);
  }
}

InputStaging::InputStaging(device::Device& device, device::Arena& arena,
                           const spec::LocalShape& shape, int microbatches, int64_t vocab,
                           int cp_rank)
    : shape_(shape),
      split_(shape.context()),
      cp_rank_(cp_rank),
      vocab_(vocab),
      batch_bytes_(bytes_of_batch(shape)),
      host_(device.make_host_buffer(
          device::Mem::staging, bytes_of_counts + microbatches * batch_bytes_, "input batches")),
      copy_(device.make_stream("copy")) {
  const base::TensorSpec all{{bytes_of_counts + microbatches * batch_bytes_}, base::DType::u8};
  landing_ = arena.take(all);
  current_ = arena.take(all);
  int64_t offset = bytes_of_counts;
  for (int m = 0; m < microbatches; ++m) {
    std::vector<device::Tensor> tensors;
    std::vector<std::span<int32_t>> arrays;
    for (const base::TensorSpec& spec : spec::input_specs(shape)) {
      tensors.push_back(device::view_of(current_.data + offset, spec));
      arrays.emplace_back(reinterpret_cast<int32_t*>(host_.data() + offset),
                          static_cast<size_t>(spec.shape.elements()));
      offset += base::bytes_of(spec);
    }
    batches_.push_back({tensors[0], tensors[1], tensors[2], tensors[3], {}});
    host_batches_.push_back({arrays[0], arrays[1], arrays[2], arrays[3]});
    host_keys_.emplace_back();
    if (split_.groups == 1) continue;
    batches_.back().keys = {.begin = tensors[4], .end = tensors[5], .order = {}, .chunks = {}};
    host_keys_.back() = {arrays[4], arrays[5], {}};
    if (split_.is_ring) continue;
    batches_.back().keys.order = tensors[6];
    host_keys_.back().order = arrays[6];
  }
  rows_.resize(batches_.size());
  pairs_.resize(batches_.size());
  if (split_.cp() == 1) return;
  for (std::vector<int32_t>& array : whole_) array.resize(static_cast<size_t>(split_.tokens()));
  if (split_.groups > 1 && !shape_.has_documents) know_chunks();
}

void InputStaging::know_chunks() {
  const std::vector<int32_t> offsets = spec::equal_offsets(split_);
  for (int source = 0; source < split_.key_sources(); ++source) {
    chunks_.push_back(chunks_of(spec::keys_of_source(split_, own_group(), source, offsets)));
  }
  for (Microbatch& batch : batches_) batch.keys.chunks = chunks_;
}

void InputStaging::slice(int index) {
  const auto at = static_cast<size_t>(index);
  const HostMicrobatch& batch = host_batches_[at];
  const std::span<const int32_t> offsets = batch.seq_offsets;
  const bool varies = shape_.has_documents;
  if (rows_[at].empty() || varies) {
    rows_[at] = spec::rank_rows(split_, cp_rank_, offsets);
    if (split_.groups > 1) {
      const HostKeys& keys = host_keys_[at];
      for (int source = 0; source < split_.key_sources(); ++source) {
        const spec::KeyRanges ranges = spec::keys_of_source(split_, own_group(), source, offsets);
        const auto first = static_cast<ptrdiff_t>(source * split_.group_tokens());
        std::ranges::copy(ranges.begin, keys.begin.begin() + first);
        std::ranges::copy(ranges.end, keys.end.begin() + first);
      }
      if (!split_.is_ring) {
        std::ranges::copy(spec::gathered_rows(split_, offsets), keys.order.begin());
      }
      pairs_[at] = spec::pairs_of_groups(split_, offsets);
    }
  }
  const std::array<std::span<int32_t>, 3> staged = {batch.tokens, batch.labels, batch.positions};
  for (size_t i = 0; i < staged.size(); ++i) {
    for (size_t t = 0; t < staged[i].size(); ++t) {
      staged[i][t] = whole_[i][static_cast<size_t>(rows_[at][t])];
    }
  }
}

void InputStaging::load(MicrobatchSource& source, int count) {
  TRIREME_CHECK(count <= static_cast<int>(batches_.size()), "{} micro-batches, staging holds {}",
                count, batches_.size());
  copy_->synchronize();  // the host arrays may be overwritten after the last upload
  BatchCounts counts;
  for (int m = 0; m < count; ++m) {
    const HostMicrobatch& batch = host_batches_[static_cast<size_t>(m)];
    if (split_.cp() == 1) {
      source.fill(m, batch);
      check(m, batch);
    } else {
      const HostMicrobatch all{whole_[0], whole_[1], whole_[2], batch.seq_offsets};
      source.fill(m, all);
      check(m, all);
      slice(m);
    }
    counts.samples += source.sample_hash(m);
    for (const int32_t label : split_.cp() == 1 ? batch.labels : std::span<int32_t>(whole_[1])) {
      if (label >= 0) continue;
      ++(label == base::padding_label ? counts.padding : counts.masked);
    }
  }
  static_assert(sizeof(counts) == spec::batch_counts_bytes);
  std::memcpy(host_.data(), &counts, sizeof(counts));
  const int64_t bytes = bytes_of_counts + count * batch_bytes_;
  copy_->wait(taken_);
  copy_->upload(landing_.slice_rows(0, bytes), {host_.data(), static_cast<size_t>(bytes)});
  arrived_ = copy_->record();
}

void InputStaging::take(device::Stream& compute, int count) {
  device::wait_for(compute, arrived_, device::Wait::input);
  const int64_t bytes = bytes_of_counts + count * batch_bytes_;
  compute.copy_bytes(current_.slice_rows(0, bytes), landing_.slice_rows(0, bytes));
  taken_ = compute.record();
}

void InputStaging::take_counts(device::Stream& compute, device::Tensor to) {
  compute.copy_bytes(to, current_.slice_rows(0, to.bytes()));
}

int64_t InputStaging::own_pairs(int index) const {
  const std::vector<int64_t>& groups = pairs_[static_cast<size_t>(index)];
  if (!groups.empty()) return groups[static_cast<size_t>(own_group())] / split_.ulysses;
  const std::span<const int32_t> offsets = host_offsets(index);
  int64_t pairs = 0;
  for (size_t s = 0; s + 1 < offsets.size() && offsets[s] < split_.tokens(); ++s) {
    const int64_t rows = offsets[s + 1] - offsets[s];
    pairs += rows * (rows + 1) / 2;
  }
  return pairs / split_.cp();
}

void InputStaging::check(int index, const HostMicrobatch& batch) const {
  const auto refuse = [index](const char* what, size_t at, int64_t found, int64_t limit) {
    throw base::ConfigError(
        fmt::format("micro-batch {}: {} {} at token {} is out of range: allowed are 0 to {}", index,
                    what, found, at, limit - 1));
  };
  const auto tokens = static_cast<int32_t>(split_.tokens());
  for (size_t t = 0; t < batch.tokens.size(); ++t) {
    if (batch.tokens[t] < 0 || batch.tokens[t] >= vocab_) {
      refuse("token", t, batch.tokens[t], vocab_);
    }
    if (batch.labels[t] >= vocab_) refuse("label", t, batch.labels[t], vocab_);
    if (batch.positions[t] < 0 || batch.positions[t] >= shape_.seq_len) {
      refuse("position", t, batch.positions[t], shape_.seq_len);
    }
  }
  if (!shape_.has_documents) {
    for (size_t s = 0; s < batch.seq_offsets.size(); ++s) {
      const int64_t expected =
          std::min<int64_t>(static_cast<int64_t>(s) * shape_.seq_len, split_.tokens());
      if (batch.seq_offsets[s] == expected) continue;
      throw base::ConfigError(
          fmt::format("micro-batch {}: sequence {} starts at token {} instead of {}; document "
                      "boundaries inside "
                      "a sequence need a plan with document_mask",
                      index, s, batch.seq_offsets[s], expected));
    }
    return;
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
