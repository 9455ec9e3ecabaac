// SPDX-License-Identifier: Apache-2.0
#include "spec/memory/stash_frames.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "schedule/lives.h"

namespace trireme::spec {
namespace {

// One pool, filled in the order in which frames begin.
class Places {
 public:
  struct Place {
    int64_t at = 0;
    int free_behind = -1;  // where the last frame that overlapped it ends
  };

  // Returns the lowest place that is free for `bytes` from position `begin` to position `end`, both
  // inclusive. REQUIRES: `begin` is not below that of the previous call.
  Place take(int64_t bytes, int begin, int end) {
    if (bytes == 0) return {};
    Place place;
    int64_t live = bytes;
    for (const Piece& piece : pieces_) {
      if (piece.last < begin) continue;
      live += piece.end - piece.begin;
      if (piece.begin < place.at + bytes) place.at = piece.end;
    }
    place.free_behind = put({place.at, place.at + bytes, end});
    size_.bytes = std::max(size_.bytes, place.at + bytes);
    size_.peak = std::max(size_.peak, live);
    return place;
  }
  const StashLayout::Size& size() const { return size_; }

 private:
  // Bytes [begin, end) of the pool, and the last position of the frame that occupies them.
  struct Piece {
    int64_t begin = 0, end = 0;
    int last = -1;
  };
  // The last position of the frames that the new one replaces.
  int put(const Piece& own) {
    const auto first = std::partition_point(pieces_.begin(), pieces_.end(),
                                            [&](const Piece& old) { return old.end <= own.begin; });
    const auto behind = std::partition_point(first, pieces_.end(),
                                             [&](const Piece& old) { return old.begin < own.end; });
    int last = -1;
    for (auto old = first; old != behind; ++old) last = std::max(last, old->last);
    std::array<Piece, 3> parts;
    size_t count = 0;
    if (first != behind && first->begin < own.begin) {
      parts[count++] = {first->begin, own.begin, first->last};
    }
    parts[count++] = own;
    if (first != behind && own.end < (behind - 1)->end) {
      parts[count++] = {own.end, (behind - 1)->end, (behind - 1)->last};
    }
    // Overwrites the old pieces first.
    const size_t replaced = std::min(count, static_cast<size_t>(behind - first));
    const auto next = std::copy_n(parts.begin(), replaced, first);
    if (next != behind) {
      pieces_.erase(next, behind);
    } else {
      pieces_.insert(next, parts.begin() + replaced, parts.begin() + count);
    }
    return last;
  }

  std::vector<Piece> pieces_;  // in order, without overlap
  StashLayout::Size size_;
};

}  // namespace

void place_frames(StashLayout& layout, std::span<const StashStage> stages,
                  const schedule::Schedule& schedule, int rank) {
  layout.frames.assign(
      stages.size(), std::vector<StashLayout::Frames>(static_cast<size_t>(schedule.microbatches)));
  struct Frame {
    Pool pool;
    size_t stage;
    int microbatch, begin, end;
  };
  std::vector<Frame> frames;
  for (const schedule::Passage& p : schedule::passages(schedule, rank)) {
    const auto found = std::find_if(stages.begin(), stages.end(),
                                    [&](const StashStage& s) { return s.number == p.stage; });
    TRIREME_CHECK(found != stages.end(), "stage {} is not on rank {}", p.stage, rank);
    const auto stage = static_cast<size_t>(found - stages.begin());
    const int input_end = layout.stages[stage].input_until_w ? p.w : p.b;
    frames.push_back({Pool::inputs, stage, p.microbatch, p.begin, input_end});
    frames.push_back({Pool::f_to_b, stage, p.microbatch, p.f, p.b});
    frames.push_back({Pool::f_to_w, stage, p.microbatch, p.f, p.w});
    frames.push_back({Pool::gradients, stage, p.microbatch, p.gradient, p.w});
    if (!layout.is_merged) frames.push_back({Pool::b_to_w, stage, p.microbatch, p.b, p.w});
  }
  std::stable_sort(frames.begin(), frames.end(),
                   [](const Frame& a, const Frame& b) { return a.begin < b.begin; });
  std::array<Places, pool_count> places;
  for (const Frame& frame : frames) {
    const int64_t bytes = layout.stages[frame.stage].frame_bytes[index_of(frame.pool)];
    const Places::Place place = places[index_of(frame.pool)].take(bytes, frame.begin, frame.end);
    StashLayout::Frames& to = layout.frames[frame.stage][static_cast<size_t>(frame.microbatch)];
    to.at[index_of(frame.pool)] = place.at;
    if (frame.pool == Pool::inputs) to.input_free_behind = place.free_behind;
    if (frame.pool == Pool::gradients) to.gradient_free_behind = place.free_behind;
  }
  for (const Pool pool :
       {Pool::inputs, Pool::f_to_b, Pool::f_to_w, Pool::b_to_w, Pool::gradients}) {
    layout.pools[index_of(pool)] = places[index_of(pool)].size();
  }
}

}  // namespace trireme::spec
