// SPDX-License-Identifier: Apache-2.0
#include "train/run/incarnation.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "ckpt/disk/posix_disk.h"
#include "ckpt/generation/folder.h"
#include "ckpt/hf/hf_weights.h"
#include "config/layout.h"
#include "obs/clock.h"
#include "train/checkpointing/saver.h"
#include "train/numerics/run_numerics.h"
#include "train/run/engine_state.h"
#include "train/setup/run_identity.h"

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
      hooks.resume.from != Resume::From::start && obs::holds_run(c.job.dump_folder);
  const obs::RunMode mode = resumes ? obs::RunMode::resume : asked;
  obs::RunDir::check(c.job.dump_folder, mode);
  check_own_folders(c);
  RunListeners::check(c, hooks.environment);
  return mode;
}

std::unique_ptr<comm::Communicator> connect_rank(const RankStart& start, device::Device& device,
                                                 const config::Config& config,
                                                 const base::Json& data) {
  return start.connect ? start.connect(device, run_identity(config, data)) : nullptr;
}

// The step of this rank's view of the folder; use_first_leg() settles on that of the first rank.
int64_t newest_step(const config::Config& c, const Resume& resume) {
  if (resume.from == Resume::From::start) return 0;
  if (resume.from == Resume::From::step) return resume.step;
  const std::vector<int64_t> steps = ckpt::committed_steps(
      *ckpt::posix_disk(), std::filesystem::path(c.job.dump_folder) / c.checkpoint.folder);
  return steps.empty() ? 0 : steps.back();
}

// Returns the blocks that are in bf16 besides the first and last ones, as the checkpoint of `step`
// has them. One that cannot be read is reported when it is loaded.
std::vector<int> blocks_at(const config::Config& c, int64_t step) {
  base::Json state;
  try {
    const auto disk = ckpt::posix_disk();
    const auto folder = std::filesystem::path(c.job.dump_folder) / c.checkpoint.folder;
    if (step > 0) {
      const ckpt::Manifest saved = ckpt::read_manifest(*disk, folder / ckpt::generation_name(step));
      state = saved.state.value("numerics", base::Json());
    }
    return RunNumerics::blocks_after(state, c);
  } catch (const base::Error&) {
    return RunNumerics::blocks_after({}, c);  // loading the checkpoint reports the error
  } catch (const base::Json::exception&) {
    return RunNumerics::blocks_after({}, c);  // the same
  }
}

std::unique_ptr<FitJob> job_of(const Incarnation& parts, const Leg& leg) {
  config::Config c = parts.config;
  c.training.seq_len = leg.seq_len;
  c.training.global_batch_size = leg.global_batch_size;
  c.training.local_batch_size = leg.local_batch_size;
  c.moe.row_budget = parts.row_budget;
  c.precision.bf16_blocks.assign(parts.bf16_blocks.begin(), parts.bf16_blocks.end());
  return std::make_unique<FitJob>(make_fit_job(parts.model, parts.platform.backend,
                                               config::workload_of(c), config::layout_of(c)));
}
std::unique_ptr<FitJob> job_of(const Incarnation& parts) { return job_of(parts, *parts.leg); }

// All ranks begin with the leg and the blocks that the first rank has found. Collective.
void use_first_leg(Incarnation& parts) {
  const int64_t step = parts.rank.gather(parts.expected_step).front();
  const std::vector<int> blocks = list_of(parts.rank.gather(set_of(parts.bf16_blocks)).front());
  const Leg& leg = parts.data.leg_at(step + 1);
  if (&leg == parts.leg && blocks == parts.bf16_blocks) return;
  parts.leg = &leg;
  parts.bf16_blocks = blocks;
  parts.job = job_of(parts);
}

// Every leg must fit, before the first one begins.
void check_legs_fit(const Incarnation& parts, Platform& platform) {
  for (const Leg& leg : parts.data.legs()) {
    const std::unique_ptr<FitJob> job = job_of(parts, leg);
    const int64_t checkpoints = checkpoint_bytes(parts.config, *job, parts.start.number);
    try {
      check_fits(*job, platform, parts.start.device_sharers, train_fit_keys(), checkpoints);
    } catch (const base::OutOfMemory& error) {
      if (parts.data.legs().size() == 1) throw;
      throw base::OutOfMemory(fmt::format("{} (steps {} to {}, seq_len {}): {}", leg.name,
                                          leg.first_step, leg.last_step, leg.seq_len,
                                          error.what()));
    }
  }
}

// Refuses a plan that does not fit before any rank allocates, and measures on a device that is
// idle.
RunPeaks check_and_measure(Incarnation& parts) {
  const RankStart& start = parts.start;
  Rank& rank = parts.rank;
  use_first_leg(parts);
  check_legs_fit(parts, parts.platform);
  rank.barrier();
  RunPeaks peaks;
  if (rank.is_first()) {
    peaks = find_peaks(parts.platform, parts.plan(), start.system.peak_tflops);
  }
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
      run_log(owner ? std::filesystem::path(c.job.dump_folder) : std::filesystem::path(),
              hooks.process_start),
      mode(checked_mode(c, asked, hooks, start)),
      model(spec::make_model(c.dims)),
      data(c, spec::vocab_of(model)),
      tokenizer(open_tokenizer_of(c, data, spec::vocab_of(model))),
      data_contents(data.contents()),
      lr(make_lr_schedule(c)),
      platform(make_platform(start.system, hooks.cache_folder)),
      expected_step(newest_step(c, hooks.resume)),
      leg(&data.leg_at(expected_step + 1)),
      row_budget(c.moe.row_budget),
      bf16_blocks(blocks_at(c, expected_step)),
      job(job_of(*this)),
      rank(connect_rank(start, *platform.device, c, data.identity(data_contents, c.training.steps)),
           job->plan.mesh, *platform.device),
      peaks(check_and_measure(*this)),
      engine(std::make_unique<engine::Engine>(*platform.device, model, job->plan, platform.backend,
                                              make_engine_options(c), rank.mesh())),
      has_given_weights(read_init_weights(c, *engine)) {}

namespace {

// Replaces the engine by one of job_of(parts).
template <typename Check>
void rebuild(Incarnation& parts, Check check) {
  const EngineState state = take_state(*parts.engine);
  parts.engine.reset();
  parts.platform.device->ledger().unfreeze();
  parts.job = job_of(parts);
  check();
  parts.engine = std::make_unique<engine::Engine>(
      *parts.platform.device, parts.model, parts.job->plan, parts.platform.backend,
      make_engine_options(parts.config), parts.rank.mesh());
  put_state(*parts.engine, state);
}

}  // namespace

void Incarnation::change_leg(const Leg& to) {
  leg = &to;
  rebuild(*this, [] {});
}

void Incarnation::change_row_budget(double to) {
  row_budget = to;
  rebuild(*this, [this] {
    check_fits(*job, platform, start.device_sharers, train_fit_keys(),
               checkpoint_bytes(config, *job, start.number));
  });
}

std::string Incarnation::change_precision(const std::vector<int>& to) {
  const std::vector<int> before = std::exchange(bf16_blocks, to);
  std::string problem;
  rebuild(*this, [&] {
    try {
      check_fits(*job, platform, start.device_sharers, train_fit_keys(),
                 checkpoint_bytes(config, *job, start.number));
    } catch (const base::OutOfMemory& error) {
      problem = error.what();
    }
    // Ranks have different stages, and one that does not fit decides for all.
    const std::vector<uint8_t> fits = rank.gather(static_cast<uint8_t>(problem.empty() ? 1 : 0));
    const auto full = std::ranges::find(fits, uint8_t{0});
    if (full == fits.end()) return;
    if (problem.empty())
      problem = fmt::format("rank {} has too little memory", full - fits.begin());
    bf16_blocks = before;
    job = job_of(*this);
  });
  return problem;
}

}  // namespace trireme::train
