// SPDX-License-Identifier: Apache-2.0
// The backward of attention over a range of keys for each row. A task is a tile of query_block rows
// of one query head. It computes dq of its rows alone; to dk and dv of a key head the tasks add in
// the order of query heads and rows (turns.h), so few heads still occupy many threads.
#include "kernels/cpu/attention/backward_blocks.h"
#include "kernels/cpu/attention/key_ranges.h"
#include "kernels/cpu/attention/turns.h"
#include "kernels/cpu/table_ops.h"

namespace trireme::kernels::cpu {
namespace {

// The turns of one task at the keys of its tile. Keys are waited for and passed on in ascending
// order; a zone is key_block keys.
class KeyTurns {
 public:
  KeyTurns(Turns& turns, int64_t task)
      : turns_(turns),
        task_(task),
        zones_(turns.zones_of(task)),
        waited_(zones_.begin),
        passed_(zones_.begin) {}

  // Returns when this task may add to keys below `end`.
  void wait_until(int64_t end) {
    for (; waited_ < std::min(zones_.end, divide_up(end, key_block)); ++waited_) {
      turns_.wait(task_, waited_);
    }
  }
  // The task adds to no key below `end` any more.
  void pass_until(int64_t end) {
    for (; passed_ < std::min(zones_.end, end / key_block); ++passed_) {
      wait_until((passed_ + 1) * key_block);
      turns_.pass(task_, passed_);
    }
  }
  void pass_all() { pass_until(zones_.end * key_block); }

 private:
  Turns& turns_;
  int64_t task_;
  InnerRange zones_;
  int64_t waited_, passed_;
};

void store_dq(const AttentionRangesBackwardArgs& args, const Segment& segment, const float* dq) {
  if (!args.accumulates) return store(args.dq, segment, dq);
  float* d = floats_at(args.dq, segment.row) + segment.first;
#pragma omp simd
  for (int64_t c = 0; c < segment.count; ++c) d[c] += dq[c];
}

// One run of a tile. Keys from `later_begin` on are needed by later runs.
void backward_run(const AttentionRangesBackwardArgs& args, const KeyGradients& sums,
                  const RangeRun& run, int64_t head, int64_t later_begin, KeyTurns& turns) {
  const int64_t K = args.q.shape[2], kv_head = head / (args.q.shape[1] / args.k.shape[1]);
  if (run.end == 0 && args.accumulates) return;
  BackwardBlock block(base::round_up(K, cell));
  const float* lse = floats_at(args.lse, head) + run.first;
  block.load_queries({args.q, args.o, args.dout, lse, args.scale}, {run.first, run.count, head, K});
  for (int64_t first = run.begin; first < run.end; first += key_block) {
    const HeadRows keys = {first, std::min(key_block, run.end - first), kv_head, K};
    const VisibleRanges visible(run, args.key_begin, args.key_end, first, keys.count);
    block.add_keys(args.k, args.v, keys, visible, sums,
                   [&] { turns.wait_until(first + keys.count); });
    turns.pass_until(std::min(first + keys.count, later_begin));
  }
  for (int64_t i = 0; i < run.count; ++i) {
    store_dq(args, {run.first + i, head * K, K}, block.dq(i));
  }
}

void backward_tile(const AttentionRangesBackwardArgs& args, const KeyGradients& sums,
                   int64_t first_row, int64_t head, KeyTurns turns) {
  const int64_t rows = std::min(query_block, args.q.rows() - first_row);
  const RangeRuns tile(args.key_begin, args.key_end, first_row, rows, args.k.rows());
  for (int64_t r = 0; r < tile.count; ++r) {
    int64_t later_begin = args.k.rows();
    for (int64_t later = r + 1; later < tile.count; ++later) {
      if (tile.runs[later].end > 0) later_begin = std::min(later_begin, tile.runs[later].begin);
    }
    backward_run(args, sums, tile.runs[r], head, later_begin, turns);
  }
  turns.pass_all();
}

// The zones of keys that each tile adds to.
std::vector<InnerRange> zones_of_tiles(const AttentionRangesBackwardArgs& args) {
  const int64_t T = args.q.rows();
  std::vector<InnerRange> zones;
  for (int64_t first = 0; first < T; first += query_block) {
    const InnerRange keys = RangeRuns(args.key_begin, args.key_end, first,
                                      std::min(query_block, T - first), args.k.rows())
                                .keys();
    zones.push_back({keys.begin / key_block, divide_up(keys.end, key_block)});
  }
  return zones;
}

void backward(base::ThreadPool& pool, const AttentionRangesBackwardArgs& args) {
  const int64_t N = args.k.rows(), G = args.k.shape[1], width = args.k.cols();
  const KeyGradients sums(args.dk, args.dv, args.workspace);
  if (!args.accumulates) {
    for_each_row(pool, N, width, [&](int64_t row) {
      std::fill_n(sums.dk.at(row, 0, 0), width, 0.0F);
      std::fill_n(sums.dv.at(row, 0, 0), width, 0.0F);
    });
  }
  const std::vector<InnerRange> zones = zones_of_tiles(args);
  const int64_t tiles = std::ssize(zones), heads_per_kv = args.q.shape[1] / G;
  std::vector<Turns> turns;  // of each key head
  for (int64_t g = 0; g < G; ++g) {
    turns.emplace_back(zones, heads_per_kv, divide_up(N, key_block));
  }
  pool.for_each(tiles * heads_per_kv * G, [&](int64_t index) {
    const int64_t g = index % G, task = index / G;
    backward_tile(args, sums, task % tiles * query_block, g * heads_per_kv + task / tiles,
                  {turns[static_cast<size_t>(g)], task});
  });
  if (args.dk.dtype == base::DType::f32) return;
  for_each_row(pool, N, width, [&](int64_t row) {
    store(args.dk, {row, 0, width}, sums.dk.at(row, 0, 0));
    store(args.dv, {row, 0, width}, sums.dv.at(row, 0, 0));
  });
}

}  // namespace

void attention_ranges_backward(Stream& stream, const AttentionRangesBackwardArgs& args) {
  run_on(stream, args, backward);
}

}  // namespace trireme::kernels::cpu
