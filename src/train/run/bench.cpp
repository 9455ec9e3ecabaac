// SPDX-License-Identifier: Apache-2.0
#include "train/run/bench.h"

#include <filesystem>

#include "obs/clock.h"
#include "train/checkpointing/saver.h"

namespace trireme::train {
namespace {

// Opens the tokenizer that the data was built with, and makes it part of the data's identity.
RunTokenizer open_tokenizer_of(const config::Config& c, DataSets& data, int64_t vocab) {
  RunTokenizer tokenizer = open_run_tokenizer(c, data, vocab);
  data.set_tokenizer(tokenizer.fingerprint());
  return tokenizer;
}

// Takes the run's folder before anything else takes time or memory.
std::unique_ptr<obs::RunOwner> hold_folder(const config::Config& c, const TrainHooks& hooks,
                                           const RankStart& start) {
  if (start.number != 0) return nullptr;
  return obs::RunOwner::hold(c.job.dump_folder, {.takes_over = hooks.takes_over});
}

// Decides on the first rank; the others do not open the folder.
obs::RunMode checked_mode(const config::Config& c, obs::RunMode asked, const TrainHooks& hooks,
                          const RankStart& start) {
  if (start.number != 0) return asked;
  const bool resumes =
      resume_in(start, hooks).from != Resume::From::start && obs::holds_run(c.job.dump_folder);
  const obs::RunMode mode = resumes ? obs::RunMode::resume : asked;
  obs::RunDir::check(c.job.dump_folder, mode);
  check_own_folders(c);
  RunListeners::check(c, hooks.environment);
  return mode;
}

}  // namespace

Resume resume_in(const RankStart& start, const TrainHooks& hooks) {
  Resume resume = hooks.resume;
  if (!start.next_epoch || start.epoch == 0) return resume;
  resume.from = Resume::From::newest;
  resume.verifies = false;
  return resume;
}

Bench::Bench(const config::Config& c, obs::RunMode asked, const TrainHooks& run_hooks,
             const RankStart& start)
    : start_seconds(obs::steady_seconds()),
      config(c),
      hooks(run_hooks),
      owner(hold_folder(c, hooks, start)),
      run_log(owner ? std::filesystem::path(c.job.dump_folder) : std::filesystem::path(),
              hooks.process_start),
      mode(checked_mode(c, asked, hooks, start)),
      model(spec::make_model(c.dims)),
      data(c, spec::vocab_of(model)),
      tokenizer(open_tokenizer_of(c, data, spec::vocab_of(model))),
      data_contents(data.contents()),
      lr(make_lr_schedule(c)),
      platform(make_platform(start.system, hooks.cache_folder)) {}

}  // namespace trireme::train
