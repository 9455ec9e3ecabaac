// SPDX-License-Identifier: Apache-2.0
#include "data/corpus/work_folder.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <system_error>

#include "base/check.h"
#include "base/error.h"
#include "base/system/durable_file.h"
#include "base/text/json.h"
#include "data/files/output_file.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;
using base::ConfigError;
using base::IoError;
using base::Json;

constexpr size_t growing_buffer_bytes = 1 << 20;

IoError failed(const fs::path& path, int error) {
  return IoError(fmt::format("{}: cannot be written: {}", path.string(),
                             std::generic_category().message(error)));
}

// Returns the first key whose values differ, with both of them.
std::string first_difference(const Json& before, const Json& now) {
  for (const auto& item : now.items()) {
    const auto found = before.find(item.key());
    if (found == before.end()) return item.key();
    if (*found == item.value()) continue;
    if (item.value().is_array() && found->is_array()) {
      for (size_t i = 0; i < std::min(found->size(), item.value().size()); ++i) {
        if (found->at(i) == item.value().at(i)) continue;
        return fmt::format("{} {} was {}, now {}", item.key(), i, found->at(i).dump(),
                           item.value().at(i).dump());
      }
      return fmt::format("{} were {}, now {}", item.key(), found->size(), item.value().size());
    }
    return fmt::format("{} was {}, now {}", item.key(), found->dump(), item.value().dump());
  }
  return "keys";
}

}  // namespace

fs::path work_folder_of(fs::path prefix) {
  prefix += ".build";
  return prefix;
}

bool has_complete_build(const fs::path& prefix) {
  std::ifstream file(work_folder_of(prefix) / "state.json", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const Json state = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return state.is_object() && state.value("is_complete", Json(false)) == Json(true);
}

GrowingFile::GrowingFile(fs::path path, int64_t bytes)
    : path_(std::move(path)),
      descriptor_(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)),
      bytes_(bytes),
      written_back_(bytes) {
  if (descriptor_.value() < 0) throw failed(path_, errno);
  struct stat status {};
  if (::fstat(descriptor_.value(), &status) != 0) throw failed(path_, errno);
  if (status.st_size < bytes) {
    throw IoError(fmt::format(
        "{}: has {} bytes, state.json beside it records {}; remove the folder to start over",
        path_.string(), status.st_size, bytes));
  }
  if (::ftruncate(descriptor_.value(), bytes) != 0) throw failed(path_, errno);
}

void GrowingFile::append(std::span<const std::byte> bytes) {
  if (bytes.size() >= growing_buffer_bytes) {
    flush();
    write(bytes_, bytes);
    bytes_ += static_cast<int64_t>(bytes.size());
    return;
  }
  pending_.insert(pending_.end(), bytes.begin(), bytes.end());
  if (pending_.size() >= growing_buffer_bytes) flush();
}

void GrowingFile::write_at(int64_t offset, std::span<const std::byte> bytes) {
  flush();
  TRIREME_CHECK(offset >= 0 && offset + static_cast<int64_t>(bytes.size()) <= bytes_,
                "{} bytes at {} of {}", bytes.size(), offset, bytes_);
  write(offset, bytes);
}

void GrowingFile::sync() {
  flush();
  if (::fsync(descriptor_.value()) != 0) throw failed(path_, errno);
}

void GrowingFile::flush() {
  write(bytes_, pending_);
  bytes_ += static_cast<int64_t>(pending_.size());
  pending_.clear();
}

void GrowingFile::write(int64_t offset, std::span<const std::byte> bytes) {
  try {
    base::write_all_at(descriptor_.value(), offset, bytes);
  } catch (const std::system_error& error) {
    throw failed(path_, error.code().value());
  }
  start_writeback(offset + static_cast<int64_t>(bytes.size()));
}

void GrowingFile::start_writeback(int64_t end) {
  constexpr int64_t step = int64_t{16} << 20;
  if (end - written_back_ < step) return;
  // Advice only: sync() reports errors.
  (void)::sync_file_range(descriptor_.value(), written_back_, end - written_back_,
                          SYNC_FILE_RANGE_WRITE);
  written_back_ = end;
}

WorkFolder::WorkFolder(fs::path folder, const Json& identity, bool start_over)
    : folder_(std::move(folder)), identity_(identity.dump()) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) throw failed(folder_, error.value());
  lock();
  try {
    if (!read_state(identity)) state_ = {};
    if (!state_.is_complete) open_files();
  } catch (const base::Error&) {
    if (!start_over) throw;
    discard();
  }
}

void WorkFolder::discard() {
  std::error_code ignored;
  fs::remove(folder_ / "state.json", ignored);
  state_ = {};
  open_files();
}

// The lock ends with the process, so that a killed build does not block the next one.
void WorkFolder::lock() {
  const fs::path path = folder_ / "lock";
  base::Descriptor descriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (descriptor.value() < 0) throw failed(path, errno);
  if (::flock(descriptor.value(), LOCK_EX | LOCK_NB) != 0) {
    throw IoError(fmt::format("{}: another process builds this data set", folder_.string()));
  }
  lock_.emplace(std::move(descriptor));
}

// Returns false if nothing was committed.
bool WorkFolder::read_state(const Json& identity) {
  const fs::path path = folder_ / "state.json";
  std::ifstream file(path, std::ios::binary);
  if (!file) return false;
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  try {
    const Json json = Json::parse(text);
    if (json.at("version") != 1) throw IoError(fmt::format("{}: unknown version", path.string()));
    if (json.at("identity") != identity) {
      throw ConfigError(fmt::format(
          "{}: holds an unfinished build with other options ({}); repeat it with the same ones, or "
          "start over with --overwrite",
          folder_.string(), first_difference(json.at("identity"), identity)));
    }
    for (const Json& shard : json.at("shards")) state_.shards.push_back(record_from_json(shard));
    for (size_t i = 0; i < work_files.size(); ++i) {
      state_.bytes[i] = json.at("bytes").at(work_files[i]).get<int64_t>();
      if (state_.bytes[i] < 0) throw IoError(fmt::format("{}: negative size", path.string()));
    }
    state_.is_complete = json.at("is_complete").get<bool>();
  } catch (const Json::exception& error) {
    throw IoError(fmt::format("{}: cannot be used ({}); start over with --overwrite", path.string(),
                              error.what()));
  }
  return true;
}

void WorkFolder::open_files() {
  for (size_t i = 0; i < work_files.size(); ++i) {
    files_[i] = std::make_unique<GrowingFile>(folder_ / work_files[i], state_.bytes[i]);
  }
}

void WorkFolder::commit(std::vector<ShardRecord> shards, bool is_complete) {
  Json json{{"version", 1}, {"identity", Json::parse(identity_)}, {"is_complete", is_complete}};
  for (size_t i = 0; i < work_files.size(); ++i) {
    files_[i]->sync();
    state_.bytes[i] = files_[i]->bytes();
    json["bytes"][work_files[i]] = state_.bytes[i];
  }
  json["shards"] = Json::array();
  for (const ShardRecord& shard : shards) json["shards"].push_back(to_json(shard));
  state_.shards = std::move(shards);
  state_.is_complete = is_complete;
  const std::string text = json.dump(1) + "\n";
  OutputFile file(folder_ / "state.json");
  file.append(std::as_bytes(std::span(text)));
  file.sync();
  file.rename();
}

void WorkFolder::remove() {
  for (auto& file : files_) file.reset();
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
  lock_.reset();
}

}  // namespace trireme::data
