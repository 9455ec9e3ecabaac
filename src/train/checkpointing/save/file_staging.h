// SPDX-License-Identifier: Apache-2.0
// FileStaging: the host memory in which a rank prepares its file of a checkpoint: the content of
// the file, and the workspace of its writer. A pure function of the plan predicts its size.
#pragma once

#include <cstdint>
#include <span>

#include "ckpt/disk/parallel.h"
#include "ckpt/disk/workspace.h"
#include "ckpt/generation/save.h"
#include "device/device.h"
#include "spec/model.h"
#include "spec/plan.h"

namespace trireme::train {

class FileStaging {
 public:
  FileStaging(const spec::ModelSpec&, const spec::Plan&, int rank, device::Device&, bool reread);
  // Predicts the memory of a rank, to the byte.
  static int64_t memory_bytes(const spec::ModelSpec&, const spec::Plan&, int rank, bool reread);
  // Returns how much of it was used until now; `content_bytes`: of the file's content.
  int64_t used_bytes(int64_t content_bytes) const;

  const ckpt::FileLayout& layout() const { return layout_; }
  int64_t file_bytes() const;  // on disk: data file and index
  std::span<std::byte> content() const { return content_; }
  const ckpt::IoOptions& io() const { return io_; }
  // The writer's. The writer and joining_memory() use it one after the other.
  ckpt::Workspace& workspace() { return workspace_; }
  // Returns memory to join split weights in (StagedCopy::finish()).
  std::span<std::byte> joining_memory();

 private:
  const int rank_;
  const int64_t joining_bytes_;
  const ckpt::FileLayout layout_;
  const ckpt::IoOptions io_;
  device::HostBuffer memory_;
  std::span<std::byte> content_;
  ckpt::Workspace workspace_;
};

}  // namespace trireme::train
