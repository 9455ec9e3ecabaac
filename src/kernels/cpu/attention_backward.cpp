// SPDX-License-Identifier: Apache-2.0
// With p = exp(scale q k - lse), dp = dout v, delta = sum over K of dout * o (Dao et al., 2022):
//   ds = scale p (dp - delta);  dv += p^T dout;  dk += ds^T q;  dq = ds k.
//
// A task is one key head of one sequence with the query heads that read it, so all sums have one
// order. dk and dv are accumulated in place if fp32, otherwise in the workspace.
#include "kernels/cpu/attention_blocks.h"
#include "kernels/cpu/table_ops.h"
#include "kernels/cpu/vector_math.h"

#include <limits>
#include <utility>

namespace trireme::kernels::cpu {
namespace {

struct BackwardMemory;  // tag of thread_floats()

struct Workspace {
  explicit Workspace(int64_t width) {
    static_assert(query_block == key_block);
    constexpr int64_t side = query_block;
    float* next = thread_floats<BackwardMemory>(2 * side * side + 8 * side * width);
    const auto take = [&next](int64_t count) { return std::exchange(next, next + count); };
    p = {take(side * side), side};
    ds = {take(side * side), side};
    qt = {take(width * side), side};
    dot = {take(width * side), side};
    dq = {take(side * width), width};
    q = take(side * width);
    dout = take(side * width);
    k = take(side * width);
    v = take(side * width);
    partial = {take(side * width), width};
  }

  MutableBlock p;        // [key, query]
  MutableBlock ds;       // [key, query]: dp, then ds
  MutableBlock qt, dot;  // [K, query]: scale q^T, dout^T
  MutableBlock dq;       // [query, K]
  float *q, *dout, *k, *v;
  MutableBlock partial;  // [key, K]
  float lse[query_block];
  float delta[query_block];
};

// fp32 sums [T, G, K] of dk or dv.
struct Sums {
  float* data = nullptr;
  int64_t row_stride = 0;

  float* at(int64_t t, int64_t head, int64_t K) const { return data + t * row_stride + head * K; }
};

struct Task {
  const AttentionBackwardArgs& args;
  Sums dk, dv;
  int64_t seq_begin = 0, seq_end = 0;
  int64_t kv_head = 0;
  int64_t K = 0;
  int64_t width = 0;  // K in whole cells

  void run() const;

 private:
  void backward_queries(Workspace& w, const HeadRows& queries) const;
  void add_pairs(Workspace& w, const HeadRows& keys, const Visible& visible, const ConstBlock& q,
                 const ConstBlock& dout) const;
  void add_keys(Workspace& w, const HeadRows& keys, const Visible& visible, const Sums& sums,
                const ConstBlock& pairs, const ConstBlock& queries) const;
};

// p and ds of the pairs of one block, in cells that any query sees.
void differentiate(Workspace& w, const Visible& visible, float scale) {
  for (int64_t j = 0; j < visible.padded_keys; ++j) {
    const InnerRange queries = visible.queries_of(j / cell * cell);
    const int64_t seen = visible.first_query_of(j);
    float* p = w.p.at(j, 0);
    float* ds = w.ds.at(j, 0);
    for (int64_t i = queries.begin; i < seen; ++i) p[i] = ds[i] = 0;
#pragma omp simd
    for (int64_t i = seen; i < queries.end; ++i) {
      p[i] = exp_of(p[i] - w.lse[i]);
      ds[i] = p[i] * (ds[i] - w.delta[i]) * scale;
    }
  }
}

// sums += pairs x queries for the keys of the block: dv from p and dout, dk from ds and q.
void Task::add_keys(Workspace& w, const HeadRows& keys, const Visible& visible, const Sums& sums,
                    const ConstBlock& pairs, const ConstBlock& queries) const {
  const bool in_place = keys.fills_cells();
  for (int64_t j = 0; j < visible.padded_keys; j += cell) {
    const InnerRange inner = visible.queries_of(j);
    if (in_place) {
      const MutableBlock d = {sums.at(keys.first, kv_head, K), sums.row_stride};
      multiply_rows<Into::add>(pairs, queries, d, j, {0, width}, inner);
    } else {
      multiply_rows<Into::set>(pairs, queries, w.partial, j, {0, width}, inner);
    }
  }
  for (int64_t j = 0; !in_place && j < keys.count; ++j) {
    float* d = sums.at(keys.first + j, kv_head, K);
    const float* partial = w.partial.at(j, 0);
#pragma omp simd
    for (int64_t c = 0; c < K; ++c) d[c] += partial[c];
  }
}

void Task::add_pairs(Workspace& w, const HeadRows& keys, const Visible& visible,
                     const ConstBlock& q, const ConstBlock& dout) const {
  const ConstBlock k = block_of(args.k, keys, w.k), v = block_of(args.v, keys, w.v);
  for (int64_t j = 0; j < visible.padded_keys; j += cell) {
    const InnerRange queries = visible.queries_of(j);
    multiply_rows<Into::set>(k, w.qt, w.p, j, queries, {0, width});
    multiply_rows<Into::set>(v, w.dot, w.ds, j, queries, {0, width});
  }
  differentiate(w, visible, args.scale);
  add_keys(w, keys, visible, dv, w.p, dout);
  add_keys(w, keys, visible, dk, w.ds, q);
  for (int64_t i = 0; i < visible.padded_queries; i += cell) {
    add_transposed_rows(w.ds, k, w.dq, i, {0, width}, visible.keys_of(i));
  }
}

void Task::backward_queries(Workspace& w, const HeadRows& queries) const {
  const ConstBlock q = block_of(args.q, queries, w.q);
  const ConstBlock dout = block_of(args.dout, queries, w.dout);
  transpose(q, queries.padded_count(), width, args.scale, w.qt);
  transpose(dout, queries.padded_count(), width, 1, w.dot);
  // Queries that only fill the last cell: exp(score - infinity) = 0 removes them.
  std::fill_n(w.lse, query_block, std::numeric_limits<float>::infinity());
  std::fill_n(w.delta, query_block, 0.0F);
  const float* lse = floats_at(args.lse, 0) +
                     lse_index(args.q.shape[1], queries.head, queries.first, seq_begin, seq_end);
  for (int64_t i = 0; i < queries.count; ++i) {
    const int64_t t = queries.first + i;
    w.lse[i] = lse[i];
    // dq is not in use yet: its first row serves as a buffer.
    const float* o = values_of(args.o, {t, queries.head * K, K}, w.dq.data);
    const float* grad = dout.at(i, 0);
    float delta = 0;
#pragma omp simd reduction(+ : delta)
    for (int64_t c = 0; c < K; ++c) delta += o[c] * grad[c];
    w.delta[i] = delta;
  }
  std::fill_n(w.dq.data, query_block * width, 0.0F);

  const int64_t keys_end = args.causal ? queries.first + queries.count : seq_end;
  for (int64_t first = seq_begin; first < keys_end; first += key_block) {
    const HeadRows keys = {first, std::min(key_block, keys_end - first), kv_head, K};
    const Visible visible = {.causal = args.causal,
                             .offset = queries.first - first,
                             .keys = keys.count,
                             .padded_keys = keys.padded_count(),
                             .padded_queries = queries.padded_count()};
    add_pairs(w, keys, visible, q, dout);
  }
  for (int64_t i = 0; i < queries.count; ++i) {
    store(args.dq, {queries.first + i, queries.head * K, K}, w.dq.at(i, 0));
  }
}

void Task::run() const {
  Workspace w(width);
  for (int64_t t = seq_begin; t < seq_end; ++t) {
    std::fill_n(dk.at(t, kv_head, K), K, 0.0F);
    std::fill_n(dv.at(t, kv_head, K), K, 0.0F);
  }
  const int64_t heads_per_kv = args.q.shape[1] / args.k.shape[1];
  for (int64_t h = kv_head * heads_per_kv; h < (kv_head + 1) * heads_per_kv; ++h) {
    for (int64_t first = seq_begin; first < seq_end; first += query_block) {
      backward_queries(w, {first, std::min(query_block, seq_end - first), h, K});
    }
  }
  if (args.dk.dtype == base::DType::f32) return;
  for (int64_t t = seq_begin; t < seq_end; ++t) {
    store(args.dk, {t, kv_head * K, K}, dk.at(t, kv_head, K));
    store(args.dv, {t, kv_head * K, K}, dv.at(t, kv_head, K));
  }
}

void backward(base::ThreadPool& pool, const AttentionBackwardArgs& args) {
  const int64_t T = args.k.shape[0], G = args.k.shape[1], K = args.k.shape[2];
  Sums dk, dv;
  if (args.dk.dtype == base::DType::f32) {
    dk = {floats_at(args.dk, 0), args.dk.row_stride};
    dv = {floats_at(args.dv, 0), args.dv.row_stride};
  } else {
    TRIREME_CHECK(args.workspace.dtype == base::DType::f32 &&
                      args.workspace.elements() >= 2 * T * G * K && args.workspace.is_contiguous(),
                  "workspace {} for {}", args.workspace.shape.to_string(),
                  args.dk.shape.to_string());
    float* sums = reinterpret_cast<float*>(args.workspace.data);
    dk = {sums, G * K};
    dv = {sums + T * G * K, G * K};
  }
  const auto* offsets = reinterpret_cast<const int32_t*>(args.seq_offsets.data);
  pool.for_each((args.seq_offsets.rows() - 1) * G, [&](int64_t index) {
    const int64_t sequence = index / G;
    if (offsets[sequence] == offsets[sequence + 1]) return;
    const Task task = {.args = args,
                       .dk = dk,
                       .dv = dv,
                       .seq_begin = offsets[sequence],
                       .seq_end = offsets[sequence + 1],
                       .kv_head = index % G,
                       .K = K,
                       .width = base::round_up(K, cell)};
    task.run();
  });
}

}  // namespace

void attention_backward(Stream& stream, const AttentionBackwardArgs& args) {
  run_on(stream, args, backward);
}

}  // namespace trireme::kernels::cpu
