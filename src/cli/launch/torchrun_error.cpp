// SPDX-License-Identifier: Apache-2.0
#include "cli/launch/torchrun_error.h"

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>

#include "base/text/json.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

// By how much the time stamp of the failed rank is earlier than those of the others: more than the
// time that ranks take to agree on a verdict, and than the resolution of a time stamp (1 s).
constexpr int64_t settling_seconds = 4;

// Writes the file atomically, since torchrun fails on a partial one; keeps a file that already
// exists. Errors are ignored: the message also goes to stderr.
void write_error_file(const fs::path& file, const std::string& message, int64_t seconds) {
  // Without "py_callstack", which torchrun would show in place of the message.
  const base::Json json = {
      {"message", {{"message", message}, {"extraInfo", {{"timestamp", std::to_string(seconds)}}}}}};
  fs::path draft = file;
  draft += "." + std::to_string(::getpid());
  {
    std::ofstream out(draft);
    out << json.dump(-1, ' ', false, base::Json::error_handler_t::replace) << '\n';
    if (!out.flush()) return;
  }
  std::error_code ignored;
  fs::create_hard_link(draft, file, ignored);  // fails if the file exists
  fs::remove(draft, ignored);
}

// Returns the file of another rank of this host: torchrun numbers the folders by local rank, and
// the ranks of a host consecutively.
std::optional<fs::path> error_file_of(const comm::RankInfo& info, int rank) {
  const int local = rank - (info.rank - info.local_rank);
  const fs::path own = info.error_file;
  if (local < 0 || local >= info.local_world || local == info.local_rank) return std::nullopt;
  if (own.parent_path().filename() != std::to_string(info.local_rank)) return std::nullopt;
  return own.parent_path().parent_path() / std::to_string(local) / own.filename();
}

}  // namespace

void write_torchrun_error(const comm::RankInfo& info, const std::string& message,
                          std::optional<int> culprit) {
  if (info.error_file.empty()) return;
  const auto now = std::chrono::duration_cast<std::chrono::seconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count();
  const bool blames_another = culprit && *culprit != info.rank;
  write_error_file(info.error_file, message, blames_another ? now : now - settling_seconds);
  if (!blames_another) return;
  if (const auto file = error_file_of(info, *culprit)) {
    write_error_file(*file, message, now - settling_seconds);
  }
}

}  // namespace trireme::cli
