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
#include "train/run/copies/rank_copies.h"
#include "train/run/state/copy_choice.h"
#include "train/run/state/engine_state.h"
#include "train/setup/host/host_buffers.h"
#include "train/setup/run_identity.h"

namespace trireme::train {
namespace {

std::unique_ptr<comm::Communicator> connect_rank(const RankStart& start, const Bench& bench) {
  if (!start.connect) return nullptr;
  const base::Json data = bench.data.identity(bench.data_contents, bench.config.training.steps);
  return start.connect(*bench.platform.device, run_identity(bench.config, data));
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
  config::Config c = parts.bench.config;
  c.training.seq_len = leg.seq_len;
  c.training.global_batch_size = leg.global_batch_size;
  c.training.local_batch_size = leg.local_batch_size;
  c.moe.row_budget = parts.row_budget;
  c.precision.bf16_blocks.assign(parts.bf16_blocks.begin(), parts.bf16_blocks.end());
  return std::make_unique<FitJob>(make_fit_job(parts.bench.model, parts.bench.platform.backend,
                                               config::workload_of(c), config::layout_of(c)));
}
std::unique_ptr<FitJob> job_of(const Incarnation& parts) { return job_of(parts, *parts.leg); }

// All ranks begin with the leg and the blocks of the state that they have agreed on, or that the
// first rank has found: their views of the folder may differ. Collective.
void use_first_leg(Incarnation& parts, const std::optional<KeptState>& kept) {
  int64_t step = parts.rank.gather(step_of(parts.resume_point)).front();
  std::vector<int> blocks = list_of(parts.rank.gather(set_of(parts.bf16_blocks)).front());
  double row_budget = parts.row_budget;
  if (kept) {
    step = kept->point.step;
    blocks = kept->bf16_blocks;
    row_budget = kept->point.row_budget;
  }
  if (parts.continues_after(step, blocks) && parts.row_budget == row_budget) return;
  parts.leg = &parts.bench.data.leg_at(step + 1);
  parts.bf16_blocks = blocks;
  parts.row_budget = row_budget;
  parts.job = job_of(parts);
}

HostBytes host_bytes_of(const Incarnation& parts, const FitJob& job) {
  const int rank = parts.start.number;
  return {.checkpoint_bytes = checkpoint_bytes(parts.bench.config, job, rank),
          .rebuild_bytes =
              parts.may_rebuild() ? state_copy_bytes(parts.bench.model, job.plan, rank) : 0,
          .peer_bytes = parts.copies_bytes,
          .kept_bytes = parts.kept_bytes,
          .buffer_bytes = host_buffer_bytes(job.plan)};
}

// Throws OutOfMemory.
void check_job_fits(const Incarnation& parts, const FitJob& job, Platform& platform) {
  check_fits(job, platform, parts.start.device_sharers, train_fit_keys(),
             host_bytes_of(parts, job));
}

// Every leg must fit, before the first one begins.
void check_legs_fit(const Incarnation& parts, Platform& platform) {
  const int64_t host_bytes = platform.is_gpu() ? device::host_memory_available() : 0;
  for (const Leg& leg : parts.bench.data.legs()) {
    const std::unique_ptr<FitJob> job = job_of(parts, leg);
    try {
      if (platform.is_gpu()) {
        check_host_fits(host_bytes_of(parts, *job), parts.start.host_ranks, host_bytes);
      }
      check_job_fits(parts, *job, platform);
    } catch (const base::OutOfMemory& error) {
      if (parts.bench.data.legs().size() == 1) throw;
      throw base::OutOfMemory(fmt::format("{} (steps {} to {}, seq_len {}): {}", leg.name,
                                          leg.first_step, leg.last_step, leg.seq_len,
                                          error.what()));
    }
  }
}

// Refuses a plan that does not fit before any rank allocates, and measures on a device that is
// idle.
RunPeaks check_and_measure(Incarnation& parts, std::optional<KeptState>& kept) {
  const RankStart& start = parts.start;
  Rank& rank = parts.rank;
  const CopyChoice choice =
      choose_copies(parts.bench.config, start, parts.bench.model, parts.plan(), parts.rank.nodes());
  open_copies(parts, choice);
  if (start.epoch > 0 && start.next_epoch) agree_on_kept(parts, choice, kept);
  use_first_leg(parts, kept);
  check_legs_fit(parts, parts.bench.platform);
  reserve_copies(parts, choice);
  rank.barrier();
  RunPeaks peaks;
  if (rank.is_first()) {
    std::optional<RunPeaks>& known = parts.bench.peaks;  // of an epoch before
    if (!known) known = find_peaks(parts.bench.platform, parts.plan(), start.system.peak_tflops);
    peaks = *known;
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

Incarnation::Incarnation(Bench& of_process, const RankStart& rank_start,
                         std::optional<KeptState>& kept)
    : bench(of_process),
      start(rank_start),
      resume_point(find_resume_point(bench.config, resume_in(start, bench.hooks))),
      leg(&bench.data.leg_at(step_of(resume_point) + 1)),
      row_budget(bench.config.moe.row_budget),
      bf16_blocks(blocks_of(bench.config, resume_point)),
      job(job_of(*this)),
      rank(connect_rank(start, bench), job->plan.mesh, *bench.platform.device),
      connected_at(obs::wall_seconds()),
      peaks(check_and_measure(*this, kept)),
      engine(std::make_unique<engine::Engine>(*bench.platform.device, bench.model, job->plan,
                                              bench.platform.backend,
                                              make_engine_options(bench.config), rank.mesh())),
      has_given_weights(read_init_weights(bench.config, *engine)) {
  rebuild_memory.predicted_bytes = host_bytes().rebuild_bytes;
  if (!kept) return;
  rebuild_memory.measured_bytes = kept->state.bytes();
  put_state(*engine, bench.model, rank.coord(), kept->state);
}

HostBytes Incarnation::host_bytes() const { return host_bytes_of(*this, *job); }

bool Incarnation::may_overflow() const {
  return spec::moe_of(bench.model) != nullptr &&
         plan().mesh[spec::Axis::ep] * plan().mesh[spec::Axis::etp] > 1 &&
         plan().layout.overflow == spec::Overflow::strict;
}

bool Incarnation::may_rebuild() const {
  const bool falls_back =
      plan().recipe.fp8 && fallback_from_name(bench.config.precision.fallback) == Fallback::bf16;
  return bench.data.legs().size() > 1 || may_overflow() || falls_back || start.next_epoch;
}

namespace {

// Replaces the engine by one of job_of(parts), without a state.
template <typename Check>
void rebuild_empty(Incarnation& parts, Check check) {
  parts.engine->close(comm::End::finish);
  parts.engine.reset();
  parts.bench.platform.device->ledger().unfreeze();
  parts.job = job_of(parts);
  check();
  parts.engine = std::make_unique<engine::Engine>(
      *parts.bench.platform.device, parts.bench.model, parts.job->plan,
      parts.bench.platform.backend, make_engine_options(parts.bench.config), parts.rank.mesh());
}

template <typename Check>
void rebuild(Incarnation& parts, Check check) {
  const spec::Coord& coord = parts.rank.coord();
  const EngineState state = take_state(*parts.engine, parts.bench.model, coord);
  parts.rebuild_memory.measured_bytes =
      std::max(parts.rebuild_memory.measured_bytes, state.bytes());
  rebuild_empty(parts, check);
  put_state(*parts.engine, parts.bench.model, coord, state);
}

}  // namespace

void Incarnation::rebuild_after(int64_t step, const std::vector<int>& blocks) {
  leg = &bench.data.leg_at(step + 1);
  bf16_blocks = blocks;
  rebuild_empty(*this, [this] {
    check_legs_fit(*this, bench.platform);
    rank.barrier();  // none allocates before all were accepted
  });
}

void Incarnation::change_leg(const Leg& to) {
  leg = &to;
  rebuild(*this, [] {});
}

void Incarnation::change_row_budget(double to) {
  row_budget = to;
  rebuild(*this, [this] { check_job_fits(*this, *job, bench.platform); });
}

std::string Incarnation::change_precision(const std::vector<int>& to) {
  const std::vector<int> before = std::exchange(bf16_blocks, to);
  std::string problem;
  rebuild(*this, [&] {
    try {
      check_job_fits(*this, *job, bench.platform);
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
