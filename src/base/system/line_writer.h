// SPDX-License-Identifier: Apache-2.0
// LineWriter: builds text in a buffer of fixed size. Every function is async-signal-safe; what does
// not fit is cut off.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace trireme::base {

class LineWriter {
 public:
  explicit LineWriter(std::span<char> text) : text_(text) {}

  void add(std::string_view part) noexcept {
    const size_t count = std::min(part.size(), text_.size() - size_);
    std::copy_n(part.begin(), count, text_.begin() + static_cast<std::ptrdiff_t>(size_));
    size_ += count;
  }
  void add_number(uint64_t number) noexcept { add_digits(number, 10); }
  void add_signed(int64_t number) noexcept {
    if (number < 0) add("-");
    const auto magnitude = static_cast<uint64_t>(number);
    add_number(number < 0 ? ~magnitude + 1 : magnitude);
  }
  void add_hex(uint64_t number) noexcept {
    add("0x");
    add_digits(number, 16);
  }
  // As the inside of a JSON string. Control characters become spaces.
  void add_json(std::string_view part) noexcept {
    for (const char letter : part) {
      if (letter == '"' || letter == '\\') add("\\");
      const bool is_control = static_cast<unsigned char>(letter) < 0x20;
      add(is_control ? std::string_view(" ") : std::string_view(&letter, 1));
    }
  }

  std::string_view text() const noexcept { return {text_.data(), size_}; }
  size_t size() const noexcept { return size_; }

 private:
  void add_digits(uint64_t number, unsigned base) noexcept {
    char digits[20];
    size_t at = sizeof(digits);
    do {
      digits[--at] = "0123456789abcdef"[number % base];
      number /= base;
    } while (number > 0);
    add(std::string_view(digits + at, sizeof(digits) - at));
  }

  std::span<char> text_;
  size_t size_ = 0;
};

}  // namespace trireme::base
