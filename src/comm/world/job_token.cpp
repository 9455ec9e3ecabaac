// SPDX-License-Identifier: Apache-2.0
#include "comm/world/job_token.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <random>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/sha256.h"
#include "base/system/descriptor.h"

namespace trireme::comm {
namespace {

namespace fs = std::filesystem;

base::IoError cannot_write(const fs::path& path, const std::string& why) {
  return base::IoError(fmt::format(
      "{}: the token of this job cannot be written: {}; make the folder writable, or set "
      "TRIREME_TOKEN to a secret, the same for all ranks",
      path.string(), why));
}

std::string system_text(int error) { return std::generic_category().message(error); }

// Two lines: a hash of the attempt, and the token.
std::string head_of(const std::string& attempt) {
  base::Sha256 hash;
  hash.update(std::as_bytes(std::span(attempt)));
  return hash.hex() + "\n";
}

// Returns the contents of a small regular file; empty if it cannot be read.
std::string small_file(const fs::path& path) {
  const base::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat status {};
  if (file.value() < 0 || ::fstat(file.value(), &status) != 0 || !S_ISREG(status.st_mode))
    return "";
  std::array<char, 512> bytes;
  const ssize_t count = ::read(file.value(), bytes.data(), bytes.size());
  return {bytes.data(), count > 0 ? static_cast<size_t>(count) : 0};
}

// Creates the folder and those around it. Returns the created ones, outermost first.
std::vector<fs::path> create_folders(const fs::path& folder) {
  std::vector<fs::path> missing;
  std::error_code error;
  for (fs::path at = fs::absolute(folder); !fs::exists(at, error) && at.has_relative_path();
       at = at.parent_path()) {
    missing.insert(missing.begin(), at);
  }
  fs::create_directories(folder, error);
  if (error) throw cannot_write(folder / JobTokenFile::name, error.message());
  return missing;
}

void write_private(const fs::path& path, std::string_view text) {
  const base::Descriptor file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (file.value() < 0) throw cannot_write(path, system_text(errno));
  if (::write(file.value(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      ::fsync(file.value()) != 0) {
    const int error = errno;
    ::unlink(path.c_str());
    throw cannot_write(path, system_text(error));
  }
}

}  // namespace

std::string random_token() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

JobTokenFile::JobTokenFile(const fs::path& folder, const std::string& attempt)
    : path_(fs::absolute(folder) / name),
      token_(random_token()),
      text_(head_of(attempt) + token_ + "\n"),
      created_(create_folders(folder)) {
  // Readers see the old file or the complete new one.
  const fs::path temporary = fs::path(path_) += "." + random_token().substr(0, 8);
  write_private(temporary, text_);
  if (::rename(temporary.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary.c_str());
    throw cannot_write(path_, system_text(error));
  }
}

JobTokenFile::JobTokenFile(const fs::path& folder, const std::string& attempt, std::string token)
    : path_(fs::absolute(folder) / name),
      token_(std::move(token)),
      text_(head_of(attempt) + token_ + "\n") {}

JobTokenFile::~JobTokenFile() {
  std::error_code ignored;
  if (small_file(path_) == text_) fs::remove(path_, ignored);
  for (size_t i = created_.size(); i > 0; --i) ::rmdir(created_[i - 1].c_str());
}

std::optional<std::string> read_job_token(const fs::path& folder, const std::string& attempt) {
  const std::string head = head_of(attempt);
  const std::string text = small_file(folder / JobTokenFile::name);
  if (!text.starts_with(head) || !text.ends_with("\n") || text.size() <= head.size() + 1) {
    // Clients of a network file system learn of new files when they read the folder.
    std::error_code ignored;
    (void)fs::directory_iterator(folder, ignored);
    return std::nullopt;
  }
  return text.substr(head.size(), text.size() - head.size() - 1);
}

std::string no_token_message(const std::string& who) {
  return fmt::format(
      "{} has no token of this job, and hosts of the network could take part without one: set "
      "TRIREME_TOKEN to a secret, the same for all ranks (TRIREME_TOKEN=$(openssl rand -hex 16)), "
      "or give all ranks the same job.dump_folder on a shared file system, in which rank 0 writes "
      "{}",
      who, JobTokenFile::name);
}

}  // namespace trireme::comm
