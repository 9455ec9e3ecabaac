// SPDX-License-Identifier: Apache-2.0
#include "engine/decode/decoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "engine/decode/decode_product.h"
#include "engine/state/host_floats.h"
#include "kernels/ops.h"
#include "spec/experts/router_state.h"
#include "spec/facts/facts.h"
#include "spec/facts/rope.h"
#include "spec/state/state_layout.h"

namespace trireme::engine {
namespace {

namespace ops = kernels::ops;
using base::DType;
using base::TensorSpec;
using device::Arena;
using device::Buffer;
using device::Mem;
using device::Tensor;
using spec::BlockParam;

Arena make_arena(device::Device& device, Mem mem, int64_t bytes) {
  return Arena(Buffer(device, mem, bytes, name_of(mem)));
}

Tensor take(Arena& arena, const TensorSpec& spec) {
  return spec.shape.ndim() == 0 ? Tensor{} : arena.take(spec);
}

Tensor first_rows(const Tensor& t, int64_t rows) { return t ? t.slice_rows(0, rows) : t; }

template <typename Param>
Tensor at(const std::vector<Tensor>& params, Param param) {
  return params[static_cast<size_t>(param)];
}

// The first rows of a scratch tensor, as a matrix without gaps of this width, which is at most the
// tensor's.
Tensor matrix(const Tensor& t, int64_t rows, int64_t width) {
  return device::view_of(t.data, {{rows, width}, t.dtype});
}

enum Input : int64_t { tokens, positions, cache_rows, first_cache_rows, lengths };

}  // namespace

struct Decoder::Arenas {
  Arenas(device::Device& device, const spec::DecodeMemory& m)
      : params(make_arena(device, Mem::params, m.params)),
        cache(make_arena(device, Mem::cache, m.cache)),
        scratch(make_arena(device, Mem::scratch, m.scratch)),
        staging(make_arena(device, Mem::staging, m.staging)) {}

  Arena params, cache, scratch, staging;
};

Decoder::Decoder(device::Device& device, const spec::ModelSpec& model, const spec::DecodePlan& plan,
                 const spec::Backend& backend)
    : model_(model),
      plan_(plan),
      stream_(device.make_stream("decode")),
      arenas_(std::make_unique<Arenas>(device, spec::decode_memory(model, plan, backend))),
      lengths_(static_cast<size_t>(plan.sequences)) {
  for (int layer = 0; layer < static_cast<int>(model.layers.size()); ++layer) {
    const std::vector<spec::Param> params = spec::params_of(model, layer);
    const std::vector<TensorSpec> specs = spec::decode_params(model, layer, plan.dtype);
    Layer& made = layers_.emplace_back();
    for (size_t i = 0; i < specs.size(); ++i) {
      made.params.push_back(take(arenas_->params, specs[i]));
      if (made.params.back()) by_name_[params[i].shard.name] = made.params.back();
      if (params[i].tied_copy) {
        made.params.back() = at(layers_.front().params, spec::EmbeddingParam::tokens);
      }
    }
    for (const spec::StateTensor& tensor : spec::decode_state(model, layer)) {
      const Tensor own = arenas_->params.take(spec::own_state_spec(tensor, {}));
      ops::fill(*stream_, {.d = own});
      by_name_[spec::saved_name(tensor, spec::name_of_layer(model, layer))] = own;
      if (tensor.name == spec::router_bias_state) made.router_bias = own;
    }
    if (const auto* block =
            std::get_if<spec::BlockSpec>(&model.layers[static_cast<size_t>(layer)])) {
      made.cache = arenas_->cache.take(spec::decode_cache_spec(*block, plan));
    }
  }
  Arena& scratch = arenas_->scratch;
  const spec::DecodeTensors t = spec::decode_tensors(model, plan, backend);
  x_ = scratch.take(t.x);
  h_ = scratch.take(t.h);
  stats_ = scratch.take(t.stats);
  qkv_ = scratch.take(t.qkv);
  qk_rstd_ = take(scratch, t.qk_rstd);
  o_ = scratch.take(t.o);
  up_ = take(scratch, t.up);
  act_ = take(scratch, t.act);
  workspace_ = take(scratch, t.workspace);
  logits_ = scratch.take(t.logits);
  experts_ = std::make_unique<DecodeExperts>(
      scratch, spec::decode_expert_tensors(model, plan, backend), backend);
  if (const TensorSpec workspace = spec::stream_workspace_spec(backend);
      workspace.shape.ndim() > 0) {
    stream_->set_workspace(scratch.take(workspace));
  }
  rope_table_ = take(scratch, spec::rope_table_spec(model, plan.capacity));
  if (rope_table_) {
    const spec::BlockSpec& block = spec::typical_block(model);
    upload_floats(*stream_, {rope_table_.reshape({rope_table_.elements()})},
                  spec::rope_table(*block.rope, block.head_dim, plan.capacity));
  }
  inputs_ = arenas_->staging.take(spec::decode_inputs_spec(plan));
  host_inputs_ = std::make_unique<device::HostBuffer>(
      device.make_host_buffer(Mem::staging, inputs_.bytes(), "tokens to decode"));
  host_logits_ = std::make_unique<device::HostBuffer>(
      device.make_host_buffer(Mem::staging, logits_.bytes(), "logits"));
  stream_->synchronize();
}

Decoder::~Decoder() { stream_->synchronize(); }

void Decoder::write_weights(const std::string& name, std::span<const float> values) {
  const auto found = by_name_.find(name);
  TRIREME_CHECK(found != by_name_.end() && std::ssize(values) == found->second.elements(),
                "parameter {} with {} elements", name, values.size());
  upload_floats(*stream_, {found->second.reshape({found->second.elements()})}, values);
}

void Decoder::check_slot(int64_t slot) const {
  TRIREME_CHECK(slot >= 0 && slot < plan_.sequences, "slot {} of {}", slot, plan_.sequences);
}

void Decoder::set_row(int64_t row, const Row& values) {
  auto* host = reinterpret_cast<int32_t*>(host_inputs_->data());
  const int64_t stride = plan_.max_rows();
  host[tokens * stride + row] = values.token;
  host[positions * stride + row] = values.position;
  host[cache_rows * stride + row] = values.cache_row;
  host[first_cache_rows * stride + row] = values.first_row;
  host[lengths * stride + row] = values.length;
}

Tensor Decoder::input(int64_t which, int64_t rows) const {
  return device::view_of(inputs_.slice_rows(which, 1).data, {{rows}, DType::i32});
}

void Decoder::upload_rows() {
  stream_->upload(inputs_, {host_inputs_->data(), static_cast<size_t>(inputs_.bytes())});
}

void Decoder::prefill(int64_t slot, std::span<const int32_t> prompt) {
  check_slot(slot);
  const int64_t count = std::ssize(prompt);
  TRIREME_CHECK(count >= 1 && count <= plan_.capacity, "a prompt of {} tokens, at most {}", count,
                plan_.capacity);
  const int64_t first = slot * plan_.capacity;
  for (int64_t begin = 0; begin < count; begin += plan_.prompt_rows) {
    const int64_t rows = std::min(plan_.prompt_rows, count - begin);
    stream_->synchronize();  // the upload of the part before has read the host's memory
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t position = begin + r;
      set_row(r, {.token = prompt[static_cast<size_t>(position)],
                  .position = static_cast<int32_t>(position),
                  .cache_row = static_cast<int32_t>(first + position),
                  .first_row = static_cast<int32_t>(first),
                  .length = static_cast<int32_t>(position + 1)});
    }
    upload_rows();
    run_layers(rows, true);
    if (begin + rows == count) run_head(x_.slice_rows(rows - 1, 1), logits_.slice_rows(slot, 1));
  }
  lengths_[static_cast<size_t>(slot)] = count;
  download_logits(slot, slot, 1);
  stream_->synchronize();
}

void Decoder::step(std::span<const Next> next) {
  if (next.empty()) return;
  // A captured step has a row for every slot, and so has the first one, in which kernels are
  // loaded; otherwise rows without a token are left out.
  if (steps_ == 1) {
    graph_ = stream_->capture([this] { queue_step(plan_.sequences); });
  }
  const bool has_all_rows = graph_ != nullptr || steps_ == 0;
  ++steps_;
  const int64_t rows = has_all_rows ? plan_.sequences : std::ssize(next);
  if (has_all_rows) {
    for (int64_t r = 0; r < rows; ++r) set_row(r, {});
  }
  for (int64_t i = 0; i < std::ssize(next); ++i) {
    const auto& [slot, token] = next[static_cast<size_t>(i)];
    check_slot(slot);
    int64_t& length = lengths_[static_cast<size_t>(slot)];
    TRIREME_CHECK(length >= 1 && length < plan_.capacity, "slot {} has {} of {} tokens", slot,
                  length, plan_.capacity);
    const int64_t first = slot * plan_.capacity;
    set_row(has_all_rows ? slot : i, {.token = token,
                                      .position = static_cast<int32_t>(length),
                                      .cache_row = static_cast<int32_t>(first + length),
                                      .first_row = static_cast<int32_t>(first),
                                      .length = static_cast<int32_t>(length + 1)});
    ++length;
  }
  upload_rows();
  graph_ ? stream_->launch(*graph_) : queue_step(rows);
  if (has_all_rows && std::ssize(next) == rows) {
    download_logits(0, 0, rows);
  } else {
    for (int64_t i = 0; i < std::ssize(next); ++i) {
      const int64_t slot = next[static_cast<size_t>(i)].slot;
      download_logits(has_all_rows ? slot : i, slot, 1);
    }
  }
  stream_->synchronize();
}

void Decoder::queue_step(int64_t rows) {
  run_layers(rows, false);
  run_head(first_rows(x_, rows), first_rows(logits_, rows));
}

void Decoder::download_logits(int64_t row, int64_t slot, int64_t count) {
  const int64_t row_bytes = logits_.cols() * 4;
  stream_->download(
      {host_logits_->data() + slot * row_bytes, static_cast<size_t>(count * row_bytes)},
      logits_.slice_rows(row, count));
}

std::span<const float> Decoder::logits(int64_t slot) const {
  check_slot(slot);
  TRIREME_CHECK(length(slot) > 0, "slot {} is empty", slot);
  const auto* values = reinterpret_cast<const float*>(host_logits_->data());
  return {values + slot * logits_.cols(), static_cast<size_t>(logits_.cols())};
}

void Decoder::run_layers(int64_t rows, bool is_prompt) {
  const std::vector<Tensor>& embedding = layers_.front().params;
  ops::embedding_forward(*stream_,
                         {.tokens = input(tokens, rows),
                          .positions = input(positions, rows),
                          .table = at(embedding, spec::EmbeddingParam::tokens),
                          .position_table = at(embedding, spec::EmbeddingParam::positions),
                          .y = first_rows(x_, rows)});
  for (size_t layer = 1; layer + 1 < layers_.size(); ++layer) {
    run_block(std::get<spec::BlockSpec>(model_.layers[layer]), layers_[layer], rows, is_prompt);
  }
}

void Decoder::run_block(const spec::BlockSpec& spec, const Layer& layer, int64_t rows,
                        bool is_prompt) {
  const auto param = [&layer](BlockParam p) { return at(layer.params, p); };
  const Tensor x = first_rows(x_, rows), h = first_rows(h_, rows), qkv = first_rows(qkv_, rows),
               o = first_rows(o_, rows);
  const int64_t K = spec.head_dim;
  const auto norm = [&](BlockParam weight, BlockParam bias) {
    ops::norm_forward(*stream_, {.kind = spec.norm,
                                 .eps = spec.norm_eps,
                                 .x = x,
                                 .weight = param(weight),
                                 .bias = param(bias),
                                 .y = h,
                                 .stats = first_rows(stats_, rows)});
  };
  norm(BlockParam::norm1_weight, BlockParam::norm1_bias);
  multiply(*stream_,
           {.x = h,
            .weight = param(BlockParam::qkv_weight),
            .bias = param(BlockParam::qkv_bias),
            .y = qkv},
           is_prompt);
  if (spec.rope) rotate(spec, layer, qkv);
  ops::scatter_rows(*stream_, {.x = qkv.slice_cols(spec.heads * K, 2 * spec.kv_heads * K),
                               .rows = input(cache_rows, rows),
                               .d = layer.cache.as_matrix()});
  ops::attention_cached(*stream_, {.q = qkv.slice_heads(0, spec.heads, K),
                                   .cache = layer.cache,
                                   .first_rows = input(first_cache_rows, rows),
                                   .lengths = input(lengths, rows),
                                   .max_length = plan_.capacity,
                                   .scale = 1.0F / std::sqrt(static_cast<float>(K)),
                                   .o = o.slice_heads(0, spec.heads, K),
                                   .workspace = workspace_});
  multiply(*stream_,
           {.x = o,
            .weight = param(BlockParam::out_weight),
            .bias = param(BlockParam::out_bias),
            .residual = x,
            .y = x},
           is_prompt);
  norm(BlockParam::norm2_weight, BlockParam::norm2_bias);
  if (!spec.moe) {
    run_feed_forward(spec, layer, x, is_prompt);
  } else {
    run_experts(*spec.moe, layer, x, is_prompt);
  }
}

void Decoder::run_feed_forward(const spec::BlockSpec& spec, const Layer& layer, Tensor x,
                               bool is_prompt) {
  const auto param = [&layer](BlockParam p) { return at(layer.params, p); };
  const Tensor up = matrix(up_, x.rows(), spec.up_width()), act = matrix(act_, x.rows(), spec.ffn);
  multiply(*stream_,
           {.x = first_rows(h_, x.rows()),
            .weight = param(BlockParam::up_weight),
            .bias = param(BlockParam::up_bias),
            .y = up},
           is_prompt);
  if (spec.activation == spec::Activation::gelu) {
    ops::gelu_forward(*stream_, {.x = up, .y = act});
  } else {
    ops::swiglu_forward(*stream_, {.gate_up = up, .y = act});
  }
  multiply(*stream_,
           {.x = act,
            .weight = param(BlockParam::down_weight),
            .bias = param(BlockParam::down_bias),
            .residual = x,
            .y = x},
           is_prompt);
}

void Decoder::run_experts(const spec::MoeSpec& moe, const Layer& layer, Tensor x, bool is_prompt) {
  const auto param = [&layer](BlockParam p) { return at(layer.params, p); };
  const Tensor h = first_rows(h_, x.rows());
  experts_->run(
      *stream_, moe,
      {.params = layer.params, .bias = layer.router_bias, .h = h, .is_prompt = is_prompt});
  if (moe.shared_ffn == 0) {
    experts_->add(*stream_, {}, x);
    return;
  }
  const Tensor up = matrix(up_, x.rows(), 2 * moe.shared_ffn),
               act = matrix(act_, x.rows(), moe.shared_ffn);
  multiply(*stream_, {.x = h, .weight = param(BlockParam::shared_up_weight), .y = up}, is_prompt);
  ops::swiglu_forward(*stream_, {.gate_up = up, .y = act});
  multiply(*stream_, {.x = act, .weight = param(BlockParam::shared_down_weight), .y = h},
           is_prompt);
  experts_->add(*stream_, h, x);
}

void Decoder::rotate(const spec::BlockSpec& spec, const Layer& layer, Tensor qkv) {
  const int64_t rows = qkv.rows(), q = spec.heads * spec.head_dim,
                k = spec.kv_heads * spec.head_dim;
  const Tensor rstd = first_rows(qk_rstd_, rows);
  const auto norm = [&](int64_t first, int64_t width, BlockParam weight) {
    const Tensor columns = qkv.slice_cols(first, width);
    const Tensor normed = first_rows(o_, rows).slice_cols(0, width);  // o is not used yet
    ops::norm_forward(*stream_, {.kind = spec::NormKind::rms,
                                 .eps = spec.qk_norm_eps,
                                 .x = columns,
                                 .weight = at(layer.params, weight),
                                 .y = normed,
                                 .stats = rstd});
    ops::copy(*stream_, {.x = normed, .d = columns});
  };
  if (spec.qk_norm_whole) {
    norm(0, q, BlockParam::q_norm);
    norm(q, k, BlockParam::k_norm);
  }
  if (spec.clip_qkv > 0) ops::clamp(*stream_, {.x = qkv, .limit = spec.clip_qkv, .y = qkv});
  const Tensor heads = qkv.slice_heads(0, spec.heads + spec.kv_heads, spec.head_dim);
  kernels::RopeForwardArgs args{.x = heads,
                                .y = heads,
                                .positions = input(positions, rows),
                                .table = rope_table_,
                                .q_heads = spec.heads,
                                .eps = spec.qk_norm_eps};
  if (spec.qk_norm && !spec.qk_norm_whole) {
    args.q_weight = at(layer.params, BlockParam::q_norm);
    args.k_weight = at(layer.params, BlockParam::k_norm);
    args.rstd = rstd;
  }
  ops::rope_forward(*stream_, args);
}

void Decoder::run_head(Tensor x, Tensor logits) {
  const auto& spec = std::get<spec::HeadSpec>(model_.layers.back());
  const std::vector<Tensor>& params = layers_.back().params;
  const Tensor h = first_rows(h_, x.rows());
  ops::norm_forward(*stream_, {.kind = spec.norm,
                               .eps = spec.norm_eps,
                               .x = x,
                               .weight = at(params, spec::HeadParam::norm_weight),
                               .bias = at(params, spec::HeadParam::norm_bias),
                               .y = h,
                               .stats = first_rows(stats_, x.rows())});
  ops::row_product(*stream_, {.x = h, .weight = at(params, spec::HeadParam::weight), .y = logits});
}

spec::DecodeMemory Decoder::measured() const {
  return {.params = arenas_->params.high_water(),
          .cache = arenas_->cache.high_water(),
          .scratch = arenas_->scratch.high_water(),
          .staging = arenas_->staging.high_water()};
}

}  // namespace trireme::engine
