// SPDX-License-Identifier: Apache-2.0
#include "train/setup/fit.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/check.h"
#include "base/error.h"
#include "obs/terminal/number_text.h"
#include "obs/terminal/table.h"
#include "train/checkpointing/checkpointer.h"

namespace trireme::train {
namespace {

constexpr size_t max_options = 5;

std::string gib(int64_t bytes) {
  return obs::grouped(static_cast<double>(bytes) / 0x1p30, 3) + " GiB";
}

// Memory that is not part of a rank's plan.
struct OtherMemory {
  int64_t libraries = 0;
  int64_t checkpoints = 0;  // on the host, of all ranks there
  int64_t rebuild = 0;      // beyond `checkpoints`, of all ranks there
  int64_t peer = 0;         // copies that outlive processes, likewise
  int64_t buffers = 0;      // of engines, likewise
  int64_t other_ranks = 0;  // on this host
  int64_t stand_ins = 0;

  int64_t total() const {
    return libraries + checkpoints + rebuild + peer + buffers + other_ranks + stand_ins;
  }
};

std::string table_of(const spec::MemoryTable& m, int64_t available_bytes,
                     const OtherMemory& other) {
  struct Row {
    const char* name;
    int64_t bytes;
  };
  const std::array<Row, 21> rows = {{{"parameters", m.params},
                                     {"gradients", m.grads},
                                     {"optimizer", m.optim},
                                     {"stage inputs", m.stash_inputs},
                                     {"activations, until backward", m.stash_f_to_b},
                                     {"activations, until weight gradients", m.stash_f_to_w},
                                     {"gradients, until weight gradients", m.stash_b_to_w},
                                     {"gradients from other stages", m.stash_gradients},
                                     {"recomputed block", m.stash_recompute},
                                     {"gradients between layers", m.stash_stream},
                                     {"fragmentation between stages", m.stash_gaps},
                                     {"scratch", m.scratch},
                                     {"communication buffers", m.comm},
                                     {"batch", m.staging},
                                     {"libraries, not yet loaded", other.libraries},
                                     {"checkpoint buffers", other.checkpoints},
                                     {"state, while the engine is rebuilt", other.rebuild},
                                     {"copies that outlive processes", other.peer},
                                     {"batches and signals of steps", other.buffers},
                                     {"other ranks on this host", other.other_ranks},
                                     {"stand-ins for messages", other.stand_ins}}};
  const int64_t needed = m.total() + other.total();
  const std::array<obs::Column, 3> columns = {
      {{"memory", obs::Align::left}, {"bytes"}, {"in GiB"}}};
  std::vector<std::vector<std::string>> cells;
  const auto add = [&cells](const char* name, int64_t bytes) {
    cells.push_back(
        {name, obs::grouped(bytes), obs::grouped(static_cast<double>(bytes) / 0x1p30, 3)});
  };
  for (const Row& row : rows) {
    if (row.bytes != 0) add(row.name, row.bytes);
  }
  cells.emplace_back();
  add("needed", needed);
  add("available", available_bytes);
  add("missing", needed - available_bytes);
  return obs::table_text(columns, cells);
}

// `available_bytes` are those of one rank.
std::string advice(const FitJob& job, int64_t available_bytes, int64_t external_bytes,
                   const FitKeys& keys, bool is_gpu = true) {
  const int64_t other_bytes = external_bytes + job.stand_in_bytes;
  const std::vector<FitOption> fitting = options_within(job, available_bytes - other_bytes, keys);
  const auto needed = [&job, other_bytes](const FitOption& option) {
    return gib(job.memory(option.plan).total() + other_bytes);
  };
  if (!fitting.empty()) {
    std::string text = "these changes would fit, the cheapest first:";
    for (size_t i = 0; i < std::min(fitting.size(), max_options); ++i) {
      text += fmt::format("\n  {}\n      needs {}; {}", fitting[i].how, needed(fitting[i]),
                          fitting[i].price);
    }
    return text;
  }
  const FitOption smallest = smallest_option(job, keys);
  const std::string all = smallest.how.empty() ? ""
                                               : fmt::format(": with {} it would still need {}",
                                                             smallest.how, needed(smallest));
  return "no change of batch, recompute or formats would fit" + all +
         fmt::format(
             "; use a smaller model, shorter sequences, more {}ranks that share it, or a "
             "{} with more memory",
             is_gpu ? "" : "hosts with ", is_gpu ? "GPU" : "machine");
}

[[noreturn]] void refuse(const FitJob& job, int64_t available_bytes, OtherMemory other,
                         const std::string& advice_text) {
  const spec::MemoryTable& memory = job.memory(job.plan);
  other.stand_ins = job.stand_in_bytes;
  throw base::OutOfMemory(
      fmt::format("model '{}' does not fit in memory: needs {}, available {} (nothing was "
                  "allocated)\n\n{}\n{}",
                  job.model.name, gib(memory.total() + other.total()), gib(available_bytes),
                  table_of(memory, available_bytes, other), advice_text));
}

// Returns the memory of all ranks of this host: the sum over the plan's ranks if all are here,
// otherwise `sharers` times the rank that counts.
int64_t host_bytes(const FitJob& job, int sharers) {
  using spec::Axis;
  const spec::Plan& plan = job.plan;
  int64_t ranks = 1;
  for (const Axis axis : {Axis::pp, Axis::dp, Axis::zero, Axis::cp, Axis::tp}) {
    ranks *= plan.mesh[axis];
  }
  if (sharers != ranks) return sharers * job.memory(plan).total();
  int64_t bytes = 0;
  for (const spec::MemoryTable& stage : plan.predicted.memory) bytes += stage.total();
  return bytes * (ranks / std::ssize(plan.predicted.memory));
}

}  // namespace

FitKeys train_fit_keys() {
  return {.micro_batch = "--training.local_batch_size=",
          .global_batch = "--training.global_batch_size=",
          .accumulate = "",
          .head_chunk = "--training.head_chunk_rows=",
          .grad_dtype = "--training.grad_dtype=",
          .master_dtype = "--optimizer.master_dtype=",
          .recompute = "--activation_checkpoint.mode="};
}

FitJob make_fit_job(const spec::ModelSpec& model, const spec::Backend& backend,
                    const spec::Workload& work, const spec::Layout& layout) {
  spec::Plan plan = spec::solve_or_throw(model, work, layout, backend);
  spec::Workload any_batch = work;
  any_batch.global_batch = 0;
  return {model, backend, any_batch, plan.layout, std::move(plan)};
}

void check_fits(const FitJob& job, int64_t available_bytes, int64_t external_bytes,
                const FitKeys& keys) {
  TRIREME_CHECK(external_bytes >= 0, "{} bytes", external_bytes);
  const int64_t needed = job.memory(job.plan).total() + job.stand_in_bytes + external_bytes;
  if (needed <= available_bytes) return;
  refuse(job, available_bytes, {.libraries = external_bytes},
         advice(job, available_bytes, external_bytes, keys));
}

void check_fits(const FitJob& job, Platform& platform, int sharers, const FitKeys& keys) {
  check_fits(job, platform, sharers, keys, {});
}

void check_host_fits(const HostBytes& host, int ranks, int64_t host_available_bytes) {
  const int64_t needed = ranks * host.largest();
  if (needed <= host_available_bytes) return;
  throw base::OutOfMemory(fmt::format(
      "the host has {} left, and the {} ranks on it need {}: {} a rank for checkpoints, {} a rank "
      "while the engine is rebuilt for another phase, row budget or recipe, {} a rank for copies "
      "that outlive processes, {} a rank for batches and signals of steps (nothing was allocated); "
      "use more hosts, share the state among more ranks (parallelism.zero_stage), or leave out "
      "what needs a copy (checkpoint.enable, [[phase]], precision.fallback, moe.overflow)",
      gib(host_available_bytes), ranks, gib(needed), gib(host.checkpoint_bytes),
      gib(host.rebuild_bytes), gib(host.peer_bytes + host.kept_bytes), gib(host.buffer_bytes)));
}

void check_fits(const FitJob& job, Platform& platform, int sharers, const FitKeys& keys,
                const HostBytes& copies) {
  if (!platform.is_gpu()) {
    const int64_t host = platform.host_available_bytes;
    const int64_t ranks = host_bytes(job, sharers);
    const OtherMemory other{
        .checkpoints = copies.checkpoint_bytes * sharers,
        .rebuild = std::max<int64_t>(0, copies.rebuild_bytes - copies.checkpoint_bytes) * sharers,
        .peer = (copies.peer_bytes + copies.kept_bytes) * sharers,
        .buffers = copies.buffer_bytes * sharers,
        .other_ranks = ranks - job.memory(job.plan).total()};
    if (ranks + copies.largest() * sharers + job.stand_in_bytes > host) {
      refuse(job, host, other, advice(job, host / sharers, copies.largest(), keys, false));
    }
  }
  const int64_t available = platform.device->available_bytes();
  if (available == std::numeric_limits<int64_t>::max()) return;
  const int64_t external = platform.is_gpu() ? cuda_library_bytes - cuda_context_bytes : 0;
  check_fits(job, available / sharers, external, keys);
}

int64_t missing_host_bytes(const FitJob& job, Platform& platform, int ranks,
                           const HostBytes& copies, int64_t host_available_bytes) {
  const int64_t plans = platform.is_gpu() ? 0 : host_bytes(job, ranks) + job.stand_in_bytes;
  return plans + ranks * copies.largest() - host_available_bytes;
}

int64_t checkpoint_bytes(const config::Config& c, const FitJob& job, int rank) {
  const config::Checkpoint& k = c.checkpoint;
  // The last step and a stop are saved with any interval.
  return k.enable ? Checkpointer::memory_bytes(job.model, job.plan, rank, k.reread) : 0;
}

}  // namespace trireme::train
