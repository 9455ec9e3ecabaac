// SPDX-License-Identifier: Apache-2.0
#include "data/readers/tar.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "base/error.h"
#include "base/text/printable.h"

namespace trireme::data {
namespace {

using base::IoError;

constexpr int64_t tar_block = 512;
constexpr int64_t max_tar_extension = 1 << 20;  // bytes of a long name or of pax records

std::string_view tar_text(const std::array<char, 512>& header, size_t at, size_t size) {
  const std::string_view field(header.data() + at, size);
  return field.substr(0, field.find('\0'));
}

// Octal digits, padded with spaces or NUL; or a binary number if the first bit is set (GNU).
// Returns -1 if it is neither, or does not fit.
int64_t tar_number(const std::array<char, 512>& header, size_t at, size_t size) {
  const auto* field = reinterpret_cast<const unsigned char*>(header.data()) + at;
  uint64_t value = 0;
  if ((field[0] & 0x80U) != 0) {
    if (field[0] != 0x80) return -1;  // negative, or too large
    for (size_t i = 1; i < size; ++i) {
      if (value >> 54U != 0) return -1;
      value = value << 8U | field[i];
    }
    return static_cast<int64_t>(value);
  }
  size_t i = 0;
  while (i < size && field[i] == ' ') ++i;
  for (; i < size && field[i] >= '0' && field[i] <= '7'; ++i)
    value = value << 3U | (field[i] - '0');
  for (; i < size; ++i) {
    if (field[i] != ' ' && field[i] != '\0') return -1;
  }
  return static_cast<int64_t>(value);
}

// The sum of all bytes, with spaces in place of the checksum. Some old programs summed signed
// bytes.
bool has_tar_checksum(const std::array<char, 512>& header) {
  int64_t sum = 0, signed_sum = 0;
  for (size_t i = 0; i < header.size(); ++i) {
    const char c = i >= 148 && i < 156 ? ' ' : header[i];
    sum += static_cast<unsigned char>(c);
    signed_sum += static_cast<signed char>(c);
  }
  const int64_t stored = tar_number(header, 148, 8);
  return stored == sum || stored == signed_sum;
}

}  // namespace

bool TarReader::next() {
  skip(unread_ + padding_);
  long_name_.clear();
  pax_path_.clear();
  pax_size_ = -1;
  for (Header header; !is_at_end_ && read_header(header);) {
    const int64_t header_at = stream_.offset() - tar_block;
    const auto fail = [&](const std::string& what) {
      return IoError(fmt::format("{}: tar header at byte {}: {}", stream_.name(), header_at, what));
    };
    int64_t size = tar_number(header, 124, 12);
    if (size < 0) throw fail("the size is not a number");
    const char type = header[156];
    const bool is_extension = type == 'L' || type == 'K' || type == 'x' || type == 'g';
    if (is_extension) {
      if (size > max_tar_extension) {
        throw fail(
            fmt::format("an extended header of {} bytes; allowed: {}", size, max_tar_extension));
      }
      const std::string text = content(size, "an extended header");
      if (type == 'L') long_name_ = text.substr(0, text.find('\0'));
      if (type == 'x') read_pax(text, header_at);
      continue;
    }
    if (pax_size_ >= 0) size = pax_size_;
    if (type == 'S') throw fail("a sparse file, which is not supported");
    name_ = std::string(tar_text(header, 0, 100));
    // The prefix is part of ustar; GNU stores other things there.
    if (std::string_view(header.data() + 257, 6) == std::string_view("ustar\0", 6)) {
      const std::string_view prefix = tar_text(header, 345, 155);
      if (!prefix.empty()) name_ = fmt::format("{}/{}", prefix, name_);
    }
    if (!long_name_.empty()) name_ = long_name_;
    if (!pax_path_.empty()) name_ = pax_path_;
    // Links, devices, folders and pipes have no content, whatever their size is.
    if (type >= '1' && type <= '6') size = 0;
    bytes_ = unread_ = size;
    padding_ = (tar_block - size % tar_block) % tar_block;
    offset_ = stream_.offset();
    const bool is_regular = type == '0' || type == '\0' || type == '7';
    if (is_regular && !name_.ends_with('/')) return true;
    skip(unread_ + padding_);
    long_name_.clear();
    pax_path_.clear();
    pax_size_ = -1;
  }
  return false;
}

void TarReader::read(std::string& out) {
  append(out, unread_);
  unread_ = 0;
}

// Returns false at the end of the archive.
bool TarReader::read_header(Header& header) {
  const int64_t at = stream_.offset();
  if (!stream_.read_all(std::as_writable_bytes(std::span(header)))) {
    throw IoError(
        fmt::format("{}: truncated: no tar header and no end of the archive (zeros) at byte {}",
                    stream_.name(), at));
  }
  if (std::all_of(header.begin(), header.end(), [](char c) { return c == '\0'; })) {
    check_end();
    return false;
  }
  if (!has_tar_checksum(header)) {
    throw IoError(
        fmt::format("{}: tar header at byte {}: the checksum is wrong; the archive is "
                    "damaged, or it is not tar",
                    stream_.name(), at));
  }
  return true;
}

// Archives that were appended to each other would lose documents silently.
void TarReader::check_end() {
  is_at_end_ = true;
  std::array<std::byte, 8192> rest;
  while (const size_t count = stream_.read(rest)) {
    const auto part = std::span(rest).first(count);
    const auto found =
        std::find_if(part.begin(), part.end(), [](std::byte b) { return b != std::byte{0}; });
    if (found != part.end()) {
      throw IoError(fmt::format(
          "{}: byte {} follows the end of the archive (zeros); split archives that were "
          "concatenated",
          stream_.name(), stream_.offset() - (part.end() - found)));
    }
  }
}

// Records "LENGTH KEY=VALUE\n"; the length counts itself.
void TarReader::read_pax(const std::string& records, int64_t at) {
  const auto fail = [&] {
    return IoError(fmt::format("{}: the pax header at byte {} is malformed", stream_.name(), at));
  };
  for (size_t begin = 0; begin < records.size();) {
    size_t length = 0;
    const char* start = records.data() + begin;
    const auto parsed = std::from_chars(start, records.data() + records.size(), length);
    if (parsed.ec != std::errc() || length == 0 || length > records.size() - begin) throw fail();
    const std::string_view record(start, length);
    const auto digits = static_cast<size_t>(parsed.ptr - start);
    const size_t equals = record.find('=');
    if (digits + 1 >= record.size() || record[digits] != ' ' || record.back() != '\n' ||
        equals == std::string_view::npos) {
      throw fail();
    }
    const std::string_view key = record.substr(digits + 1, equals - digits - 1);
    const std::string_view value = record.substr(equals + 1, record.size() - equals - 2);
    if (key == "path") pax_path_ = value;
    if (key.starts_with("GNU.sparse.")) {
      throw IoError(
          fmt::format("{}: the pax header at byte {} is of a sparse file, which is not "
                      "supported",
                      stream_.name(), at));
    }
    if (key == "size") {
      const auto number = std::from_chars(value.data(), value.data() + value.size(), pax_size_);
      if (number.ec != std::errc() || number.ptr != value.data() + value.size() || pax_size_ < 0 ||
          pax_size_ > (int64_t{1} << 60)) {
        throw fail();
      }
    }
    begin += length;
  }
}

std::string TarReader::content(int64_t bytes, const char* what) {
  std::string text;
  unread_ = bytes;
  padding_ = (tar_block - bytes % tar_block) % tar_block;
  name_ = what;
  read(text);
  skip(padding_);
  return text;
}

void TarReader::append(std::string& out, int64_t bytes) {
  while (bytes > 0) {
    const auto step = static_cast<size_t>(std::min<int64_t>(bytes, 1 << 20));
    const size_t before = out.size();
    out.resize(before + step);
    if (!stream_.read_all(std::as_writable_bytes(std::span(out)).subspan(before))) {
      throw IoError(fmt::format("{}: truncated inside the member {}", stream_.name(),
                                base::printable(name_)));
    }
    bytes -= static_cast<int64_t>(step);
  }
}

void TarReader::skip(int64_t bytes) {
  std::array<std::byte, 8192> scratch;
  while (bytes > 0) {
    const auto step = std::min<int64_t>(bytes, std::ssize(scratch));
    if (!stream_.read_all(std::span(scratch).first(static_cast<size_t>(step)))) {
      throw IoError(fmt::format("{}: truncated inside the member {}", stream_.name(),
                                base::printable(name_)));
    }
    bytes -= step;
  }
  unread_ = padding_ = 0;
}

}  // namespace trireme::data
