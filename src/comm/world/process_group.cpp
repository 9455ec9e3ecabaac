// SPDX-License-Identifier: Apache-2.0
#include "comm/world/process_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <numeric>
#include <optional>
#include <thread>

#include "base/check.h"
#include "base/error.h"
#include "comm/clock.h"
#include "comm/store/store_wire.h"

namespace trireme::comm {
namespace {

std::string key_of(const ProcessGroup& group, const SyncPoint& point, int64_t place) {
  return fmt::format("{}/{}{}/{}", group.key, point.what, point.number, place);
}

// Detects ranks whose hosts wait for each other. A cycle counts if two checks several heartbeats
// apart find the same one.
class CycleFinder {
 public:
  explicit CycleFinder(ProcessWorld& world) : world_(world), looked_(Clock::now()) {}

  // Aborts the run and throws CommAborted if there is a cycle.
  void look() {
    if (seconds_since(looked_) < 0.8) return;
    const std::string found = world_.wait_cycle();
    if (!found.empty() && found == seen_) {
      world_.abort(found);
      world_.throw_if_aborted();
    }
    seen_ = found;
    looked_ = Clock::now();
  }

 private:
  ProcessWorld& world_;
  Clock::time_point looked_;
  std::string seen_;
};

}  // namespace

ProcessGroup world_group(const ProcessWorld& world, const std::string& key) {
  ProcessGroup group{.rank = world.info().rank, .key = key};
  group.world_ranks.resize(static_cast<size_t>(world.info().world));
  std::iota(group.world_ranks.begin(), group.world_ranks.end(), 0);
  return group;
}

void store_barrier(ProcessWorld& world, const ProcessGroup& group, const SyncPoint& point) {
  const std::string count = fmt::format("{}/{}", group.key, point.what);
  const std::string open = key_of(group, point, -1);
  const int64_t come = world.store().add(count, 1);
  if (come == (point.number + 1) * group.size()) world.store().set(open, "");
  world.wait_for({&open, 1}, point.deadline_s, point.ends_on_stop);
}

std::vector<std::string> gather_texts(ProcessWorld& world, const ProcessGroup& group,
                                      const SyncPoint& point, const std::string& text) {
  // Two keys per rank serve all sync points: a rank that writes number n + 2 has read the texts of
  // all ranks for n + 1, so all ranks have read n.
  const auto place_of = [&](int rank) {
    return fmt::format("{}/{}{}/{}", group.key, point.what, point.number % 2, rank);
  };
  const std::string head = fmt::format("{} ", point.number);
  world.store().set(place_of(group.rank), head + text);
  std::vector<std::string> texts(static_cast<size_t>(group.size()));
  texts[static_cast<size_t>(group.rank)] = text;
  std::vector<int> missing;
  for (int rank = 0; rank < group.size(); ++rank) {
    if (rank != group.rank) missing.push_back(rank);
  }
  CycleFinder cycles(world);
  const auto begin = Clock::now();
  auto pause = std::chrono::microseconds(200);
  while (!missing.empty()) {
    if (point.ends_on_stop) world.throw_if_ended();
    world.throw_if_aborted();
    if (seconds_since(begin) >= point.deadline_s) {
      world.fail(ProcessWorld::Failure::deadline, "waiting for the store", point.deadline_s);
    }
    cycles.look();
    std::vector<std::string> places;
    for (const int rank : missing) places.push_back(place_of(rank));
    const auto found = world.store().read(places);
    std::vector<int> still;
    for (size_t i = 0; i < missing.size(); ++i) {
      if (found[i] && found[i]->starts_with(head)) {
        texts[static_cast<size_t>(missing[i])] = found[i]->substr(head.size());
      } else {
        still.push_back(missing[i]);
      }
    }
    missing = std::move(still);
    if (missing.empty()) break;
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::microseconds(20000));
  }
  return texts;
}

namespace {

struct Member {
  int64_t color = 0, key = 0;
  int rank = 0;
};

// "color key", as split_group() writes it.
std::optional<Member> member_from(const std::string& text, int rank) {
  const size_t blank = text.find(' ');
  if (blank == std::string::npos) return std::nullopt;
  const auto color = integer_from(std::string_view(text).substr(0, blank));
  const auto key = integer_from(std::string_view(text).substr(blank + 1));
  if (!color || !key) return std::nullopt;
  return Member{*color, *key, rank};
}

// Returns the color and key of every rank of the group, by rank.
std::vector<Member> all_members(ProcessWorld& world, const ProcessGroup& group,
                                const SyncPoint& point) {
  std::vector<Member> members;
  constexpr int part_ranks = 4096;
  for (int begin = 0; begin < group.size(); begin += part_ranks) {
    std::vector<std::string> keys;
    for (int rank = begin; rank < std::min(group.size(), begin + part_ranks); ++rank) {
      keys.push_back(key_of(group, point, rank));
    }
    for (const auto& value : world.store().read(keys)) {
      const int rank = static_cast<int>(members.size());
      const std::optional<Member> member = member_from(value.value_or(""), rank);
      if (!member) {
        const std::string why = fmt::format("the store's '{}' is not the color and key of a rank",
                                            key_of(group, point, rank));
        world.abort(why);
        throw base::CommAborted(why);
      }
      members.push_back(*member);
    }
  }
  return members;
}

}  // namespace

GroupSplit split_group(ProcessWorld& world, const ProcessGroup& group, const SyncPoint& point,
                       int color, int key) {
  std::map<int64_t, std::vector<Member>> members;  // by color
  if (group.size() == 1) {
    members[color] = {{color, key, 0}};
  } else {
    world.store().set(key_of(group, point, group.rank), fmt::format("{} {}", color, key));
    store_barrier(world, group, point);
    for (const Member& member : all_members(world, group, point)) {
      const bool is_own = member.rank == group.rank;
      members[is_own ? color : member.color].push_back(member);
    }
  }
  GroupSplit split;
  split.subgroup.key = fmt::format("{}/{}{}/{}", group.key, point.what, point.number, color);
  for (auto& [other_color, part] : members) {
    if (other_color < color) ++split.color_index;
    split.largest = std::max(split.largest, static_cast<int64_t>(part.size()));
    std::stable_sort(part.begin(), part.end(),
                     [](const Member& a, const Member& b) { return a.key < b.key; });
  }
  for (const Member& member : members.at(color)) {
    if (member.rank == group.rank) split.subgroup.rank = split.subgroup.size();
    split.subgroup.world_ranks.push_back(group.world_ranks[static_cast<size_t>(member.rank)]);
  }
  return split;
}

}  // namespace trireme::comm
