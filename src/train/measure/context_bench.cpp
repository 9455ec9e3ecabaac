// SPDX-License-Identifier: Apache-2.0
#include "train/measure/context_bench.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "base/error.h"
#include "base/rng.h"
#include "base/text/json.h"
#include "device/memory.h"
#include "engine/step/query_chunks.h"
#include "kernels/ops.h"
#include "train/setup/setup.h"

namespace trireme::train {
namespace {

namespace ops = kernels::ops;
using base::DType;
using base::TensorSpec;
using device::Tensor;

void check(const ContextBenchOptions& o) {
  const auto refuse = [](const std::string& text) {
    throw base::ConfigError("bench attention: " + text);
  };
  for (const auto& [name, value] : {std::pair("--cp", static_cast<int64_t>(o.cp)),
                                    {"--seq", o.seq_len},
                                    {"--heads", o.heads},
                                    {"--kv-heads", o.kv_heads},
                                    {"--head-dim", o.head_dim}}) {
    if (value < 1) refuse(fmt::format("{} {}: must be 1 or above", name, value));
  }
  if (o.documents < 0) refuse(fmt::format("--documents {}: must be 0 or above", o.documents));
  if (o.seq_len >= int64_t{1} << 30) refuse(fmt::format("--seq {}: must be below 2^30", o.seq_len));
  if (o.heads % o.kv_heads != 0) {
    refuse(fmt::format("--heads {} must be a multiple of --kv-heads {}", o.heads, o.kv_heads));
  }
  const int64_t P = o.cp;
  if (o.kind == spec::ContextKind::ulysses) {
    if (o.heads % P != 0 || (o.kv_heads % P != 0 && P % o.kv_heads != 0)) {
      refuse(
          fmt::format("--kind ulysses: --cp {} must divide --heads {}, and divide --kv-heads {} "
                      "or be a multiple of it",
                      P, o.heads, o.kv_heads));
    }
  } else if (P > 1 && o.seq_len % (2 * P) != 0) {
    refuse(fmt::format("--seq {} must be a multiple of 2 * --cp = {}; the next is {}", o.seq_len,
                       2 * P, (o.seq_len / (2 * P) + 1) * 2 * P));
  }
}

// The tokens at which documents begin, and the end. Lengths are random, of exponential
// distribution, the same in every run.
std::vector<int32_t> borders(const ContextBenchOptions& o) {
  std::vector<int32_t> offsets = {0};
  for (uint64_t i = 0; o.documents > 0; ++i) {
    const double u = (static_cast<double>(base::rng_below(1, i, 1U << 30)) + 1) / (1U << 30);
    const double length = 1 - std::log(u) * static_cast<double>(o.documents);
    const auto rest = static_cast<double>(o.seq_len - offsets.back());
    if (length >= rest) break;
    offsets.push_back(offsets.back() + static_cast<int32_t>(length));
  }
  offsets.push_back(static_cast<int32_t>(o.seq_len));
  return offsets;
}

// The tensors and calls of one measurement. Constructed with a measuring arena it only counts
// bytes.
class Calls {
 public:
  Calls(const ContextBenchOptions& options, DType dtype, const spec::Backend& backend,
        device::Arena& arena, device::Stream* stream)
      : o_(options), dtype_(dtype), backend_(backend), arena_(arena), stream_(stream) {
    split_ = {.sequences = 1,
              .seq_len = o_.seq_len,
              .ulysses = 1,
              .groups = o_.cp,
              .slices = spec::ContextSlices::zigzag,
              .is_ring = o_.kind == spec::ContextKind::ring};
    offsets_ = borders(o_);
    make_tensors();
  }

  void whole(bool forward) { attend(o_.heads, o_.kv_heads, forward); }

  void ranks(bool forward) {
    if (o_.kind == spec::ContextKind::ulysses) {
      const int64_t kv_heads = std::max<int64_t>(o_.kv_heads / o_.cp, 1);
      for (int rank = 0; rank < o_.cp; ++rank) attend(o_.heads / o_.cp, kv_heads, forward);
      return;
    }
    for (int rank = 0; rank < o_.cp; ++rank) {
      for (int source = 0; source < split_.key_sources(); ++source) {
        const Part& part = parts_[static_cast<size_t>(rank * split_.key_sources() + source)];
        forward ? forward_part(part, source) : backward_part(part);
      }
    }
  }

  int64_t calls() const {
    return o_.kind == spec::ContextKind::ulysses ? o_.cp : o_.cp * split_.key_sources();
  }
  std::vector<int64_t> pairs() const { return spec::pairs_of_groups(split_, offsets_); }

 private:
  // The keys of one source that the rows of one rank see.
  struct Part {
    Tensor begin, end;
    std::vector<kernels::QueryChunk> chunks;
    double pairs = 0;
  };

  int64_t rows() const { return o_.seq_len / o_.cp; }
  int64_t source_keys() const { return split_.is_ring ? rows() : o_.seq_len; }
  float scale() const { return 1.0F / std::sqrt(static_cast<float>(o_.head_dim)); }
  bool has_documents() const { return o_.documents > 0; }

  Tensor integers(const std::vector<int32_t>& values) {
    const Tensor made = arena_.take({{static_cast<int64_t>(values.size())}, DType::i32});
    if (stream_ != nullptr) {
      stream_->upload(made, std::as_bytes(std::span(values)));
      stream_->synchronize();
    }
    return made;
  }
  Tensor random(const TensorSpec& spec) {
    const Tensor made = arena_.take(spec);
    if (stream_ != nullptr) {
      const Tensor matrix = made.as_matrix();
      ops::init_normal(*stream_, {.d = matrix,
                                  .key = base::rng_key(1, "bench attention"),
                                  .global_row_stride = static_cast<uint64_t>(matrix.cols()),
                                  .std_dev = 0.5F});
    }
    return made;
  }
  spec::AttentionShape whole_shape(int64_t heads, int64_t kv_heads) const {
    return {.dtype = dtype_,
            .sequences = 1,
            .seq_len = o_.seq_len,
            .heads = heads,
            .kv_heads = kv_heads,
            .head_dim = o_.head_dim,
            .has_documents = has_documents()};
  }

  void make_tensors();
  void attend(int64_t heads, int64_t kv_heads, bool forward);
  void forward_part(const Part& part, int source);
  void backward_part(const Part& part);

  const ContextBenchOptions& o_;
  DType dtype_;
  const spec::Backend& backend_;
  device::Arena& arena_;
  device::Stream* stream_;
  spec::ContextSplit split_;
  std::vector<int32_t> offsets_;
  Tensor qkv_, dqkv_, o_rows_, dout_, lse_, offset_tensor_, workspace_;
  Tensor part_o_, part_lse_, merged_o_, dq_, dkv_, part_workspace_;
  std::vector<Part> parts_;
};

void Calls::make_tensors() {
  const int64_t S = o_.seq_len, H = o_.heads, G = o_.kv_heads, K = o_.head_dim;
  qkv_ = random({{S, (H + 2 * G) * K}, dtype_});
  dqkv_ = random({{S, (H + 2 * G) * K}, dtype_});
  o_rows_ = random({{S, H, K}, dtype_});
  dout_ = random({{S, H, K}, dtype_});
  lse_ = random({{H, S}, DType::f32});
  offset_tensor_ = integers(offsets_);
  const auto optional = [&](const TensorSpec& spec) {
    return spec.shape.ndim() == 0 ? Tensor{} : arena_.take(spec);
  };
  workspace_ = optional(spec::attention_workspace(backend_, whole_shape(H, G)));
  if (o_.kind == spec::ContextKind::ulysses) return;
  if (split_.is_ring) {
    part_o_ = random({{rows(), H, K}, DType::f32});
    merged_o_ = random({{rows(), H, K}, DType::f32});
    part_lse_ = random({{H, rows()}, DType::f32});
    dq_ = random({{rows(), H, K}, DType::f32});
  }
  dkv_ = random({{source_keys(), 2 * G * K}, DType::f32});
  part_workspace_ = optional(spec::attention_ranges_workspace(backend_, {.dtype = dtype_,
                                                                         .grad_dtype = DType::f32,
                                                                         .rows = rows(),
                                                                         .keys = source_keys(),
                                                                         .heads = H,
                                                                         .kv_heads = G,
                                                                         .head_dim = K}));
  for (int rank = 0; rank < o_.cp; ++rank) {
    for (int source = 0; source < split_.key_sources(); ++source) {
      const spec::KeyRanges keys = spec::keys_of_source(split_, rank, source, offsets_);
      Part part = {integers(keys.begin), integers(keys.end), {}, static_cast<double>(keys.pairs())};
      if (!has_documents()) part.chunks = engine::chunks_of(keys);
      parts_.push_back(std::move(part));
    }
  }
}

void Calls::attend(int64_t heads, int64_t kv_heads, bool forward) {
  const int64_t K = o_.head_dim, H = o_.heads;
  const auto part = [&](const Tensor& packed, int64_t first, int64_t count) {
    return packed.slice_heads(first * K, count, K);
  };
  const Tensor o = o_rows_.as_matrix().slice_heads(0, heads, K);
  const Tensor dout = dout_.as_matrix().slice_heads(0, heads, K);
  const Tensor lse = lse_.slice_rows(0, heads);
  const kernels::AttentionForwardArgs args{.q = part(qkv_, 0, heads),
                                           .k = part(qkv_, H, kv_heads),
                                           .v = part(qkv_, H + o_.kv_heads, kv_heads),
                                           .seq_offsets = offset_tensor_,
                                           .sequences = 1,
                                           .max_seq = o_.seq_len,
                                           .has_documents = has_documents(),
                                           .scale = scale(),
                                           .o = o,
                                           .lse = lse};
  if (forward) {
    ops::attention_forward(*stream_, args);
    return;
  }
  ops::attention_backward(*stream_, {.q = args.q,
                                     .k = args.k,
                                     .v = args.v,
                                     .o = o,
                                     .dout = dout,
                                     .lse = lse,
                                     .seq_offsets = offset_tensor_,
                                     .sequences = 1,
                                     .max_seq = o_.seq_len,
                                     .has_documents = has_documents(),
                                     .scale = scale(),
                                     .dq = part(dqkv_, 0, heads),
                                     .dk = part(dqkv_, H, kv_heads),
                                     .dv = part(dqkv_, H + o_.kv_heads, kv_heads),
                                     .workspace = workspace_});
}

void Calls::forward_part(const Part& part, int source) {
  const int64_t K = o_.head_dim, H = o_.heads, G = o_.kv_heads;
  const Tensor keys = qkv_.slice_rows(0, source_keys());
  const Tensor lse = lse_.reshape({H * o_.seq_len}).slice_rows(0, H * rows()).reshape({H, rows()});
  // In a ring the results of the sources are merged.
  const bool is_partial = split_.is_ring && source > 0;
  const Tensor o = !split_.is_ring ? o_rows_.slice_rows(0, rows())
                   : is_partial    ? part_o_
                                   : merged_o_;
  ops::attention_ranges_forward(*stream_, {.q = qkv_.slice_rows(0, rows()).slice_heads(0, H, K),
                                           .k = keys.slice_heads(H * K, G, K),
                                           .v = keys.slice_heads((H + G) * K, G, K),
                                           .key_begin = part.begin,
                                           .key_end = part.end,
                                           .chunks = part.chunks,
                                           .pairs = part.pairs,
                                           .scale = scale(),
                                           .o = o,
                                           .lse = is_partial ? part_lse_ : lse});
  if (is_partial) {
    ops::attention_merge(*stream_,
                         {.part = part_o_, .part_lse = part_lse_, .o = merged_o_, .lse = lse});
  }
}

void Calls::backward_part(const Part& part) {
  const int64_t K = o_.head_dim, H = o_.heads, G = o_.kv_heads;
  const Tensor keys = qkv_.slice_rows(0, source_keys());
  const Tensor lse = lse_.reshape({H * o_.seq_len}).slice_rows(0, H * rows()).reshape({H, rows()});
  ops::attention_ranges_backward(
      *stream_, {.q = qkv_.slice_rows(0, rows()).slice_heads(0, H, K),
                 .k = keys.slice_heads(H * K, G, K),
                 .v = keys.slice_heads((H + G) * K, G, K),
                 .o = o_rows_.slice_rows(0, rows()),
                 .dout = dout_.slice_rows(0, rows()),
                 .lse = lse,
                 .key_begin = part.begin,
                 .key_end = part.end,
                 .chunks = part.chunks,
                 .pairs = part.pairs,
                 .scale = scale(),
                 .dq = split_.is_ring ? dq_ : dqkv_.slice_rows(0, rows()).slice_heads(0, H, K),
                 .dk = dkv_.slice_heads(0, G, K),
                 .dv = dkv_.slice_heads(G * K, G, K),
                 .accumulates = split_.is_ring,
                 .workspace = part_workspace_});
}

// Returns the median seconds of a call, after one that builds plans and loads kernels.
double seconds_of(device::Stream& stream, const std::function<void()>& queue) {
  const auto timed = [&](int calls) {
    const device::Event begin = stream.record_timed();
    for (int i = 0; i < calls; ++i) queue();
    const device::Event end = stream.record_timed();
    stream.synchronize();
    return std::max(stream.seconds_between(begin, end), 1e-9) / calls;
  };
  queue();
  stream.synchronize();
  const double one = timed(1);
  if (one > 2) return one;
  const int calls = std::clamp(static_cast<int>(0.05 / one), 1, 100);
  std::vector<double> seconds;
  for (int round = 0; round < 5; ++round) seconds.push_back(timed(calls));
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

}  // namespace

ContextBench bench_context(const ContextBenchOptions& options) {
  check(options);
  const Platform platform = make_platform(options.system);
  ContextBench result;
  result.hardware = platform.hardware;
  result.dtype = options.dtype == "bf16" || (options.dtype == "auto" && platform.is_gpu())
                     ? DType::bf16
                     : DType::f32;
  device::Arena needed = device::Arena::measuring();
  const Calls counted(options, result.dtype, platform.backend, needed, nullptr);
  result.bytes = needed.high_water() + platform.backend.stream_workspace_bytes;
  result.calls = counted.calls();
  const int64_t available =
      std::min(platform.device->available_bytes(), platform.host_available_bytes);
  if (result.bytes > available) {
    throw base::OutOfMemory(
        fmt::format("bench attention: the tensors need {} bytes, {} are available; choose a "
                    "smaller --seq, --heads or --kv-heads",
                    result.bytes, available));
  }
  const std::vector<int64_t> pairs = counted.pairs();
  result.pairs = std::accumulate(pairs.begin(), pairs.end(), int64_t{0});
  if (options.kind != spec::ContextKind::ulysses) {
    result.pairs_max_mean = static_cast<double>(*std::max_element(pairs.begin(), pairs.end())) *
                            static_cast<double>(pairs.size()) / static_cast<double>(result.pairs);
  }

  const std::unique_ptr<device::Stream> stream = platform.device->make_stream("bench");
  const device::Buffer workspace(*platform.device, device::Mem::scratch,
                                 platform.backend.stream_workspace_bytes, "workspace");
  if (workspace.bytes() > 0) {
    stream->set_workspace(device::view_of(workspace.data(), {{workspace.bytes()}, DType::u8}));
  }
  device::Arena arena(
      device::Buffer(*platform.device, device::Mem::scratch, needed.high_water(), "operands"));
  Calls calls(options, result.dtype, platform.backend, arena, stream.get());
  stream->synchronize();
  const auto measure = [&](const char* what, const std::function<void()>& queue) {
    const double seconds = seconds_of(*stream, queue);
    if (options.measured) options.measured(what);
    return seconds;
  };
  result.forward = {measure("forward, whole", [&] { calls.whole(true); }),
                    measure("forward, all ranks", [&] { calls.ranks(true); })};
  result.backward = {measure("backward, whole", [&] { calls.whole(false); }),
                     measure("backward, all ranks", [&] { calls.ranks(false); })};
  return result;
}

base::Json to_json(const ContextBenchOptions& options, const ContextBench& result) {
  const auto times = [](const ContextBench::Times& t) {
    return base::Json{{"whole_seconds", t.whole_seconds},
                      {"ranks_seconds", t.ranks_seconds},
                      {"overhead", t.overhead()}};
  };
  return {{"ok", true},
          {"hardware", result.hardware},
          {"kind", std::string(spec::name_of(options.kind))},
          {"cp", options.cp},
          {"seq", options.seq_len},
          {"heads", options.heads},
          {"kv_heads", options.kv_heads},
          {"head_dim", options.head_dim},
          {"documents", options.documents},
          {"dtype", std::string(base::name_of(result.dtype))},
          {"calls", result.calls},
          {"pairs", result.pairs},
          {"pairs_max_mean", result.pairs_max_mean},
          {"bytes", result.bytes},
          {"forward", times(result.forward)},
          {"backward", times(result.backward)}};
}

}  // namespace trireme::train
