// SPDX-License-Identifier: Apache-2.0
// The end of a step on the device: the decision (kernels/step_control.h), made by one thread,
// and one pass of AdamW over all parameters.
//
// AdamW reads gradient, master, m and v and writes master, m, v and the parameter: 30 bytes an
// element with fp32 gradients and bf16 parameters, 28 with all in fp32 or with split floats (which
// read the parameter, too). The squares of changes need no more of them: one conversion and one
// fp64 multiply-add an element, a fortieth of what a multiprocessor of an H200 computes in that
// time.
#include <type_traits>

#include "base/split_float.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/optimizer/change_squares.cuh"
#include "kernels/cuda/table_ops.h"
#include "kernels/step_control.h"
#include "kernels/step_state.h"

namespace trireme::kernels::cuda {
namespace {

// Flags lie in host memory: a read takes about a microsecond. Volatile, because it may not be
// cached.
__device__ bool is_raised(const volatile int32_t* flag, int32_t threshold) {
  return flag != nullptr && *flag >= threshold;
}

__global__ void step_control_kernel(StepSums* sums, StepState* state, StepControlArgs args,
                                    const int32_t* abort_flag) {
  close_step(*sums, *state, args, is_raised(abort_flag, 1));
}

__global__ void gate_kernel(const int32_t* flag, int32_t threshold, volatile int32_t* cell,
                            int32_t value) {
  if (is_raised(flag, threshold) && *cell < value) *cell = value;
}

struct Betas {
  float beta1, beta2, eps, weight_decay;
};

template <typename Param, typename Master, typename Grad>
struct Pass {
  Param* param;
  Master* master;  // float (the same as param if Param is float, too), or uint16_t: low parts
  float *m, *v;
  const Grad* grad;
  const StepState* state;
  int64_t count;
  CountedChanges changes;
};

// 1 / (1 - beta^t), which two threads compute for their block.
__device__ float correction(float beta, int64_t t) {
  return static_cast<float>(1 / (1 - pow(static_cast<double>(beta), static_cast<double>(t))));
}

constexpr int adamw_threads = 256;
constexpr int adamw_batch = 2;  // chunks of a thread in flight at one time

// W weights as stored.
template <typename Param, typename Master, int W>
struct Weights {
  static constexpr bool is_split = std::is_same_v<Master, uint16_t>;
  Chunk<Master, W> master;
  Chunk<Param, W> param;

  template <typename Grad>
  __device__ void load(const Pass<Param, Master, Grad>& pass, int64_t at, int64_t left) {
    master = Chunk<Master, W>::load(pass.master + at, left);
    if constexpr (is_split) param = Chunk<Param, W>::load(pass.param + at, left);
  }
  __device__ float get(int i) const {
    if constexpr (is_split) {
      const uint32_t packed = uint32_t{__bfloat16_as_ushort(param.at[i])} << 16U | master.at[i];
      return __uint_as_float(base::joined_bits(packed));
    } else {
      return master.at[i];
    }
  }
  __device__ void set(int i, float value) {
    if constexpr (is_split) {
      const uint32_t packed = base::split_bits(__float_as_uint(value));
      param.at[i] = __ushort_as_bfloat16(static_cast<uint16_t>(packed >> 16U));
      master.at[i] = static_cast<uint16_t>(packed);
    } else {
      master.at[i] = value;
      kernels::cuda::store(&param.at[i], value);
    }
  }
  template <typename Grad>
  __device__ void store(const Pass<Param, Master, Grad>& pass, int64_t at, int64_t left) const {
    master.store(pass.master + at, left);
    if constexpr (!std::is_same_v<Param, Master>) param.store(pass.param + at, left);
  }
};

// A thread's part of one batch: chunk k starts at element first + k * threads * W. Lanes are
// adjacent in every array, so that each load and store of a warp covers whole sectors.
template <typename Param, typename Master, typename Grad, int W>
struct Batch {
  Chunk<Grad, W> grad[adamw_batch];
  Weights<Param, Master, W> p[adamw_batch];
  Chunk<float, W> m[adamw_batch], v[adamw_batch];

  __device__ void load(const Pass<Param, Master, Grad>& pass, int64_t first) {
#pragma unroll
    for (int k = 0; k < adamw_batch; ++k) {
      const int64_t at = first + k * adamw_threads * W, left = pass.count - at;
      if (left >= W) {
        grad[k] = Chunk<Grad, W>::load(pass.grad + at);
        p[k].load(pass, at, W);
        m[k] = Chunk<float, W>::load(pass.m + at);
        v[k] = Chunk<float, W>::load(pass.v + at);
      } else if (left > 0) {
        grad[k] = Chunk<Grad, W>::load(pass.grad + at, left);
        p[k].load(pass, at, left);
        m[k] = Chunk<float, W>::load(pass.m + at, left);
        v[k] = Chunk<float, W>::load(pass.v + at, left);
      }
    }
  }
};

// At most 64 registers, so that 1,024 threads of a multiprocessor have 112 or more bytes each in
// flight. The first batch is requested before the state is read.
template <typename Param, typename Master, typename Grad, int W>
__global__ void __launch_bounds__(adamw_threads, 4)
    adamw_kernel(Pass<Param, Master, Grad> pass, Betas betas) {
  constexpr int64_t block_elements = adamw_batch * adamw_threads * W;
  const int64_t step = int64_t{gridDim.x} * block_elements;
  int64_t first = blockIdx.x * block_elements + static_cast<int>(threadIdx.x) * W;
  Batch<Param, Master, Grad, W> batch;
  batch.load(pass, first);
  if (pass.state->skip != 0) return;
  __shared__ float factors[2];
  if (threadIdx.x % warp_size == 0 && threadIdx.x < 2 * warp_size) {
    const bool is_first = threadIdx.x == 0;
    factors[is_first ? 0 : 1] =
        correction(is_first ? betas.beta1 : betas.beta2, pass.state->applied);
  }
  __syncthreads();
  const float m_factor = factors[0], v_factor = factors[1];
  const auto new_m = static_cast<float>(1 - static_cast<double>(betas.beta1));
  const auto new_v = static_cast<float>(1 - static_cast<double>(betas.beta2));
  const float rate = pass.state->learning_rate, scale = pass.state->grad_scale;

  double squares = 0;  // of the changes of this thread's weights that are counted
  while (first < pass.count) {
#pragma unroll
    for (int k = 0; k < adamw_batch; ++k) {
      const int64_t at = first + k * adamw_threads * W, left = pass.count - at;
      if (left <= 0) continue;
      const bool is_counted = at >= pass.changes.begin && at < pass.changes.end;
      Chunk<float, W>&m = batch.m[k], &v = batch.v[k];
#pragma unroll
      for (int i = 0; i < W; ++i) {
        const float g = load(&batch.grad[k].at[i]) * scale;
        m.at[i] = betas.beta1 * m.at[i] + new_m * g;
        v.at[i] = betas.beta2 * v.at[i] + new_v * (g * g);
        const float update = m.at[i] * m_factor / (sqrtf(v.at[i] * v_factor) + betas.eps);
        const float p = batch.p[k].get(i);
        const float next = p - rate * (update + betas.weight_decay * p);
        batch.p[k].set(i, next);
        if (!is_counted || i >= left) continue;
        const auto change = static_cast<double>(next - p);
        squares += change * change;
      }
      batch.p[k].store(pass, at, left);
      m.store(pass.m + at, left);
      v.store(pass.v + at, left);
    }
    first += step;
    batch.load(pass, first);
  }
  add_changes<adamw_threads>(pass.changes, squares);
}

template <typename Param, typename Master, typename Grad, int W>
void launch_adamw(Stream& stream, const Pass<Param, Master, Grad>& pass, const Betas& betas) {
  // As many blocks as run concurrently: each takes a microsecond to start (two powers).
  device::CudaStream& cuda = device::cuda_stream(stream);
  const int64_t resident = int64_t{4} * cuda.cuda_device().multiprocessors();
  const int64_t blocks = std::min(ceil_div(pass.count, W * adamw_batch * adamw_threads), resident);
  adamw_kernel<Param, Master, Grad, W>
      <<<static_cast<unsigned>(blocks), adamw_threads, 0, cuda.handle()>>>(pass, betas);
  check_launch("adamw");
}

bool is_aligned(const ConstTensor& t) { return reinterpret_cast<uintptr_t>(t.data) % 16 == 0; }

}  // namespace

void step_control(Stream& stream, const StepControlArgs& args) {
  step_control_kernel<<<1, 1, 0, device::cuda_stream(stream).handle()>>>(
      data<StepSums>(args.sums), data<StepState>(args.state), args, data<int32_t>(args.abort_flag));
  check_launch("step_control");
}

void gate(Stream& stream, const GateArgs& args) {
  gate_kernel<<<1, 1, 0, device::cuda_stream(stream).handle()>>>(
      data<int32_t>(args.flag), args.threshold, data<int32_t>(args.cell), args.value);
  check_launch("gate");
}

void adamw(Stream& stream, const AdamwArgs& args) {
  if (args.param.elements() == 0) return;
  const Tensor& master = args.master ? args.master : args.param;
  bool all_aligned = true;
  for (const ConstTensor& t : {ConstTensor(args.param), ConstTensor(master), ConstTensor(args.m),
                               ConstTensor(args.v), args.grad}) {
    TRIREME_CHECK(t.is_contiguous(), "adamw: a tensor of {} elements has stride {}", t.elements(),
                  t.row_stride);
    all_aligned = all_aligned && is_aligned(t);
  }
  const Betas betas = {args.beta1, args.beta2, args.eps, args.weight_decay};
  const auto run = [&]<typename Param, typename Master>(Param* param, Master* exact) {
    with_gradient_type(args.grad.dtype, [&](auto* grad_type) {
      using Grad = std::remove_pointer_t<decltype(grad_type)>;
      if constexpr (mixes_16_bits<Param, Grad>) return refuse_mixed_16_bits("adamw");
      const Pass<Param, Master, Grad> pass = {param,
                                              exact,
                                              data<float>(args.m),
                                              data<float>(args.v),
                                              data<Grad>(args.grad),
                                              data<StepState>(args.state),
                                              args.param.elements(),
                                              counted_changes(args.changes)};
      if (all_aligned) {
        launch_adamw<Param, Master, Grad, Vec<float>::width>(stream, pass, betas);
      } else {
        launch_adamw<Param, Master, Grad, 1>(stream, pass, betas);
      }
    });
  };
  if (master.dtype == base::DType::u16) {
    run(data<bf16>(args.param), data<uint16_t>(master));
    return;
  }
  with_real_type(args.param.dtype, [&](auto* type) {
    run(data<std::remove_pointer_t<decltype(type)>>(args.param), data<float>(master));
  });
}

}  // namespace trireme::kernels::cuda
