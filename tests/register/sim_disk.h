// SPDX-License-Identifier: Apache-2.0
// The disk below a simulated register: what was not synced is lost with the power, in part or as
// zeros. Power may fail before any operation, or in the middle of an append.
#pragma once

#include <algorithm>
#include <exception>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "comm/register/journal_disk.h"

namespace trireme::comm {

struct SimPowerLost : std::exception {
  const char* what() const noexcept override { return "the power failed"; }
};

struct SimDisk {
  struct File {
    std::string bytes, durable;
    bool is_dropped = false;  // an fsync of it has failed: later ones change nothing
  };
  std::shared_ptr<File> current, next;
  std::shared_ptr<File> durable_current;  // whose name survives
  bool is_full = false;
  bool fails_to_sync = false;
  bool ignores_sync = false;  // a planted bug
  int operations_left = -1;   // until the power fails; -1: it does not

  void count_operation() {
    if (operations_left < 0) return;
    if (operations_left-- == 0) throw SimPowerLost();
  }
  // What a planted bug did not sync.
  void flush() {
    if (current) current->durable = current->bytes;
  }
  void lose_power(std::mt19937& random) {
    operations_left = -1;
    // The rename of a file that was written may be durable or not.
    if (random() % 2 == 0) current = durable_current;
    durable_current = current;
    next.reset();
    if (!current) return;
    std::string& bytes = current->bytes;
    const std::string& durable = current->durable;
    const size_t kept =
        durable.size() +
        (bytes.size() > durable.size() ? random() % (bytes.size() - durable.size() + 1) : 0);
    const size_t zeros = random() % 3 == 0 ? bytes.size() - std::min(kept, bytes.size()) : 0;
    bytes = bytes.size() > durable.size() ? bytes.substr(0, kept) : durable;
    bytes.append(zeros, '\0');
    current->durable = bytes;
    current->is_dropped = false;
  }
};

// The disk as one process of a register sees it.
class SimJournalDisk final : public JournalDisk {
 public:
  explicit SimJournalDisk(SimDisk& disk) : disk_(disk) {}

  std::string name() const override { return "the journal"; }
  std::optional<std::string> read() override {
    if (!disk_.current) return std::nullopt;
    return disk_.current->bytes;
  }
  void append(size_t offset, std::string_view bytes) override {
    const bool power_fails = disk_.operations_left == 0;
    if (disk_.is_full || power_fails) bytes = bytes.substr(0, bytes.size() / 2);
    std::string& file = disk_.current->bytes;
    file.replace(std::min(offset, file.size()), bytes.size(), bytes);
    if (disk_.is_full) throw base::IoError("no space is left");
    disk_.count_operation();
  }
  void truncate(size_t bytes) override {
    disk_.count_operation();
    disk_.current->bytes.resize(bytes);
  }
  void write_next(std::string_view bytes) override {
    disk_.count_operation();
    if (disk_.is_full) throw base::IoError("no space is left");
    disk_.next = std::make_shared<SimDisk::File>();
    disk_.next->bytes = bytes;
  }
  void sync(JournalFile which) override {
    disk_.count_operation();
    SimDisk::File& file = which == JournalFile::current ? *disk_.current : *disk_.next;
    if (disk_.fails_to_sync) {
      file.is_dropped = true;
      throw base::IoError("fsync failed");
    }
    const bool is_ignored = disk_.ignores_sync && which == JournalFile::current;
    if (!is_ignored && !file.is_dropped) file.durable = file.bytes;
  }
  void replace() override {
    disk_.count_operation();
    disk_.current = std::exchange(disk_.next, nullptr);
  }
  void sync_folder() override {
    disk_.count_operation();
    disk_.durable_current = disk_.current;
  }

 private:
  SimDisk& disk_;
};

}  // namespace trireme::comm
