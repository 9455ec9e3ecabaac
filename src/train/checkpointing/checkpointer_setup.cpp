// SPDX-License-Identifier: Apache-2.0
// Checkpointer: its construction, and the sizes of its memory and files.
#include <algorithm>

#include "base/shape.h"
#include "base/text/json.h"
#include "comm/mesh.h"
#include "train/checkpointing/checkpointer.h"

namespace trireme::train {
Checkpointer::Checkpointer(engine::Engine& engine, const spec::ModelSpec& model, Rank& rank,
                           device::Device& device, ckpt::Disk& disk, CheckpointOptions options,
                           CheckpointHooks hooks)
    : engine_(engine),
      model_(model),
      rank_(rank),
      disk_(disk),
      options_(std::move(options)),
      hooks_(std::move(hooks)),
      layout_(ckpt::plan_file(saved_pieces(model, engine.plan(), rank.coord()))),
      memory_(device.make_host_buffer(
          device::Mem::checkpoint,
          memory_bytes(model, engine.plan(), rank.number(), options_.reread), "checkpoints")),
      snapshot_(engine, device, "checkpoint", staged_copies(engine, model, rank.coord(), layout_)),
      // Direct I/O needs page-aligned memory.
      staged_(memory_.data() + (-reinterpret_cast<uintptr_t>(memory_.data()) %
                                static_cast<uintptr_t>(ckpt::page_bytes))),
      workspace_({staged_ + layout_.bytes, static_cast<size_t>(workspace_bytes(
                                               layout_, engine.plan(), rank.number(), io()))}) {
  manifest_.plan = spec::to_json(engine.plan());
  manifest_.tensors = saved_tensors(model, engine.plan());
}

// A small file has few transfers in flight: its threads would take the cores from the step.
ckpt::IoOptions Checkpointer::io_of(const ckpt::FileLayout& layout, bool reread) {
  constexpr int64_t bytes_by_transfer = int64_t{32} << 20;
  ckpt::IoOptions options{.reread = reread};
  const int64_t wanted = 1 + layout.bytes / bytes_by_transfer;
  options.queue_depth = static_cast<int>(std::min<int64_t>(options.queue_depth, wanted));
  return options;
}

int64_t Checkpointer::memory_bytes(const spec::ModelSpec& model, const spec::Plan& plan, int rank,
                                   bool reread) {
  const ckpt::FileLayout layout =
      ckpt::plan_file(saved_pieces(model, plan, comm::coord_of(plan.mesh, rank)));
  return ckpt::page_bytes + layout.bytes +
         workspace_bytes(layout, plan, rank, io_of(layout, reread));
}

int64_t Checkpointer::file_bytes() const {
  const int64_t chunks = (layout_.bytes + ckpt::chunk_bytes - 1) / ckpt::chunk_bytes;
  return layout_.bytes + ckpt::index_text_bytes({.rank = rank_.number(),
                                                 .data_bytes = layout_.bytes,
                                                 .tensors = layout_.tensors,
                                                 .chunks = {}},
                                                chunks);
}

int64_t Checkpointer::manifest_bytes(const base::Json& state) const {
  ckpt::Manifest manifest = manifest_;
  manifest.state = state;
  manifest.state["clipping"] = to_json(kernels::StepState{});
  manifest.writer = {.run = std::string(16, '0'), .epoch = 1};  // not known yet
  for (int rank = 0; rank < rank_.ranks(); ++rank) {
    manifest.files.push_back(
        {.rank = rank, .data_bytes = layout_.bytes, .index_bytes = file_bytes() - layout_.bytes});
  }
  return static_cast<int64_t>(ckpt::to_text(manifest).size());
}

int64_t Checkpointer::used_bytes() const {
  return ckpt::page_bytes + base::round_up(snapshot_.bytes(), ckpt::page_bytes) +
         workspace_.high_water();
}

int64_t Checkpointer::joining_bytes(const spec::Plan& plan) {
  const bool is_split = plan.recipe.has_master() && plan.optimizer.master != base::DType::f32;
  return is_split ? StagedCopy::max_split_elements * static_cast<int64_t>(sizeof(float)) : 0;
}

int64_t Checkpointer::workspace_bytes(const ckpt::FileLayout& layout, const spec::Plan& plan,
                                      int rank, const ckpt::IoOptions& io) {
  return std::max(ckpt::Workspace::rounded(joining_bytes(plan)),
                  ckpt::writer_bytes(layout, rank, io));
}

}  // namespace trireme::train
