// SPDX-License-Identifier: Apache-2.0
#include "comm/world/epochs.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/text/json.h"
#include "base/text/json_depth.h"
#include "comm/store/store_wire.h"

namespace trireme::comm {
namespace {

// A waiting process looks this often whether it is requested to stop.
constexpr double look_seconds = 0.1;

// Keys hold the newest epoch that they are about: the store has no more of them after many epochs.
const std::string course_key = "course";
std::string left_key(int rank) { return fmt::format("left/{}", rank); }
std::string ready_key(int node) { return fmt::format("ready/{}", node); }
std::string ready_text(int64_t epoch, int64_t placement) {
  return fmt::format("{}/{}", epoch, placement);
}
const std::string placement_key = "placement";
std::string spares_key(int node) { return fmt::format("spares/{}", node); }
// Waiting needs a separate key.
std::string formed_key(int64_t epoch) { return fmt::format("formed/{}", epoch); }
std::string part_key(const std::string& spare) { return fmt::format("part/{}", spare); }

std::string course_text(int64_t epoch, Course course) {
  return fmt::format("{} of epoch {}", course == Course::regroup ? "regroup" : "end", epoch);
}

bool is_of(const std::optional<std::string>& value, int64_t epoch) {
  return value == std::to_string(epoch);
}

std::unique_ptr<Store> run_store(const RankInfo& info) {
  return open_store(parse_store_address(info.store), {.outage_s = info.outage_s(),
                                                      .is_leaving = info.stop,
                                                      .token = info.token,
                                                      .stop = info.stop,
                                                      .on_waiting = {}});
}

void throw_if_stopped(const RankInfo& info) {
  if (info.stop != nullptr && *info.stop) {
    throw base::Stopped("stopped before an epoch of the run began");
  }
}

}  // namespace

void EpochKeys::set_course(int64_t epoch, Course course) {
  store_.set(course_key, course_text(epoch, course));
}

std::optional<Course> EpochKeys::course(int64_t epoch) {
  const auto text = store_.try_get(course_key);
  for (const Course course : {Course::end, Course::regroup}) {
    if (text == course_text(epoch, course)) return course;
  }
  return std::nullopt;
}

void EpochKeys::rank_has_left(int64_t epoch, int rank) {
  store_.set(left_key(rank), std::to_string(epoch));
}

std::vector<bool> EpochKeys::have_left(int64_t epoch, std::span<const int> ranks) {
  std::vector<std::string> keys;
  for (const int rank : ranks) keys.push_back(left_key(rank));
  std::vector<bool> have;
  for (const auto& value : store_.read(keys)) have.push_back(is_of(value, epoch));
  return have;
}

void EpochKeys::node_is_ready(int64_t next_epoch, int64_t placement, int node) {
  store_.set(ready_key(node), ready_text(next_epoch, placement));
}

bool EpochKeys::are_ready(int64_t next_epoch, int64_t placement, std::span<const int> nodes) {
  std::vector<std::string> keys;
  for (const int node : nodes) keys.push_back(ready_key(node));
  const auto values = store_.read(keys);
  return std::ranges::all_of(values, [&](const std::optional<std::string>& value) {
    return value == ready_text(next_epoch, placement);
  });
}

void EpochKeys::form(int64_t epoch) { (void)store_.set_once(formed_key(epoch), "1"); }

bool EpochKeys::is_formed(int64_t epoch) { return store_.try_get(formed_key(epoch)).has_value(); }

bool EpochKeys::wait_until_formed(int64_t epoch, double seconds) {
  const std::string key = formed_key(epoch);
  return store_.wait({&key, 1}, seconds);
}

void EpochKeys::set_placement(const std::string& text) { store_.set(placement_key, text); }

std::optional<std::string> EpochKeys::placement() { return store_.try_get(placement_key); }

void EpochKeys::set_spares(int node, int spares) {
  store_.set(spares_key(node), std::to_string(spares));
}

std::vector<int> EpochKeys::spares(int nodes) {
  std::vector<std::string> keys;
  for (int node = 0; node < nodes; ++node) keys.push_back(spares_key(node));
  std::vector<int> spares;
  for (const auto& value : store_.read(keys)) {
    const auto number = value ? integer_from(*value) : std::nullopt;
    spares.push_back(static_cast<int>(number.value_or(0)));
  }
  return spares;
}

void EpochKeys::give_part(const std::string& spare, const Part& part) {
  store_.set(part_key(spare), base::Json::array({part.rank, part.local_rank, part.epoch,
                                                 part.memory_fd, part.peer_memory_fd})
                                  .dump());
}

std::optional<EpochKeys::Part> EpochKeys::part_of(const std::string& spare, double seconds) {
  const std::string key = part_key(spare);
  if (!store_.wait({&key, 1}, seconds)) return std::nullopt;
  try {
    const base::Json part = base::parse_shallow_json(store_.get(key, seconds));
    return Part{part.at(0).get<int>(), part.at(1).get<int>(), part.at(2).get<int64_t>(),
                part.at(3).get<int>(), part.at(4).get<int>()};
  } catch (const base::Json::exception& error) {
    throw base::CommAborted(
        fmt::format("the store has a part of this spare that is none: {}", error.what()));
  }
}

void await_formation(const RankInfo& info) {
  const std::unique_ptr<Store> store = run_store(info);
  EpochKeys keys(*store);
  while (!keys.wait_until_formed(info.epoch, look_seconds)) throw_if_stopped(info);
}

RankInfo await_part(RankInfo info) {
  TRIREME_CHECK(!info.spare.empty(), "rank {} is no spare", info.rank);
  const std::unique_ptr<Store> store = run_store(info);
  EpochKeys keys(*store);
  while (true) {
    if (const auto part = keys.part_of(info.spare, look_seconds)) {
      info.rank = part->rank;
      info.local_rank = part->local_rank;
      info.epoch = part->epoch;
      info.memory_fd = part->memory_fd;
      info.peer_memory_fd = part->peer_memory_fd;
      info.joins = true;
      info.spare.clear();
      return info;
    }
    throw_if_stopped(info);
  }
}

std::function<std::optional<RankInfo>()> next_epoch_of(const RankInfo& info) {
  RankInfo current = info;
  return [current]() mutable -> std::optional<RankInfo> {
    const std::unique_ptr<Store> store = run_store(current);
    EpochKeys keys(*store);
    keys.rank_has_left(current.epoch, current.rank);
    while (!keys.wait_until_formed(current.epoch + 1, look_seconds)) {
      throw_if_stopped(current);
      if (keys.course(current.epoch) == Course::end) return std::nullopt;
    }
    ++current.epoch;
    return current;
  };
}

}  // namespace trireme::comm
