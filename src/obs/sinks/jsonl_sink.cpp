// SPDX-License-Identifier: Apache-2.0
#include "obs/sinks/jsonl_sink.h"

#include <fmt/core.h>

#include <fstream>
#include <string>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/text/json.h"

namespace trireme::obs {

namespace {

// Returns the end of the last complete line of the file. Reads blocks from the end: after a power
// failure a file may end in megabytes of zeros.
uintmax_t end_of_lines(std::ifstream& in, uintmax_t size) {
  constexpr uintmax_t block_bytes = 1 << 16;
  std::string block;
  for (uintmax_t end = size; end > 0;) {
    const uintmax_t begin = end > block_bytes ? end - block_bytes : 0;
    block.resize(end - begin);
    in.seekg(static_cast<std::streamoff>(begin));
    in.read(block.data(), static_cast<std::streamsize>(block.size()));
    if (!in) return size;
    if (const size_t found = block.rfind('\n'); found != std::string::npos) {
      return begin + found + 1;
    }
    end = begin;
  }
  return 0;
}

// Removes an incomplete last line and returns the path.
const std::filesystem::path& without_partial_line(const std::filesystem::path& path) {
  std::error_code failed;
  if (!std::filesystem::is_regular_file(path, failed)) return path;  // OutputFile refuses pipes
  const uintmax_t size = std::filesystem::file_size(path, failed);
  if (failed || size == 0) return path;
  std::ifstream in(path, std::ios::binary);
  const uintmax_t end = end_of_lines(in, size);
  if (!in) throw base::IoError(fmt::format("{}: cannot be read", path.string()));
  if (end < size) std::filesystem::resize_file(path, end, failed);
  if (failed) {
    throw base::IoError(fmt::format("{}: cannot be written: {}", path.string(), failed.message()));
  }
  return path;
}

}  // namespace

JsonlSink::JsonlSink(const std::filesystem::path& path, int64_t attempt, Clock wall_clock)
    : attempt_(attempt),
      wall_clock_(std::move(wall_clock)),
      file_(without_partial_line(path), OutputFile::Mode::append) {}

void JsonlSink::begin(const AttemptStart& start) {
  const bool resumes = start.resumed_from >= 0;
  base::Json line = {{"kind", resumes ? "resume" : "start"},
                     {"attempt", attempt_},
                     {"step", resumes ? start.resumed_from : 0},
                     {"time", wall_clock_()},
                     {"name", start.name},
                     {"version", start.program.version},
                     {"commit", start.program.commit}};
  if (resumes) line["resumed_from"] = start.resumed_from;
  file_.add(line.dump() + "\n");
}

void JsonlSink::step(std::string_view kind, int64_t step, std::span<const Metric> metrics) {
  base::Json line = {
      {"kind", kind}, {"attempt", attempt_}, {"step", step}, {"time", wall_clock_()}};
  for (const Metric& metric : metrics) {
    const std::string name(metric.name);
    TRIREME_CHECK(!line.contains(name), "metric '{}' occurs twice", name);
    line[name] = metric.value;
  }
  file_.add(line.dump() + "\n");
}

}  // namespace trireme::obs
