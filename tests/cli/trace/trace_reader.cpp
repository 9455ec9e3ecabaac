// SPDX-License-Identifier: Apache-2.0
#include "tests/cli/trace/trace_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>

#include "tests/cli/program.h"

namespace trireme::tests {
namespace {

using base::Json;
using TrackKey = std::pair<int, int>;

struct FlowEnd {
  TrackKey track;
  int64_t ns = 0;
};
struct Flow {
  std::string category;
  std::vector<FlowEnd> begins, ends;
};

std::string text(const Json& object, const char* key) { return object.at(key).get<std::string>(); }
int number(const Json& object, const char* key) { return object.at(key).get<int>(); }
TrackKey track_of(const Json& event) { return {number(event, "pid"), number(event, "tid")}; }

int64_t nanoseconds(const Json& microseconds) {
  return std::llround(1e3 * microseconds.get<double>());
}

const std::set<std::string> categories = {"step",          "compute", "memory", "optimizer",
                                          "communication", "wait",    "host"};

void add_metadata(const Json& event, ReadTrace& trace) {
  const std::string what = text(event, "name");
  const int pid = number(event, "pid");
  const Json& args = event.at("args");
  if (what == "process_name") {
    EXPECT_TRUE(trace.ranks.emplace(pid, text(args, "name")).second) << event;
  } else if (what == "thread_name") {
    EXPECT_TRUE(trace.tracks.emplace(track_of(event), text(args, "name")).second) << event;
  } else if (what == "process_sort_index") {
    EXPECT_EQ(number(args, "sort_index"), pid);
  } else {
    EXPECT_EQ(what, "process_labels");
  }
}

void add_slice(const Json& event, ReadTrace& trace) {
  const int64_t begin = nanoseconds(event.at("ts")), taken = nanoseconds(event.at("dur"));
  EXPECT_GE(begin, 0) << event;
  EXPECT_GE(taken, 0) << event;
  trace.slices.push_back({number(event, "pid"), number(event, "tid"), begin, begin + taken,
                          text(event, "name"), text(event, "cat"),
                          event.value("args", Json::object())});
  EXPECT_TRUE(categories.contains(trace.slices.back().category)) << event;
}

// Slices of a track may have any order in the file.
template <typename Time>
void expect_nested(std::vector<std::pair<Time, Time>> slices, const std::string& track) {
  std::stable_sort(slices.begin(), slices.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first, -a.second) < std::pair(b.first, -b.second);
  });
  std::vector<std::pair<Time, Time>> open;
  for (const auto& slice : slices) {
    while (!open.empty() && open.back().second <= slice.first) open.pop_back();
    ASSERT_TRUE(open.empty() || slice.second <= open.back().second)
        << track << ": " << slice.first << " to " << slice.second << " ends after "
        << open.back().second;
    open.push_back(slice);
  }
}

// Returns the innermost slice around a time of a track; null: there is none.
const ReadSlice* slice_at(const std::vector<const ReadSlice*>& slices, int64_t ns) {
  const ReadSlice* found = nullptr;
  for (const ReadSlice* slice : slices) {
    if (slice->begin_ns <= ns && ns <= slice->end_ns &&
        (found == nullptr || slice->begin_ns >= found->begin_ns)) {
      found = slice;
    }
  }
  return found;
}

int64_t largest_clock_error(const Json& other_data) {
  double error_us = 0;
  for (const Json& clock : other_data.at("clocks")) {
    if (!clock.at("error_us").is_null())
      error_us = std::max(error_us, clock.at("error_us").get<double>());
  }
  return std::llround(1e3 * error_us) + 1;
}

void expect_flows(const std::map<int64_t, Flow>& flows, ReadTrace& trace) {
  std::map<TrackKey, std::vector<const ReadSlice*>> by_track;
  for (const ReadSlice& slice : trace.slices) {
    by_track[{slice.rank, slice.track}].push_back(&slice);
  }
  const int64_t error = largest_clock_error(trace.other_data);
  for (const auto& [id, flow] : flows) {
    ASSERT_TRUE(flow.begins.size() == 1 && flow.ends.size() == 1) << "flow " << id;
    const FlowEnd &from = flow.begins.front(), &to = flow.ends.front();
    EXPECT_LE(from.ns, to.ns + error) << "flow " << id;
    const ReadSlice* source = slice_at(by_track[from.track], from.ns);
    const ReadSlice* target = slice_at(by_track[to.track], to.ns);
    ASSERT_TRUE(source != nullptr && target != nullptr) << "flow " << id << " is bound to nothing";
    ++trace.flows[flow.category];
    if (flow.category != "message") {
      EXPECT_EQ(flow.category, "queue");
      EXPECT_EQ(source->category, "host");
      EXPECT_EQ(source->rank, target->rank);
      continue;
    }
    EXPECT_EQ(source->name, "send");
    EXPECT_EQ(target->name, "recv");
    EXPECT_EQ(text(source->args, "group"), text(target->args, "group"));
    EXPECT_EQ(number(source->args, "sequence"), number(target->args, "sequence"));
    EXPECT_EQ(number(source->args, "peer"), target->rank);
    EXPECT_EQ(number(target->args, "peer"), source->rank);
  }
}

}  // namespace

std::vector<ReadSlice> ReadTrace::of_category(const std::string& category) const {
  std::vector<ReadSlice> found;
  for (const ReadSlice& slice : slices) {
    if (slice.category == category) found.push_back(slice);
  }
  return found;
}

ReadTrace read_trace(const std::string& file) {
  const Json json = only_object(file);
  ReadTrace trace;
  trace.other_data = json.at("otherData");
  std::map<int64_t, Flow> flows;
  for (const Json& event : json.at("traceEvents")) {
    const std::string phase = text(event, "ph");
    if (phase == "M") {
      add_metadata(event, trace);
    } else if (phase == "X") {
      add_slice(event, trace);
    } else {
      EXPECT_TRUE(phase == "s" || (phase == "f" && text(event, "bp") == "e")) << event;
      Flow& flow = flows[event.at("id").get<int64_t>()];
      flow.category = text(event, "cat");
      (phase == "s" ? flow.begins : flow.ends)
          .push_back({track_of(event), nanoseconds(event.at("ts"))});
    }
  }
  std::map<TrackKey, std::vector<std::pair<int64_t, int64_t>>> whole;
  std::map<TrackKey, std::vector<std::pair<double, double>>> doubles;
  for (const Json& event : json.at("traceEvents")) {
    if (text(event, "ph") != "X") continue;
    const TrackKey key = track_of(event);
    EXPECT_TRUE(trace.tracks.contains(key) && trace.ranks.contains(key.first)) << event;
    const double begin = event.at("ts").get<double>(), taken = event.at("dur").get<double>();
    doubles[key].emplace_back(begin, begin + taken);
    const int64_t begin_ns = nanoseconds(event.at("ts"));
    whole[key].emplace_back(begin_ns, begin_ns + nanoseconds(event.at("dur")));
  }
  for (const auto& [key, slices] : whole) expect_nested(slices, trace.tracks[key]);
  for (const auto& [key, slices] : doubles) expect_nested(slices, trace.tracks[key]);
  expect_flows(flows, trace);
  return trace;
}

void expect_complete_communication(const ReadTrace& trace) {
  // By group and its ranks, then by rank: ops by sequence.
  std::map<std::pair<std::string, std::string>, std::map<int, std::map<int64_t, std::string>>>
      groups;
  int sent = 0, received = 0;
  for (const ReadSlice& slice : trace.of_category("communication")) {
    EXPECT_EQ(slice.name, text(slice.args, "op"));
    EXPECT_GE(slice.args.at("bytes").get<int64_t>(), 0);
    sent += slice.name == "send" ? 1 : 0;
    received += slice.name == "recv" ? 1 : 0;
    if (slice.name == "send" || slice.name == "recv") continue;
    auto& calls = groups[{text(slice.args, "group"), text(slice.args, "ranks")}][slice.rank];
    EXPECT_TRUE(calls.emplace(number(slice.args, "sequence"), slice.name).second) << slice.args;
  }
  EXPECT_EQ(sent, received);
  const auto flows = trace.flows.find("message");
  EXPECT_EQ(flows == trace.flows.end() ? 0 : flows->second, sent);
  for (const auto& [group, by_rank] : groups) {
    std::stringstream members(group.second);
    for (std::string member; std::getline(members, member, ',');) {
      EXPECT_TRUE(by_rank.contains(std::stoi(member))) << group.first << " of " << group.second;
    }
    const auto& first = by_rank.begin()->second;
    EXPECT_EQ(first.rbegin()->first - first.begin()->first + 1, static_cast<int64_t>(first.size()))
        << group.first << " has gaps";
    for (const auto& [rank, calls] : by_rank) EXPECT_EQ(calls, first) << group.first << " " << rank;
  }
}

}  // namespace trireme::tests
