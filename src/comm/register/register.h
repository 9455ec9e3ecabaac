// SPDX-License-Identifier: Apache-2.0
// Register: one small value that all processes of a run agree on, with a number that grows by one
// whenever it changes. It is linearizable: a read returns the newest value whose change was
// reported as done to any process, and a change takes place only if it was made from the newest
// value. The record of a run's epochs stands in it (run_record.h). Nothing is read or written per
// step: an epoch and a commit change it once each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace trireme::comm {

// Values are shorter than this.
inline constexpr size_t max_register_bytes = size_t{64} << 10;
inline constexpr size_t max_request_id_bytes = 128;

struct RegisterState {
  int64_t revision = 0;  // 0: nothing was ever written, and the value is empty
  std::string value;
  bool operator==(const RegisterState&) const = default;
};

struct Swapped {
  bool is_done = false;
  // Done: the revision that the swap made, and its value. Otherwise the present ones, which differ
  // from those that the caller expected.
  RegisterState state;
  bool operator==(const Swapped&) const = default;
};

// Calls throw IoError if the register refuses or cannot answer, and CommAborted if it was not
// reached. A swap that throws may or may not take place; the same call, with the same request id,
// finds out.
class Register {
 public:
  Register() = default;
  virtual ~Register() = default;
  Register(const Register&) = delete;
  Register& operator=(const Register&) = delete;

  virtual RegisterState read() = 0;
  // Replaces the value if `expected_revision` is the present revision. A request id stands for one
  // swap: if that is done already, it is reported as done again, with the revision that it made.
  // The ids of the last `remembered_requests` swaps are known; one that is older conflicts.
  // REQUIRES: the request id has 1 to max_request_id_bytes bytes, and no other swap has it.
  Swapped swap(int64_t expected_revision, const std::string& value, const std::string& request_id);

 private:
  virtual Swapped swap_checked(int64_t expected_revision, const std::string& value,
                               const std::string& request_id) = 0;
};

inline constexpr size_t remembered_requests = 256;

}  // namespace trireme::comm
