// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cudnn/attention_plans.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "base/shape.h"
#include "base/system/rank_activity.h"
#include "spec/facts/backend.h"

namespace trireme::kernels::cuda {
namespace {

constexpr int max_choices = 3;  // plans that are timed in fast mode
// From this length on the plan that cuDNN prefers is taken: on an H200 it was the fastest of every
// shape that was measured, by 6 % (heads of 64) or half (of 128). With 1,024 tokens the second one
// was, by 7 and 10 %. Timing plans prolongs every start.
constexpr int64_t long_sequence = 4096;
// Plans that took this long to build contain kernels that were compiled.
constexpr double compiling_seconds = 0.3;

// Lets this thread load kernels and allocate while its stream may be capturing; these calls do not
// become part of the capture.
class RelaxedCapture {
 public:
  RelaxedCapture() { exchange(); }
  ~RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  void exchange() {
    device::cuda_check(cudaThreadExchangeStreamCaptureMode(&mode_), "preparing cuDNN");
  }
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

void* address(const ConstTensor& t) { return const_cast<std::byte*>(t.data); }

template <typename Args>
spec::AttentionShape shape_of(const Args& args) {
  return {.dtype = args.q.dtype,
          .sequences = args.sequences,
          .seq_len = args.max_seq,
          .heads = args.q.shape[1],
          .kv_heads = args.k.shape[1],
          .head_dim = args.q.shape[2],
          .has_documents = args.has_documents};
}

template <typename Args>
bool shape_is_fused(const device::CudaDevice& device, const Args& args) {
  const spec::AttentionShape shape = shape_of(args);
  const spec::Backend backend = spec::cuda_backend(device.options().deterministic);
  if (!args.causal || !spec::attention_is_fused(backend, shape)) return false;
  TRIREME_CHECK(shape.tokens() == args.q.rows(),
                "attention: {} sequences of {} tokens are not {} tokens", shape.sequences,
                shape.seq_len, args.q.rows());
  return is_aligned(args.q) && is_aligned(args.k) && is_aligned(args.v) && is_aligned(args.o) &&
         is_aligned(args.lse.data);
}

}  // namespace

bool is_aligned(const void* data) {
  return reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(cudnn_alignment_bytes) == 0;
}
bool is_aligned(const ConstTensor& t) {
  return is_aligned(t.data) && t.row_stride * base::size_of(t.dtype) % cudnn_alignment_bytes == 0;
}

bool is_fused(const device::CudaDevice& device, const AttentionForwardArgs& args) {
  return shape_is_fused(device, args);
}
bool is_fused(const device::CudaDevice& device, const AttentionBackwardArgs& args) {
  return shape_is_fused(device, args) && is_aligned(args.dout) && is_aligned(args.dq) &&
         is_aligned(args.dk) && is_aligned(args.dv) && is_aligned(args.workspace.data);
}

AttentionPlans::AttentionPlans(device::CudaDevice& device) : device_(device) {
  const RelaxedCapture relaxed;
  cudnn_check(cudnnCreate(&handle_), "starting cuDNN");
}

AttentionPlans::~AttentionPlans() {
  if (compiler_.joinable()) compiler_.join();
  entries_.clear();
  cudnnDestroy(handle_);
}

AttentionPlans::Entry& AttentionPlans::entry(const AttentionKey& key, int limit) {
  std::unique_ptr<Entry>& entry = entries_[key];
  if (entry != nullptr) return *entry;
  entry = std::make_unique<Entry>();
  std::string problem = "it has no kernel for this shape";
  const base::ActivityPhaseScope compiles(base::compile_phase);
  const auto begin = std::chrono::steady_clock::now();
  try {
    const RelaxedCapture relaxed;
    entry->tensors = build_attention(entry->graph, key);
    entry->plans = entry->graph.plans(handle_, limit);
  } catch (const base::DeviceError& error) {
    problem = error.what();
  }
  if (entry->plans.empty()) {
    base::log_warning(
        "attention of {} sequences of {} tokens, heads {}/{} of {}: cuDNN is not used, the general "
        "kernel is much slower: {}",
        key.sequences, key.seq_len, key.heads, key.kv_heads, key.head_dim, problem);
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  if (key.kind == AttentionKind::forward && seconds.count() > compiling_seconds) {
    compile_backward(key);
  }
  return *entry;
}

void AttentionPlans::compile_backward(AttentionKey key) {
  const bool is_flash =
      spec::may_be_flash(device_.options().deterministic, key.head_dim, key.seq_len);
  if (is_flash || compiler_.joinable()) return;
  key.kind = AttentionKind::backward;
  key.dout_stride = key.o_stride;
  key.dq_stride = key.q_stride;
  key.dk_stride = key.k_stride;
  key.dv_stride = key.v_stride;
  compiler_ = std::jthread([this, key] {
    cudnnHandle_t handle = nullptr;
    try {
      device_.use_on_this_thread();
      cudnn_check(cudnnCreate(&handle), "starting cuDNN");
      CudnnGraph graph;
      build_attention(graph, key);
      static_cast<void>(graph.plans(handle, 1));
    } catch (const base::DeviceError&) {
      // The backward itself reports what cuDNN cannot do.
    }
    if (handle != nullptr) cudnnDestroy(handle);
  });
}

int AttentionPlans::choices(const device::CudaStream& stream) const {
  const bool may_measure =
      !device_.options().deterministic && !stream.is_capturing() && !device_.ledger().is_frozen();
  return may_measure ? max_choices : 1;
}

void AttentionPlans::execute(device::CudaStream& stream, Entry& entry,
                             std::vector<CudnnBinding> bindings, float scale, void* workspace) {
  float minus_infinity = -std::numeric_limits<float>::infinity(), one = 1;
  const AttentionTensors& t = entry.tensors;
  auto queries = static_cast<int32_t>(t.q.dims[2]), keys = static_cast<int32_t>(t.k.dims[3]);
  const auto bind = [&](const CudnnTensor& scalar, void* value) {
    if (scalar.uid != 0) bindings.push_back({scalar.uid, value});
  };
  bind(t.scale, &scale);
  bind(t.minus_infinity, &minus_infinity);
  bind(t.one, &one);
  bind(t.query_count, &queries);
  bind(t.key_count, &keys);
  cudnn_check(cudnnSetStream(handle_, stream.handle()), "giving cuDNN a stream");
  if (entry.plans.size() > 1) choose_fastest(stream, entry, bindings, workspace);
  entry.plans.front().execute(handle_, bindings, workspace);
}

void AttentionPlans::choose_fastest(device::CudaStream& stream, Entry& entry,
                                    std::span<const CudnnBinding> bindings, void* workspace) {
  constexpr int runs = 5;
  size_t best = 0;
  double best_seconds = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < entry.plans.size(); ++i) {
    entry.plans[i].execute(handle_, bindings, workspace);  // warms up
    const device::Event begin = stream.record_timed();
    for (int run = 0; run < runs; ++run) entry.plans[i].execute(handle_, bindings, workspace);
    const device::Event end = stream.record_timed();
    stream.synchronize();
    const double seconds = stream.seconds_between(begin, end);
    if (seconds < best_seconds) {
      best = i;
      best_seconds = seconds;
    }
  }
  std::swap(entry.plans.front(), entry.plans[best]);
  entry.plans.erase(entry.plans.begin() + 1, entry.plans.end());
}

bool AttentionPlans::forward(device::CudaStream& stream, const AttentionForwardArgs& args) {
  const AttentionKey key = {.kind = AttentionKind::forward,
                            .is_f16 = args.q.dtype == base::DType::f16,
                            .sequences = args.sequences,
                            .seq_len = args.max_seq,
                            .keys = args.max_seq,
                            .heads = args.q.shape[1],
                            .kv_heads = args.k.shape[1],
                            .head_dim = args.q.shape[2],
                            .lse_sequence_stride = args.q.shape[1] * args.max_seq,
                            .lse_head_stride = args.max_seq,
                            .q_stride = args.q.row_stride,
                            .k_stride = args.k.row_stride,
                            .v_stride = args.v.row_stride,
                            .o_stride = args.o.row_stride};
  Entry& found = entry(key, args.max_seq < long_sequence ? choices(stream) : 1);
  if (found.plans.empty()) return false;

  int64_t needed = 0;
  for (const CudnnPlan& plan : found.plans) needed = std::max(needed, plan.workspace_bytes());
  const Tensor workspace = stream.workspace();
  TRIREME_CHECK(workspace && workspace.bytes() >= needed && is_aligned(workspace.data),
                "attention_forward: cuDNN needs {} bytes, stream '{}' has a workspace of {}",
                needed, stream.name(), workspace ? workspace.bytes() : 0);
  const AttentionTensors& t = found.tensors;
  execute(stream, found,
          {{t.q.uid, address(args.q)},
           {t.k.uid, address(args.k)},
           {t.v.uid, address(args.v)},
           {t.o.uid, args.o.data},
           {t.lse.uid, args.lse.data}},
          args.scale, workspace.data);
  return true;
}

bool AttentionPlans::backward(device::CudaStream& stream, const AttentionBackwardArgs& args) {
  const spec::AttentionShape shape = shape_of(args);
  const spec::AttentionCall call =
      spec::attention_call(spec::cuda_backend(device_.options().deterministic), shape);
  for (int64_t s = 0; s < shape.sequences; s += call.sequences) {
    for (int64_t g = 0; g < shape.kv_heads; g += call.kv_heads) {
      const Part part = {.first_sequence = s,
                         .sequences = std::min(call.sequences, shape.sequences - s),
                         .first_kv_head = g,
                         .kv_heads = std::min(call.kv_heads, shape.kv_heads - g)};
      if (!backward_part(stream, args, part)) return false;
    }
  }
  return true;
}

bool AttentionPlans::backward_part(device::CudaStream& stream, const AttentionBackwardArgs& args,
                                   const Part& part) {
  const bool deterministic = device_.options().deterministic;
  const int64_t H = args.q.shape[1], G = args.k.shape[1], K = args.q.shape[2], T = args.max_seq;
  const int64_t group = H / G;
  const AttentionKey key = {
      .kind = deterministic ? AttentionKind::backward_deterministic : AttentionKind::backward,
      .is_f16 = args.q.dtype == base::DType::f16,
      .sequences = part.sequences,
      .seq_len = T,
      .keys = T,
      .heads = part.kv_heads * group,
      .kv_heads = part.kv_heads,
      .head_dim = K,
      .lse_sequence_stride = H * T,
      .lse_head_stride = T,
      .q_stride = args.q.row_stride,
      .k_stride = args.k.row_stride,
      .v_stride = args.v.row_stride,
      .o_stride = args.o.row_stride,
      .dout_stride = args.dout.row_stride,
      .dq_stride = args.dq.row_stride,
      .dk_stride = args.dk.row_stride,
      .dv_stride = args.dv.row_stride};
  Entry& found = entry(key, 1);
  if (found.plans.empty()) return false;
  const CudnnPlan& plan = found.plans.front();

  // The workspace: delta, the sum of dq (unless deterministic), cuDNN's workspace; as
  // spec::attention_workspace() counts them.
  const int64_t delta_bytes =
      base::round_up(args.q.rows() * H * static_cast<int64_t>(sizeof(float)), base::grain_bytes);
  const int64_t dq_sum_bytes = deterministic ? 0 : delta_bytes * K;
  const int64_t needed = delta_bytes + dq_sum_bytes + plan.workspace_bytes();
  const int64_t first_head = part.first_kv_head * group;
  const int64_t lse_at = (part.first_sequence * H + first_head) * T;
  std::byte* lse = static_cast<std::byte*>(address(args.lse)) + lse_at * 4;
  if (args.workspace.bytes() < needed || !is_aligned(lse)) {
    if (!found.has_warned) {
      base::log_warning(
          "attention_backward: cuDNN is not used, the general kernel is much slower: cuDNN needs a "
          "workspace of {} bytes, {} are available; its part of lse starts at element {}, which "
          "must be a multiple of 4",
          needed, args.workspace.bytes(), lse_at);
    }
    found.has_warned = true;
    return false;
  }

  // Memory of the part's first row and head.
  const auto start = [&](const ConstTensor& t, int64_t head) {
    const int64_t elements = part.first_sequence * T * t.row_stride + head * K;
    return static_cast<void*>(static_cast<std::byte*>(address(t)) +
                              elements * base::size_of(t.dtype));
  };
  const AttentionTensors& t = found.tensors;
  std::vector<CudnnBinding> bindings = {{t.q.uid, start(args.q, first_head)},
                                        {t.k.uid, start(args.k, part.first_kv_head)},
                                        {t.v.uid, start(args.v, part.first_kv_head)},
                                        {t.o.uid, start(args.o, first_head)},
                                        {t.dout.uid, start(args.dout, first_head)},
                                        {t.lse.uid, lse},
                                        {t.dq.uid, start(args.dq, first_head)},
                                        {t.dk.uid, start(args.dk, part.first_kv_head)},
                                        {t.dv.uid, start(args.dv, part.first_kv_head)},
                                        {t.delta.uid, args.workspace.data}};
  if (!deterministic) bindings.push_back({t.dq_sum.uid, args.workspace.data + delta_bytes});
  execute(stream, found, std::move(bindings), args.scale,
          args.workspace.data + delta_bytes + dq_sum_bytes);
  return true;
}

}  // namespace trireme::kernels::cuda
