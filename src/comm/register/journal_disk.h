// SPDX-License-Identifier: Apache-2.0
// JournalDisk: the file operations that the journal of a register needs, and no others. Tests
// substitute one that loses power. All functions throw IoError. Durable are the bytes of a file
// after sync() and its name after sync_folder(); nothing else is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace trireme::comm {

enum class JournalFile : uint8_t {
  current,
  next,  // takes the place of `current` by replace()
};

class JournalDisk {
 public:
  JournalDisk() = default;
  virtual ~JournalDisk() = default;
  JournalDisk(const JournalDisk&) = delete;
  JournalDisk& operator=(const JournalDisk&) = delete;

  // What messages call the current file.
  virtual std::string name() const = 0;
  // Returns the current file; none if there is none.
  virtual std::optional<std::string> read() = 0;
  // Writes all bytes or throws; some may be written then.
  virtual void append(size_t offset, std::string_view bytes) = 0;
  virtual void truncate(size_t bytes) = 0;
  // Creates the next file, in place of one that was left over.
  virtual void write_next(std::string_view bytes) = 0;
  virtual void sync(JournalFile) = 0;
  // Renames the next file to the current one, atomically.
  virtual void replace() = 0;
  virtual void sync_folder() = 0;
};

// The files register.journal and register.journal.next in `folder`. Holds a lock, so that no other
// process, and no second one of these, writes there; waits at most `wait_s` for one that ends.
// Throws IoError, which names the process that holds it.
std::unique_ptr<JournalDisk> open_journal_disk(const std::filesystem::path& folder, double wait_s);

}  // namespace trireme::comm
