// SPDX-License-Identifier: Apache-2.0
#include "comm/register/run_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <random>
#include <set>
#include <span>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/text/json.h"
#include "base/text/json_depth.h"

namespace trireme::comm {
namespace {

using base::Json;

// One object of the record, all of whose keys must be read.
class RecordObject {
 public:
  RecordObject(const Json& json, std::string path) : json_(json), path_(std::move(path)) {
    if (!json_.is_object()) throw base::IoError(fmt::format("{}: {} is no object", what, path_));
  }

  std::string text(const char* key) {
    const Json& value = at(key);
    if (!value.is_string()) throw wrong(key, "a text", value);
    return value.get<std::string>();
  }
  int64_t integer(const char* key) {
    const Json& value = at(key);
    if (!value.is_number_integer()) throw wrong(key, "an integer", value);
    if (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX) {
      throw wrong(key, "an integer of 64 bits", value);
    }
    return value.get<int64_t>();
  }
  int64_t epoch(const char* key) {
    const int64_t value = integer(key);
    if (value < 0) throw wrong(key, "an integer that is not negative", at(key));
    return value;
  }
  RecordObject object(const char* key) { return {at(key), name_of(key)}; }
  std::vector<RunMember> members(const char* key) {
    const Json& value = at(key);
    if (!value.is_array()) throw wrong(key, "a list", value);
    std::vector<RunMember> members;
    for (const Json& one : value) {
      RecordObject member(one, fmt::format("{}[{}]", name_of(key), members.size()));
      members.push_back({member.text("node"), member.text("incarnation")});
      member.end();
    }
    return members;
  }
  // Throws if there is a key that was not read.
  void end() const {
    for (const auto& [key, value] : json_.items()) {
      if (!read_.contains(key)) {
        throw base::IoError(fmt::format("{}: unknown key '{}'; it was written by another version",
                                        what, name_of(key)));
      }
    }
  }

 private:
  static constexpr const char* what = "the record of the run";

  const Json& at(const char* key) {
    const auto found = json_.find(key);
    if (found == json_.end()) {
      throw base::IoError(fmt::format("{}: key '{}' is missing", what, name_of(key)));
    }
    read_.insert(key);
    return *found;
  }
  std::string name_of(const std::string& key) const {
    return path_.empty() ? key : path_ + "." + key;
  }
  base::IoError wrong(const char* key, const char* expected, const Json& value) const {
    return base::IoError(fmt::format("{}: key '{}' has the value {} where {} is expected", what,
                                     name_of(key), value.dump(), expected));
  }

  const Json& json_;
  const std::string path_;
  std::set<std::string, std::less<>> read_;
};

Json json_of(const std::vector<RunMember>& members) {
  Json list = Json::array();
  for (const RunMember& one : members) {
    list.push_back({{"node", one.node}, {"incarnation", one.incarnation}});
  }
  return list;
}

// Returns why these cannot be the members and spares of an epoch; empty if they can.
std::string problem_of(const EpochChange& change) {
  if (change.members.empty()) return "an epoch without members";
  std::set<std::string_view> seen;
  for (const std::vector<RunMember>* list : {&change.members, &change.spares}) {
    for (const RunMember& one : *list) {
      if (one.incarnation.empty())
        return fmt::format("a process of {} has no incarnation", one.node);
      if (!seen.insert(one.incarnation).second) {
        return fmt::format("process {} of {} would be in two places", one.incarnation, one.node);
      }
    }
  }
  return "";
}

std::string fenced(const RunRecord& now, int64_t epoch) {
  return fmt::format("fenced: epoch {} has begun; this process belongs to epoch {}", now.epoch,
                     epoch);
}

RunRecord with(RunRecord record, const EpochChange& change) {
  record.members = change.members;
  record.spares = change.spares;
  record.plan_digest = change.plan_digest;
  record.layout = change.layout;
  record.resume = change.resume;
  record.reason = change.reason;
  return record;
}

// Ticks from the boot of the host to the start of this process; "?" if /proc does not have it.
std::string start_ticks() {
  std::ifstream in("/proc/self/stat");
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  // The second field is the name in parentheses, which may contain any character; the start is
  // field 22.
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return "?";
  std::istringstream fields(text.substr(name_end + 1));
  std::string value;
  for (int field = 3; field <= 22; ++field) fields >> value;
  return fields ? value : "?";
}

std::string new_incarnation() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::random_device random;
  const uint64_t bits = uint64_t{random()} << 32 | random();
  return fmt::format("{}/{}/{:016x}", boot.empty() ? "?" : boot, start_ticks(), bits);
}

}  // namespace

int RunRecord::slot_of(std::string_view incarnation) const {
  const auto found = std::find_if(members.begin(), members.end(), [&](const RunMember& one) {
    return one.incarnation == incarnation;
  });
  return found == members.end() ? -1 : static_cast<int>(found - members.begin());
}

std::string to_text(const RunRecord& record) {
  const Json json = {
      {"run", record.run},
      {"epoch", record.epoch},
      {"members", json_of(record.members)},
      {"spares", json_of(record.spares)},
      {"plan_digest", record.plan_digest},
      {"layout", record.layout},
      {"resume", {{"step", record.resume.step}, {"source", record.resume.source}}},
      {"reason", record.reason},
      {"last_commit", {{"step", record.last_commit.step}, {"epoch", record.last_commit.epoch}}}};
  // Texts of errors may have any bytes.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

RunRecord run_record_from(std::string_view text) {
  const Json json = base::parse_shallow_json(text);
  if (json.is_discarded()) throw base::IoError("the record of the run is no JSON");
  RecordObject object(json, "");
  RunRecord record;
  record.run = object.text("run");
  record.epoch = object.epoch("epoch");
  record.members = object.members("members");
  record.spares = object.members("spares");
  record.plan_digest = object.text("plan_digest");
  record.layout = object.text("layout");
  RecordObject resume = object.object("resume");
  record.resume = {resume.integer("step"), resume.text("source")};
  resume.end();
  record.reason = object.text("reason");
  RecordObject last = object.object("last_commit");
  record.last_commit = {last.integer("step"), last.integer("epoch")};
  last.end();
  object.end();
  return record;
}

base::Result<RunRecord> first_epoch(const std::string& run, const EpochChange& change) {
  using Answer = base::Result<RunRecord>;
  if (const std::string problem = problem_of(change); !problem.empty()) return Answer::no(problem);
  return with({.run = run}, change);
}

base::Result<RunRecord> next_epoch(const RunRecord& now, const EpochChange& change) {
  using Answer = base::Result<RunRecord>;
  if (change.seen_epoch != now.epoch) {
    return Answer::no(fmt::format("fenced: epoch {} has begun; the proposal follows epoch {}",
                                  now.epoch, change.seen_epoch));
  }
  if (const std::string problem = problem_of(change); !problem.empty()) return Answer::no(problem);
  if (change.resume.step < now.last_commit.step) {
    return Answer::no(fmt::format("it would resume from step {}, before the last commit of step {}",
                                  change.resume.step, now.last_commit.step));
  }
  RunRecord next = with(now, change);
  ++next.epoch;
  return next;
}

base::Result<RunRecord> next_start(const RunRecord& before, const std::string& run,
                                   const EpochChange& change) {
  base::Result<RunRecord> first = first_epoch(run, change);
  if (!first) return first;
  RunRecord record = first.value();
  record.epoch = before.epoch + 1;
  return record;
}

base::Result<RunRecord> resumed(const RunRecord& now, int64_t epoch, const ResumePoint& point) {
  using Answer = base::Result<RunRecord>;
  if (epoch != now.epoch) return Answer::no(fenced(now, epoch));
  RunRecord next = now;
  next.resume = point;
  if (point.step < now.last_commit.step) next.last_commit = {point.step, epoch};
  return next;
}

base::Result<RunRecord> commit(const RunRecord& now, int64_t step, int64_t epoch) {
  using Answer = base::Result<RunRecord>;
  if (epoch != now.epoch) return Answer::no(fenced(now, epoch));
  if (step <= now.last_commit.step) {
    return Answer::no(
        fmt::format("step {} is not after the last commit of step {}", step, now.last_commit.step));
  }
  RunRecord next = now;
  next.last_commit = {step, epoch};
  return next;
}

const std::string& own_incarnation() {
  static const std::string incarnation = new_incarnation();
  return incarnation;
}

}  // namespace trireme::comm
