// SPDX-License-Identifier: Apache-2.0
// d[rows[t]] = x[t], d[t] = x[rows[t]], and o = softmax(scale q k^T) v over cached keys and values.
//
// A block takes one head of a query and a range of cached tokens (spec::cached_split_tokens): heads
// that share a key head read it from the L2 cache, and a step with few queries still has blocks for
// all multiprocessors. Its warps take a few tokens in turn and keep the highest score m,
// the sum l of exp(score - m) and the weighted sum of values (online softmax). The results of warps
// are merged in a fixed order, and those of ranges by a second kernel, so that bits do not depend
// on the other queries.
#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/table_ops.h"
#include "kernels/cuda/values.cuh"
#include "spec/facts/backend.h"

namespace trireme::kernels::cuda {
namespace {

// ---- scatter_rows and gather_rows

// A block for each element of rows. It moves row t of x to row rows[t] of d, or the other way
// round.
template <typename Unit, bool gathers>
__global__ void move_rows_kernel(const Unit* x, int64_t x_stride, const int32_t* rows, Unit* d,
                                 int64_t d_stride, int64_t units) {
  const int64_t t = blockIdx.x, row = rows[t];
  if (row < 0) return;
  const Unit* from = x + (gathers ? row : t) * x_stride;
  Unit* to = d + (gathers ? t : row) * d_stride;
  for (int64_t i = threadIdx.x; i < units; i += blockDim.x) to[i] = from[i];
}

template <bool gathers, typename Unit, typename Args>
void move_rows_by(const Args& args, cudaStream_t stream) {
  const int64_t size = base::size_of(args.x.dtype), unit = sizeof(Unit);
  const int64_t units = args.x.cols() * size / unit;
  move_rows_kernel<Unit, gathers>
      <<<grid_of(args.rows.rows()), static_cast<unsigned>(std::clamp<int64_t>(units, 32, 256)), 0,
         stream>>>(data<Unit>(args.x), args.x.row_stride * size / unit, data<int32_t>(args.rows),
                   data<Unit>(args.d), args.d.row_stride * size / unit, units);
}

template <bool gathers, typename Args>
void move_rows(Stream& stream, const Args& args, const char* op) {
  if (args.rows.rows() == 0 || args.x.cols() == 0) return;
  cudaStream_t handle = device::cuda_stream(stream).handle();
  if (is_vectorisable(args.x) && is_vectorisable(args.d)) {
    move_rows_by<gathers, uint4>(args, handle);
  } else if (base::size_of(args.x.dtype) == 4) {
    move_rows_by<gathers, uint32_t>(args, handle);
  } else {
    move_rows_by<gathers, uint16_t>(args, handle);
  }
  check_launch(op);
}

// ---- attention_cached

constexpr int attention_warps = 4;
constexpr int tokens_at_once = 4;  // of a warp
constexpr int max_head_dim = 256;

struct CachedArgs {
  const void* q;
  const void* cache;
  const int32_t* first_rows;
  const int32_t* lengths;
  void* o;
  float* partials;  // null: one range
  int64_t q_stride, cache_stride, o_stride;
  int heads, kv_heads, head_dim, splits;
  int64_t split_tokens;
  float scale;
};

// Elements [lane * E, lane * E + E) of a head, zero beyond its end.
template <typename T, int E, bool is_whole>
__device__ inline void load_part(const T* head, int head_dim, float (&values)[E]) {
  const int first = static_cast<int>(threadIdx.x) % warp_size * E;
  if constexpr (is_whole) {
    struct alignas(E * sizeof(T)) Part {
      T at[E];
    };
    const Part part = *reinterpret_cast<const Part*>(head + first);
#pragma unroll
    for (int i = 0; i < E; ++i) values[i] = load(&part.at[i]);
  } else {
#pragma unroll
    for (int i = 0; i < E; ++i) values[i] = first + i < head_dim ? load(head + first + i) : 0.0F;
  }
}

// The statistics of some tokens for one query head.
template <int E>
struct Softmax {
  float highest = -INFINITY, sum = 0;
  float values[E] = {};

  // Merges other tokens: `factor` of exp(their highest - the common highest).
  __device__ void rescale(float to) {
    const float factor = highest == -INFINITY ? 0.0F : expf(highest - to);
    sum *= factor;
#pragma unroll
    for (int i = 0; i < E; ++i) values[i] *= factor;
    highest = to;
  }
};

template <typename T, int E, bool is_whole>
__device__ inline void attend(const CachedArgs& args, const T* q, const T* cache, int64_t begin,
                              int64_t end, int g, Softmax<E>& state) {
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  float query[E];
  load_part<T, E, is_whole>(q, args.head_dim, query);
#pragma unroll
  for (int i = 0; i < E; ++i) query[i] *= args.scale;
  const T* keys = cache + static_cast<int64_t>(g) * args.head_dim;
  const T* values = keys + static_cast<int64_t>(args.kv_heads) * args.head_dim;
  for (int64_t j = begin + warp * tokens_at_once; j < end; j += attention_warps * tokens_at_once) {
    float scores[tokens_at_once];
    float v[tokens_at_once][E];
    float highest = state.highest;
#pragma unroll
    for (int n = 0; n < tokens_at_once; ++n) {
      // A token behind the end reads the last one and does not count.
      const int64_t row = min(j + n, end - 1);
      float k[E];
      load_part<T, E, is_whole>(keys + row * args.cache_stride, args.head_dim, k);
      load_part<T, E, is_whole>(values + row * args.cache_stride, args.head_dim, v[n]);
      float product = 0;
#pragma unroll
      for (int i = 0; i < E; ++i) product = __fmaf_rn(query[i], k[i], product);
      scores[n] = product;
    }
#pragma unroll
    for (int n = 0; n < tokens_at_once; ++n) {
      const float score = warp_sum(scores[n]);
      scores[n] = j + n < end ? score : -INFINITY;
      highest = fmaxf(highest, scores[n]);
    }
    state.rescale(highest);
#pragma unroll
    for (int n = 0; n < tokens_at_once; ++n) {
      const float weight = expf(scores[n] - highest);
      state.sum += weight;
#pragma unroll
      for (int i = 0; i < E; ++i) state.values[i] = __fmaf_rn(weight, v[n][i], state.values[i]);
    }
  }
}

// Merges the warps of a block in order; the first warp has the result.
template <int E>
__device__ inline void merge_warps(Softmax<E>& state) {
  __shared__ float shared[attention_warps][2 + warp_size * E];
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  if (lane == 0) {
    shared[warp][0] = state.highest;
    shared[warp][1] = state.sum;
  }
#pragma unroll
  for (int i = 0; i < E; ++i) shared[warp][2 + lane * E + i] = state.values[i];
  __syncthreads();
  if (warp != 0) return;
  for (int w = 1; w < attention_warps; ++w) {
    const float other = shared[w][0], highest = fmaxf(state.highest, other);
    if (other == -INFINITY) continue;
    state.rescale(highest);
    const float factor = expf(other - highest);
    state.sum = __fmaf_rn(factor, shared[w][1], state.sum);
#pragma unroll
    for (int i = 0; i < E; ++i) {
      state.values[i] = __fmaf_rn(factor, shared[w][2 + lane * E + i], state.values[i]);
    }
  }
}

template <typename T, int E, bool is_whole>
__global__ void __launch_bounds__(attention_warps* warp_size) attention_kernel(CachedArgs args) {
  const int split = static_cast<int>(blockIdx.x), h = static_cast<int>(blockIdx.y);
  const int64_t t = blockIdx.z;
  const int64_t length = args.lengths[t], first = args.first_rows[t];
  const int64_t begin = split * args.split_tokens, end = min(length, begin + args.split_tokens);
  const T* cache = static_cast<const T*>(args.cache) + first * args.cache_stride;
  const T* q =
      static_cast<const T*>(args.q) + t * args.q_stride + static_cast<int64_t>(h) * args.head_dim;
  Softmax<E> state;
  if (begin < end) {
    attend<T, E, is_whole>(args, q, cache, begin, end, h / (args.heads / args.kv_heads), state);
  }
  merge_warps(state);
  if (threadIdx.x >= warp_size) return;
  const int lane = static_cast<int>(threadIdx.x);
  if (args.partials == nullptr) {
    T* o = static_cast<T*>(args.o) + t * args.o_stride + static_cast<int64_t>(h) * args.head_dim;
    const float factor = state.sum > 0 ? 1 / state.sum : 0.0F;
#pragma unroll
    for (int i = 0; i < E; ++i) {
      if (lane * E + i < args.head_dim) store(o + lane * E + i, state.values[i] * factor);
    }
    return;
  }
  float* partial =
      args.partials + ((t * args.heads + h) * args.splits + split) * (args.head_dim + 2);
  if (lane == 0) {
    partial[0] = state.highest;
    partial[1] = state.sum;
  }
#pragma unroll
  for (int i = 0; i < E; ++i) {
    if (lane * E + i < args.head_dim) partial[2 + lane * E + i] = state.values[i];
  }
}

// o from the results of all ranges, in order.
template <typename T>
__global__ void merge_kernel(CachedArgs args) {
  const int h = static_cast<int>(blockIdx.x);
  const int64_t t = blockIdx.y;
  const int64_t length = args.lengths[t];
  const int used =
      static_cast<int>((length + args.split_tokens - 1) / args.split_tokens);  // ranges
  const float* parts =
      args.partials + (t * args.heads + h) * args.splits * static_cast<int64_t>(args.head_dim + 2);
  float highest = -INFINITY;
  for (int s = 0; s < used; ++s) {
    highest = fmaxf(highest, parts[static_cast<int64_t>(s) * (args.head_dim + 2)]);
  }
  T* o = static_cast<T*>(args.o) + t * args.o_stride + static_cast<int64_t>(h) * args.head_dim;
  for (int c = static_cast<int>(threadIdx.x); c < args.head_dim;
       c += static_cast<int>(blockDim.x)) {
    float sum = 0, value = 0;
    for (int s = 0; s < used; ++s) {
      const float* part = parts + static_cast<int64_t>(s) * (args.head_dim + 2);
      const float factor = expf(part[0] - highest);
      sum = __fmaf_rn(factor, part[1], sum);
      value = __fmaf_rn(factor, part[2 + c], value);
    }
    store(o + c, sum > 0 ? value / sum : 0.0F);
  }
}

template <typename T, int E>
void launch(const CachedArgs& args, int64_t rows, cudaStream_t stream) {
  constexpr int64_t max_rows = 65535;  // blocks in the third dimension of a grid
  // Parts of E elements are aligned if heads and rows are.
  const auto is_aligned = [](const void* p, int64_t stride) {
    return reinterpret_cast<uintptr_t>(p) % (E * sizeof(T)) == 0 && stride % E == 0;
  };
  const bool is_whole = args.head_dim == warp_size * E && is_aligned(args.q, args.q_stride) &&
                        is_aligned(args.cache, args.cache_stride);
  TRIREME_CHECK(rows <= max_rows, "attention_cached: {} queries, at most {}", rows, max_rows);
  const dim3 grid(static_cast<unsigned>(args.splits), static_cast<unsigned>(args.heads),
                  static_cast<unsigned>(rows));
  if (is_whole) {
    attention_kernel<T, E, true><<<grid, attention_warps * warp_size, 0, stream>>>(args);
  } else {
    attention_kernel<T, E, false><<<grid, attention_warps * warp_size, 0, stream>>>(args);
  }
  if (args.partials == nullptr) return;
  const dim3 merge(static_cast<unsigned>(args.heads), static_cast<unsigned>(rows));
  merge_kernel<T><<<merge, 64, 0, stream>>>(args);
}

}  // namespace

void scatter_rows(Stream& stream, const ScatterRowsArgs& args) {
  move_rows<false>(stream, args, "scatter_rows");
}
void gather_rows(Stream& stream, const GatherRowsArgs& args) {
  move_rows<true>(stream, args, "gather_rows");
}

void attention_cached(Stream& stream, const AttentionCachedArgs& args) {
  const int64_t rows = args.q.rows(), head_dim = args.q.shape[2];
  if (rows == 0) return;
  TRIREME_CHECK(head_dim <= max_head_dim, "attention_cached: heads of {}, at most {}", head_dim,
                max_head_dim);
  const int64_t splits = spec::cached_splits(args.max_length);
  CachedArgs a{.q = args.q.data,
               .cache = args.cache.data,
               .first_rows = data<int32_t>(args.first_rows),
               .lengths = data<int32_t>(args.lengths),
               .o = args.o.data,
               .partials = nullptr,
               .q_stride = args.q.row_stride,
               .cache_stride = args.cache.row_stride,
               .o_stride = args.o.row_stride,
               .heads = static_cast<int>(args.q.shape[1]),
               .kv_heads = static_cast<int>(args.cache.shape[1] / 2),
               .head_dim = static_cast<int>(head_dim),
               .splits = static_cast<int>(splits),
               .split_tokens = spec::cached_split_tokens(args.max_length),
               .scale = args.scale};
  if (splits > 1) {
    TRIREME_CHECK(
        args.workspace && args.workspace.elements() >= rows * a.heads * splits * (head_dim + 2),
        "attention_cached: a workspace of {} elements",
        args.workspace ? args.workspace.elements() : 0);
    a.partials = data<float>(args.workspace);
  }
  cudaStream_t handle = device::cuda_stream(stream).handle();
  with_real_type(args.q.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    if (head_dim <= 32) {
      launch<T, 1>(a, rows, handle);
    } else if (head_dim <= 64) {
      launch<T, 2>(a, rows, handle);
    } else if (head_dim <= 128) {
      launch<T, 4>(a, rows, handle);
    } else {
      launch<T, 8>(a, rows, handle);
    }
  });
  check_launch("attention_cached");
}

}  // namespace trireme::kernels::cuda
