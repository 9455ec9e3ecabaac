// SPDX-License-Identifier: Apache-2.0
// The end of a step: sums of squares, the decision (kernels/step_control.h) and one pass of
// AdamW.
#include <atomic>
#include <cmath>

#include "base/split_float.h"
#include "kernels/cpu/segment.h"
#include "kernels/cpu/table_ops.h"
#include "kernels/step_control.h"
#include "kernels/step_records.h"
#include "kernels/step_state.h"
#include "kernels/wide_sum.h"

namespace trireme::kernels::cpu {
namespace {

static_assert(max_segment % WideSum::block_elements == 0);
static_assert(task_elements % max_segment == 0);
constexpr int64_t blocks_per_segment = max_segment / WideSum::block_elements;

// A block is summed from left to right, which is one chain of additions; the blocks of a segment
// run side by side.
void add_squares_of(const float* x, int64_t count, WideSum& sum) {
  constexpr int64_t block = WideSum::block_elements;
  double block_sums[blocks_per_segment] = {};
  if (count == max_segment) {
    for (int64_t i = 0; i < block; ++i) {
      for (int64_t b = 0; b < blocks_per_segment; ++b) {
        const auto value = static_cast<double>(x[b * block + i]);
        block_sums[b] += value * value;
      }
    }
  } else {
    for (int64_t i = 0; i < count; ++i) {
      const auto value = static_cast<double>(x[i]);
      block_sums[i / block] += value * value;
    }
  }
  for (const double block_sum : block_sums) add_block_sum(sum, block_sum);
}

// Threads add at the same time; integer sums have no order.
void add_atomically(const WideSum& from, WideSum& to) {
  for (int i = 0; i < WideSum::limbs; ++i) {
    if (from.limb[i] != 0) std::atomic_ref(to.limb[i]).fetch_add(from.limb[i]);
  }
  if (from.not_finite != 0) std::atomic_ref(to.not_finite).fetch_add(from.not_finite);
}

void add_squares(base::ThreadPool& pool, const SumSquaresArgs& args) {
  auto& squares = *reinterpret_cast<WideSum*>(args.squares.data);
  const int64_t count = args.x.elements();
  pool.for_each(divide_up(count, task_elements), [&](int64_t task) {
    WideSum sum{};
    SegmentBuffer buffer;
    const int64_t end = std::min(count, (task + 1) * task_elements);
    for (int64_t first = task * task_elements; first < end; first += max_segment) {
      const Segment s = {0, first, std::min(max_segment, end - first)};
      add_squares_of(values_of(args.x, s, buffer), s.count, sum);
    }
    add_atomically(sum, squares);
  });
}

void update(base::ThreadPool& pool, const AdamwArgs& args) {
  const auto& state = *reinterpret_cast<const StepState*>(args.state.data);
  if (state.skip != 0) return;
  const auto b1 = static_cast<double>(args.beta1), b2 = static_cast<double>(args.beta2);
  const auto steps = static_cast<double>(state.applied);
  const auto m_factor = static_cast<float>(1 / (1 - std::pow(b1, steps)));
  const auto v_factor = static_cast<float>(1 / (1 - std::pow(b2, steps)));
  const auto new_m = static_cast<float>(1 - b1), new_v = static_cast<float>(1 - b2);
  const float beta1 = args.beta1, beta2 = args.beta2, eps = args.eps, decay = args.weight_decay;
  const float rate = state.learning_rate, scale = state.grad_scale;

  const bool is_split = args.master && args.master.dtype == base::DType::u16;
  for_each_segment(pool, {1, args.param.elements()}, [&](const Segment& s) {
    SegmentBuffer grads, joined;
    const float* grad = values_of(args.grad, s, grads);
    float* p = is_split ? joined : floats_at(args.master ? args.master : args.param, 0) + s.first;
    if (is_split) {
      base::join_floats(u16_at(args.param, s), u16_at(args.master, s), s.count, p);
    }
    float* m = floats_at(args.m, 0) + s.first;
    float* v = floats_at(args.v, 0) + s.first;
#pragma omp simd
    for (int64_t i = 0; i < s.count; ++i) {
      const float g = grad[i] * scale;
      m[i] = beta1 * m[i] + new_m * g;
      v[i] = beta2 * v[i] + new_v * (g * g);
      const float step = m[i] * m_factor / (std::sqrt(v[i] * v_factor) + eps);
      p[i] -= rate * (step + decay * p[i]);
    }
    if (is_split) {
      base::split_floats(p, s.count, u16_at(args.param, s), u16_at(args.master, s));
    } else if (args.master) {
      store(args.param, s, p);
    }
  });
}

}  // namespace

void sum_squares(Stream& stream, const SumSquaresArgs& args) { run_on(stream, args, add_squares); }

void merge_sums(Stream& stream, const MergeSumsArgs& args) {
  run_on(stream, args, [](base::ThreadPool&, const MergeSumsArgs& a) {
    *reinterpret_cast<StepSums*>(a.sums.data) =
        merged(Records{a.parts.data, a.parts.cols(), a.parts.rows(), a.copies, a.slices});
  });
}

void add_layers(Stream& stream, const AddLayersArgs& args) {
  run_on(stream, args, [](base::ThreadPool&, const AddLayersArgs& a) {
    auto* squares = reinterpret_cast<WideSum*>(a.squares.data);
    const int64_t layers = a.squares.rows() - 1;
    WideSum& total = reinterpret_cast<StepSums*>(a.record.data)->squares;
    auto* by_layer = reinterpret_cast<double*>(a.record.data + spec::step_record_bytes(0));
    for (int64_t layer = 0; layer < layers; ++layer) {
      add_limbs(total, squares[layer]);
      by_layer[layer] = to_double(squares[layer]);
    }
    reinterpret_cast<StepCounts*>(a.record.data + sizeof(StepSums))->update_squares =
        to_double(squares[layers]);
    std::fill_n(squares, layers + 1, WideSum{});
  });
}

void merge_records(Stream& stream, const MergeRecordsArgs& args) {
  run_on(stream, args, [](base::ThreadPool&, const MergeRecordsArgs& a) {
    const Records parts{a.parts.data, a.parts.cols(), a.parts.rows(), a.copies, a.slices};
    const int64_t data_ranks = parts.data_ranks();
    const Totals totals = totals_at(a.totals.data, data_ranks);
    *totals.counts = merged_counts(parts);
    for (int64_t rank = 0; rank < data_ranks; ++rank)
      totals.losses[rank] = merged_loss(parts, rank);
    for (int64_t layer = 0; layer < layers_of_record(parts.bytes); ++layer) {
      totals.squares[layer] = merged_squares(parts, layer);
    }
  });
}

void step_control(Stream& stream, const StepControlArgs& args) {
  run_on(stream, args, [](base::ThreadPool&, const StepControlArgs& a) {
    close_step(*reinterpret_cast<StepSums*>(a.sums.data),
               *reinterpret_cast<StepState*>(a.state.data), a);
  });
}

void adamw(Stream& stream, const AdamwArgs& args) { run_on(stream, args, update); }

}  // namespace trireme::kernels::cpu
