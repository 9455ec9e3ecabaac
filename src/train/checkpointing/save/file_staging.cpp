// SPDX-License-Identifier: Apache-2.0
#include "train/checkpointing/save/file_staging.h"

#include <algorithm>

#include "base/shape.h"
#include "comm/mesh.h"
#include "train/checkpointing/saved_state.h"

namespace trireme::train {
namespace {

ckpt::FileLayout layout_of(const spec::ModelSpec& model, const spec::Plan& plan, int rank) {
  return ckpt::plan_file(saved_pieces(model, plan, comm::coord_of(plan.mesh, rank)));
}

// A small file has few transfers in flight: its threads would take the cores from the step.
ckpt::IoOptions io_of(const ckpt::FileLayout& layout, bool reread) {
  constexpr int64_t bytes_by_transfer = int64_t{32} << 20;
  ckpt::IoOptions io{.reread = reread};
  const int64_t wanted = 1 + layout.bytes / bytes_by_transfer;
  io.queue_depth = static_cast<int>(std::min<int64_t>(io.queue_depth, wanted));
  return io;
}

int64_t joining_bytes(const spec::Plan& plan) {
  const bool is_split = plan.recipe.has_master() && plan.optimizer.master != base::DType::f32;
  return is_split ? StagedCopy::max_split_elements * static_cast<int64_t>(sizeof(float)) : 0;
}

int64_t workspace_bytes(const ckpt::FileLayout& layout, int64_t joining_bytes, int rank,
                        const ckpt::IoOptions& io) {
  return std::max(ckpt::Workspace::rounded(joining_bytes), ckpt::writer_bytes(layout, rank, io));
}

// Direct I/O needs page-aligned memory.
std::byte* first_page(device::HostBuffer& memory) {
  const auto address = reinterpret_cast<uintptr_t>(memory.data());
  return memory.data() + (-address % static_cast<uintptr_t>(ckpt::page_bytes));
}

}  // namespace

FileStaging::FileStaging(const spec::ModelSpec& model, const spec::Plan& plan, int rank,
                         device::Device& device, bool reread)
    : rank_(rank),
      joining_bytes_(joining_bytes(plan)),
      layout_(layout_of(model, plan, rank)),
      io_(io_of(layout_, reread)),
      memory_(device.make_host_buffer(device::Mem::checkpoint,
                                      memory_bytes(model, plan, rank, reread), "checkpoints")),
      content_(first_page(memory_), static_cast<size_t>(layout_.bytes)),
      workspace_({content_.data() + content_.size(),
                  static_cast<size_t>(workspace_bytes(layout_, joining_bytes_, rank, io_))}) {}

int64_t FileStaging::memory_bytes(const spec::ModelSpec& model, const spec::Plan& plan, int rank,
                                  bool reread) {
  const ckpt::FileLayout layout = layout_of(model, plan, rank);
  return ckpt::page_bytes + layout.bytes +
         workspace_bytes(layout, joining_bytes(plan), rank, io_of(layout, reread));
}

int64_t FileStaging::used_bytes(int64_t content_bytes) const {
  return ckpt::page_bytes + base::round_up(content_bytes, ckpt::page_bytes) +
         workspace_.high_water();
}

int64_t FileStaging::file_bytes() const {
  const int64_t chunks = (layout_.bytes + ckpt::chunk_bytes - 1) / ckpt::chunk_bytes;
  return layout_.bytes +
         ckpt::index_text_bytes(
             {.rank = rank_, .data_bytes = layout_.bytes, .tensors = layout_.tensors, .chunks = {}},
             chunks);
}

std::span<std::byte> FileStaging::joining_memory() {
  workspace_.clear();
  return workspace_.take(joining_bytes_);
}

}  // namespace trireme::train
