// SPDX-License-Identifier: Apache-2.0
#include "train/run/run_work.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <system_error>

#include "base/dtype.h"
#include "ckpt/hf/hf_names.h"
#include "ckpt/marks/retention.h"
#include "obs/terminal/number_text.h"
#include "train/checkpointing/run_checkpoints.h"
#include "train/run/validation.h"

namespace trireme::train {
namespace {

// Beyond so many epochs, repeated data helps clearly less than new data (docs/data.md).
constexpr double max_useful_epochs = 4;

// Saturating sum and product of counts.
int64_t sum(int64_t a, int64_t b) {
  int64_t result = 0;
  return __builtin_add_overflow(a, b, &result) ? std::numeric_limits<int64_t>::max() : result;
}
int64_t product(int64_t a, int64_t b) {
  int64_t result = 0;
  return __builtin_mul_overflow(a, b, &result) ? std::numeric_limits<int64_t>::max() : result;
}

int64_t steps_left(const config::Config& c, const RunWork& work) {
  return std::max<int64_t>(0, c.training.steps - work.first_step + 1);
}

std::string plural(int64_t count, const char* word) {
  return fmt::format("{} {}{}", obs::grouped(count), word, count == 1 ? "" : "s");
}

std::string epochs_text(double epochs) {
  if (epochs == 1) return "1 epoch";
  return fmt::format("{} epochs", obs::grouped(epochs, epochs < 9.995 ? 2 : 0));
}

// Counts multiples of `every` among the remaining steps, without the last step.
int64_t times_before_last(const config::Config& c, const RunWork& work, int64_t every) {
  if (every <= 0) return 0;
  return std::max<int64_t>(0, (c.training.steps - 1) / every - (work.first_step - 1) / every);
}

bool saves_by_time(const config::Checkpoint& c) {
  return c.interval < 0 || c.interval_seconds > 0 || c.mean_failure_seconds > 0;
}

// Returns how many checkpoints exist at one time; -1: no bound. An old one is removed after a newer
// one is durable.
int64_t checkpoints_at_once(const config::Config& c, const RunWork& work) {
  const config::Checkpoint& k = c.checkpoint;
  const bool are_even = !saves_by_time(k) && k.interval > 0 && k.export_interval % k.interval == 0;
  const int64_t kept = ckpt::max_kept(retention_of(k), c.training.steps, are_even ? k.interval : 1);
  const int64_t bound = kept < 0 ? -1 : kept + 1;
  if (saves_by_time(k)) return bound;
  // One is also saved before weights are exported.
  const int64_t all = work.checkpoints_before + times_before_last(c, work, k.interval) +
                      times_before_last(c, work, k.export_interval) + 1;
  return bound < 0 ? all : std::min(all, bound);
}

int64_t exports_at_once(const config::Config& c, const RunWork& work) {
  const config::Checkpoint& k = c.checkpoint;
  const int64_t of_steps = times_before_last(c, work, k.export_interval);
  return 1 + (k.keep_latest_k == 0 ? of_steps : std::min(of_steps, k.keep_latest_k + 1));
}

std::string steps_line(const config::Config& c, const RunWork& work) {
  const int64_t steps = steps_left(c, work);
  const bool is_uniform = work.samples < 0;
  const int64_t samples = is_uniform ? product(steps, work.step_samples) : work.samples;
  const int64_t tokens = is_uniform ? product(samples, c.training.seq_len) : work.tokens;
  const double epochs = static_cast<double>(samples) / static_cast<double>(work.training_samples);
  const std::string of_step =
      is_uniform ? fmt::format(" x {} = ", plural(work.step_samples, "sample")) : ": ";
  std::string line = fmt::format(
      "steps     {}{}{}{} of {}: {}; {} tokens", obs::grouped(steps),
      work.first_step > 1 ? fmt::format(" ({} to {})", work.first_step, c.training.steps) : "",
      of_step, obs::grouped(samples), plural(work.training_samples, "sample"), epochs_text(epochs),
      obs::count_text(tokens));
  if (work.tokens_before > 0) {
    line +=
        fmt::format(", {} with earlier attempts", obs::count_text(sum(tokens, work.tokens_before)));
  }
  return line;
}

std::string validation_line(const config::Config& c, const RunWork& work) {
  if (work.held_out_samples == 0) return "validate  no: validation.enable = false";
  const int64_t samples =
      work.validated_samples >= 0
          ? work.validated_samples
          : validated_samples(config::validation_samples(c), work.held_out_samples);
  return fmt::format(
      "validate  every {} and after the last: {} of {} held-out samples{}, {} tokens",
      plural(c.validation.freq, "step"), obs::grouped(samples), obs::grouped(work.held_out_samples),
      work.validations > 1 ? fmt::format(" of {} sets", work.validations) : "",
      obs::count_text(product(samples, c.training.seq_len)));
}

std::string save_time_text(const config::Checkpoint& c) {
  std::string text;
  const auto add = [&text](const std::string& more) { text += (text.empty() ? "" : ", ") + more; };
  if (c.interval > 0) add(fmt::format("every {}", plural(c.interval, "step")));
  if (c.mean_failure_seconds > 0) {
    add(fmt::format("for a failure every {} s", obs::grouped(c.mean_failure_seconds, 0)));
  } else if (c.interval_seconds > 0) {
    add(fmt::format("every {:g} s", c.interval_seconds));
  } else if (c.interval < 0) {
    add("every 60 s or 100 times the cost of a save");
  }
  add(text.empty() ? "after the last step and at a stop only (checkpoint.interval = 0)"
                   : "after the last step and at a stop");
  return text;
}

std::string retention_text(const config::Checkpoint& c) {
  if (c.keep_latest_k == 0) return ", all are kept";
  std::string more;
  if (c.keep_every < 0) more = " and older ones by powers of two of age";
  if (c.keep_every > 0) more = fmt::format(" and one of every {}", plural(c.keep_every, "step"));
  return fmt::format(", the newest {}{} kept", c.keep_latest_k, more);
}

std::string save_line(const config::Config& c, const RunWork& work) {
  const config::Checkpoint& k = c.checkpoint;
  if (work.checkpoint_bytes == 0) return "save      no checkpoints: checkpoint.enable = false";
  const int64_t at_once = checkpoints_at_once(c, work);
  std::string line = fmt::format("save      {}; {} each", save_time_text(k),
                                 obs::bytes_text(work.checkpoint_bytes));
  line += retention_text(k);
  if (at_once > 1) {
    line += fmt::format(", at most {}", obs::bytes_text(product(at_once, work.checkpoint_bytes)));
  }
  return line;
}

std::string export_line(const config::Config& c, const RunWork& work) {
  const config::Checkpoint& k = c.checkpoint;
  if (work.weights_bytes == 0) {
    return k.enable ? "export    no weights: checkpoint.export_folder is empty"
                    : "export    no weights: checkpoint.enable = false";
  }
  return fmt::format(
      "export    weights {}after the last step, as {}; {} each",
      k.export_interval > 0 ? fmt::format("every {} and ", plural(k.export_interval, "step")) : "",
      k.export_dtype, obs::bytes_text(work.weights_bytes));
}

}  // namespace

int64_t disk_bytes(const config::Config& c, const RunWork& work) {
  const int64_t bytes = product(exports_at_once(c, work), work.weights_bytes);
  if (work.checkpoint_bytes == 0) return bytes;
  const int64_t at_once = checkpoints_at_once(c, work);
  if (at_once < 0) return -1;
  const int64_t more = std::max<int64_t>(0, at_once - work.checkpoints_before);
  return sum(bytes, product(more, work.checkpoint_bytes));
}

std::vector<std::string> describe_work(const config::Config& c, const RunWork& work) {
  std::vector<std::string> lines = {steps_line(c, work), validation_line(c, work),
                                    save_line(c, work), export_line(c, work)};
  const int64_t samples =
      work.samples >= 0 ? work.samples : product(steps_left(c, work), work.step_samples);
  const double epochs = (static_cast<double>(work.samples_before) + static_cast<double>(samples)) /
                        static_cast<double>(work.training_samples);
  if (epochs > max_useful_epochs) {
    lines.push_back(
        fmt::format("warning: the run reads its training data {} times; beyond about {:g} times "
                    "more data helps more than more steps",
                    obs::grouped(epochs, epochs < 9.995 ? 1 : 0), max_useful_epochs));
  }
  const int64_t bytes = disk_bytes(c, work);
  if (bytes > 0 && work.free_bytes >= 0) {
    lines.push_back(fmt::format("disk      {} needed for checkpoints and weights, {} free",
                                obs::bytes_text(bytes), obs::bytes_text(work.free_bytes)));
  }
  if (work.free_bytes >= 0 && bytes > work.free_bytes) {
    lines.push_back(fmt::format(
        "warning: the disk of {} has too little space: saves will fail and be logged while "
        "training continues; free some space, or lower checkpoint.keep_latest_k = {}{}",
        c.job.dump_folder, c.checkpoint.keep_latest_k,
        c.checkpoint.keep_every == 0 ? "" : ", or set checkpoint.keep_every = 0"));
  }
  return lines;
}

int64_t exported_bytes(const config::Config& c) {
  const int64_t size = base::size_of(base::dtype_from_name(c.checkpoint.export_dtype));
  int64_t bytes = 0;
  for (const ckpt::HfParam& param : ckpt::hf_params(c.dims)) bytes += size * param.elements();
  return bytes;
}

int64_t free_bytes(const std::filesystem::path& folder) {
  std::error_code failed;
  std::filesystem::path at = std::filesystem::absolute(folder, failed);
  while (!failed && !std::filesystem::exists(at, failed) && at.has_relative_path()) {
    at = at.parent_path();
  }
  const std::filesystem::space_info space = std::filesystem::space(at, failed);
  return failed ? -1 : static_cast<int64_t>(space.available);
}

}  // namespace trireme::train
