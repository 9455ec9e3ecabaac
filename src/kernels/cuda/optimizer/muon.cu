// SPDX-License-Identifier: Apache-2.0
// Muon's elementwise parts: momentum, division by the norm, and the update. All are bound by
// memory; one element per thread, neighbours in neighbouring threads.
#include <algorithm>
#include <type_traits>

#include "base/split_float.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/optimizer/change_squares.cuh"
#include "kernels/cuda/table_ops.h"
#include "kernels/step_state.h"
#include "kernels/wide_sum.h"

namespace trireme::kernels::cuda {
namespace {

constexpr int threads = 256;

// Calls body(element) for every element of this thread.
template <typename Body>
__device__ void for_each_element(int64_t count, const Body& body) {
  const int64_t step = int64_t{gridDim.x} * threads;
  for (int64_t i = int64_t{blockIdx.x} * threads + static_cast<int>(threadIdx.x); i < count;
       i += step) {
    body(i);
  }
}

template <typename Grad>
__global__ void momentum_kernel(float* m, float* u, const Grad* grad, const StepState* state,
                                int64_t count, float mu, bool nesterov) {
  const bool is_skipped = state->skip != 0;
  const float scale = state->grad_scale;
  for_each_element(count, [&](int64_t i) {
    if (is_skipped) {
      u[i] = 0;
      return;
    }
    const float g = load(&grad[i]) * scale;
    const float next = mu * m[i] + g;
    m[i] = next;
    u[i] = nesterov ? g + mu * next : next;
  });
}

__global__ void normalize_kernel(float* d, const WideSum* squares, int64_t count, float eps) {
  __shared__ float factor;
  if (threadIdx.x == 0) {
    const double norm = sqrt(to_double(*squares));
    factor = isfinite(norm) ? static_cast<float>(1 / fmax(norm, static_cast<double>(eps))) : 0;
  }
  __syncthreads();
  for_each_element(count, [&](int64_t i) { d[i] = factor == 0 ? 0 : d[i] * factor; });
}

template <typename Param, typename Master>
__global__ void muon_kernel(Param* param, Master* master, const float* direction,
                            const StepState* state, int64_t count, float factor, float decay,
                            CountedChanges changes) {
  if (state->skip != 0) return;
  const float rate = state->learning_rate;
  double squares = 0;
  for_each_element(count, [&](int64_t i) {
    constexpr bool is_split = std::is_same_v<Master, uint16_t>;
    float p = 0;
    if constexpr (is_split) {
      const uint32_t packed = uint32_t{__bfloat16_as_ushort(param[i])} << 16U | master[i];
      p = __uint_as_float(base::joined_bits(packed));
    } else {
      p = master[i];
    }
    const float before = p;
    p -= rate * (factor * direction[i] + decay * p);
    if (i >= changes.begin && i < changes.end) {
      const auto change = static_cast<double>(p - before);
      squares += change * change;
    }
    if constexpr (is_split) {
      const uint32_t packed = base::split_bits(__float_as_uint(p));
      param[i] = __ushort_as_bfloat16(static_cast<uint16_t>(packed >> 16U));
      master[i] = static_cast<uint16_t>(packed);
    } else {
      master[i] = p;
      if constexpr (!std::is_same_v<Param, Master>) store(&param[i], p);
    }
  });
  add_changes<threads>(changes, squares);
}

unsigned blocks_for(Stream& stream, int64_t count) {
  constexpr int64_t blocks_by_multiprocessor = 8;
  const int64_t resident =
      blocks_by_multiprocessor * device::cuda_stream(stream).cuda_device().multiprocessors();
  return static_cast<unsigned>(std::min(ceil_div(count, threads), resident));
}

cudaStream_t handle_of(Stream& stream) { return device::cuda_stream(stream).handle(); }

}  // namespace

void momentum(Stream& stream, const MomentumArgs& args) {
  const int64_t count = args.m.elements();
  if (count == 0) return;
  with_gradient_type(args.grad.dtype, [&](auto* type) {
    using Grad = std::remove_pointer_t<decltype(type)>;
    momentum_kernel<<<blocks_for(stream, count), threads, 0, handle_of(stream)>>>(
        data<float>(args.m), data<float>(args.u), data<Grad>(args.grad),
        data<StepState>(args.state), count, args.momentum, args.nesterov);
  });
  check_launch("momentum");
}

void normalize(Stream& stream, const NormalizeArgs& args) {
  const int64_t count = args.d.elements();
  if (count == 0) return;
  normalize_kernel<<<blocks_for(stream, count), threads, 0, handle_of(stream)>>>(
      data<float>(args.d), data<WideSum>(args.squares), count, args.eps);
  check_launch("normalize");
}

void muon(Stream& stream, const MuonArgs& args) {
  const int64_t count = args.param.elements();
  if (count == 0) return;
  const auto run = [&]<typename Param, typename Master>(Param* param, Master* master) {
    muon_kernel<<<blocks_for(stream, count), threads, 0, handle_of(stream)>>>(
        param, master, data<float>(args.direction), data<StepState>(args.state), count, args.factor,
        args.weight_decay, counted_changes(args.changes));
    check_launch("muon");
  };
  const Tensor& master = args.master ? args.master : args.param;
  if (master.dtype == base::DType::u16) {
    run(data<bf16>(args.param), data<uint16_t>(master));
    return;
  }
  with_real_type(args.param.dtype, [&](auto* type) {
    run(data<std::remove_pointer_t<decltype(type)>>(args.param), data<float>(master));
  });
}

}  // namespace trireme::kernels::cuda
