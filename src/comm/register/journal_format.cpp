// SPDX-License-Identifier: Apache-2.0
#include "comm/register/journal_format.h"

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

#include <optional>
#include <vector>

#include "base/error.h"

namespace trireme::comm {
namespace {

constexpr std::string_view format_line = "trireme register 1\n";
constexpr size_t header_bytes = 16;
constexpr char closing_byte = '\xff';
constexpr char snapshot_kind = 's', swap_kind = 'w';
// A snapshot has the value and all request ids, with their lengths and revisions.
constexpr size_t max_body_bytes =
    max_register_bytes + (remembered_requests + 1) * (max_request_id_bytes + 32);

void put(std::string& to, uint64_t number, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) to += static_cast<char>((number >> (8 * i)) & 0xff);
}

uint64_t number_at(std::string_view bytes, size_t at, size_t count) {
  uint64_t value = 0;
  for (size_t i = 0; i < count; ++i) {
    value |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
  }
  return value;
}

void put_text(std::string& to, std::string_view text) {
  put(to, text.size(), 4);
  to += text;
}

uint64_t hash_of_text(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }
uint64_t hash_of_length(std::string_view bytes) {
  return hash_of_text(bytes.substr(0, 4)) & 0xffffffff;
}

std::string framed(const std::string& body) {
  std::string frame;
  frame.reserve(header_bytes + body.size() + 1);
  put(frame, body.size(), 4);
  put(frame, hash_of_length(frame), 4);
  put(frame, hash_of_text(body), 8);
  frame += body;
  frame += closing_byte;
  return frame;
}

class JournalReader {
 public:
  JournalReader(std::string_view bytes, const std::string& file) : bytes_(bytes), file_(file) {}

  ReplayedJournal replay() {
    if (bytes_.substr(0, format_line.size()) != format_line) {
      throw damage(0, fmt::format("it does not begin with '{}'",
                                  format_line.substr(0, format_line.size() - 1)));
    }
    at_ = format_line.size();
    const auto snapshot = next_body();
    // A journal gets its name when its snapshot is on the disk.
    if (!snapshot) throw damage(at_, "the snapshot is incomplete");
    read_snapshot(*snapshot);
    while (true) {
      const size_t begin = at_;
      const auto body = next_body();
      if (!body) break;
      read_swap(*body, begin);
    }
    return {.content = std::move(content_), .bytes = at_, .cut_bytes = bytes_.size() - at_};
  }

 private:
  base::IoError damage(size_t offset, std::string_view what) const {
    return base::IoError(
        fmt::format("{} is damaged at byte {} of {}: {}. It records which processes belong to the "
                    "run and is not repaired; continue from a copy, or without it from the newest "
                    "checkpoint after making sure that no process of the run is left",
                    file_, offset, bytes_.size(), what));
  }

  // None if the rest of the file is an append that was not completed.
  std::optional<std::string_view> next_body() {
    const std::string_view rest = bytes_.substr(at_);
    const size_t last = rest.find_last_not_of('\0');
    const size_t used = last == std::string_view::npos ? 0 : last + 1;
    if (used < header_bytes) return std::nullopt;
    const size_t length = number_at(rest, 0, 4);
    if (number_at(rest, 4, 4) != hash_of_length(rest) || length > max_body_bytes) {
      throw damage(at_, "the length of a record does not have its hash");
    }
    const size_t end = header_bytes + length;
    if (used <= end) return std::nullopt;
    const std::string_view body = rest.substr(header_bytes, length);
    if (number_at(rest, 8, 8) != hash_of_text(body) || rest[end] != closing_byte) {
      throw damage(at_, "a record does not have its hash");
    }
    at_ += end + 1;
    return body;
  }

  // ---- the parts of a body, whose hash is right

  std::string_view take(std::string_view& body, size_t bytes) const {
    if (body.size() < bytes) throw damage(at_, "a record ends before its last field");
    const std::string_view part = body.substr(0, bytes);
    body.remove_prefix(bytes);
    return part;
  }
  int64_t take_number(std::string_view& body) const {
    return static_cast<int64_t>(number_at(take(body, 8), 0, 8));
  }
  std::string take_text(std::string_view& body) const {
    const size_t length = number_at(take(body, 4), 0, 4);
    return std::string(take(body, length));
  }

  void read_snapshot(std::string_view body) {
    if (take(body, 1).front() != snapshot_kind) throw damage(at_, "it begins with no snapshot");
    content_.state.revision = take_number(body);
    content_.state.value = take_text(body);
    while (!body.empty()) {
      const int64_t revision = take_number(body);
      content_.done.emplace_back(take_text(body), revision);
    }
  }

  void read_swap(std::string_view body, size_t begin) {
    if (take(body, 1).front() != swap_kind) throw damage(begin, "a second snapshot");
    const int64_t revision = take_number(body);
    if (revision != content_.state.revision + 1) {
      throw damage(begin, fmt::format("revision {} follows {}", revision, content_.state.revision));
    }
    const std::string request_id = take_text(body);
    content_.apply(request_id, take_text(body));
  }

  const std::string_view bytes_;
  const std::string& file_;
  size_t at_ = 0;
  RegisterContent content_;
};

}  // namespace

void RegisterContent::apply(const std::string& request_id, std::string value) {
  ++state.revision;
  state.value = std::move(value);
  done.emplace_back(request_id, state.revision);
  if (done.size() > remembered_requests) done.pop_front();
}

std::string encode_journal(const RegisterContent& content) {
  std::string body(1, snapshot_kind);
  put(body, static_cast<uint64_t>(content.state.revision), 8);
  put_text(body, content.state.value);
  for (const auto& [request_id, revision] : content.done) {
    put(body, static_cast<uint64_t>(revision), 8);
    put_text(body, request_id);
  }
  return std::string(format_line) + framed(body);
}

std::string encode_swap(int64_t revision, std::string_view request_id, std::string_view value) {
  std::string body(1, swap_kind);
  put(body, static_cast<uint64_t>(revision), 8);
  put_text(body, request_id);
  put_text(body, value);
  return framed(body);
}

ReplayedJournal replay_journal(std::string_view bytes, const std::string& file) {
  return JournalReader(bytes, file).replay();
}

}  // namespace trireme::comm
