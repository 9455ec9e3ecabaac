// SPDX-License-Identifier: Apache-2.0
// Flight records of runs that lost a rank, interpreted by the rules of the two analysers that they
// are written for: torch.distributed.flight_recorder of PyTorch 2.11 and fr_attribution of NVIDIA's
// nvidia-resiliency-ext. tests/launch/check_flight_records.py runs PyTorch's.
#include "comm/failure/flight_record.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>

#include "base/error.h"
#include "base/text/json.h"
#include "base/text/pickle.h"
#include "comm/world/rank_test.h"

namespace trireme::comm {
namespace {

using base::Json;
using Records = std::map<int, Json>;  // by rank; a stopped rank has none
using Ranks = std::set<int>;

Ranks ranks_of(const Json& record, const std::string& number) {
  const Json parsed = Json::parse(record["pg_config"][number]["ranks"].get<std::string>());
  return parsed.get<Ranks>();
}

// NVIDIA's rule for collectives, by group: calls in state "scheduled" are waited in; a rank of the
// group is missing if it waits in none, or has enqueued fewer than another.
std::map<std::string, Ranks> missing_by_nvidia(const Records& records) {
  std::map<std::string, Ranks> groups, waiting, missing;
  std::map<std::string, int64_t> enqueued;
  std::map<std::string, std::string> described;
  for (const auto& [rank, record] : records) {
    for (const auto& [number, config] : record["pg_config"].items()) {
      groups[number].merge(ranks_of(record, number));
    }
    for (const Json& entry : record["entries"]) {
      if (entry["state"] != "scheduled") continue;
      const auto number = entry["process_group"][0].get<std::string>();
      described[number] = entry["process_group"][1].get<std::string>();
      waiting[number].insert(rank);
      const Json& status = record["pg_status"][std::to_string(entry["pg_id"].get<int64_t>())];
      enqueued[number] =
          std::max(enqueued[number], status["last_enqueued_collective"].get<int64_t>());
    }
  }
  for (const auto& [number, waiters] : waiting) {
    for (const int rank : groups[number]) {
      const auto found = records.find(rank);
      const bool is_behind =
          found != records.end() && found->second["pg_status"].contains(number) &&
          found->second["pg_status"][number]["last_enqueued_collective"] < enqueued[number];
      if (!waiters.contains(rank) || is_behind) missing[described[number]].insert(rank);
    }
  }
  return missing;
}

// PyTorch's rule: the entries of a group that have the same collective_seq_id are one call, in
// which every rank of the group takes part. Returns the missing ranks of the first call of each
// group that is not complete, under the group's description and the call.
std::map<std::string, Ranks> missing_by_torch(const Records& records) {
  std::map<std::string, Ranks> missing;
  std::set<std::string> seen;
  for (const auto& [first, record] : records) {
    for (const Json& entry : record["entries"]) {
      const auto number = entry["process_group"][0].get<std::string>();
      if (seen.contains(number)) continue;
      Ranks expected = ranks_of(record, number);
      for (const auto& [other, others] : records) {
        for (const Json& found : others["entries"]) {
          if (found["process_group"] == entry["process_group"] &&
              found["collective_seq_id"] == entry["collective_seq_id"]) {
            expected.erase(other);
          }
        }
      }
      if (expected.empty()) continue;
      seen.insert(number);
      const auto name = entry["profiling_name"].get<std::string>();
      missing[entry["process_group"][1].get<std::string>() + " " + name] = expected;
    }
  }
  return missing;
}

Records records_of(ThreadWorld& world) {
  Records records;
  for (int rank = 0; rank < world.ranks(); ++rank) {
    records[rank] = world.recorder(rank).to_json();
  }
  return records;
}

TEST(FlightRecord, analysers_name_the_rank_that_did_not_enter_a_collective) {
  ThreadWorld world(4, 0.2);
  EXPECT_NE(failure_of(world,
                       [&](int r) {
                         Rank rank(world, r, StreamMode::inline_calls);
                         const auto pair = rank.group->split(r / 2, r, {.name = "pair"});
                         rank.group->barrier();
                         pair->barrier();
                         if (r != 2)
                           rank.group->all_reduce(*rank.stream, rank.make(Values(8, 1)),
                                                  Reduce::sum);
                       }),
            "");
  Records records = records_of(world);
  const std::string world_name = records[0]["entries"][0]["process_group"][1].get<std::string>();
  const std::map<std::string, Ranks> by_nvidia = {{world_name, {2}}};
  const std::map<std::string, Ranks> by_torch = {{world_name + " nccl:all_reduce", {2}}};
  EXPECT_EQ(missing_by_nvidia(records), by_nvidia);
  EXPECT_EQ(missing_by_torch(records), by_torch);
  // A stopped rank writes nothing.
  records.erase(2);
  EXPECT_EQ(missing_by_nvidia(records), by_nvidia);
}

TEST(FlightRecord, the_two_ranks_of_a_message_are_a_group) {
  ThreadWorld world(4, 0.2);
  EXPECT_NE(failure_of(world,
                       [&](int r) {
                         Rank rank(world, r, StreamMode::inline_calls);
                         const Tensor x = rank.make(Values(8, 1));
                         if (r == 1) rank.group->send(*rank.stream, x, 2);
                         if (r == 2) rank.group->recv(*rank.stream, x, 1);
                         if (r == 2) rank.group->send(*rank.stream, x, 1);
                         if (r == 1) rank.group->recv(*rank.stream, x, 2);
                         if (r == 1) rank.group->recv(*rank.stream, x, 2);
                       }),
            "");
  const Records records = records_of(world);
  const Json& entries = records.at(1)["entries"];
  const auto name = entries[0]["process_group"][1].get<std::string>();
  EXPECT_TRUE(name.ends_with(" 1-2")) << name;
  EXPECT_EQ(entries[0]["process_group"], records.at(2)["entries"][0]["process_group"]);
  EXPECT_EQ(entries[0]["profiling_name"], "nccl:send 0->1");
  EXPECT_EQ(records.at(2)["entries"][0]["profiling_name"], "nccl:recv 1<-0");
  EXPECT_EQ(entries[0]["input_sizes"], records.at(2)["entries"][0]["output_sizes"]);
  // Over both directions, numbers of a pair's messages differ and agree between the two.
  for (const size_t i : {0U, 1U}) {
    EXPECT_EQ(entries[i]["p2p_seq_id"], records.at(2)["entries"][i]["p2p_seq_id"]);
    EXPECT_EQ(entries[i]["p2p_seq_id"], entries[i]["collective_seq_id"]);
  }
  EXPECT_NE(entries[0]["p2p_seq_id"], entries[1]["p2p_seq_id"]);
  const std::map<std::string, Ranks> by_torch = {{name + " nccl:recv 0<-1", {2}}};
  EXPECT_EQ(missing_by_torch(records), by_torch);
}

// PyTorch's analyser stops at any other name; all of its releases support these.
TEST(FlightRecord, operations_have_names_that_every_release_of_pytorch_supports) {
  const std::set<std::string> known = {
      "broadcast", "all_gather", "all_reduce", "_all_gather_base",   "_reduce_scatter_base",
      "gather",    "scatter",    "all_to_all", "all_reduce_barrier", "send",
      "recv"};
  FlightRecorder recorder(0);
  for (const char* op : {"all_gather", "reduce_scatter", "all_reduce", "broadcast", "all_to_all",
                         "barrier", "split", "send", "recv"}) {
    recorder.scheduled({.group = "world", .ranks = {0, 1}, .op = op, .dtype = "f32", .peer = 1});
  }
  const Json record = recorder.to_json();
  for (const Json& entry : record["entries"]) {
    const auto name = entry["profiling_name"].get<std::string>();
    ASSERT_TRUE(name.starts_with("nccl:")) << name;
    EXPECT_TRUE(known.contains(name.substr(5, name.find(' ') - 5))) << name;
  }
  EXPECT_EQ(record["entries"][6]["trireme_op"], "split");
}

TEST(FlightRecord, a_group_has_one_number_everywhere) {
  // Processes of other builds and machines write records of the same group: FNV-1a of "tp[0,1]",
  // computed apart from this program.
  EXPECT_EQ(group_number("tp", {0, 1}), "981520687524");
  EXPECT_EQ(group_number("dp+zero", {0, 8, 16}), "788581544457");
  const std::set<std::string> numbers = {group_number("tp", {0, 1}), group_number("tp", {2, 3}),
                                         group_number("dp", {0, 1}), group_number("tp", {0, 1, 2})};
  EXPECT_EQ(numbers.size(), 4U);
  for (const std::string& number : numbers) {
    EXPECT_EQ(number.find_first_not_of("0123456789"), std::string::npos) << number;
  }
}

TEST(FlightRecord, is_written_as_json_and_as_pickle) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "flight_record_test";
  std::filesystem::create_directories(folder);
  FlightRecorder recorder(3);
  recorder.scheduled({.op = "barrier"});
  recorder.write(folder);
  const auto text_of = [&](const std::string& name) {
    std::ifstream file(folder / name, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const Json record = Json::parse(text_of("rank_3.json"));
  EXPECT_EQ(record["entries"].size(), 1U);
  EXPECT_EQ(text_of("_dump_3"), base::pickle(record));
  std::filesystem::remove_all(folder);
  EXPECT_THROW(recorder.write(folder), base::IoError);
}

}  // namespace
}  // namespace trireme::comm
