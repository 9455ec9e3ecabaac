// SPDX-License-Identifier: Apache-2.0
#include "ckpt/marks/mark_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <span>
#include <system_error>

#include "base/error.h"
#include "base/system/descriptor.h"
#include "base/system/durable_file.h"
#include "ckpt/generation/folder.h"
#include "ckpt/marks/health.h"

namespace trireme::ckpt {
namespace {

[[noreturn]] void fail_marks(const std::filesystem::path& path, const char* what, int error) {
  throw base::IoError(
      fmt::format("cannot {} {}: {}", what, path.string(), std::generic_category().message(error)));
}

// Returns the size of the file without an incomplete last line.
int64_t complete_bytes(int descriptor, const std::filesystem::path& path) {
  struct stat info {};
  if (::fstat(descriptor, &info) != 0) fail_marks(path, "ask for the size of", errno);
  int64_t end = info.st_size;
  for (char last = 0; end > 0; --end) {
    if (::pread(descriptor, &last, 1, end - 1) != 1) fail_marks(path, "read", errno);
    if (last == '\n') break;
  }
  return end;
}

// Returns -1 for a manifest that cannot be read.
int64_t epoch_of(Disk& disk, const std::filesystem::path& generation) {
  try {
    return read_manifest(disk, generation).writer.epoch;
  } catch (const base::Error&) {
    return -1;  // loading it reports the damage
  }
}

}  // namespace

Marks read_marks(Disk& disk, const std::filesystem::path& root) {
  const std::filesystem::path path = root / marks_name;
  if (!disk.exists(path)) return {};
  return parse_marks(read_text(disk, path, max_marks_bytes), path.string());
}

void add_marks(const std::filesystem::path& root, const Marks& lines) {
  const std::filesystem::path path = root / marks_name;
  const base::Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (file.value() < 0) fail_marks(path, "open", errno);
  // Without locks on this file system, lines that are appended at the same moment may be lost.
  while (::flock(file.value(), LOCK_EX) != 0 && errno == EINTR) {
  }
  const int64_t end = complete_bytes(file.value(), path);
  if (::ftruncate(file.value(), end) != 0) fail_marks(path, "write", errno);
  std::string text;
  for (const MarksLine& line : lines) text += to_text(line);
  try {
    base::write_all_at(file.value(), end, std::as_bytes(std::span(text)));
    if (::fsync(file.value()) != 0) fail_marks(path, "sync", errno);
    base::sync_folder(root);  // the file may be new
  } catch (const std::system_error& error) {
    fail_marks(path, "write", error.code().value());
  }
}

std::vector<MarkedGeneration> marked_generations(Disk& disk, const std::filesystem::path& root,
                                                 const Marks& marks) {
  std::vector<MarkedGeneration> all;
  for (const int64_t step : committed_steps(disk, root)) {
    const GenerationId id{.step = step, .epoch = epoch_of(disk, root / generation_name(step))};
    all.push_back({.id = id, .mark = mark_of(id, marks)});
  }
  return all;
}

}  // namespace trireme::ckpt
