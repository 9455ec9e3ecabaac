// SPDX-License-Identifier: Apache-2.0
// A list of mapped files and their addresses. Access to a mapped file that was truncated, or whose
// device fails, raises SIGBUS; the handler of that signal (fatal_signals.h) can then name the file.
//
// The list is global, because a signal handler has no other access to it.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace trireme::base {

// One entry of the list, removed by the destructor. Moving it keeps the entry.
class MappedRange {
 public:
  MappedRange() = default;  // no entry
  MappedRange(std::span<const std::byte> bytes, const std::string& file);

 private:
  struct Leave {
    void operator()(void* entry) const noexcept;
  };
  std::unique_ptr<void, Leave> entry_;
};

// Describes the fault at `address` in `text`, cut to its size and without a newline. Returns the
// length, or 0 if no listed file is mapped there. Async-signal-safe.
size_t describe_mapping_fault(const void* address, std::span<char> text) noexcept;

}  // namespace trireme::base
