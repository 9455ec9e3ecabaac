// SPDX-License-Identifier: Apache-2.0
// y = silu(gate) up, silu(x) = x sigmoid(x);  y = gelu(x);  limits.
#include "kernels/cpu/quantize/amax.h"
#include "kernels/cpu/segment.h"
#include "kernels/cpu/table_ops.h"
#include "kernels/cpu/vector_math.h"

namespace trireme::kernels::cpu {
namespace {

void swiglu(const float* gate, const float* up, float* y, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) y[i] = gate[i] * sigmoid_of(gate[i]).value * up[i];
}

}  // namespace

void swiglu_forward(Stream& stream, const SwigluForwardArgs& args) {
  run_on(stream, args, [](base::ThreadPool& pool, const SwigluForwardArgs& a) {
    const int64_t F = a.y.cols();
    for_each_segment(pool, {a.y.rows(), F}, [&](const Segment& s) {
      SegmentBuffer gates, ups, results;
      const float* gate = values_of(a.gate_up, s, gates);
      const float* up = values_of(a.gate_up, {s.row, F + s.first, s.count}, ups);
      float* y = place_for(a.y, s, results);
      swiglu(gate, up, y, s.count);
      store(a.y, s, y);
      raise_by(a.amax, a.y, s);
    });
  });
}

// silu'(x) = s (1 + x (1 - s)), s = sigmoid(x).
void swiglu_backward(Stream& stream, const SwigluBackwardArgs& args) {
  run_on(stream, args, [](base::ThreadPool& pool, const SwigluBackwardArgs& a) {
    const int64_t F = a.dy.cols();
    for_each_segment(pool, {a.dy.rows(), F}, [&](const Segment& s) {
      const Segment up_segment = {s.row, F + s.first, s.count};
      SegmentBuffer gates, ups, dys, dgates, dups;
      const float* gate = values_of(a.gate_up, s, gates);
      const float* up = values_of(a.gate_up, up_segment, ups);
      const float* dy = values_of(a.dy, s, dys);
      if (a.y) {  // before gate and up may be overwritten
        float* y = place_for(a.y, s, dgates);
        swiglu(gate, up, y, s.count);
        store(a.y, s, y);
      }
      float* dgate = place_for(a.dgate_up, s, dgates);
      float* dup = place_for(a.dgate_up, up_segment, dups);
#pragma omp simd
      for (int64_t i = 0; i < s.count; ++i) {
        const float x = gate[i], grad = dy[i], u = up[i];
        const Sigmoid sigmoid = sigmoid_of(x);
        dgate[i] = grad * u * sigmoid.value * (1.0F + x * sigmoid.complement);
        dup[i] = grad * x * sigmoid.value;
      }
      store(a.dgate_up, s, dgate);
      store(a.dgate_up, up_segment, dup);
      raise_by(a.amax, a.dgate_up, s);
      raise_by(a.amax, a.dgate_up, up_segment);
    });
  });
}

void gelu_forward(Stream& stream, const GeluForwardArgs& args) {
  run_on(stream, args, [](base::ThreadPool& pool, const GeluForwardArgs& a) {
    for_each_segment(pool, common_extent(a.x, a.y), [&](const Segment& s) {
      SegmentBuffer xs, ys;
      const float* x = values_of(a.x, s, xs);
      float* y = place_for(a.y, s, ys);
#pragma omp simd
      for (int64_t i = 0; i < s.count; ++i) y[i] = gelu_of(x[i]);
      store(a.y, s, y);
      raise_by(a.amax, a.y, s);
    });
  });
}

void clamp(Stream& stream, const ClampArgs& args) {
  run_on(stream, args, [](base::ThreadPool& pool, const ClampArgs& a) {
    const float limit = a.limit;
    const bool is_flat = !a.dy || a.dy.is_contiguous();
    const Extent extent = is_flat ? common_extent(a.x, a.y) : Extent{a.x.rows(), a.x.cols()};
    for_each_segment(pool, extent, [&](const Segment& s) {
      SegmentBuffer xs, dys, ys;
      const float* x = values_of(a.x, s, xs);
      float* y = place_for(a.y, s, ys);
      if (a.dy) {
        const float* dy = values_of(a.dy, s, dys);
        for (int64_t i = 0; i < s.count; ++i) {
          y[i] = x[i] >= -limit && x[i] <= limit ? dy[i] : 0.0F;
        }
      } else {
        for (int64_t i = 0; i < s.count; ++i) {
          y[i] = x[i] < -limit ? -limit : x[i] > limit ? limit : x[i];
        }
      }
      store(a.y, s, y);
    });
  });
}

}  // namespace trireme::kernels::cpu
