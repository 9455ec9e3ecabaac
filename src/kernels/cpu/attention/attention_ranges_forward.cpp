// SPDX-License-Identifier: Apache-2.0
// o = softmax(scale q k^T) v over a range of keys for each row.
#include "kernels/cpu/attention/forward_blocks.h"
#include "kernels/cpu/attention/key_ranges.h"
#include "kernels/cpu/table_ops.h"

namespace trireme::kernels::cpu {
namespace {

void attend(const AttentionRangesForwardArgs& args, const RangeRun& run, int64_t head) {
  const int64_t K = args.q.shape[2], kv_head = head / (args.q.shape[1] / args.k.shape[1]);
  const HeadRows queries = {run.first, run.count, head, K};
  ForwardBlock block(queries.padded_K());
  if (run.begin < run.end) block.load_queries(args.q, queries, args.scale);
  for (int64_t first = run.begin; first < run.end; first += key_block) {
    const HeadRows keys = {first, std::min(key_block, run.end - first), kv_head, K};
    block.add_keys(args.k, args.v, keys,
                   VisibleRanges(run, args.key_begin, args.key_end, first, keys.count));
  }
  float* lse = floats_at(args.lse, head) + run.first;
  for (int64_t i = 0; i < run.count; ++i) {
    const int64_t t = run.first + i;
    const Segment segment = {t, head * K, K};
    if (index_at(args.key_begin, t) < index_at(args.key_end, t)) {
      store(args.o, segment, block.finish(i));
      lse[i] = block.lse(i);
    } else {
      store(args.o, segment, block.zeros());
      lse[i] = -std::numeric_limits<float>::infinity();
    }
  }
}

// A task is one head and query_block rows. The last rows come first: they usually see most keys,
// and threads that start with them end together.
void forward(base::ThreadPool& pool, const AttentionRangesForwardArgs& args) {
  const int64_t T = args.q.shape[0], H = args.q.shape[1];
  const int64_t tiles = divide_up(T, query_block);
  pool.for_each(tiles * H, [&](int64_t task) {
    const int64_t first = (tiles - 1 - task / H) * query_block;
    const RangeRuns tile(args.key_begin, args.key_end, first, std::min(query_block, T - first),
                         args.k.rows());
    for (int64_t r = 0; r < tile.count; ++r) attend(args, tile.runs[r], task % H);
  });
}

}  // namespace

void attention_ranges_forward(Stream& stream, const AttentionRangesForwardArgs& args) {
  run_on(stream, args, forward);
}

}  // namespace trireme::kernels::cpu
