// SPDX-License-Identifier: Apache-2.0
#include "plan/memory/pipe_lives.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"
#include "plan/memory/stage_share.h"
#include "schedule/catalogue.h"
#include "schedule/lives.h"

namespace trireme::plan {
namespace {

using schedule::Action;
using schedule::Op;

constexpr int64_t lives_rounds = 3;  // of micro-batches through all ranks
// In a longer pipeline with split backward, this many ranks at equal distances are counted.
constexpr int max_counted_ranks = 128;

void insert(LiveSets& sets, const LiveLayers& live) {
  if (std::ranges::any_of(sets, [&](const LiveLayers& set) { return set.covers(live); })) return;
  std::erase_if(sets, [&](const LiveLayers& set) { return live.covers(set); });
  sets.push_back(live);
}

// The current live set of one pool, and the largest sets so far.
struct LiveCounter {
  LiveLayers now;
  LiveSets sets;

  void begin(const LiveLayers& stage) {
    add(stage, 1);
    insert(sets, now);
  }
  void end(const LiveLayers& stage) { add(stage, -1); }

 private:
  void add(const LiveLayers& stage, int64_t sign) {
    now.blocks += sign * stage.blocks;
    now.heads += sign * stage.heads;
    now.other += sign * stage.other;
    now.inner += sign * stage.inner;
  }
};

struct PeakCounter {
  int64_t now = 0, peak = 0;

  void begin() { peak = std::max(peak, ++now); }
  void end() { --now; }
};

// One stage of the pipeline, as one rank sees it.
struct LiveStage {
  bool is_here = false;
  LiveLayers layers;
};

int64_t channels_of(const schedule::Schedule& schedule, int rank) {
  const schedule::Lane& lane = schedule.lanes.front();
  std::set<std::pair<int, bool>> channels;  // destination, whether it carries gradients
  for (size_t stage = 0; stage + 1 < lane.size(); ++stage) {
    const int from = lane[stage], to = lane[stage + 1];
    if (from == to) continue;
    if (from == rank) channels.emplace(to, false);
    if (to == rank) channels.emplace(from, true);
  }
  return static_cast<int64_t>(channels.size());
}

// Walks through the rank's program. A receive stands directly before the action that needs it
// (schedule/receives.h), so that the compute actions alone determine what is live.
class RankWalk {
 public:
  RankWalk(const schedule::Schedule& schedule, const StageBlocks& cut, int rank)
      : schedule_(schedule), last_(schedule.stages() - 1), stages_(static_cast<size_t>(last_) + 3) {
    own_.rank = rank;
    add_stages(cut);
    const std::vector<Action>& program = schedule.program[static_cast<size_t>(rank)];
    own_.channels = channels_of(schedule, rank);
    own_.is_merged = !schedule::splits_backward(program);
    own_.runs_pairs = schedule::has_pairs(program);
    for (const Action& action : program) {
      if (action.op == Op::F) forward(action.stage);
      if (action.op == Op::B || action.op == Op::BW) input_gradient(action);
      if (action.op == Op::W || action.op == Op::BW) weight_gradient(action);
    }
  }

  RankLives take() {
    own_.f_to_b = std::move(f_to_b_.sets);
    own_.f_to_w = std::move(f_to_w_.sets);
    own_.b_to_w = std::move(b_to_w_.sets);
    own_.inputs = inputs_.peak;
    own_.gradients = gradients_.peak;
    return std::move(own_);
  }

 private:
  LiveStage& at(int stage) { return stages_[static_cast<size_t>(stage + 1)]; }
  void add_stages(const StageBlocks& cut);
  void forward(int number);
  void input_gradient(const Action& action);
  void weight_gradient(const Action& action);
  void count_ended(int number);

  const schedule::Schedule& schedule_;
  int last_, lowest_ = 0;          // the pipeline's last stage, and the rank's lowest
  std::vector<LiveStage> stages_;  // one more at either end
  RankLives own_;
  LiveCounter f_to_b_, f_to_w_, b_to_w_;
  PeakCounter inputs_, gradients_;
  int64_t begun_ = 0, ended_ = 0;              // on the first stage
  int64_t last_ended_ = 0, lowest_ended_ = 0;  // on the last stage, and on the rank's lowest
};

void RankWalk::add_stages(const StageBlocks& cut) {
  const std::vector<int> numbers = schedule::stages_of(schedule_, own_.rank);
  lowest_ = numbers.front();
  for (const int number : numbers) {
    const auto blocks = static_cast<int64_t>(cut.of(number));
    const auto other = static_cast<int64_t>(cut.other_of(number));
    const bool is_first = number == 0, is_last = number == last_;
    const int64_t layers = blocks + (is_first ? 1 : 0) + (is_last ? 1 : 0);
    at(number) = {true, {blocks - other, is_last ? 1 : 0, other, layers - 1}};
    own_.blocks += blocks - other;
    own_.other += other;
    for (int64_t i = 0; i < blocks && !cut.is_other.empty(); ++i) {
      own_.is_other.push_back(
          cut.is_other[static_cast<size_t>(cut.before(number)) + static_cast<size_t>(i)]);
    }
    own_.has_embedding = own_.has_embedding || is_first;
    own_.has_head = own_.has_head || is_last;
    own_.stage_layers = std::max(own_.stage_layers, layers);
  }
}

void RankWalk::forward(int number) {
  f_to_b_.begin(at(number).layers);
  f_to_w_.begin(at(number).layers);
  if (number > 0 && !at(number - 1).is_here) inputs_.begin();
  if (number < last_ && at(number + 1).is_here) inputs_.begin();
  if (number == 0) ++begun_;
}

void RankWalk::input_gradient(const Action& action) {
  const int number = action.stage;
  if (number < last_ && !at(number + 1).is_here) gradients_.begin();
  if (number > 0 && at(number - 1).is_here) gradients_.begin();
  if (action.op == Op::B) b_to_w_.begin(at(number).layers);
  f_to_b_.end(at(number).layers);
  if (number > 0) inputs_.end();
}

void RankWalk::weight_gradient(const Action& action) {
  const int number = action.stage;
  f_to_w_.end(at(number).layers);
  if (action.op == Op::W) b_to_w_.end(at(number).layers);
  if (number < last_) gradients_.end();
  count_ended(number);
}

void RankWalk::count_ended(int number) {
  // The end of the last micro-batch is the end of the step.
  if (number == 0 && ++ended_ < schedule_.microbatches) {
    own_.ends_ahead = std::max(own_.ends_ahead, begun_ - ended_);
  }
  if (number == last_) ++last_ended_;
  if (number == lowest_ && own_.has_head && lowest_ended_ + 1 < schedule_.microbatches) {
    own_.ends_ahead = std::max(own_.ends_ahead, last_ended_ - lowest_ended_);
  }
  if (number == lowest_) ++lowest_ended_;
}

bool covers(const LiveSets& all, const LiveSets& others) {
  return std::ranges::all_of(others, [&](const LiveLayers& other) {
    return std::ranges::any_of(all, [&](const LiveLayers& set) { return set.covers(other); });
  });
}

// Returns whether `a` needs at least as much memory as `b` for any sizes of layers. Buffers that
// layers of two kinds use in turns depend on their order.
bool covers(const RankLives& a, const RankLives& b) {
  return b.is_other.empty() && !b.has_embedding && !b.has_head && a.blocks >= b.blocks &&
         a.stage_layers >= b.stage_layers && a.channels >= b.channels && a.inputs >= b.inputs &&
         a.gradients >= b.gradients && covers(a.f_to_b, b.f_to_b) && covers(a.f_to_w, b.f_to_w) &&
         covers(a.b_to_w, b.b_to_w);
}

// Returns ranks of which one needs the most memory. With merged backward and equal blocks, ranks
// behind the second have no larger stages than it and fewer micro-batches in flight; only the last
// has a head.
std::vector<int> counted_ranks(const Layout& l, bool are_equal) {
  std::vector<int> ranks;
  if (!schedule::named(l.schedule).splits_backward && are_equal) {
    for (const int rank : {0, 1, l.pp - 1}) {
      if (rank < l.pp && (ranks.empty() || rank > ranks.back())) ranks.push_back(rank);
    }
    return ranks;
  }
  const int count = std::min(l.pp, max_counted_ranks);
  for (int i = 0; i < count; ++i) {
    ranks.push_back(static_cast<int>(int64_t{i} * (l.pp - 1) / std::max(1, count - 1)));
  }
  return ranks;
}

PipeLives lives_of(const schedule::Schedule& schedule, const StageBlocks& cut, const Layout& l) {
  PipeLives all;
  const schedule::Lane& lane = schedule.lanes.front();
  all.splits_ends = lane.front() != lane.back();
  for (const int rank : counted_ranks(l, cut.is_other.empty())) {
    RankLives own = RankWalk(schedule, cut, rank).take();
    all.ends_ahead = std::max(all.ends_ahead, own.ends_ahead);
    if (std::ranges::any_of(all.ranks,
                            [&](const RankLives& other) { return covers(other, own); })) {
      continue;
    }
    std::erase_if(all.ranks, [&](const RankLives& other) { return covers(own, other); });
    all.ranks.push_back(std::move(own));
  }
  return all;
}

// GPipe runs all forwards before all backwards, so it keeps m times as much as for one micro-batch.
void repeat(PipeLives& lives, int64_t times) {
  for (RankLives& rank : lives.ranks) {
    for (LiveSets* sets : {&rank.f_to_b, &rank.f_to_w}) {
      for (LiveLayers& set : *sets) {
        set = {set.blocks * times, set.heads * times, set.other * times, set.inner * times};
      }
    }
    rank.inputs *= times;
  }
  lives.ends_ahead = times - 1;
}

}  // namespace

int64_t settled_micro_batches(const Layout& l, int64_t micro_batches) {
  return std::min(micro_batches, lives_rounds * l.pp);
}

const schedule::Schedule& PipeLivesTable::written(const Layout& l, int64_t micro_batches) {
  const Shape shape{micro_batches, l.pp, l.chunks, l.schedule};
  if (!schedule_ || shape != shape_) {
    base::Result<schedule::Schedule> made =
        schedule::generate(name_of(l.schedule), {l.pp, static_cast<int>(micro_batches), l.chunks});
    TRIREME_CHECK(made, "{}", made.reason());
    schedule_ = made.value();
    shape_ = shape;
  }
  return *schedule_;
}

const PipeLives& PipeLivesTable::find(const Layout& l, int64_t micro_batches,
                                      const StageBlocks& cut) {
  const bool is_gpipe = l.schedule == Kind::gpipe && l.pp > 1;
  const int64_t settled = is_gpipe ? micro_batches : settled_micro_batches(l, micro_batches);
  const Key key(Shape{settled, l.pp, l.chunks, l.schedule}, cut.first, cut.later, cut.starts,
                cut.is_other);
  const auto found = known_.find(key);
  if (found != known_.end()) return found->second;
  PipeLives lives = lives_of(written(l, is_gpipe ? 1 : settled), cut, l);
  if (is_gpipe) repeat(lives, micro_batches);
  return known_.emplace(key, std::move(lives)).first->second;
}

}  // namespace trireme::plan
