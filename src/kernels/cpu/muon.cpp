// SPDX-License-Identifier: Apache-2.0
// Muon's elementwise parts: momentum, division by the norm, and the update.
#include <algorithm>
#include <cmath>

#include "base/split_float.h"
#include "kernels/cpu/squares.h"
#include "kernels/cpu/table_ops.h"
#include "kernels/step_state.h"
#include "kernels/wide_sum.h"

namespace trireme::kernels::cpu {
namespace {

const StepState& state_of(const ConstTensor& tensor) {
  return *reinterpret_cast<const StepState*>(tensor.data);
}

void add_momentum(base::ThreadPool& pool, const MomentumArgs& args) {
  const StepState& state = state_of(args.state);
  const bool is_skipped = state.skip != 0;
  const float scale = state.grad_scale, mu = args.momentum;
  for_each_segment(pool, {1, args.m.elements()}, [&](const Segment& s) {
    float* u = floats_at(args.u, 0) + s.first;
    if (is_skipped) {
      std::fill_n(u, s.count, 0.0F);
      return;
    }
    SegmentBuffer grads;
    const float* grad = values_of(args.grad, s, grads);
    float* m = floats_at(args.m, 0) + s.first;
    if (args.nesterov) {
#pragma omp simd
      for (int64_t i = 0; i < s.count; ++i) {
        const float g = grad[i] * scale;
        m[i] = mu * m[i] + g;
        u[i] = g + mu * m[i];
      }
    } else {
#pragma omp simd
      for (int64_t i = 0; i < s.count; ++i) {
        m[i] = mu * m[i] + grad[i] * scale;
        u[i] = m[i];
      }
    }
  });
}

void divide_by_norm(base::ThreadPool& pool, const NormalizeArgs& args) {
  const double norm = std::sqrt(to_double(*reinterpret_cast<const WideSum*>(args.squares.data)));
  const bool is_finite = std::isfinite(norm);
  const auto factor = static_cast<float>(1 / std::max(norm, static_cast<double>(args.eps)));
  for_each_segment(pool, {1, args.d.elements()}, [&](const Segment& s) {
    float* d = floats_at(args.d, 0) + s.first;
#pragma omp simd
    for (int64_t i = 0; i < s.count; ++i) d[i] = is_finite ? d[i] * factor : 0;
  });
}

void move_along(base::ThreadPool& pool, const MuonArgs& args) {
  const StepState& state = state_of(args.state);
  if (state.skip != 0) return;
  const float rate = state.learning_rate, factor = args.factor, decay = args.weight_decay;
  const bool is_split = args.master && args.master.dtype == base::DType::u16;
  update_segments(pool, args.param.elements(), args.changes, [&](const Segment& s, float* changes) {
    SegmentBuffer joined;
    float* p = is_split ? joined : floats_at(args.master ? args.master : args.param, 0) + s.first;
    if (is_split) {
      base::join_floats(u16_at(args.param, s), u16_at(args.master, s), s.count, p);
    }
    if (changes != nullptr) std::copy_n(p, s.count, changes);
    const float* direction = floats_at(args.direction, 0) + s.first;
#pragma omp simd
    for (int64_t i = 0; i < s.count; ++i) {
      p[i] -= rate * (factor * direction[i] + decay * p[i]);
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

void momentum(Stream& stream, const MomentumArgs& args) { run_on(stream, args, add_momentum); }
void normalize(Stream& stream, const NormalizeArgs& args) { run_on(stream, args, divide_by_norm); }
void muon(Stream& stream, const MuonArgs& args) { run_on(stream, args, move_along); }

}  // namespace trireme::kernels::cpu
