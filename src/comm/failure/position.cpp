// SPDX-License-Identifier: Apache-2.0
#include "comm/failure/position.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <deque>

#include "base/text/json.h"

namespace trireme::comm {
namespace {

using Call = RankPosition::Call;
using Entry = FlightRecorder::Entry;

Call call_of(const Entry& entry) {
  Call call{.op = entry.op, .group = entry.group, .ranks = entry.ranks, .sequence = entry.sequence};
  if (call.is_message()) call.peer = entry.peer;
  return call;
}

// Groups of a mesh are regular and may be large, so they are written as first, step and count;
// other groups as a list.
base::Json json_of(const std::vector<int>& ranks) {
  const int step = ranks.size() > 1 ? ranks[1] - ranks[0] : 1;
  for (size_t i = 1; i < ranks.size(); ++i) {
    if (ranks[i] - ranks[i - 1] != step) return ranks;
  }
  if (ranks.empty()) return ranks;
  return {{"first", ranks[0]}, {"step", step}, {"count", ranks.size()}};
}

void add_calls(const std::deque<Entry>& entries, RankPosition& position) {
  const Entry *inside = nullptr, *finished = nullptr;
  std::vector<const Entry*> reached;  // one a group
  for (const Entry& entry : entries) {
    const bool waits = entry.state == FlightRecorder::State::scheduled;
    if (entry.state == FlightRecorder::State::completed) {
      finished = &entry;
    } else if (inside == nullptr || (inside->state == FlightRecorder::State::scheduled && !waits)) {
      inside = &entry;
    }
    if (waits || entry.op == "send" || entry.op == "recv") continue;
    const auto same = std::ranges::find_if(reached, [&](const Entry* other) {
      return other->group == entry.group && other->ranks == entry.ranks;
    });
    if (same == reached.end()) {
      reached.push_back(&entry);
    } else {
      *same = &entry;
    }
  }
  if (inside != nullptr) position.inside = call_of(*inside);
  position.has_begun = inside == nullptr || inside->state != FlightRecorder::State::scheduled;
  if (finished != nullptr) position.finished = call_of(*finished);
  for (const Entry* entry : reached) position.reached.push_back(call_of(*entry));
}

// Thrown for a text of the store that no rank wrote.
struct NotPosition {};

std::vector<int> ranks_from(const base::Json& json, int world) {
  std::vector<int> ranks;
  if (json.is_object()) {
    const int64_t first = json.at("first"), step = json.at("step"), count = json.at("count");
    const bool is_small = first >= 0 && first < world && step > -world && step < world;
    if (!is_small || count < 0 || count > world) throw NotPosition();
    for (int64_t i = 0; i < count; ++i) ranks.push_back(static_cast<int>(first + i * step));
  } else {
    ranks = json.get<std::vector<int>>();
  }
  const bool is_good = std::all_of(ranks.begin(), ranks.end(),
                                   [world](int rank) { return rank >= 0 && rank < world; });
  if (!is_good || ranks.size() > static_cast<size_t>(world)) throw NotPosition();
  return ranks;
}

base::Json json_of(const Call& call) {
  return {{"op", call.op},
          {"group", call.group},
          {"ranks", json_of(call.ranks)},
          {"sequence", call.sequence},
          {"peer", call.peer}};
}

Call call_from(const base::Json& json, int world) {
  return {.op = json.at("op"),
          .group = json.at("group"),
          .ranks = ranks_from(json.at("ranks"), world),
          .sequence = json.at("sequence"),
          .peer = json.at("peer")};
}

}  // namespace

std::string own_host() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "";
  return name.data();
}

RankPosition position_of(const FlightRecorder& recorder) {
  RankPosition position{.rank = recorder.world_rank(), .process = ::getpid()};
  position.host = own_host();
  recorder.read([&](const std::deque<Entry>& entries) { add_calls(entries, position); });
  return position;
}

std::string to_text(const RankPosition& position) {
  base::Json json = {{"rank", position.rank},
                     {"host", position.host},
                     {"process", position.process},
                     {"has_left", position.has_left},
                     {"has_begun", position.has_begun}};
  if (position.inside) json["inside"] = json_of(*position.inside);
  if (position.finished) json["finished"] = json_of(*position.finished);
  if (position.motion) {
    const Motion& motion = *position.motion;
    json["motion"] = {{"phase", motion.phase},
                      {"still_s", motion.still_s},
                      {"limit_s", motion.limit_s},
                      {"step", motion.step}};
  }
  json["reached"] = base::Json::array();
  for (const Call& call : position.reached) json["reached"].push_back(json_of(call));
  return json.dump(-1, ' ', false, base::Json::error_handler_t::replace);
}

std::optional<RankPosition> position_from(const std::string& text, int world) {
  // A rank lists one call per group, and groups are few.
  constexpr size_t max_text_bytes = size_t{1} << 20, max_reached = 4096;
  if (text.size() > max_text_bytes) return std::nullopt;
  try {
    const base::Json json = base::Json::parse(text);
    RankPosition position{.rank = json.at("rank"),
                          .host = json.at("host"),
                          .process = json.at("process"),
                          .has_left = json.at("has_left")};
    if (json.contains("inside")) position.inside = call_from(json["inside"], world);
    position.has_begun = json.value("has_begun", true);
    if (json.contains("finished")) position.finished = call_from(json["finished"], world);
    if (json.contains("motion")) {
      const base::Json& motion = json["motion"];
      position.motion = {.phase = motion.at("phase"),
                         .still_s = motion.at("still_s"),
                         .limit_s = motion.at("limit_s"),
                         .step = motion.at("step")};
    }
    if (json.at("reached").size() > max_reached) return std::nullopt;
    for (const base::Json& call : json.at("reached")) {
      position.reached.push_back(call_from(call, world));
    }
    return position;
  } catch (const base::Json::exception&) {
    return std::nullopt;  // any process may have written the text
  } catch (const NotPosition&) {
    return std::nullopt;  // the same
  }
}

std::string call_text(const Call& call) {
  if (call.op == "send") {
    return fmt::format("send #{} to rank {} in group '{}'", call.sequence, call.peer, call.group);
  }
  if (call.op == "recv") {
    return fmt::format("recv #{} from rank {} in group '{}'", call.sequence, call.peer, call.group);
  }
  return fmt::format("{} #{} of group '{}'", call.op, call.sequence, call.group);
}

}  // namespace trireme::comm
