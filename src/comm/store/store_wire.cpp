// SPDX-License-Identifier: Apache-2.0
#include "comm/store/store_wire.h"

#include <fmt/format.h>

#include <charconv>
#include <span>

#include "base/check.h"
#include "base/error.h"
#include "base/sha256.h"

namespace trireme::comm {
namespace {

constexpr size_t length_bytes = 4;

void put_length(std::string& to, size_t value) {
  for (size_t i = 0; i < length_bytes; ++i) to += static_cast<char>((value >> (8 * i)) & 0xff);
}

size_t length_at(std::string_view bytes, size_t at) {
  size_t value = 0;
  for (size_t i = 0; i < length_bytes; ++i) {
    value |= static_cast<size_t>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
  }
  return value;
}

template <typename Number>
std::optional<Number> parsed(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::string store_handshake(const std::string& token) {
  base::Sha256 hash;
  hash.update(std::as_bytes(std::span(token)));
  return std::string(store_protocol) + hash.hex();
}

std::string encode(const StoreMessage& message) {
  std::string body(1, static_cast<char>(message.code));
  for (const std::string& field : message.fields) {
    put_length(body, field.size());
    body += field;
  }
  TRIREME_CHECK(body.size() <= max_frame_bytes, "a frame of {} bytes", body.size());
  std::string frame;
  put_length(frame, body.size());
  return frame + body;
}

std::optional<StoreMessage> frame_at(std::string_view bytes, size_t& at) {
  if (bytes.size() - at < length_bytes) return std::nullopt;
  const size_t length = length_at(bytes, at);
  if (length < 1 || length > max_frame_bytes) {
    throw base::IoError(
        fmt::format("a frame of {} bytes; 1 to {} are allowed", length, max_frame_bytes));
  }
  if (bytes.size() - at < length_bytes + length) return std::nullopt;
  const std::string_view body = bytes.substr(at + length_bytes, length);
  if (static_cast<unsigned char>(body[0]) > static_cast<unsigned char>(StoreCode::fenced)) {
    throw base::IoError(fmt::format("unknown code {}", static_cast<unsigned char>(body[0])));
  }
  StoreMessage message{.code = static_cast<StoreCode>(body[0])};
  for (size_t next = 1; next < body.size();) {
    if (body.size() - next < length_bytes) throw base::IoError("a field without its length");
    const size_t field = length_at(body, next);
    next += length_bytes;
    if (field > body.size() - next) {
      throw base::IoError(
          fmt::format("a field of {} bytes where {} are left", field, body.size() - next));
    }
    message.fields.emplace_back(body.substr(next, field));
    next += field;
  }
  at += length_bytes + length;
  return message;
}

std::optional<StoreMessage> take_frame(std::string& bytes) {
  size_t end = 0;
  std::optional<StoreMessage> message = frame_at(bytes, end);
  bytes.erase(0, end);
  return message;
}

std::optional<int64_t> integer_from(std::string_view text) { return parsed<int64_t>(text); }
std::optional<double> number_from(std::string_view text) { return parsed<double>(text); }

}  // namespace trireme::comm
