// SPDX-License-Identifier: Apache-2.0
// The eight phases of DualPipe (DeepSeek-AI, 2024): a rank fills the pipeline from its side, then
// from both; runs the first backwards with split weight gradients; runs pairs of the forward of one
// side and the backward of the other; and drains in the mirror image. Split weight gradients run
// first-in first-out.
#include "schedule/generators/dual.h"

#include <deque>

#include "base/check.h"

namespace trireme::schedule {
namespace {

class Writer {
 public:
  explicit Writer(const DualRank& rank) : rank_(rank) {}

  void f(int side) { add(Op::F, side, f_[at(side)]++); }
  void bw(int side) { add(Op::BW, side, b_[at(side)]++); }
  void b(int side) {  // its W later
    add(Op::B, side, b_[at(side)]++);
    Action w = program_.back();
    w.op = Op::W;
    waiting_.push_back(w);
  }
  void w() {
    TRIREME_CHECK(!waiting_.empty(), "no weight gradient waits");
    program_.push_back(waiting_.front());
    waiting_.pop_front();
  }
  void pair(int f_side, int b_side) {
    f(f_side);
    program_.back().with_next = true;
    bw(b_side);
  }
  std::vector<Action> program() const {
    TRIREME_CHECK(waiting_.empty() && f_[0] == rank_.count && f_[1] == rank_.count &&
                      b_[0] == rank_.count && b_[1] == rank_.count,
                  "{} and {} forwards, {} and {} backwards, not {}", f_[0], f_[1], b_[0], b_[1],
                  rank_.count);
    return program_;
  }

 private:
  static size_t at(int side) { return static_cast<size_t>(side); }
  void add(Op op, int side, int index) {
    program_.push_back({op, rank_.stage[at(side)], -1, rank_.microbatch(side, index)});
  }

  const DualRank& rank_;
  std::array<int, 2> f_ = {}, b_ = {};
  std::deque<Action> waiting_;
  std::vector<Action> program_;
};

}  // namespace

std::vector<Action> dual_program(const DualRank& rank) {
  TRIREME_CHECK(rank.count >= 2 * rank.depth, "{} micro-batches per side, depth {}", rank.count,
                rank.depth);
  const int to_middle = rank.depth - 1 - rank.place;
  const int from_end = rank.place + 1;
  Writer out(rank);
  for (int i = 0; i < 2 * to_middle; ++i) out.f(0);
  for (int i = 0; i < from_end; ++i) {
    out.f(0);
    out.f(1);
  }
  for (int i = 0; i < to_middle; ++i) {
    out.b(1);
    out.w();
    out.f(1);
  }
  for (int i = 0; i < rank.count - 2 * rank.depth + from_end; ++i) {
    if (i == 0 && to_middle == 0) {
      // Not as a pair: the other ranks wait for the output of the forward.
      out.f(0);
      out.bw(1);
    } else {
      out.pair(0, 1);
    }
    out.pair(1, 0);
  }
  for (int i = 0; i < to_middle; ++i) {
    out.bw(1);
    out.pair(1, 0);
  }
  // The first half of these 2 * from_end backwards is merged; the weight gradients of the others
  // fill the bubbles that follow.
  for (int i = 0; i < 2 * from_end; ++i) {
    const int side = i % 2 == 0 ? 1 : 0;
    if (i < from_end) {
      out.bw(side);
    } else {
      out.b(side);
    }
  }
  for (int i = 0; i < to_middle; ++i) {
    out.w();
    out.b(0);
  }
  for (int i = 0; i < from_end; ++i) out.w();
  return out.program();
}

}  // namespace trireme::schedule
