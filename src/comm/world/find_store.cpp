// SPDX-License-Identifier: Apache-2.0
#include "comm/world/find_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

#include "base/error.h"
#include "comm/clock.h"
#include "comm/store/store.h"
#include "comm/world/job_token.h"

namespace trireme::comm {
namespace {

struct Round {
  std::optional<FoundStore> found;
  std::string why;          // the last failure
  bool is_refused = false;  // a store replied, and refused the token
};

Round try_all(const StoreSearch& search, const std::vector<std::string>& tokens, double left_s) {
  constexpr double max_try_s = 5;
  Round round;
  for (const std::string& address : search.addresses) {
    for (const std::string& token : tokens) {
      try {
        (void)open_store(parse_store_address(address), {.deadline_s = std::min(left_s, max_try_s),
                                                        .retries = false,
                                                        .token = token,
                                                        .stop = search.stop});
        round.found = {address, token};
        return round;
      } catch (const StoreUnreachable& error) {
        round.why = error.reason();
        round.is_refused = round.is_refused || error.is_refused();
        if (!error.is_refused()) break;  // another token would not help
      }
    }
  }
  return round;
}

}  // namespace

FoundStore find_store(const StoreSearch& search) {
  const auto begin = Clock::now();
  constexpr double report_seconds = 10;
  double next_report = report_seconds;
  auto refused_since = begin;  // the last round without a refusal for want of the token
  auto pause = std::chrono::milliseconds(20);
  std::string why = "no address was given";
  while (true) {
    const JobTokens tokens = search.tokens();
    const double left_s = search.deadline_s - seconds_since(begin);
    if (left_s <= 0) break;
    Round round = try_all(search, tokens.tokens, left_s);
    if (round.found) return *std::move(round.found);
    if (!round.why.empty()) why = round.why;
    if (!tokens.is_missing || !round.is_refused) {
      refused_since = Clock::now();
    } else if (seconds_since(refused_since) >= search.missing_s) {
      throw base::ConfigError(no_token_message(search.who));
    }
    const double waited = seconds_since(begin);
    if (search.on_waiting && waited >= next_report) {
      search.on_waiting(waited);
      next_report += report_seconds;
    }
    if (search.stop != nullptr && search.stop->load()) {
      throw base::Stopped(fmt::format("stopped while waiting for the store at {}",
                                      fmt::join(search.addresses, ", ")));
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::milliseconds(250));
  }
  throw base::CommAborted(
      fmt::format("{} cannot join the store at {} within {:g} s: {}; it runs in the launcher or in "
                  "rank 0: check that this is running and that this host can reach the address; "
                  "if it cannot, set MASTER_ADDR and MASTER_PORT to one that all hosts can reach",
                  search.who, fmt::join(search.addresses, ", "), search.deadline_s, why));
}

}  // namespace trireme::comm
