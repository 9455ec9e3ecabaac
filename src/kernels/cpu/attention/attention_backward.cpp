// SPDX-License-Identifier: Apache-2.0
// The backward of attention within each sequence. A task is one key head of one sequence with the
// query heads that read it, so all sums have one order.
#include "kernels/cpu/attention/backward_blocks.h"
#include "kernels/cpu/table_ops.h"

namespace trireme::kernels::cpu {
namespace {

struct Task {
  const AttentionBackwardArgs& args;
  const KeyGradients& sums;
  int64_t seq_begin = 0, seq_end = 0;
  int64_t kv_head = 0;
  int64_t K = 0;

  void run() const;

 private:
  void backward_queries(BackwardBlock& block, const HeadRows& queries) const;
};

void Task::backward_queries(BackwardBlock& block, const HeadRows& queries) const {
  const float* lse = floats_at(args.lse, 0) +
                     lse_index(args.q.shape[1], queries.head, queries.first, seq_begin, seq_end);
  block.load_queries({args.q, args.o, args.dout, lse, args.scale}, queries);
  const int64_t keys_end = args.causal ? queries.first + queries.count : seq_end;
  for (int64_t first = seq_begin; first < keys_end; first += key_block) {
    const HeadRows keys = {first, std::min(key_block, keys_end - first), kv_head, K};
    const Visible visible = {.causal = args.causal,
                             .offset = queries.first - first,
                             .keys = keys.count,
                             .padded_keys = keys.padded_count(),
                             .padded_queries = queries.padded_count()};
    block.add_keys(args.k, args.v, keys, visible, sums, [] {});
  }
  for (int64_t i = 0; i < queries.count; ++i) {
    store(args.dq, {queries.first + i, queries.head * K, K}, block.dq(i));
  }
}

void Task::run() const {
  BackwardBlock block(base::round_up(K, cell));
  for (int64_t t = seq_begin; t < seq_end; ++t) {
    std::fill_n(sums.dk.at(t, kv_head, K), K, 0.0F);
    std::fill_n(sums.dv.at(t, kv_head, K), K, 0.0F);
  }
  const int64_t heads_per_kv = args.q.shape[1] / args.k.shape[1];
  for (int64_t h = kv_head * heads_per_kv; h < (kv_head + 1) * heads_per_kv; ++h) {
    for (int64_t first = seq_begin; first < seq_end; first += query_block) {
      backward_queries(block, {first, std::min(query_block, seq_end - first), h, K});
    }
  }
  if (args.dk.dtype == base::DType::f32) return;
  for (int64_t t = seq_begin; t < seq_end; ++t) {
    store(args.dk, {t, kv_head * K, K}, sums.dk.at(t, kv_head, K));
    store(args.dv, {t, kv_head * K, K}, sums.dv.at(t, kv_head, K));
  }
}

void backward(base::ThreadPool& pool, const AttentionBackwardArgs& args) {
  const int64_t G = args.k.shape[1], K = args.k.shape[2];
  const KeyGradients sums(args.dk, args.dv, args.workspace);
  const auto* offsets = reinterpret_cast<const int32_t*>(args.seq_offsets.data);
  pool.for_each((args.seq_offsets.rows() - 1) * G, [&](int64_t index) {
    const int64_t sequence = index / G;
    if (offsets[sequence] == offsets[sequence + 1]) return;
    const Task task = {.args = args,
                       .sums = sums,
                       .seq_begin = offsets[sequence],
                       .seq_end = offsets[sequence + 1],
                       .kv_head = index % G,
                       .K = K};
    task.run();
  });
}

}  // namespace

void attention_backward(Stream& stream, const AttentionBackwardArgs& args) {
  run_on(stream, args, backward);
}

}  // namespace trireme::kernels::cpu
