// SPDX-License-Identifier: Apache-2.0
#include "comm/register/journal_register.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace trireme::comm {

JournalRegister::JournalRegister(std::unique_ptr<JournalDisk> disk, size_t long_bytes)
    : disk_(std::move(disk)), long_bytes_(long_bytes), rewrite_at_(long_bytes) {
  if (const std::optional<std::string> bytes = disk_->read()) {
    ReplayedJournal replayed = replay_journal(*bytes, disk_->name());
    content_ = std::move(replayed.content);
    cut_bytes_ = replayed.cut_bytes;
  }
  if (cut_bytes_ > 0) {
    base::log_warning("{}: the last {} bytes were cut off: a change that was not completed",
                      disk_->name(), cut_bytes_);
  }
  rewrite();
}

void JournalRegister::expect_working() const {
  if (!failure_.empty()) {
    throw base::IoError(
        fmt::format("the register has stopped after a failure of its disk: {}. "
                    "Start its process again",
                    failure_));
  }
}

RegisterState JournalRegister::read() {
  const std::scoped_lock lock(mutex_);
  expect_working();
  return content_.state;
}

Swapped JournalRegister::swap_checked(int64_t expected_revision, const std::string& value,
                                      const std::string& request_id) {
  const std::scoped_lock lock(mutex_);
  expect_working();
  const auto known = std::find_if(content_.done.begin(), content_.done.end(),
                                  [&](const auto& done) { return done.first == request_id; });
  if (known != content_.done.end()) return {true, {known->second, value}};
  if (expected_revision != content_.state.revision) return {false, content_.state};
  append(encode_swap(content_.state.revision + 1, request_id, value));
  content_.apply(request_id, value);
  rewrite_if_long();
  return {true, content_.state};
}

void JournalRegister::append(const std::string& record) {
  try {
    disk_->append(bytes_, record);
  } catch (const base::IoError& error) {
    try {
      disk_->truncate(bytes_);
    } catch (const base::IoError& second) {
      failure_ = second.what();
    }
    throw base::IoError(fmt::format("the register was not changed: {}", error.what()));
  }
  try {
    disk_->sync(JournalFile::current);
  } catch (const base::IoError& error) {
    // The kernel may have dropped the bytes, and another fsync would not report it.
    failure_ = error.what();
    throw;
  }
  bytes_ += record.size();
}

void JournalRegister::rewrite() {
  const std::string bytes = encode_journal(content_);
  disk_->write_next(bytes);
  disk_->sync(JournalFile::next);
  disk_->replace();
  try {
    disk_->sync_folder();
  } catch (const base::IoError& error) {
    // Later changes would stand in a file whose name may be lost.
    failure_ = error.what();
    throw;
  }
  bytes_ = bytes.size();
}

void JournalRegister::rewrite_if_long() {
  if (bytes_ <= rewrite_at_) return;
  try {
    rewrite();
    rewrite_at_ = std::max(long_bytes_, 2 * bytes_);
  } catch (const base::IoError& error) {
    rewrite_at_ = 2 * bytes_;
    base::log_warning("the journal of the register was not shortened: {}", error.what());
  }
}

std::unique_ptr<JournalRegister> open_journal_register(const std::filesystem::path& folder) {
  // A launcher that was killed holds its lock until the kernel has ended it.
  constexpr double wait_s = 2;
  return std::make_unique<JournalRegister>(open_journal_disk(folder, wait_s));
}

}  // namespace trireme::comm
