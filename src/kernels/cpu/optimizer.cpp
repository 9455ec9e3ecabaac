// SPDX-License-Identifier: Apache-2.0
// The end of a step: the records of ranks, the decision (kernels/step_control.h) and one pass of
// AdamW.
#include <algorithm>
#include <cmath>

#include "base/split_float.h"
#include "kernels/cpu/host_flag.h"
#include "kernels/cpu/squares.h"
#include "kernels/cpu/table_ops.h"
#include "kernels/step_control.h"
#include "kernels/step_records.h"
#include "kernels/step_state.h"
#include "kernels/wide_sum.h"

namespace trireme::kernels::cpu {
namespace {

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
  update_segments(pool, args.param.elements(), args.changes, [&](const Segment& s, float* changes) {
    SegmentBuffer grads, joined;
    const float* grad = values_of(args.grad, s, grads);
    float* p = is_split ? joined : floats_at(args.master ? args.master : args.param, 0) + s.first;
    if (is_split) {
      base::join_floats(u16_at(args.param, s), u16_at(args.master, s), s.count, p);
    }
    if (changes != nullptr) std::copy_n(p, s.count, changes);
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
    if (changes != nullptr) {
#pragma omp simd
      for (int64_t i = 0; i < s.count; ++i) changes[i] = p[i] - changes[i];
    }
    if (is_split) {
      base::split_floats(p, s.count, u16_at(args.param, s), u16_at(args.master, s));
    } else if (args.master) {
      store(args.param, s, p);
    }
  });
}

}  // namespace

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
               *reinterpret_cast<StepState*>(a.state.data), a, is_raised(a.abort_flag, 1));
  });
}

void gate(Stream& stream, const GateArgs& args) {
  run_on(stream, args, [](base::ThreadPool&, const GateArgs& a) { pass_gate(a); });
}

void adamw(Stream& stream, const AdamwArgs& args) { run_on(stream, args, update); }

}  // namespace trireme::kernels::cpu
