// SPDX-License-Identifier: Apache-2.0
#include "cli/watch/endings/planted_endings_test.h"

#include <limits>

#include "agent/exit_codes.h"
#include "base/error.h"

namespace trireme::cli {
namespace {

constexpr int done = agent::exit_done, failed = agent::exit_failed, stopped = agent::exit_stopped,
              diverged = agent::exit_diverged;
const char* const full = "No space left on device";

PlantedStep well(int64_t step) { return {.loss = 3 + 2.5 / static_cast<double>(step)}; }
PlantedStep skips(int64_t step) { return {.loss = well(step).loss, .was_skipped = step > 4}; }
PlantedStep is_far_up(int64_t step) { return {.loss = step > 4 ? 1e8 : 5.5}; }
PlantedStep is_nan(int64_t step) {
  return {.loss = step > 4 ? std::numeric_limits<double>::quiet_NaN() : 5.5};
}

void finish(PlantedRun& run) {
  run.save();
  run.exports();
  run.end();
}

}  // namespace

PlantedStep explodes(int64_t step) {
  return {.loss = step > 4 ? 6.6e8 : 5.5, .was_skipped = step > 5};
}

const std::vector<PlantedEnding>& endings() {
  static const std::vector<PlantedEnding> all = {
      {"healthy", 60,
       [](PlantedRun& run) {
         run.start();
         run.steps(60, well);
         run.ranks_report();
         finish(run);
       },
       "healthy", "good", done},
      {"short", 12,
       [](PlantedRun& run) {
         run.start();
         run.steps(12, well);
         finish(run);
       },
       "too_short", "good", done},
      {"one_step", 1,
       [](PlantedRun& run) {
         run.start();
         run.steps(1, well);
         finish(run);
       },
       "too_short", "good", done},
      {"without_checkpoints", 12,
       [](PlantedRun& run) {
         run.start();
         run.steps(12, well);
         run.end();
       },
       "too_short", "good", done},
      {"just_begun", 100,
       [](PlantedRun& run) {
         run.start();
         run.steps(5, well);
       },
       "running", "good", alive},
      {"goes_on", 100,
       [](PlantedRun& run) {
         run.start();
         run.steps(60, well);
         run.ranks_report();
       },
       "running", "good", alive},
      {"goes_on_unsaved", 100,
       [](PlantedRun& run) {
         run.start();
         run.steps(30, well);
         run.save(full);
       },
       "running", "warning", alive},
      {"goes_on_diverged", 100,
       [](PlantedRun& run) {
         run.start();
         run.steps(30, explodes);
       },
       "diverged", "bad", alive},
      {"goes_on_diverged_unsaved", 100,
       [](PlantedRun& run) {
         run.start();
         run.steps(30, is_far_up);
         run.save(full);
       },
       "diverged", "bad", alive},
      {"stopped", 100,
       [](PlantedRun& run) {
         run.start();
         run.steps(30, well);
         run.stop();
         finish(run);
       },
       "stopped", "off", stopped},
      {"stopped_unsaved", 100,
       [](PlantedRun& run) {
         run.start();
         run.steps(20, well);
         run.save();
         run.steps(10, well);
         run.stop();
         run.save(full);
         run.end();
       },
       "unsaved", "bad", failed},
      {"stopped_diverged", 100,
       [](PlantedRun& run) {
         run.start();
         run.steps(30, is_far_up);
         run.stop();
         finish(run);
       },
       "diverged", "bad", diverged},
      {"stopped_soon", 100,
       [](PlantedRun& run) {
         run.start();
         run.steps(1, [](int64_t) { return PlantedStep{.loss = 5.5, .was_skipped = true}; });
         run.stop();
         finish(run);
       },
       "stopped", "warning", stopped},
      {"diverged", 12,
       [](PlantedRun& run) {
         run.start();
         run.steps(12, explodes);
         finish(run);
       },
       "diverged", "bad", diverged},
      {"diverged_without_skips", 40,
       [](PlantedRun& run) {
         run.start();
         run.steps(40, is_far_up);
         finish(run);
       },
       "diverged", "bad", diverged},
      {"diverged_nan", 40,
       [](PlantedRun& run) {
         run.start();
         run.steps(40, is_nan);
         finish(run);
       },
       "diverged", "bad", diverged},
      {"diverged_by_the_guard", 1000,
       [](PlantedRun& run) {
         run.start();
         run.steps(110, skips);
         run.fail(base::Diverged("step 110: 100 steps in a row were skipped"));
       },
       "diverged", "bad", diverged},
      {"all_skipped", 40,
       [](PlantedRun& run) {
         run.start();
         run.steps(40, skips);
         finish(run);
       },
       "diverged", "bad", diverged},
      {"the_only_step_skipped", 1,
       [](PlantedRun& run) {
         run.start();
         run.steps(1, [](int64_t) { return PlantedStep{.loss = 5.5, .was_skipped = true}; });
         finish(run);
       },
       "diverged", "bad", diverged},
      {"some_skipped", 60,
       [](PlantedRun& run) {
         run.start();
         run.steps(60, [](int64_t step) {
           return PlantedStep{.loss = well(step).loss, .was_skipped = step % 20 == 0};
         });
         run.ranks_report();
         finish(run);
       },
       "healthy", "warning", done},
      {"scale_fell", 12,
       [](PlantedRun& run) {
         run.start();
         run.steps(12, [](int64_t step) {
           return PlantedStep{.loss = well(step).loss, .scale_falls = step < 8};
         });
         finish(run);
       },
       "too_short", "good", done},
      {"recovered", 60,
       [](PlantedRun& run) {
         run.start();
         run.steps(60, [](int64_t step) {
           return PlantedStep{.loss = step > 20 && step < 40 ? 1e6 : well(step).loss};
         });
         run.ranks_report();
         finish(run);
       },
       "healthy", "good", done},
      {"full_at_each_save", 40,
       [](PlantedRun& run) {
         run.start();
         for (int i = 0; i < 4; ++i) {
           run.steps(10, well);
           run.save(full);
         }
         run.exports(full);
         run.end();
       },
       "unsaved", "bad", failed},
      {"full_since_step_10", 40,
       [](PlantedRun& run) {
         run.start();
         run.steps(10, well);
         run.save();
         run.steps(30, well);
         run.save(full);
         run.exports(full);
         run.end();
       },
       "unsaved", "bad", failed},
      {"full_in_between", 40,
       [](PlantedRun& run) {
         run.start();
         run.steps(10, well);
         run.save(full);
         run.steps(30, well);
         finish(run);
       },
       "too_short", "warning", done},
      {"full_and_diverged", 40,
       [](PlantedRun& run) {
         run.start();
         run.steps(40, explodes);
         run.save(full);
         run.exports(full);
         run.end();
       },
       "diverged", "bad", diverged},
      {"not_exported", 40,
       [](PlantedRun& run) {
         run.start();
         run.steps(40, well);
         run.save();
         run.exports(full);
         run.end();
       },
       "unsaved", "bad", failed},
      {"full_under_a_launcher", 40,
       [](PlantedRun& run) {
         run.start();
         run.steps(40, well);
         run.save(full);
         run.end();
         run.verdict("rank 0 ended with exit code 1", 0, {{"verdict", "died"}});
       },
       "unsaved", "bad", failed},
      {"diverged_under_a_launcher", 40,
       [](PlantedRun& run) {
         run.start();
         run.steps(40, is_far_up);
         finish(run);
         run.verdict("rank 1 ended with exit code 93", 1, {{"verdict", "died"}});
       },
       "diverged", "bad", diverged},
      {"exported_at_last", 40,
       [](PlantedRun& run) {
         run.start();
         run.steps(20, well);
         run.save();
         run.exports(full);
         run.steps(20, well);
         finish(run);
       },
       "too_short", "warning", done},
      {"killed", 100,
       [](PlantedRun& run) {
         run.start();
         run.steps(30, well);
         run.save();
         run.steps(7, well);
         run.kill();
       },
       "died", "bad", killed},
      {"killed_at_once", 100,
       [](PlantedRun& run) {
         run.start();
         run.kill();
       },
       "died", "bad", killed},
      {"killed_at_the_end", 30,
       [](PlantedRun& run) {
         run.start();
         run.steps(30, well);
         run.kill();
       },
       "died", "bad", killed},
      {"killed_and_continued", 40,
       [](PlantedRun& run) {
         run.start();
         run.steps(20, well);
         run.save();
         run.steps(5, well);
         run.kill();
         run.start(20);
         run.steps(20, well);
         finish(run);
       },
       "too_short", "good", done},
      {"killed_diverged_and_continued", 60,
       [](PlantedRun& run) {
         run.start();
         run.steps(20, is_far_up);
         run.save();
         run.kill();
         run.start(20);
         run.steps(40, is_far_up);
         finish(run);
       },
       "diverged", "bad", diverged},
      {"diverged_and_nothing_to_do", 20,
       [](PlantedRun& run) {
         run.start();
         run.steps(20, explodes);
         finish(run);
         run.start(20);
         run.end();
       },
       "diverged", "bad", diverged},
      {"rank_lost", 100,
       [](PlantedRun& run) {
         run.start();
         run.steps(30, well);
         run.verdict("rank 3 was killed by signal 9 (SIGKILL)", 3, {{"verdict", "died"}});
         run.fail(base::Error("rank 3 was killed by signal 9 (SIGKILL)"));
       },
       "failed", "bad", failed},
      {"rank_lost_and_regrouped", 60,
       [](PlantedRun& run) {
         run.start();
         run.steps(20, well);
         run.save();
         run.steps(10, well);
         run.verdict("rank 3 was killed by signal 9 (SIGKILL)", 3, {{"verdict", "died"}});
         run.new_group();
         run.steps(40, well);
         finish(run);
       },
       "too_short", "good", done},
      {"two_ranks_lost_and_stopped", 100,
       [](PlantedRun& run) {
         run.start();
         run.steps(20, well);
         run.save();
         run.verdict("rank 3 was killed by signal 9 (SIGKILL)", 3, {{"verdict", "died"}});
         run.kill();
         run.start(20);
         run.steps(20, well);
         run.save();
         run.verdict("rank 1 hangs in all_reduce", 1, {{"verdict", "stalled"}});
         run.kill();
         run.start(40);
         run.steps(10, well);
         run.stop();
         finish(run);
       },
       "stopped", "off", stopped},
      {"data_cut", 100,
       [](PlantedRun& run) {
         run.start();
         run.steps(30, well);
         run.lose_data();
       },
       "failed", "bad", failed},
      {"data_cut_and_disk_full", 100,
       [](PlantedRun& run) {
         run.start();
         run.steps(30, well);
         run.save(full);
         run.lose_data();
       },
       "failed", "bad", failed},
      {"error", 100,
       [](PlantedRun& run) {
         run.start();
         run.steps(30, well);
         run.fail(base::IoError("data/kjv.bin: cannot be read: Input/output error"));
       },
       "failed", "bad", failed},
      {"error_after_divergence", 100,
       [](PlantedRun& run) {
         run.start();
         run.steps(30, explodes);
         run.fail(base::IoError("data/kjv.bin: cannot be read: Input/output error"));
       },
       "failed", "bad", failed},
  };
  return all;
}

}  // namespace trireme::cli
