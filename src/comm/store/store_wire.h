// SPDX-License-Identifier: Apache-2.0
// What store and client send to each other: frames of a length (4 bytes, little-endian), a code and
// a list of texts. A connection starts with a handshake, the protocol's name and a hash of the
// job's token, so that connections of other programs and other jobs are rejected.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::comm {

inline constexpr std::string_view store_protocol = "TRIREME2";
// The protocol and 64 hexadecimal digits.
std::string store_handshake(const std::string& token);

enum class StoreCode : uint8_t {
  set,       // key, value
  set_once,  // key, value -> the value that stands
  add,       // key, delta -> sum
  read,      // keys -> for each: "1", value, age in seconds; or "0", "", ""
  wait,      // deadline in seconds, keys -> "1" or "0"
  join,      // name, the process in words, when it started (seconds since 1970)
  leave,     //
  ok,        // answers
  refused,   // why
};

struct StoreMessage {
  StoreCode code = StoreCode::ok;
  std::vector<std::string> fields;

  bool operator==(const StoreMessage&) const = default;
};

inline constexpr size_t max_frame_bytes = size_t{8} << 20;

// REQUIRES: the frame is at most max_frame_bytes long.
std::string encode(const StoreMessage& message);
// The frame that begins at byte `at`, which then is the end of it; none: more bytes are needed.
// Throws IoError if no frame can start like this.
std::optional<StoreMessage> frame_at(std::string_view bytes, size_t& at);
// The same with the first frame of `bytes`, which it takes off.
std::optional<StoreMessage> take_frame(std::string& bytes);

// Decimal texts, whole; none if they are not.
std::optional<int64_t> integer_from(std::string_view text);
std::optional<double> number_from(std::string_view text);

}  // namespace trireme::comm
