// SPDX-License-Identifier: Apache-2.0
// Which file lies at which address. A mapped file that is truncated, or whose device fails, shows
// as SIGBUS where its bytes are touched; the handler of that signal (src/cli/main.cpp) can then
// name the file.
//
// The list is global: a signal handler can reach nothing else.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace trireme::base {

// One entry of the list, as long as it lives. Moving it keeps the entry.
class MappedRange {
 public:
  MappedRange() = default;  // none
  MappedRange(std::span<const std::byte> bytes, const std::string& file);

 private:
  struct Leave {
    void operator()(void* entry) const noexcept;
  };
  std::unique_ptr<void, Leave> entry_;
};

// Writes what happened at `address` into `text`, one line with its end, cut to the size; returns
// its length, or 0 if no listed file lies there. Async-signal-safe.
size_t describe_mapping_fault(const void* address, std::span<char> text) noexcept;

}  // namespace trireme::base
