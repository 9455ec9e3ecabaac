// SPDX-License-Identifier: Apache-2.0
#include "tests/verify/context_kernels.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <vector>

#include "device/cpu/cpu_device.h"
#include "kernels/step_state.h"

namespace trireme::tests {
namespace {

using namespace kernels;

template <typename Work>
void queue(Stream& stream, Work work) {
  dynamic_cast<device::CpuStream&>(stream).enqueue(std::move(work));
}

Kernels wrong_table(void (*change)(Kernels&)) {
  Kernels table = cpu_kernels();
  change(table);
  return table;
}

std::span<int32_t> integers_of(const ConstTensor& tensor) {
  return {reinterpret_cast<int32_t*>(const_cast<std::byte*>(tensor.data)),
          static_cast<size_t>(tensor.elements())};
}

// Queues `work` while `change` is applied to integers, which have their old values afterwards.
template <typename Change, typename Work>
void with_integers(Stream& stream, const ConstTensor& tensor, Change change, Work work) {
  // Shared by two queued calls.
  auto before = std::make_shared<std::vector<int32_t>>();
  const std::span<int32_t> values = integers_of(tensor);
  queue(stream, [=] {
    before->assign(values.begin(), values.end());
    change(values);
  });
  work();
  queue(stream, [=] { std::copy(before->begin(), before->end(), values.begin()); });
}

void one_less(std::span<int32_t> ends) {
  for (int32_t& end : ends) end = std::max(end - 1, 0);
}
void zero(std::span<int32_t> begins) { std::fill(begins.begin(), begins.end(), 0); }
void count_up(std::span<int32_t> positions) { std::iota(positions.begin(), positions.end(), 0); }
void rotate(std::span<int32_t> values) {
  std::rotate(values.begin(), values.begin() + 1, values.end());
}
void reverse(std::span<int32_t> values) { std::reverse(values.begin(), values.end()); }

void forward_without_chunks(Stream& s, AttentionRangesForwardArgs args) {
  args.chunks = {};
  cpu_kernels().attention_ranges_forward(s, args);
}
void backward_without_chunks(Stream& s, AttentionRangesBackwardArgs args) {
  args.chunks = {};
  cpu_kernels().attention_ranges_backward(s, args);
}

// Exchanges the first two heads of every row.
void swap_heads(Stream& s, const ConstTensor& x) {
  queue(s, [x] {
    const int64_t bytes = x.shape[2] * base::size_of(x.dtype);
    for (int64_t row = 0; row < x.rows(); ++row) {
      std::byte* first = const_cast<std::byte*>(x.slice_rows(row, 1).data);
      std::swap_ranges(first, first + bytes, first + bytes);
    }
  });
}

}  // namespace

const Kernels& last_key_left_out() {
  static const Kernels table = wrong_table([](Kernels& k) {
    k.attention_ranges_forward = [](Stream& s, const AttentionRangesForwardArgs& a) {
      with_integers(s, a.key_end, one_less, [&] { forward_without_chunks(s, a); });
    };
  });
  return table;
}

const Kernels& last_key_left_out_of_grad() {
  static const Kernels table = wrong_table([](Kernels& k) {
    k.attention_ranges_backward = [](Stream& s, const AttentionRangesBackwardArgs& a) {
      with_integers(s, a.key_end, one_less, [&] { backward_without_chunks(s, a); });
    };
  });
  return table;
}

const Kernels& documents_ignored() {
  static const Kernels table = wrong_table([](Kernels& k) {
    k.attention_ranges_forward = [](Stream& s, const AttentionRangesForwardArgs& a) {
      with_integers(s, a.key_begin, zero, [&] { forward_without_chunks(s, a); });
    };
    k.attention_ranges_backward = [](Stream& s, const AttentionRangesBackwardArgs& a) {
      with_integers(s, a.key_begin, zero, [&] { backward_without_chunks(s, a); });
    };
  });
  return table;
}

const Kernels& merge_adds_plainly() {
  static const Kernels table = wrong_table([](Kernels& k) {
    k.attention_merge = [](Stream& s, const AttentionMergeArgs& a) {
      cpu_kernels().accumulate(s, {.x = a.part.as_matrix(), .d = a.o.as_matrix()});
    };
  });
  return table;
}

const Kernels& merge_leaves_lse() {
  static const Kernels table = wrong_table([](Kernels& k) {
    k.attention_merge = [](Stream& s, const AttentionMergeArgs& a) {
      // Shared by two queued calls.
      auto before = std::make_shared<std::vector<std::byte>>();
      const Tensor lse = a.lse;
      queue(s, [=] { before->assign(lse.data, lse.data + lse.bytes()); });
      cpu_kernels().attention_merge(s, a);
      queue(s, [=] { std::copy(before->begin(), before->end(), lse.data); });
    };
  });
  return table;
}

const Kernels& keys_in_order_of_ranks() {
  static const Kernels table = wrong_table([](Kernels& k) {
    k.scatter_rows = [](Stream& s, const ScatterRowsArgs& a) {
      cpu_kernels().copy(s, {.x = a.x, .d = a.d});
    };
  });
  return table;
}

const Kernels& key_grads_in_order_of_rows() {
  static const Kernels table = wrong_table([](Kernels& k) {
    k.gather_rows = [](Stream& s, const GatherRowsArgs& a) {
      cpu_kernels().copy(s, {.x = a.x, .d = a.d});
    };
  });
  return table;
}

const Kernels& positions_of_the_slice() {
  static const Kernels table = wrong_table([](Kernels& k) {
    k.rope_forward = [](Stream& s, const RopeForwardArgs& a) {
      with_integers(s, a.positions, count_up, [&] { cpu_kernels().rope_forward(s, a); });
    };
  });
  return table;
}

const Kernels& grad_positions_of_the_slice() {
  static const Kernels table = wrong_table([](Kernels& k) {
    k.rope_backward = [](Stream& s, const RopeBackwardArgs& a) {
      with_integers(s, a.positions, count_up, [&] { cpu_kernels().rope_backward(s, a); });
    };
  });
  return table;
}

const Kernels& labels_shifted() {
  static const Kernels table = wrong_table([](Kernels& k) {
    k.cross_entropy = [](Stream& s, const CrossEntropyArgs& a) {
      with_integers(s, a.labels, rotate, [&] { cpu_kernels().cross_entropy(s, a); });
    };
  });
  return table;
}

const Kernels& tokens_reversed() {
  static const Kernels table = wrong_table([](Kernels& k) {
    k.embedding_forward = [](Stream& s, const EmbeddingForwardArgs& a) {
      with_integers(s, a.tokens, reverse, [&] { cpu_kernels().embedding_forward(s, a); });
    };
  });
  return table;
}

const Kernels& key_heads_swapped() {
  static const Kernels table = wrong_table([](Kernels& k) {
    k.attention_forward = [](Stream& s, const AttentionForwardArgs& a) {
      for (const ConstTensor& x : {a.k, a.v}) swap_heads(s, x);
      cpu_kernels().attention_forward(s, a);
      for (const ConstTensor& x : {a.k, a.v}) swap_heads(s, x);
    };
  });
  return table;
}

const Kernels& slices_counted_as_samples() {
  static const Kernels table = wrong_table([](Kernels& k) {
    k.merge_sums = [](Stream& s, const MergeSumsArgs& a) {
      MergeSumsArgs wrong = a;
      wrong.slices = 1;
      cpu_kernels().merge_sums(s, wrong);
    };
  });
  return table;
}

const Kernels& one_slice_counted() {
  static const Kernels table = wrong_table([](Kernels& k) {
    k.merge_sums = [](Stream& s, const MergeSumsArgs& a) {
      queue(s, [a] {
        for (int64_t part = 0; part < a.parts.rows(); ++part) {
          if (part / a.copies % a.slices == 0) continue;
          const ConstTensor at = a.parts.slice_rows(part, 1);
          auto* sums = reinterpret_cast<StepSums*>(const_cast<std::byte*>(at.data));
          sums->loss = 0;
          sums->tokens = 0;
        }
      });
      cpu_kernels().merge_sums(s, a);
    };
  });
  return table;
}

}  // namespace trireme::tests
