// SPDX-License-Identifier: Apache-2.0
#include "train/run/incarnation.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "ckpt/hf/hf_weights.h"
#include "config/layout.h"
#include "device/host_memory.h"
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

int64_t step_of(const std::optional<ResumePoint>& point) { return point ? point->step() : 0; }

// Returns the blocks that are in bf16 besides the first and last ones, as the checkpoint has them.
std::vector<int> blocks_of(const config::Config& c, const std::optional<ResumePoint>& point) {
  if (!point) return RunNumerics::blocks_after({}, c);
  try {
    return RunNumerics::blocks_after(point->manifest.state.value("numerics", base::Json()), c);
  } catch (const base::Json::exception& error) {
    throw RunNumerics::unreadable(point->step(), error);
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

// All ranks begin with the leg and the blocks that the first rank has found: their views of the
// folder may differ. Collective.
void use_first_leg(Incarnation& parts) {
  const int64_t step = parts.rank.gather(step_of(parts.resume_point)).front();
  const std::vector<int> blocks = list_of(parts.rank.gather(set_of(parts.bf16_blocks)).front());
  if (parts.continues_after(step, blocks)) return;
  parts.leg = &parts.data.leg_at(step + 1);
  parts.bf16_blocks = blocks;
  parts.job = job_of(parts);
}

HostCopies copies_of(const Incarnation& parts, const FitJob& job) {
  const int rank = parts.start.number;
  return {.checkpoint_bytes = checkpoint_bytes(parts.config, job, rank),
          .rebuild_bytes = parts.may_rebuild() ? state_copy_bytes(parts.model, job.plan, rank) : 0};
}

// Throws OutOfMemory.
void check_job_fits(const Incarnation& parts, const FitJob& job, Platform& platform) {
  check_fits(job, platform, parts.start.device_sharers, train_fit_keys(), copies_of(parts, job));
}

// Every leg must fit, before the first one begins.
void check_legs_fit(const Incarnation& parts, Platform& platform) {
  if (platform.is_gpu()) {
    check_host_fits(copies_of(parts, *parts.job), parts.start.host_ranks,
                    device::host_memory_available());
  }
  for (const Leg& leg : parts.data.legs()) {
    const std::unique_ptr<FitJob> job = job_of(parts, leg);
    try {
      check_job_fits(parts, *job, platform);
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
      resume_point(find_resume_point(c, hooks.resume)),
      leg(&data.leg_at(step_of(resume_point) + 1)),
      row_budget(c.moe.row_budget),
      bf16_blocks(blocks_of(c, resume_point)),
      job(job_of(*this)),
      rank(connect_rank(start, *platform.device, c, data.identity(data_contents, c.training.steps)),
           job->plan.mesh, *platform.device),
      peaks(check_and_measure(*this)),
      engine(std::make_unique<engine::Engine>(*platform.device, model, job->plan, platform.backend,
                                              make_engine_options(c), rank.mesh())),
      has_given_weights(read_init_weights(c, *engine)) {
  rebuild_memory.predicted_bytes = copies_of(*this, *job).rebuild_bytes;
}

bool Incarnation::may_overflow() const {
  return spec::moe_of(model) != nullptr &&
         plan().mesh[spec::Axis::ep] * plan().mesh[spec::Axis::etp] > 1 &&
         plan().layout.overflow == spec::Overflow::strict;
}

bool Incarnation::may_rebuild() const {
  const bool falls_back =
      plan().recipe.fp8 && fallback_from_name(config.precision.fallback) == Fallback::bf16;
  return data.legs().size() > 1 || may_overflow() || falls_back;
}

namespace {

// Replaces the engine by one of job_of(parts), without a state.
template <typename Check>
void rebuild_empty(Incarnation& parts, Check check) {
  parts.engine->close(comm::End::finish);
  parts.engine.reset();
  parts.platform.device->ledger().unfreeze();
  parts.job = job_of(parts);
  check();
  parts.engine = std::make_unique<engine::Engine>(
      *parts.platform.device, parts.model, parts.job->plan, parts.platform.backend,
      make_engine_options(parts.config), parts.rank.mesh());
}

template <typename Check>
void rebuild(Incarnation& parts, Check check) {
  const EngineState state = take_state(*parts.engine);
  parts.rebuild_memory.measured_bytes =
      std::max(parts.rebuild_memory.measured_bytes, state.bytes());
  rebuild_empty(parts, check);
  put_state(*parts.engine, state);
}

}  // namespace

void Incarnation::rebuild_after(int64_t step, const std::vector<int>& blocks) {
  leg = &data.leg_at(step + 1);
  bf16_blocks = blocks;
  rebuild_empty(*this, [this] {
    check_legs_fit(*this, platform);
    rank.barrier();  // none allocates before all were accepted
  });
}

void Incarnation::change_leg(const Leg& to) {
  leg = &to;
  rebuild(*this, [] {});
}

void Incarnation::change_row_budget(double to) {
  row_budget = to;
  rebuild(*this, [this] { check_job_fits(*this, *job, platform); });
}

std::string Incarnation::change_precision(const std::vector<int>& to) {
  const std::vector<int> before = std::exchange(bf16_blocks, to);
  std::string problem;
  rebuild(*this, [&] {
    try {
      check_job_fits(*this, *job, platform);
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
