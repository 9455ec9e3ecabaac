// SPDX-License-Identifier: Apache-2.0
#include "obs/run_dir.h"

#include <fmt/core.h>
#include <unistd.h>

#include <system_error>
#include <utility>

#include "base/error.h"
#include "obs/output_file.h"

namespace trireme::obs {

namespace {

using base::IoError;
using std::filesystem::path;

path temporary_of(const path& target) {
  path temporary = target;
  temporary += fmt::format(".tmp{}", ::getpid());
  return temporary;
}

void check_writable(const path& directory) {
  const path probe = temporary_of(directory / ".writable");
  std::error_code ignored;
  try {
    OutputFile(probe, OutputFile::Mode::replace).write("x");
  } catch (const IoError& error) {
    std::filesystem::remove(probe, ignored);
    throw IoError(fmt::format(
        "{}: the run directory cannot be written; choose another one (job.dump_folder) ({})",
        directory.string(), error.what()));
  }
  std::filesystem::remove(probe, ignored);
}

void remove_logs(const path& directory) {
  std::filesystem::remove(directory / RunDir::config_name);
  for (int attempt = 1; std::filesystem::remove(directory / fmt::format("run-{}.json", attempt));) {
    ++attempt;
  }
  for (const char* name :
       {RunDir::metrics_name, "events.jsonl", "phases.jsonl", "ledger.json", "prediction.json",
        "layers.bin", "ranks.bin", "numerics.bin", "collectives.json", "pipeline.json"}) {
    std::filesystem::remove(directory / name);
  }
  const path events = directory / RunDir::events_name;
  if (!std::filesystem::is_directory(events)) return;
  for (const auto& entry : std::filesystem::directory_iterator(events)) {
    if (entry.path().filename().string().starts_with("events.out.tfevents.")) {
      std::filesystem::remove(entry.path());
    }
  }
}

}  // namespace

void write_file(const path& target, std::string_view text) {
  const path temporary = temporary_of(target);
  std::error_code failed, ignored;
  try {
    OutputFile file(temporary, OutputFile::Mode::replace);
    file.write(text);
    file.sync();
    std::filesystem::rename(temporary, target, failed);
  } catch (const IoError&) {
    std::filesystem::remove(temporary, ignored);
    throw;
  }
  if (failed) {
    std::filesystem::remove(temporary, ignored);
    throw IoError(fmt::format("{}: cannot be written: {}", target.string(), failed.message()));
  }
}

void keep_numbered(const path& target) {
  std::error_code failed;
  if (!std::filesystem::exists(target, failed)) return;
  for (int number = 1;; ++number) {
    const path kept = target.parent_path() / fmt::format("{}-{}{}", target.stem().string(), number,
                                                         target.extension().string());
    if (std::filesystem::exists(kept, failed)) continue;
    std::filesystem::rename(target, kept, failed);
    if (!failed) return;
    throw IoError(fmt::format("{}: cannot be renamed: {}", target.string(), failed.message()));
  }
}

bool holds_run(const path& directory) {
  std::error_code ignored;
  return std::filesystem::exists(directory / RunDir::config_name, ignored) ||
         std::filesystem::exists(directory / RunDir::metrics_name, ignored);
}

RunDir::RunDir(std::filesystem::path directory) : path_(std::move(directory)) {}

void RunDir::expect_directory(const std::filesystem::path& directory) {
  std::error_code failed;
  if (std::filesystem::exists(directory, failed) &&
      !std::filesystem::is_directory(directory, failed)) {
    throw IoError(fmt::format(
        "{}: a run needs a directory, and this is a file; choose another name (job.dump_folder)",
        directory.string()));
  }
}

void RunDir::check(const std::filesystem::path& directory, RunMode mode) {
  expect_directory(directory);
  const bool has_run = holds_run(directory);
  if (mode == RunMode::fresh && has_run) {
    throw IoError(
        fmt::format("{}: already holds a run; continue it with --resume auto, replace it with "
                    "--overwrite, or choose another folder (job.dump_folder)",
                    directory.string()));
  }
  if (mode == RunMode::resume && !has_run) {
    throw IoError(fmt::format("{}: holds no run to resume: neither {} nor {} exists",
                              directory.string(), config_name, metrics_name));
  }
}

RunDir RunDir::open(const std::filesystem::path& directory, RunMode mode) {
  check(directory, mode);
  std::error_code failed;
  std::filesystem::create_directories(directory, failed);
  if (failed) {
    throw IoError(fmt::format("{}: the run directory cannot be created: {}", directory.string(),
                              failed.message()));
  }
  check_writable(directory);
  try {
    if (mode == RunMode::overwrite) remove_logs(directory);
  } catch (const std::filesystem::filesystem_error& error) {
    throw IoError(
        fmt::format("{}: the earlier run cannot be removed: {}", directory.string(), error.what()));
  }
  return RunDir(directory);
}

}  // namespace trireme::obs
