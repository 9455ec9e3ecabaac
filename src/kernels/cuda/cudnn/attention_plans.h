// SPDX-License-Identifier: Apache-2.0
// Attention by cuDNN: its plans, built at the first use of a shape and cached. That takes
// milliseconds, or seconds if the driver has to compile a kernel, which it then keeps on disk.
// Belongs to the one host thread that queues work on the device.
#pragma once

#include <cudnn.h>

#include <map>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "device/cuda/cuda_device.h"
#include "kernels/args.h"
#include "kernels/cuda/cudnn/attention_graph.h"

namespace trireme::kernels::cuda {

class AttentionPlans {
 public:
  explicit AttentionPlans(device::CudaDevice& device);
  ~AttentionPlans();
  AttentionPlans(const AttentionPlans&) = delete;
  AttentionPlans& operator=(const AttentionPlans&) = delete;

  // Queue the work and return true, or log once and return false if cuDNN cannot compute it. After
  // false the results may have been written in part.
  [[nodiscard]] bool forward(device::CudaStream& stream, const AttentionForwardArgs& args);
  [[nodiscard]] bool backward(device::CudaStream& stream, const AttentionBackwardArgs& args);
  // The same for documents (attention_documents.cpp); the backward is not deterministic. After
  // false nothing is queued.
  [[nodiscard]] bool documents_forward(device::CudaStream& stream,
                                       const AttentionForwardArgs& args);
  [[nodiscard]] bool documents_backward(device::CudaStream& stream,
                                        const AttentionBackwardArgs& args);
  // The same for chunks of rows that the host knows (attention_chunks.cpp). After false nothing is
  // queued of the backward.
  [[nodiscard]] bool ranges_forward(device::CudaStream& stream,
                                    const AttentionRangesForwardArgs& args);
  [[nodiscard]] bool ranges_backward(device::CudaStream& stream,
                                     const AttentionRangesBackwardArgs& args);

 private:
  struct Entry {
    CudnnGraph graph;
    AttentionTensors tensors;
    // The plan in use; several only until they are timed. Empty if cuDNN has none.
    std::vector<CudnnPlan> plans;
    bool has_warned = false;
  };
  // The part of a batch that one backward plan computes.
  struct Part {
    int64_t first_sequence = 0, sequences = 0;
    int64_t first_kv_head = 0, kv_heads = 0;
  };

  // Built at the first call, with at most `limit` plans.
  Entry& entry(const AttentionKey& key, int limit);
  // Lets the driver compile the kernel of cuDNN's backward in another thread, while the host is
  // busy with the forward pass: it depends on the head size, not on lengths and strides.
  void compile_backward(AttentionKey forward);
  // Plans that may be timed. On a deterministic device bits must not depend on a measurement.
  int choices(const device::CudaStream& stream) const;
  // Keeps the fastest plan. Runs each several times and waits for them.
  void choose_fastest(device::CudaStream& stream, Entry& entry,
                      std::span<const CudnnBinding> bindings, void* workspace);
  bool backward_part(device::CudaStream& stream, const AttentionBackwardArgs& args,
                     const Part& part);
  // Null if cuDNN cannot compute it, or not within this workspace.
  Entry* ranges_backward_entry(const AttentionRangesBackwardArgs& args, const QueryChunk& chunk,
                               int64_t kv_heads, int64_t available_bytes);
  void ranges_backward_part(device::CudaStream& stream, const AttentionRangesBackwardArgs& args,
                            Entry& entry, const QueryChunk& chunk, int64_t first_kv_head,
                            bool is_first);
  // Queues the entry's plan. `bindings` has the tensors in device memory; scalars are added.
  void execute(device::CudaStream& stream, Entry& entry, std::vector<CudnnBinding> bindings,
               float scale, void* workspace);

  device::CudaDevice& device_;
  cudnnHandle_t handle_ = nullptr;
  std::map<AttentionKey, std::unique_ptr<Entry>> entries_;
  std::jthread compiler_;
};

// Return whether cuDNN can compute this. Otherwise Trireme's kernels do.
bool is_fused(const device::CudaDevice& device, const AttentionForwardArgs& args);
bool is_fused(const device::CudaDevice& device, const AttentionBackwardArgs& args);
bool are_fused_documents(const AttentionForwardArgs& args);
bool are_fused_documents(const AttentionBackwardArgs& args);
bool is_fused(const AttentionRangesForwardArgs& args);
bool is_fused(const AttentionRangesBackwardArgs& args);

// With less alignment cuDNN returns wrong results without an error.
constexpr int64_t cudnn_alignment_bytes = 16;
bool is_aligned(const void* data);
bool is_aligned(const ConstTensor& tensor);  // every row

}  // namespace trireme::kernels::cuda
