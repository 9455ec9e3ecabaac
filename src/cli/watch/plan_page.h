// SPDX-License-Identifier: Apache-2.0
// The planner of `trireme board --plan`: answers requests below /api/plan. Query parameters are the
// options of `trireme plan` with underscores (batch_tokens=4e6), and an answer is the object that
// `trireme plan --json` prints for them.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/text/json_fwd.h"
#include "board/request.h"
#include "cli/plan/plan_report.h"

namespace trireme::cli {

struct PlanPageLimits {
  double queue_seconds = 60;   // that a question waits for earlier ones
  double search_seconds = 60;  // of one question
  size_t kept_answers = 8;     // the picture of a schedule needs the answer a second time
  int64_t picture_actions = 20000;
};

// Searches one question at a time. Any thread may call handle().
class PlanPage {
 public:
  explicit PlanPage(const PlanPageLimits& limits = {}) : limits_(limits) {}

  // Returns none if the path is unknown. A question that `trireme plan` would refuse is answered
  // with 400 and the same message; 503: the planner is busy, or the search takes too long.
  std::optional<board::Response> handle(const board::Request& request);

 private:
  using Answer = std::shared_ptr<const PlanReport>;  // shared: it may be dropped while it is used

  // The object of `trireme plan --json`, also for sizes and deadlines.
  base::Json answer_json_to(const board::Request& request);
  Answer answer_to(const board::Request& request);
  // Waits until no other question is searched. Throws if that takes too long.
  std::unique_lock<std::timed_mutex> turn();
  // Returns a function that throws after the time of a search.
  plan::PlanProgress time_limit() const;

  PlanPageLimits limits_;
  std::timed_mutex mutex_;                            // guards kept_, and is held during a search
  std::vector<std::pair<std::string, Answer>> kept_;  // by question, the newest last
};

// Returns the words of `trireme plan` for a question. Throws ConfigError for parameters that are no
// options of a question, and for models, machines and stacks that are not shipped: the page opens
// no file that a browser names.
std::vector<std::string> plan_words(const board::Request& request);

}  // namespace trireme::cli
