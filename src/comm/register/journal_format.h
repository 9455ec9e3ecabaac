// SPDX-License-Identifier: Apache-2.0
// The bytes of a register's journal: a line that names the format, a snapshot of everything that
// the register knows, then one record a swap. A record is a frame: the length of its body (4 bytes,
// little-endian), a hash of the length (4), XXH3-64 of the body (8), the body, and the byte 0xff.
// Pure functions.
//
// What a crash leaves and what is damage are distinguished: the bytes of an append that was not
// synced end early, or end in zeros, so the closing byte is missing. Only the last record can be
// such. Any other deviation is damage, also in the last record: a swap that was reported as done
// must not vanish.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>

#include "comm/register/register.h"

namespace trireme::comm {

struct RegisterContent {
  RegisterState state;
  // The last swaps that were done: request id, and the revision that it made.
  std::deque<std::pair<std::string, int64_t>> done;

  bool operator==(const RegisterContent&) const = default;

  void apply(const std::string& request_id, std::string value);
};

// A whole journal without swaps.
std::string encode_journal(const RegisterContent&);
// The record of the swap that makes `revision`.
std::string encode_swap(int64_t revision, std::string_view request_id, std::string_view value);

struct ReplayedJournal {
  RegisterContent content;
  size_t bytes = 0;      // of complete records
  size_t cut_bytes = 0;  // after them: an append that was not completed
};
// Throws IoError, which names `file` and the offset, if the journal is damaged.
ReplayedJournal replay_journal(std::string_view bytes, const std::string& file);

}  // namespace trireme::comm
