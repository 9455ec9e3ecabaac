// SPDX-License-Identifier: Apache-2.0
#include "cli/launch/job_course.h"

#include <fmt/ranges.h>

#include "agent/guardian/kept_names.h"
#include "agent/supervisor.h"
#include "base/log.h"
#include "base/text/json.h"
#include "cli/launch/launch_record.h"
#include "cli/launch/next_layout.h"
#include "obs/clock.h"

namespace trireme::cli {
namespace {

// What a supervisor after this one has to know of the job, beside the call.
void keep_job(agent::Keeper& keeper, const agent::JobOptions& options, const JobCourse& course) {
  keeper.put(agent::kept_job, {{"token", options.token},
                               {"epoch", options.epoch},
                               {"restarts", options.restarts},
                               {"fruitless", options.fruitless},
                               {"starts_over", options.starts_over},
                               {"went_back_to", options.went_back_to},
                               {"layout", course.layout},
                               {"recoveries", course.recoveries},
                               {"started", course.started}});
}

void append(std::vector<std::string>& words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
}

// Changes the options so that the next start resumes from the newest checkpoint, or from the one
// before a divergence.
void prepare_restart(agent::JobOptions& options, const agent::JobResult& before) {
  append(options.replacing_command, before.decision.layout);
  options.command = options.replacing_command;
  options.epoch = before.epoch + 1;
  const bool goes_back = before.decision.goes_back_to >= 0;
  if (goes_back) options.went_back_to = before.decision.goes_back_to;
  if (before.decision.layout.empty() && !goes_back) ++options.restarts;
  options.fruitless = before.decision.fruitless;
  options.starts_over = false;
}

}  // namespace

JobCourse go_on(const base::Json& job, agent::JobOptions& options) {
  options.token = job.at("token").get<std::string>();
  options.epoch = job.at("epoch").get<int64_t>();
  options.restarts = job.at("restarts").get<int64_t>();
  options.fruitless = job.at("fruitless").get<int64_t>();
  options.starts_over = job.at("starts_over").get<bool>();
  options.went_back_to = job.at("went_back_to").get<int64_t>();
  JobCourse course{.recoveries = job.at("recoveries").get<int64_t>(),
                   .started = job.at("started").get<double>(),
                   .layout = job.at("layout").get<std::vector<std::string>>()};
  append(options.replacing_command, course.layout);
  const bool has_restarted = options.restarts > 0 || options.went_back_to >= 0;
  if (has_restarted || !course.layout.empty()) options.command = options.replacing_command;
  return course;
}

agent::JobResult run_starts(agent::JobOptions& options, const LaunchConfig& launched,
                            agent::Keeper& keeper, JobCourse& course) {
  while (true) {
    if (course.started == 0) course.started = obs::wall_seconds();
    keep_job(keeper, options, course);
    options.survived = [&](const agent::JobResult& result) {
      ++course.recoveries;
      keep_job(keeper, options, course);
      if (launched.loaded && options.node == 0) {
        record_failure(*launched.loaded, {.result = result, .started = course.started});
      }
    };
    options.next_layout = [&] {
      const bool may_ask = launched.loaded && course.layout.empty();  // once for a job
      return may_ask ? layout_after_lack(*launched.loaded, options.world(), course.started)
                     : std::vector<std::string>();
    };
    agent::JobResult result = agent::run_start(options, keeper);
    const agent::Decision& decision = result.decision;
    if (launched.loaded && options.node == 0) {
      record_failure(*launched.loaded, {.result = result, .started = course.started});
    }
    if (!decision.reason.empty()) base::log(base::LogLevel::error, decision.reason);
    if (!decision.restarts) return result;
    prepare_restart(options, result);
    course.started = 0;
    if (!decision.layout.empty()) {
      course.layout = decision.layout;
      base::log_info("the job goes on with another layout, once, from the newest checkpoint: {}",
                     fmt::join(course.layout, " "));
      continue;
    }
    if (decision.goes_back_to >= 0) {
      base::log_info(
          "the numbers of the run diverged: the job is started again, once, with --resume auto, "
          "which goes back to the checkpoint of step {}",
          decision.goes_back_to);
      continue;
    }
    const std::string wait =
        decision.wait_s > 0 ? fmt::format(" in {:g} s", decision.wait_s) : std::string();
    base::log_info("restart {} of {}{}: from the newest checkpoint", options.restarts,
                   options.max_restarts, wait);
    agent::wait_for_restart(decision.wait_s);
  }
}

}  // namespace trireme::cli
