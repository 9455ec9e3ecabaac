// SPDX-License-Identifier: Apache-2.0
// The general generator simulates forward in time. Whenever a rank is free it chooses, in this
// order: a B whose gradient has arrived (the oldest micro-batch), an F whose input has arrived and
// whose memory is available (the deepest stage), a W. It is greedy, so a hand-made order can be
// better: at equal costs it needs more time than ZB-H1 or ZB-H2.
//
// Reservation. With several stages on a rank, forwards of the first could fill the memory that the
// later ones need to complete any micro-batch. So memory is reserved for all remaining forwards of
// the oldest micro-batch on a rank: an F of another one runs only if that reservation holds. The
// oldest unfinished micro-batch can then always proceed, and the simulation always ends, if the cap
// allows one micro-batch.
#include <algorithm>
#include <deque>
#include <queue>
#include <utility>

#include "base/check.h"
#include "schedule/generators/lanes.h"
#include "schedule/schedule.h"

namespace trireme::schedule {
namespace {

class Play {
 public:
  explicit Play(const CapOptions& options);
  double needed_cap() const { return std::ranges::max(largest_demand_); }
  Schedule run();

 private:
  enum class What : uint8_t { input, gradient, free };
  struct Event {
    double at = 0;
    int64_t order = 0;  // of equal times the first recorded runs first
    What what = What::free;
    int rank = 0, stage = 0, microbatch = 0;
    bool operator>(const Event& other) const {
      return std::pair(at, order) > std::pair(other.at, other.order);
    }
  };
  struct Rank {
    bool is_free = true;
    double kept = 0;
    int oldest = 0;                  // the first micro-batch with forwards left here
    std::deque<Action> f, b, w;      // ready actions, in the order in which they became ready
    std::vector<int> forwards_left;  // by micro-batch
  };

  void note(double at, What what, int rank, int stage, int microbatch);
  void play(const Event& event);
  void dispatch(int rank, double now);
  void take(Rank& rank, std::deque<Action>& from, std::deque<Action>::iterator which, double now);
  bool fits(const Rank& rank, int id, const Action& f) const;
  double left_for(int rank, int microbatch) const;  // memory that its forwards here still need
  double demand(int rank, int microbatch) const;

  const CapOptions& options_;
  Schedule schedule_;
  std::vector<Rank> ranks_;
  std::vector<double> largest_demand_;  // of one micro-batch, by rank
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  int64_t noted_ = 0;
};

int rank_count(const CapOptions& options);

}  // namespace

base::Result<Schedule> capped(const CapOptions& options) {
  TRIREME_CHECK(!options.lanes.empty() && options.microbatches >= 1, "{} lanes, {} micro-batches",
                options.lanes.size(), options.microbatches);
  for (const auto* by_stage : {&options.f, &options.b, &options.w, &options.kept}) {
    TRIREME_CHECK(by_stage->size() == options.lanes[0].size(), "{} costs of {} stages",
                  by_stage->size(), options.lanes[0].size());
  }
  Play play(options);
  const double needed = play.needed_cap();
  if (options.cap > 0 && options.cap < needed) {
    return base::Result<Schedule>::no(fmt::format(
        "the cap is {:g}, but one micro-batch alone needs {:g}: the cap must be at least {:g}",
        options.cap, needed, needed));
  }
  return play.run();
}

namespace {

int rank_count(const CapOptions& options) {
  int count = 0;
  for (const Lane& lane : options.lanes) count = std::max(count, std::ranges::max(lane) + 1);
  return count;
}

Play::Play(const CapOptions& options)
    : options_(options),
      schedule_(empty_schedule(rank_count(options), options.microbatches, options.lanes)),
      ranks_(schedule_.program.size()),
      largest_demand_(schedule_.program.size(), 0) {
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    ranks_[rank].forwards_left.resize(static_cast<size_t>(options.microbatches), 0);
    for (int m = 0; m < options.microbatches; ++m) {
      for (int stage = 0; stage < schedule_.stages(); ++stage) {
        if (schedule_.rank_of(stage, m) != static_cast<int>(rank)) continue;
        ++ranks_[rank].forwards_left[static_cast<size_t>(m)];
      }
      largest_demand_[rank] = std::max(largest_demand_[rank], demand(static_cast<int>(rank), m));
    }
  }
}

Schedule Play::run() {
  for (int m = 0; m < options_.microbatches; ++m) {
    ranks_[static_cast<size_t>(schedule_.rank_of(0, m))].f.push_back({Op::F, 0, -1, m});
  }
  for (int rank = 0; rank < schedule_.ranks; ++rank) note(0, What::free, rank, 0, 0);
  while (!events_.empty()) {
    // Process all events of one moment before any rank decides.
    const double now = events_.top().at;
    while (!events_.empty() && events_.top().at == now) {
      const Event event = events_.top();
      events_.pop();
      play(event);
    }
    for (int rank = 0; rank < schedule_.ranks; ++rank) dispatch(rank, now);
  }
  return schedule_;
}

void Play::note(double at, What what, int rank, int stage, int microbatch) {
  events_.push({at, noted_++, what, rank, stage, microbatch});
}

void Play::play(const Event& event) {
  Rank& rank = ranks_[static_cast<size_t>(event.rank)];
  const auto stage = static_cast<int16_t>(event.stage);
  switch (event.what) {
    case What::input:
      rank.f.push_back({Op::F, stage, -1, event.microbatch});
      return;
    case What::gradient:
      rank.b.push_back({Op::B, stage, -1, event.microbatch});
      return;
    case What::free:
      rank.is_free = true;
      return;
  }
}

void Play::dispatch(int id, double now) {
  Rank& rank = ranks_[static_cast<size_t>(id)];
  if (!rank.is_free) return;
  if (!rank.b.empty()) {
    take(rank, rank.b, std::ranges::min_element(rank.b, {}, &Action::microbatch), now);
    return;
  }
  // One candidate per stage: micro-batches of a stage run in order.
  auto best = rank.f.end();
  for (auto f = rank.f.begin(); f != rank.f.end(); ++f) {
    if (best != rank.f.end() && f->stage <= best->stage) continue;
    if (fits(rank, id, *f)) best = f;
  }
  if (best != rank.f.end()) {
    take(rank, rank.f, best, now);
  } else if (!rank.w.empty()) {
    take(rank, rank.w, rank.w.begin(), now);
  }
}

void Play::take(Rank& rank, std::deque<Action>& from, std::deque<Action>::iterator which,
                double now) {
  const Action action = *which;
  from.erase(which);
  const auto stage = static_cast<size_t>(action.stage);
  const int m = action.microbatch;
  const int id = schedule_.rank_of(action.stage, m);
  schedule_.program[static_cast<size_t>(id)].push_back(action);
  rank.is_free = false;
  const auto tell = [&](What what, int other_stage, double done) {
    const int other = schedule_.rank_of(other_stage, m);
    note(done + (other == id ? 0 : options_.message_seconds), what, other, other_stage, m);
  };
  double done = now;
  if (action.op == Op::F) {
    done += options_.f[stage];
    rank.kept += options_.kept[stage];
    --rank.forwards_left[static_cast<size_t>(m)];
    while (rank.oldest < options_.microbatches &&
           rank.forwards_left[static_cast<size_t>(rank.oldest)] == 0) {
      ++rank.oldest;
    }
    const bool is_last = action.stage + 1 == schedule_.stages();
    tell(is_last ? What::gradient : What::input, action.stage + (is_last ? 0 : 1), done);
  } else if (action.op == Op::B) {
    done += options_.b[stage];
    rank.w.push_back({Op::W, action.stage, -1, m});
    if (action.stage > 0) tell(What::gradient, action.stage - 1, done);
  } else {
    done += options_.w[stage];
    rank.kept -= options_.kept[stage];
  }
  note(done, What::free, id, 0, 0);
}

bool Play::fits(const Rank& rank, int id, const Action& f) const {
  if (options_.cap <= 0) return true;
  const double wanted = rank.kept + options_.kept[static_cast<size_t>(f.stage)];
  const double reserved = f.microbatch == rank.oldest
                              ? 0
                              : left_for(id, rank.oldest) +
                                    largest_demand_[static_cast<size_t>(id)] -
                                    demand(id, rank.oldest);
  constexpr double rounding = 1e-9;  // for sums of sizes in another order
  return wanted + reserved <= options_.cap * (1 + rounding);
}

double Play::left_for(int rank, int microbatch) const {
  const int left = ranks_[static_cast<size_t>(rank)].forwards_left[static_cast<size_t>(microbatch)];
  double bytes = 0;
  // Its forwards run in the order of the stages, so the last ones remain.
  for (int stage = schedule_.stages() - 1, found = 0; stage >= 0 && found < left; --stage) {
    if (schedule_.rank_of(stage, microbatch) != rank) continue;
    bytes += options_.kept[static_cast<size_t>(stage)];
    ++found;
  }
  return bytes;
}

double Play::demand(int rank, int microbatch) const {
  double bytes = 0;
  for (int stage = 0; stage < schedule_.stages(); ++stage) {
    if (schedule_.rank_of(stage, microbatch) != rank) continue;
    bytes += options_.kept[static_cast<size_t>(stage)];
  }
  return bytes;
}

}  // namespace
}  // namespace trireme::schedule
