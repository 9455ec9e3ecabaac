// SPDX-License-Identifier: Apache-2.0
// JournalRegister: a register whose changes are appended to a journal file and synced before they
// are reported as done. It survives its process and a loss of power, not its disk. Any thread may
// call.
//
// A swap costs one append and one fsync: 0.1 to 20 ms on local disks, more on a busy one. Others
// wait meanwhile, also those that read.
#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <string>

#include "comm/register/journal_disk.h"
#include "comm/register/journal_format.h"
#include "comm/register/register.h"

namespace trireme::comm {

class JournalRegister final : public Register {
 public:
  static constexpr size_t default_long_bytes = size_t{1} << 20;

  // Opens the journal or creates it. An append that was not completed is cut off. What is left is
  // written anew: an earlier process may have ended before it was synced, and after an fsync that
  // failed another one of the same file proves nothing. The journal is rewritten again when it is
  // longer than `long_bytes`. Throws IoError if it is damaged, or the disk is full.
  explicit JournalRegister(std::unique_ptr<JournalDisk> disk,
                           size_t long_bytes = default_long_bytes);

  // Throws IoError after a failure of the disk that leaves unknown what is durable. Another
  // JournalRegister on the same disk finds out.
  RegisterState read() override;
  // Bytes that the constructor cut off.
  size_t cut_bytes() const { return cut_bytes_; }

 private:
  // Without space on the disk it throws, nothing has changed, and later calls may succeed.
  Swapped swap_checked(int64_t expected_revision, const std::string& value,
                       const std::string& request_id) override;
  void expect_working() const;
  void append(const std::string& record);
  void rewrite();
  void rewrite_if_long();

  const std::unique_ptr<JournalDisk> disk_;
  const size_t long_bytes_;
  size_t cut_bytes_ = 0;
  mutable std::mutex mutex_;  // guards all members below
  RegisterContent content_;
  size_t bytes_ = 0;       // of the journal
  size_t rewrite_at_ = 0;  // the length at which it is rewritten
  std::string failure_;    // empty: none
};

inline constexpr const char* journal_name = "register.journal";
// The journal of that name in a run's folder. Throws IoError if another launcher has it.
std::unique_ptr<JournalRegister> open_journal_register(const std::filesystem::path& folder);

}  // namespace trireme::comm
