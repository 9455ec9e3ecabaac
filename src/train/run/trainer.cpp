// SPDX-License-Identifier: Apache-2.0
#include "train/run/trainer.h"

#include <mutex>
#include <utility>

#include "train/run/run.h"
#include "train/setup/ranks.h"
#include "train/setup/setup.h"

namespace trireme::train {

TrainSummary train(const config::Config& asked, obs::RunMode mode, const TrainHooks& hooks,
                   const comm::RankInfo& info) {
  const config::Config config = settled(asked);
  TrainSummary summary;
  std::mutex mutex;  // guards the caller's hooks, which ranks that are threads share
  TrainHooks shared = hooks;
  if (hooks.log) {
    shared.log = [&](std::string_view text) {
      const std::scoped_lock lock(mutex);
      hooks.log(text);
    };
  }
  if (hooks.progress) {
    shared.progress = [&](int64_t done, std::string_view note) {
      const std::scoped_lock lock(mutex);
      hooks.progress(done, note);
    };
  }
  run_ranks(config, info, [&](const RankStart& start) {
    TrainSummary own = Run(config, mode, shared, start).go();
    // If ranks are threads, all are here; their summaries differ in nothing but files.
    if (start.number == 0 || info.world > 1) summary = std::move(own);
  });
  return summary;
}

}  // namespace trireme::train
