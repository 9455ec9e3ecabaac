// SPDX-License-Identifier: Apache-2.0
#include "tests/verify/faulty_kernels.h"

#include <functional>

#include "device/cpu/cpu_device.h"
#include "kernels/step_state.h"

namespace trireme::tests {
namespace {

using namespace kernels;

template <typename Work>
void after(Stream& stream, Work work) {
  dynamic_cast<device::CpuStream&>(stream).enqueue(std::move(work));
}

StepSums* sums_at(const Tensor& tensor) { return reinterpret_cast<StepSums*>(tensor.data); }

Kernels changed(void (*change)(Kernels&)) {
  Kernels table = cpu_kernels();
  change(table);
  return table;
}

void double_squares(const Tensor& sums) {
  for (int64_t& limb : sums_at(sums)->squares.limb) limb *= 2;
}

}  // namespace

const Kernels& norm_counted_twice() {
  static const Kernels table = changed([](Kernels& k) {
    k.merge_sums = [](Stream& s, const MergeSumsArgs& a) {
      cpu_kernels().merge_sums(s, a);
      after(s, [sums = a.sums] { double_squares(sums); });
    };
  });
  return table;
}

const Kernels& tokens_counted_twice() {
  static const Kernels table = changed([](Kernels& k) {
    k.merge_sums = [](Stream& s, const MergeSumsArgs& a) {
      cpu_kernels().merge_sums(s, a);
      after(s, [sums = a.sums] { sums_at(sums)->tokens *= 2; });
    };
  });
  return table;
}

const Kernels& first_sums_counted_again() {
  static const Kernels table = changed([](Kernels& k) {
    k.merge_sums = [](Stream& s, const MergeSumsArgs& a) {
      for (int64_t part = 1; part < a.parts.rows(); ++part) {
        const ConstTensor first = a.parts.slice_rows(0, 1), other = a.parts.slice_rows(part, 1);
        after(s, [first, other] {
          std::copy_n(first.data, first.bytes(), const_cast<std::byte*>(other.data));
        });
      }
      cpu_kernels().merge_sums(s, a);
    };
  });
  return table;
}

const Kernels& squares_counted_twice() {
  static const Kernels table = changed([](Kernels& k) {
    k.sum_squares = [](Stream& s, const SumSquaresArgs& a) {
      cpu_kernels().sum_squares(s, a);
      cpu_kernels().sum_squares(s, a);
    };
  });
  return table;
}

const Kernels& accumulate_overwrites() {
  static const Kernels table = changed([](Kernels& k) {
    k.accumulate = [](Stream& s, const AccumulateArgs& a) {
      cpu_kernels().copy(s, {.x = a.x, .d = a.d});
    };
  });
  return table;
}

const Kernels& adamw_does_nothing() {
  static const Kernels table =
      changed([](Kernels& k) { k.adamw = [](Stream&, const AdamwArgs&) {}; });
  return table;
}

const Kernels& fill_leaves_gradients() {
  static const Kernels table = changed([](Kernels& k) {
    k.fill = [](Stream& s, const FillArgs& a) {
      constexpr int64_t few = 64;
      const bool is_gradient =
          a.value == 0 && a.d.dtype == base::DType::f32 && a.d.elements() > few;
      if (!is_gradient) cpu_kernels().fill(s, a);
    };
  });
  return table;
}

const Kernels& gemm_forgets_beta() {
  static const Kernels table = changed([](Kernels& k) {
    k.gemm = [](Stream& s, const GemmArgs& a) {
      GemmArgs wrong = a;
      wrong.beta = 0;
      cpu_kernels().gemm(s, wrong);
    };
  });
  return table;
}

const Kernels& weight_gradients_left_out() {
  static const Kernels table = changed([](Kernels& k) {
    k.gemm = [](Stream& s, const GemmArgs& a) {
      if (!a.trans_a) cpu_kernels().gemm(s, a);
    };
  });
  return table;
}

const Kernels& embedding_one_row_off() {
  static const Kernels table = changed([](Kernels& k) {
    k.embedding_forward = [](Stream& s, const EmbeddingForwardArgs& a) {
      EmbeddingForwardArgs wrong = a;
      ++wrong.first_row;
      cpu_kernels().embedding_forward(s, wrong);
    };
  });
  return table;
}

const Kernels& embedding_grad_one_row_off() {
  static const Kernels table = changed([](Kernels& k) {
    k.embedding_backward = [](Stream& s, const EmbeddingBackwardArgs& a) {
      EmbeddingBackwardArgs wrong = a;
      ++wrong.first_row;
      cpu_kernels().embedding_backward(s, wrong);
    };
  });
  return table;
}

const Kernels& stats_one_column_off() {
  static const Kernels table = changed([](Kernels& k) {
    k.cross_entropy_stats = [](Stream& s, const CrossEntropyStatsArgs& a) {
      CrossEntropyStatsArgs wrong = a;
      ++wrong.first_column;
      cpu_kernels().cross_entropy_stats(s, wrong);
    };
  });
  return table;
}

const Kernels& grad_one_column_off() {
  static const Kernels table = changed([](Kernels& k) {
    k.cross_entropy_grad = [](Stream& s, const CrossEntropyGradArgs& a) {
      CrossEntropyGradArgs wrong = a;
      ++wrong.first_column;
      cpu_kernels().cross_entropy_grad(s, wrong);
    };
  });
  return table;
}

const Kernels& accumulate_adds_twice() {
  static const Kernels table = changed([](Kernels& k) {
    k.accumulate = [](Stream& s, const AccumulateArgs& a) {
      cpu_kernels().accumulate(s, a);
      cpu_kernels().accumulate(s, a);
    };
  });
  return table;
}

const Kernels& first_stats_for_all() {
  static const Kernels table = changed([](Kernels& k) {
    k.cross_entropy_merge = [](Stream& s, const CrossEntropyMergeArgs& a) {
      cpu_kernels().copy(s, {.x = a.parts.slice_rows(0, a.stats.rows()), .d = a.stats});
    };
  });
  return table;
}

const Kernels& copies_counted_apart() {
  static const Kernels table = changed([](Kernels& k) {
    k.merge_sums = [](Stream& s, const MergeSumsArgs& a) {
      MergeSumsArgs wrong = a;
      wrong.copies = 1;
      cpu_kernels().merge_sums(s, wrong);
    };
  });
  return table;
}

}  // namespace trireme::tests
