// SPDX-License-Identifier: Apache-2.0
// The protocol of store and client: frames of a length (4 bytes, little-endian), a code and a list
// of texts. A connection starts with a handshake, the protocol's name and a hash of the job's
// token, so that connections of other programs and other jobs are rejected.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::comm {

inline constexpr std::string_view store_protocol = "TRIREME4";
// The protocol and 64 hexadecimal digits.
std::string store_handshake(const std::string& token);

enum class StoreCode : uint8_t {
  set,            // key, value
  set_once,       // key, value -> the value of the key
  add,            // key, delta -> sum
  read,           // keys -> for each: "1", value, age in seconds; or "0", "", ""
  wait,           // deadline in seconds, keys -> "1" or "0"
  join,           // name, process as text, its start (s since 1970), id of the handle
  leave,          //
  enter,          // epoch
  register_read,  // -> "done", revision, value; or "refused", "", the reason
  // expected revision, value, request id -> "done" or "conflict", revision, value; or as above
  register_swap,
  ok,       // reply
  refused,  // reply: the reason
  fenced,   // reply: the newest epoch, which is not that of the client
};

struct StoreMessage {
  StoreCode code = StoreCode::ok;
  std::vector<std::string> fields;

  bool operator==(const StoreMessage&) const = default;
};

// Keys that the server sets when a client that has joined disconnects without leaving.
inline std::string gone_key(const std::string& name) { return "gone/" + name; }
inline constexpr const char* any_gone_key = "gone";

inline constexpr size_t max_frame_bytes = size_t{8} << 20;

// REQUIRES: the frame is at most max_frame_bytes long.
std::string encode(const StoreMessage& message);
// Returns the frame that begins at byte `at` and sets `at` to its end; none if more bytes are
// needed. Throws IoError if the bytes are not the start of a frame.
std::optional<StoreMessage> frame_at(std::string_view bytes, size_t& at);
// The same for the first frame of `bytes`, which it removes.
std::optional<StoreMessage> take_frame(std::string& bytes);

// Parse a complete decimal text; return none if it is not a number.
std::optional<int64_t> integer_from(std::string_view text);
std::optional<double> number_from(std::string_view text);

}  // namespace trireme::comm
