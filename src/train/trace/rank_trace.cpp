// SPDX-License-Identifier: Apache-2.0
#include "train/trace/rank_trace.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <type_traits>

#include "base/check.h"
#include "base/text/json.h"

namespace trireme::train {
namespace {

std::string name_of_host() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  return name.data();
}

// Identifies the boot of this machine and the namespace of its clocks.
std::string machine_of_clock() {
  std::ifstream in("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(in, boot);
  std::error_code ignored;
  const std::string clocks = std::filesystem::read_symlink("/proc/self/ns/time", ignored).string();
  return boot.empty() ? name_of_host() : boot + " " + clocks;
}

std::string name_of_rank(int rank, const spec::Sizes& sizes) {
  const spec::Coord coord = spec::coord_of(sizes, rank);
  std::string places;
  for (size_t i = 0; i < static_cast<size_t>(spec::Axis::count); ++i) {
    const auto axis = static_cast<spec::Axis>(i);
    if (sizes[axis] == 1) continue;
    places += fmt::format("{}{} {}", places.empty() ? "" : " ", spec::name_of(axis), coord[axis]);
  }
  return places.empty() ? fmt::format("rank {}", rank) : fmt::format("rank {} ({})", rank, places);
}

template <typename T>
void append(std::string& bytes, const std::vector<T>& values) {
  static_assert(std::is_trivially_copyable_v<T>);
  const uint64_t count = values.size();
  bytes.append(reinterpret_cast<const char*>(&count), sizeof(count));
  bytes.append(reinterpret_cast<const char*>(values.data()), count * sizeof(T));
}

template <typename T>
std::vector<T> taken(const std::string& bytes, size_t& at) {
  uint64_t count = 0;
  TRIREME_CHECK(bytes.size() - at >= sizeof(count), "a packed trace ends at byte {}", at);
  std::memcpy(&count, bytes.data() + at, sizeof(count));
  at += sizeof(count);
  TRIREME_CHECK(count <= (bytes.size() - at) / sizeof(T), "a packed trace ends in {} values",
                count);
  std::vector<T> values(count);
  if (count > 0) std::memcpy(values.data(), bytes.data() + at, count * sizeof(T));
  at += count * sizeof(T);
  return values;
}

}  // namespace

RankTrace rank_trace(int rank, const spec::Sizes& sizes, const StreamTimeline& timeline) {
  return {.rank = rank,
          .name = name_of_rank(rank, sizes),
          .host = name_of_host(),
          .machine = machine_of_clock(),
          .clock_error_seconds = timeline.clock_error_seconds(),
          .host_waits = timeline.host_waits(),
          .streams = timeline.stream_names(),
          .strings = timeline.strings(),
          .steps = timeline.steps(),
          .spans = timeline.spans()};
}

std::string packed(const RankTrace& trace) {
  const base::Json head = {{"rank", trace.rank},
                           {"name", trace.name},
                           {"host", trace.host},
                           {"machine", trace.machine},
                           {"clock_error_seconds", trace.clock_error_seconds},
                           {"host_waits", trace.host_waits},
                           {"streams", trace.streams},
                           {"strings", trace.strings}};
  const std::string text = head.dump(-1, ' ', false, base::Json::error_handler_t::replace);
  std::string bytes;
  append(bytes, std::vector<char>(text.begin(), text.end()));
  append(bytes, trace.steps);
  append(bytes, trace.spans);
  return bytes;
}

RankTrace unpacked(const std::string& bytes) {
  size_t at = 0;
  const std::vector<char> text = taken<char>(bytes, at);
  const base::Json head = base::Json::parse(text.begin(), text.end());
  RankTrace trace{.rank = head.at("rank"),
                  .name = head.at("name"),
                  .host = head.at("host"),
                  .machine = head.at("machine"),
                  .clock_error_seconds = head.at("clock_error_seconds"),
                  .host_waits = head.at("host_waits"),
                  .streams = head.at("streams"),
                  .strings = head.at("strings"),
                  .steps = {},
                  .spans = {}};
  trace.steps = taken<TracedStep>(bytes, at);
  trace.spans = taken<TraceSpan>(bytes, at);
  TRIREME_CHECK(at == bytes.size(), "{} bytes behind a packed trace", bytes.size() - at);
  return trace;
}

}  // namespace trireme::train
