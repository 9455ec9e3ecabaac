// SPDX-License-Identifier: Apache-2.0
#include "train/run/incarnation.h"

#include "ckpt/hf/hf_weights.h"
#include "config/layout.h"
#include "obs/clock.h"
#include "train/checkpointing/saver.h"
#include "train/setup/run_identity.h"

namespace trireme::train {
namespace {

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
      hooks.resume.from != Resume::From::start && obs::holds_run(c.job.dump_folder);
  const obs::RunMode mode = resumes ? obs::RunMode::resume : asked;
  obs::RunDir::check(c.job.dump_folder, mode);
  check_own_folders(c);
  return mode;
}

std::unique_ptr<comm::Communicator> connect_rank(const RankStart& start, device::Device& device,
                                                 const config::Config& config,
                                                 const base::Json& data) {
  return start.connect ? start.connect(device, run_identity(config, data)) : nullptr;
}

// Refuses a plan that does not fit before any rank allocates, and measures on a device that is
// idle.
RunPeaks check_and_measure(const FitJob& job, Platform& platform, const RankStart& start,
                           Rank& rank, int64_t checkpoint_bytes) {
  check_fits(job, platform, start.device_sharers, train_fit_keys(), checkpoint_bytes);
  rank.barrier();
  RunPeaks peaks;
  if (rank.is_first()) peaks = find_peaks(platform, job.plan, start.system.peak_tflops);
  const int devices = (start.ranks + start.device_sharers - 1) / start.device_sharers;
  for (std::optional<Peak>* peak : {&peaks.flops, &peaks.gemm}) {
    if (devices == 1 || !*peak) continue;
    (*peak)->per_second *= devices;
    (*peak)->source += fmt::format(", times {} devices", devices);
  }
  rank.barrier();
  return peaks;
}

// Returns true if training starts from given weights.
bool read_init_weights(const config::Config& c, engine::Engine& engine) {
  if (c.training.init_from.empty()) return false;
  ckpt::import_hf(c.training.init_from, c.dims,
                  [&engine](const std::string& name, std::span<const float> values) {
                    engine.write_weights(name, values);
                  });
  return true;
}

}  // namespace

Incarnation::Incarnation(const config::Config& c, obs::RunMode asked, const TrainHooks& hooks,
                         const RankStart& rank_start)
    : start_seconds(obs::steady_seconds()),
      config(c),
      start(rank_start),
      owner(hold_folder(c, hooks, start)),
      mode(checked_mode(c, asked, hooks, start)),
      model(spec::make_model(c.dims)),
      data(c, spec::vocab_of(model)),
      data_identity(data.identity()),
      lr(make_lr_schedule(c)),
      platform(make_platform(start.system, hooks.cache_folder)),
      job(make_fit_job(model, platform.backend, config::workload_of(c), config::layout_of(c))),
      rank(connect_rank(start, *platform.device, c, data_identity), job.plan.mesh,
           *platform.device),
      peaks(check_and_measure(job, platform, start, rank, checkpoint_bytes(c, job, start.number))),
      engine(*platform.device, model, job.plan, platform.backend, make_engine_options(c),
             rank.mesh()),
      has_given_weights(read_init_weights(c, engine)) {}

}  // namespace trireme::train
