// SPDX-License-Identifier: Apache-2.0
#include "ckpt/hf/export_folder.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "ckpt/generation/folder.h"
#include "ckpt/hf/hf_weights.h"
#include "ckpt/hf/safetensors.h"

namespace trireme::ckpt {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view export_draft_mark = ".tmp";

std::string own_host() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  std::string text = name.data();
  std::replace(text.begin(), text.end(), '/', '_');
  return text;
}

bool is_real_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(fs::symlink_status(path, ignored));
}

// Matches "final.tmp4711-node1" if process 4711 of this host has ended.
bool is_abandoned_draft(std::string_view name) {
  const size_t mark = name.find(export_draft_mark);
  if (mark == std::string_view::npos) return false;
  const std::string_view target = name.substr(0, mark);
  if (target != "final" && !step_from_name(target)) return false;
  const std::string_view rest = name.substr(mark + export_draft_mark.size());
  pid_t process = 0;
  const auto read = std::from_chars(rest.data(), rest.data() + rest.size(), process);
  if (read.ec != std::errc() || process <= 0) return false;
  if (std::string_view(read.ptr, rest.data() + rest.size()) != "-" + own_host()) return false;
  return process != ::getpid() && ::kill(process, 0) != 0 && errno == ESRCH;
}

void remove_folder(const fs::path& path, std::vector<std::string>& problems) {
  std::error_code failed;
  fs::remove_all(path, failed);
  if (failed) problems.push_back(fmt::format("{}: {}", path.string(), failed.message()));
}

}  // namespace

std::string export_draft_name(const std::string& name) {
  return fmt::format("{}{}{}-{}", name, export_draft_mark, ::getpid(), own_host());
}

bool is_export(const fs::path& directory) {
  if (!is_real_folder(directory)) return false;
  bool has_config = false, has_weights = false;
  try {
    for (const auto& entry : fs::directory_iterator(directory)) {
      const std::string name = entry.path().filename().string();
      if (!fs::is_regular_file(entry.symlink_status())) return false;
      if (name == "config.json") {
        has_config = true;
      } else if (name.starts_with("model") && name.ends_with(".safetensors")) {
        const SafetensorsFile file = SafetensorsFile::open(entry.path());
        const auto found = file.metadata().find(producer_key);
        if (found == file.metadata().end() || found->second != producer_name) return false;
        has_weights = true;
      } else if (name != "model.safetensors.index.json" &&
                 std::ranges::find(tokenizer_files, name) == tokenizer_files.end()) {
        return false;
      }
    }
  } catch (const std::exception&) {  // an unreadable entry may not be ours
    return false;
  }
  return has_config && has_weights;
}

std::vector<std::string> prune_exports(const fs::path& folder, int64_t keep) {
  std::vector<std::string> problems;
  std::vector<std::pair<int64_t, fs::path>> steps;
  std::error_code failed;
  for (fs::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed)) {
    const std::string name = at->path().filename().string();
    if (is_abandoned_draft(name) && is_real_folder(at->path())) {
      remove_folder(at->path(), problems);
    } else if (const std::optional<int64_t> step = step_from_name(name);
               keep > 0 && step && is_export(at->path())) {
      steps.emplace_back(*step, at->path());
    }
  }
  if (failed) problems.push_back(fmt::format("{}: {}", folder.string(), failed.message()));
  std::sort(steps.begin(), steps.end());
  const auto excess = std::max<int64_t>(0, keep > 0 ? std::ssize(steps) - keep : 0);
  steps.resize(static_cast<size_t>(excess));
  for (const auto& [step, path] : steps) {
    // Renamed to a draft's name first: a reader sees all of it or nothing, and what a killed
    // process leaves is removed later.
    const fs::path nameless = folder / export_draft_name(path.filename().string());
    fs::rename(path, nameless, failed);
    if (failed) {
      problems.push_back(fmt::format("{}: {}", path.string(), failed.message()));
    } else {
      remove_folder(nameless, problems);
    }
  }
  return problems;
}

}  // namespace trireme::ckpt
