// SPDX-License-Identifier: Apache-2.0
#include "train/checkpointing/checkpointer.h"

#include <chrono>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/text/json.h"
#include "ckpt/generation/file_sink.h"
#include "obs/clock.h"
#include "train/checkpointing/saved_state.h"

namespace trireme::train {
namespace {

ckpt::Manifest manifest_of(const spec::ModelSpec& model, const spec::Plan& plan) {
  ckpt::Manifest manifest;
  manifest.plan = spec::to_json(plan);
  manifest.tensors = saved_tensors(model, plan);
  return manifest;
}

}  // namespace

Checkpointer::Checkpointer(engine::Engine& engine, const spec::ModelSpec& model, Rank& rank,
                           device::Device& device, ckpt::Disk& disk, CheckpointOptions options,
                           CheckpointHooks hooks)
    : engine_(engine),
      model_(model),
      rank_(rank),
      disk_(disk),
      options_(std::move(options)),
      hooks_(std::move(hooks)),
      staging_(model, engine.plan(), rank.number(), device, options_.reread),
      snapshot_(engine, device, "checkpoint",
                staged_copies(engine, model, rank.coord(), staging_.layout())),
      commit_(rank, disk,
              {.folder = options_.folder,
               .retention = options_.retention,
               .guard = options_.guard,
               .claim = options_.claim,
               .tokenizer = options_.tokenizer},
              manifest_of(model, engine.plan())) {}

int64_t Checkpointer::memory_bytes(const spec::ModelSpec& model, const spec::Plan& plan, int rank,
                                   bool reread) {
  return FileStaging::memory_bytes(model, plan, rank, reread);
}

int64_t Checkpointer::used_bytes() const { return staging_.used_bytes(snapshot_.bytes()); }

int64_t Checkpointer::file_bytes() const { return staging_.file_bytes(); }

int64_t Checkpointer::manifest_bytes(const base::Json& state) const {
  ckpt::Manifest manifest = commit_.manifest();
  manifest.state = state;
  manifest.state["clipping"] = to_json(kernels::StepState{});
  manifest.writer = {.run = std::string(16, '0'), .epoch = 1};  // not known yet
  const int64_t data_bytes = staging_.layout().bytes;
  for (int rank = 0; rank < rank_.ranks(); ++rank) {
    manifest.files.push_back(
        {.rank = rank, .data_bytes = data_bytes, .index_bytes = file_bytes() - data_bytes});
  }
  return static_cast<int64_t>(ckpt::to_text(manifest).size());
}

void Checkpointer::save(int64_t step, const base::Json& state) {
  const double called = obs::steady_seconds();
  finish();
  const double waited = obs::steady_seconds() - called;
  base::Json complete = state;
  // The host is ahead of the device: waiting here delays no step.
  complete["clipping"] = to_json(engine_.step_state());
  began_ = obs::steady_seconds();
  step_ = step;
  if (const std::optional<SaveResult> not_open = commit_.open(step)) return end_save(*not_open);
  snapshot_.begin(staging_.content().data());
  commit_.start(std::move(complete), [this](const ckpt::Draft& draft) { return store(draft); });
  stall_seconds_ = waited + obs::steady_seconds() - began_;
  figures_.stall_seconds += stall_seconds_;
}

ckpt::Receipt Checkpointer::store(const ckpt::Draft& draft) {
  snapshot_.device().use_on_this_thread();
  snapshot_.wait();
  snapshot_.finish(staging_.content().data(), staging_.joining_memory());
  ckpt::FileSink sink({.disk = disk_,
                       .folder = draft.folder,
                       .rank = rank_.number(),
                       .layout = staging_.layout(),
                       .workspace = &staging_.workspace()},
                      staging_.io());
  sink.begin();
  sink.write(staging_.content());
  return sink.seal();
}

void Checkpointer::poll() {
  try {
    if (const std::optional<SaveResult> result = commit_.poll()) end_save(*result);
  } catch (const base::Fenced&) {
    snapshot_.wait();
    throw;
  }
}

void Checkpointer::finish() {
  while (commit_.is_active()) {
    commit_.wait();
    poll();
    // Other ranks may still be writing.
    if (commit_.is_active() && !rank_.is_alone()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

void Checkpointer::end_save(const SaveResult& result) {
  snapshot_.wait();  // a save that failed early left copies behind
  if (!result.is_durable) {
    ++figures_.failed;
    if (result.problem.empty()) return;
    hooks_.log(fmt::format("checkpoint of step {} not saved: {}", step_, result.problem));
    if (rank_.is_first() && hooks_.failed) hooks_.failed(step_, result.problem);
    return;
  }
  ++figures_.saves;
  figures_.bytes += staging_.layout().bytes;
  figures_.durable_seconds = result.durable_at - began_;
  if (!result.not_removed.empty()) {
    hooks_.log(fmt::format("checkpoint of step {} saved, but older ones not removed: {}", step_,
                           result.not_removed));
  }
  if (!rank_.is_first() || !hooks_.saved) return;
  SavedGeneration saved{
      .step = step_, .stall_seconds = stall_seconds_, .durable_seconds = figures_.durable_seconds};
  for (const ckpt::FileInfo& file : result.files) saved.bytes += file.data_bytes + file.index_bytes;
  hooks_.saved(saved);
}

}  // namespace trireme::train
