// SPDX-License-Identifier: Apache-2.0
// Finds a run's store among several addresses and tokens: a store may be on one of several ports,
// and the token may be in a file that rank 0 has yet to write (job_token.h).
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

namespace trireme::comm {

struct JobTokens {
  std::vector<std::string> tokens;  // to be tried in this order
  bool is_missing = false;  // the token of the job is not among them: its file cannot be read
};

struct StoreSearch {
  std::string who;                     // "rank 3 of 8", for messages
  std::vector<std::string> addresses;  // in the order in which they are tried
  std::function<JobTokens()> tokens;   // called before every round of tries
  double deadline_s = 120;
  // How long a store may refuse all tokens while that of the job is missing: ranks of another host
  // may see a new file late.
  double missing_s = 30;
  const std::atomic<bool>* stop = nullptr;
  std::function<void(double waited_s)> on_waiting;  // called about every 10 s
};

struct FoundStore {
  std::string address, token;
};

// Returns the first address and token with which a store replies. Throws CommAborted at the
// deadline, ConfigError (no_token_message) after missing_s, and Stopped when `stop` is set.
FoundStore find_store(const StoreSearch& search);

}  // namespace trireme::comm
