// SPDX-License-Identifier: Apache-2.0
#include "comm/failure/flight_record.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <map>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/text/json.h"
#include "base/text/pickle.h"

namespace trireme::comm {
namespace {

using Entry = FlightRecorder::Entry;
using State = FlightRecorder::State;
using base::Json;

const char* name_of(State state) {
  switch (state) {
    case State::scheduled:
      return "scheduled";
    case State::started:
      return "started";
    case State::completed:
      return "completed";
    case State::failed:
      return "failed";
  }
  return "unknown";
}

// PyTorch's names of operations and element types, if they differ. Its analyser stops at an unknown
// name, and only the newest supports "split", in which all ranks of a group wait for each other as
// in a barrier; trireme_op contains Trireme's name.
std::string torch_op(const std::string& op) {
  if (op == "all_gather") return "_all_gather_base";
  if (op == "reduce_scatter") return "_reduce_scatter_base";
  if (op == "barrier" || op == "split") return "all_reduce_barrier";
  return op;
}
std::string torch_dtype(const std::string& dtype) {
  static const std::map<std::string, std::string> names = {
      {"f32", "Float"},          {"bf16", "BFloat16"},
      {"f64", "Double"},         {"f8e4m3", "Float8_e4m3fn"},
      {"f8e5m2", "Float8_e5m2"}, {"i32", "Int"},
      {"i64", "Long"},           {"u8", "Byte"},
      {"u16", "UInt16"},         {"f16", "Half"}};
  const auto found = names.find(dtype);
  return found == names.end() ? dtype : found->second;
}

// An entry in the terms of the analysers.
struct TorchCall {
  std::string group;       // description
  std::vector<int> ranks;  // sorted for a message
  std::string name;        // "nccl:all_reduce", "nccl:send 0->1"
  int64_t sequence = 0;
  int64_t in_elements = 0, out_elements = 0;
  bool is_message = false;
};

TorchCall message_of(const Entry& entry, int world_rank) {
  const bool is_sent = entry.op == "send";
  const int low = std::min(world_rank, entry.peer), high = std::max(world_rank, entry.peer);
  const int place = world_rank == low ? 0 : 1;
  const int sender = is_sent ? place : 1 - place;
  const int64_t elements = std::max(entry.elements, entry.out_elements);
  return {.group = fmt::format("{} {}-{}", entry.group, low, high),
          .ranks = {low, high},
          .name = fmt::format("nccl:{} {}{}{}", entry.op, place, is_sent ? "->" : "<-", 1 - place),
          .sequence = 2 * entry.sequence + sender,
          .in_elements = elements,
          .out_elements = elements,
          .is_message = true};
}

TorchCall call_as_torch(const Entry& entry, int world_rank) {
  if (entry.op == "send" || entry.op == "recv") return message_of(entry, world_rank);
  TorchCall call = {.group = entry.group,
                    .ranks = entry.ranks,
                    .name = "nccl:" + torch_op(entry.op),
                    .sequence = entry.sequence,
                    .in_elements = entry.elements,
                    .out_elements = entry.out_elements};
  // A rank that contributes no part still takes part in the whole sum.
  if (entry.op == "reduce_scatter") {
    call.in_elements = entry.out_elements * static_cast<int64_t>(entry.ranks.size());
  }
  return call;
}

// The progress of a rank in a group, from the entries in the ring.
struct GroupStatus {
  int64_t enqueued = -1, started = -1, completed = -1;

  void add(int64_t sequence, State state) {
    enqueued = std::max(enqueued, sequence);
    if (state == State::scheduled) return;
    started = std::max(started, sequence);
    if (state == State::completed) completed = std::max(completed, sequence);
  }
};

Json sizes(int64_t elements) { return Json::array({Json::array({elements})}); }

// Not synced: a process that goes on with another epoch does not wait for the disk, and the text
// outlives the process.
void write(const std::filesystem::path& file, const std::string& text) {
  std::ofstream out(file, std::ios::binary);
  out << text;
  out.close();
  if (!out) throw std::system_error(errno, std::generic_category(), file.string());
}

}  // namespace

std::string group_number(std::string_view name, const std::vector<int>& ranks) {
  // FNV-1a; twelve decimal digits are enough to distinguish ten thousand groups and short enough
  // for a table.
  uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : fmt::format("{}[{}]", name, fmt::join(ranks, ","))) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  }
  return std::to_string(hash % 1'000'000'000'000U);
}

Json flight_record(const std::vector<Entry>& entries, int world_rank, int64_t made_ns) {
  const auto at_ns = [made_ns](double seconds) {
    return made_ns + static_cast<int64_t>(seconds * 1e9);
  };
  std::map<std::string, GroupStatus> statuses;
  Json config = Json::object(), list = Json::array();
  for (const Entry& entry : entries) {
    const TorchCall call = call_as_torch(entry, world_rank);
    const std::string number = group_number(call.group, call.ranks);
    config[number] = {{"name", number},
                      {"desc", call.group},
                      {"ranks", fmt::format("[{}]", fmt::join(call.ranks, ", "))}};
    statuses[number].add(call.sequence, entry.state);
    const bool completed = entry.state == State::completed;
    const Json dtypes = Json::array({torch_dtype(entry.dtype)});
    Json out = {{"frames", Json::array()},
                {"record_id", entry.record_id},
                {"pg_id", std::stoll(number)},
                {"process_group", {number, call.group}},
                {"collective_seq_id", call.sequence},
                {"p2p_seq_id", call.is_message ? call.sequence : 0},
                {"op_id", entry.record_id},
                {"profiling_name", call.name},
                {"trireme_op", entry.op},
                {"time_created_ns", at_ns(entry.scheduled_s)}};
    if (completed) out["duration_ms"] = 1e3 * (entry.completed_s - entry.started_s);
    out["input_sizes"] = sizes(call.in_elements);
    out["input_dtypes"] = dtypes;
    out["output_sizes"] = sizes(call.out_elements);
    out["output_dtypes"] = dtypes;
    out["state"] = completed ? "completed" : "scheduled";
    out["trireme_state"] = name_of(entry.state);
    out["time_discovered_started_ns"] =
        entry.started_s > 0 ? Json(at_ns(entry.started_s)) : Json(nullptr);
    out["time_discovered_completed_ns"] =
        completed ? Json(at_ns(entry.completed_s)) : Json(nullptr);
    out["retired"] = completed;
    out["timeout_ms"] = static_cast<int64_t>(1e3 * entry.deadline_s);
    out["is_p2p"] = call.is_message;
    list.push_back(std::move(out));
  }
  Json status = Json::object();
  for (const auto& [number, group] : statuses) {
    status[number] = {{"last_enqueued_collective", group.enqueued},
                      {"last_started_collective", group.started},
                      {"last_completed_collective", group.completed}};
  }
  return {{"version", "2.10"},
          {"rank", world_rank},
          {"pg_config", std::move(config)},
          {"pg_status", std::move(status)},
          {"entries", std::move(list)}};
}

std::string flight_json_name(int rank) { return fmt::format("rank_{}.json", rank); }
std::string flight_pickle_name(int rank) { return fmt::format("_dump_{}", rank); }

void write_flight_record(const std::filesystem::path& folder, int rank, const Json& record) {
  try {
    write(folder / flight_pickle_name(rank), base::pickle(record));
    write(folder / flight_json_name(rank), record.dump(1));
  } catch (const std::system_error& error) {
    throw base::IoError(fmt::format("the flight record of rank {} cannot be written to {}: {}",
                                    rank, folder.string(), error.what()));
  }
}

}  // namespace trireme::comm
