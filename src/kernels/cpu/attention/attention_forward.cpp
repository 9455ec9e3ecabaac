// SPDX-License-Identifier: Apache-2.0
// o = softmax(scale q k^T + mask) v within each sequence.
#include "kernels/cpu/attention/forward_blocks.h"
#include "kernels/cpu/table_ops.h"

namespace trireme::kernels::cpu {
namespace {

// Queries [first, first + count) of head h, all of the sequence [seq_begin, seq_end).
void attend(const AttentionForwardArgs& args, const HeadRows& queries, int64_t seq_begin,
            int64_t seq_end) {
  const int64_t kv_head = queries.head / (args.q.shape[1] / args.k.shape[1]);
  float* lse = floats_at(args.lse, 0) +
               lse_index(args.q.shape[1], queries.head, queries.first, seq_begin, seq_end);
  ForwardBlock block(queries.padded_K());
  block.load_queries(args.q, queries, args.scale);

  const int64_t keys_end = args.causal ? queries.first + queries.count : seq_end;
  for (int64_t first = seq_begin; first < keys_end; first += key_block) {
    const HeadRows keys = {first, std::min(key_block, keys_end - first), kv_head, queries.K};
    block.add_keys(args.k, args.v, keys,
                   Visible{.causal = args.causal,
                           .offset = queries.first - first,
                           .keys = keys.count,
                           .padded_keys = keys.padded_count(),
                           .padded_queries = queries.padded_count()});
  }

  for (int64_t i = 0; i < queries.count; ++i) {
    const int64_t t = queries.first + i;
    store(args.o, {t, queries.head * queries.K, queries.K}, block.finish(i));
    lse[i] = block.lse(i);
  }
}

// A task is one head and query_block tokens, which may belong to several sequences.
void forward(base::ThreadPool& pool, const AttentionForwardArgs& args) {
  const int64_t T = args.q.shape[0], H = args.q.shape[1], K = args.q.shape[2];
  const auto* offsets = reinterpret_cast<const int32_t*>(args.seq_offsets.data);
  const int32_t* offsets_end = offsets + args.seq_offsets.rows();
  const int64_t blocks = divide_up(T, query_block);
  pool.for_each(blocks * H, [&](int64_t task) {
    const int64_t block_begin = task / H * query_block;
    const int64_t block_end = std::min(T, block_begin + query_block);
    int64_t first = block_begin;
    while (first < block_end) {
      const int32_t* seq_end = std::upper_bound(offsets, offsets_end, first);
      TRIREME_CHECK(seq_end != offsets && seq_end != offsets_end, "token {} is in no sequence",
                    first);
      const int64_t end = std::min<int64_t>(block_end, *seq_end);
      attend(args, {first, end - first, task % H, K}, seq_end[-1], *seq_end);
      first = end;
    }
  });
}

}  // namespace

void attention_forward(Stream& stream, const AttentionForwardArgs& args) {
  run_on(stream, args, forward);
}

}  // namespace trireme::kernels::cpu
