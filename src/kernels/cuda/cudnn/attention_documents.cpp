// SPDX-License-Identifier: Apache-2.0
// Attention of documents by cuDNN, with ragged tensors: where documents begin and how long they are
// is read on the device, so a captured step can be replayed with others.
//
// The backward has one call for each of the query heads that share a key head, since cuDNN's own
// sum over such heads wants memory for `capacity` documents of the longest length. Their dk and dv
// are summed in fp32.
#include "kernels/cuda/cudnn/attention_documents.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/shape.h"
#include "kernels/cuda/cudnn/attention_plans.h"
#include "spec/facts/backend.h"

namespace trireme::kernels::cuda {
namespace {

using base::DType;

template <typename Args>
bool documents_are_fused(const Args& args) {
  const int64_t K = args.q.shape[2];
  return args.has_documents && args.q.dtype == DType::bf16 && (K == 64 || K == 128) &&
         args.max_seq >= fused_document_length && args.q.rows() % 4 == 0 &&
         args.seq_offsets.is_contiguous() && is_aligned(args.q) && is_aligned(args.k) &&
         is_aligned(args.v) && is_aligned(args.o) && is_aligned(args.lse.data);
}

// Memory that is taken piece by piece.
class Pieces {
 public:
  explicit Pieces(const Tensor& memory) : memory_(memory) {}

  // Null, and from then on always, if it is used up.
  std::byte* take(int64_t bytes) {
    std::byte* piece = memory_ ? memory_.data + used_ : nullptr;
    used_ += base::round_up(bytes, base::grain_bytes);
    return memory_ && used_ <= memory_.bytes() ? piece : nullptr;
  }
  bool suffices() const { return memory_ && used_ <= memory_.bytes(); }
  int64_t used() const { return used_; }

 private:
  Tensor memory_;
  int64_t used_ = 0;
};

template <typename Args>
AttentionKey key_of(const Args& args) {
  AttentionKey key;
  key.is_causal = args.causal;
  key.is_ragged = true;
  key.sequences = std::max<int64_t>(args.q.rows() / fused_document_length, 1);
  key.seq_len = key.keys = std::min(args.max_seq, args.q.rows());
  key.heads = args.q.shape[1];
  key.kv_heads = args.k.shape[1];
  key.head_dim = args.q.shape[2];
  key.lse_head_stride = args.q.rows();
  key.lse_sequence_stride = key.heads * args.q.rows();
  key.q_stride = args.q.row_stride;
  key.k_stride = args.k.row_stride;
  key.v_stride = args.v.row_stride;
  key.o_stride = args.o.row_stride;
  return key;
}

// Places the table in `pieces` and appends its bindings.
DocumentTable table_of(const AttentionTensors& t, int64_t capacity, Pieces& pieces,
                       std::vector<CudnnBinding>& bindings) {
  DocumentTable table;
  table.capacity = capacity;
  table.lengths = reinterpret_cast<int32_t*>(pieces.take(4 * capacity));
  TRIREME_CHECK(t.offsets.size() <= DocumentTable::max_strides, "{} strides", t.offsets.size());
  for (const AttentionOffsets& offsets : t.offsets) {
    auto* starts = reinterpret_cast<int64_t*>(pieces.take(8 * (capacity + 1)));
    table.strides[table.stride_count] = offsets.stride;
    table.starts[table.stride_count++] = starts;
    bindings.push_back({offsets.tensor.uid, starts});
  }
  bindings.push_back({t.query_lengths.uid, table.lengths});
  bindings.push_back({t.key_lengths.uid, table.lengths});
  return table;
}

void* at(const ConstTensor& t, int64_t head) {
  return const_cast<std::byte*>(t.data) + head * t.shape[2] * base::size_of(t.dtype);
}

void* float_at(std::byte* data, int64_t element) { return data + 4 * element; }

bool warn_of_memory(bool& has_warned, const char* op, int64_t needed) {
  if (!std::exchange(has_warned, true)) {
    base::log_warning(
        "{} of documents: cuDNN is not used, which is slower: {} bytes do not suffice", op, needed);
  }
  return false;
}

}  // namespace

bool are_fused_documents(const AttentionForwardArgs& args) { return documents_are_fused(args); }
bool are_fused_documents(const AttentionBackwardArgs& args) {
  return documents_are_fused(args) && is_aligned(args.dout) && is_aligned(args.workspace.data) &&
         args.dq.row_stride == args.q.row_stride && args.dk.row_stride == args.k.row_stride &&
         args.dv.row_stride == args.k.row_stride && args.v.row_stride == args.k.row_stride &&
         is_aligned(args.dq) && is_aligned(args.dk) && is_aligned(args.dv) &&
         args.q.shape[1] / args.k.shape[1] <= max_head_parts;
}

bool AttentionPlans::documents_forward(device::CudaStream& stream,
                                       const AttentionForwardArgs& args) {
  const AttentionKey key = key_of(args);
  Entry& found = entry(key, 1);
  if (found.plans.empty()) return false;
  const AttentionTensors& t = found.tensors;
  Pieces pieces(stream.workspace());
  pieces.take(problem_bytes(args.q.rows()));
  auto* lse = reinterpret_cast<float*>(pieces.take(4 * key.heads * args.q.rows()));
  std::vector<CudnnBinding> bindings = {{t.q.uid, at(args.q, 0)},
                                        {t.k.uid, at(args.k, 0)},
                                        {t.v.uid, at(args.v, 0)},
                                        {t.o.uid, args.o.data},
                                        {t.lse.uid, lse}};
  const DocumentTable table = table_of(t, key.sequences, pieces, bindings);
  std::byte* own = pieces.take(found.plans.front().workspace_bytes());
  if (!pieces.suffices()) {
    return warn_of_memory(found.has_warned, "attention_forward", pieces.used());
  }
  const AttentionProblem problem = problem_of(stream, args, fused_document_length);
  select_documents(stream, args.seq_offsets, table);
  execute(stream, found, std::move(bindings), args.scale, own);
  copy_document_lse(stream, problem, lse, false);
  cuda::attention_forward(stream, problem);
  return true;
}

bool AttentionPlans::documents_backward(device::CudaStream& stream,
                                        const AttentionBackwardArgs& args) {
  const int64_t T = args.q.rows(), K = args.q.shape[2], H = args.q.shape[1], G = args.k.shape[1];
  const int64_t group = H / G;
  AttentionKey key = key_of(args);
  key.kind = AttentionKind::backward;
  key.heads = G;
  key.head_step = group;
  key.lse_head_stride = group * T;
  key.dout_stride = args.dout.row_stride;
  key.dq_stride = args.dq.row_stride;
  key.dk_stride = args.dk.row_stride;
  key.dv_stride = args.dv.row_stride;
  Entry& found = entry(key, 1);
  if (found.plans.empty()) return false;
  const AttentionTensors& t = found.tensors;

  Pieces shared(stream.workspace());
  shared.take(problem_bytes(T));
  std::vector<CudnnBinding> common;
  const DocumentTable table = table_of(t, key.sequences, shared, common);
  std::byte* own = shared.take(found.plans.front().workspace_bytes());
  Pieces pieces(args.workspace);
  std::byte* delta = pieces.take(4 * H * T);  // where problem_of() expects it
  std::byte* lse = pieces.take(4 * H * T);
  std::byte* dq_sum = pieces.take(4 * T * args.dq.row_stride);
  // dk and dv of the calls, beside one another in rows with the stride of k.
  const int64_t row = args.k.row_stride, calls_of_row = row / (2 * G * K);
  std::vector<HeadView> dk_parts, dv_parts;
  std::byte* rows = nullptr;
  for (int64_t call = 0; call < group && group > 1; ++call) {
    const int64_t place = call % calls_of_row * 2 * G * K;
    if (place == 0) rows = pieces.take(2 * T * row);
    if (rows == nullptr) break;
    dk_parts.push_back({rows + 2 * place, row, K, true});
    dv_parts.push_back({rows + 2 * (place + G * K), row, K, true});
  }
  if (!shared.suffices() || !pieces.suffices()) {
    return warn_of_memory(found.has_warned, "attention_backward", pieces.used());
  }

  const AttentionProblem problem = problem_of(stream, args, fused_document_length);
  select_documents(stream, args.seq_offsets, table);
  copy_document_lse(stream, problem, reinterpret_cast<float*>(lse), true);
  for (int64_t call = 0; call < group; ++call) {
    const auto part = static_cast<size_t>(call);
    std::vector<CudnnBinding> bindings = common;
    for (const CudnnBinding& binding : {CudnnBinding{t.q.uid, at(args.q, call)},
                                        {t.k.uid, at(args.k, 0)},
                                        {t.v.uid, at(args.v, 0)},
                                        {t.o.uid, at(args.o, call)},
                                        {t.dout.uid, at(args.dout, call)},
                                        {t.lse.uid, float_at(lse, call * T)},
                                        {t.dq.uid, at(args.dq, call)},
                                        {t.dk.uid, group > 1 ? dk_parts[part].data : args.dk.data},
                                        {t.dv.uid, group > 1 ? dv_parts[part].data : args.dv.data},
                                        {t.delta.uid, float_at(delta, call * T)},
                                        {t.dq_sum.uid, float_at(dq_sum, call * K)}}) {
      bindings.push_back(binding);
    }
    execute(stream, found, std::move(bindings), args.scale, own);
  }
  if (group > 1) {
    const HeadView dk = {args.dk.data, args.dk.row_stride, K, true};
    const HeadView dv = {args.dv.data, args.dv.row_stride, K, true};
    sum_heads(stream, dk, dk_parts, {T, G, K});
    sum_heads(stream, dv, dv_parts, {T, G, K});
  }
  cuda::attention_backward(stream, problem);  // overwrites dk and dv of the short documents
  return true;
}

}  // namespace trireme::kernels::cuda
