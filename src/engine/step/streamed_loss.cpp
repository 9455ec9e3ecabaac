// SPDX-License-Identifier: Apache-2.0
#include "engine/step/streamed_loss.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "device/memory.h"
#include "engine/state/host_floats.h"
#include "kernels/ops.h"
#include "nn/block.h"
#include "spec/facts/facts.h"
#include "spec/facts/rope.h"

namespace trireme::engine {
namespace {

namespace ops = kernels::ops;
using base::DType;
using base::TensorSpec;
using device::Arena;
using device::Mem;
using device::Tensor;

// Tensors with their own memory; an empty shape gives an absent tensor.
struct Tensors {
  Arena arena;
  std::vector<Tensor> views;

  Tensor operator[](size_t index) const { return views[index]; }
};

Tensors allocate(device::Device& device, Mem mem, std::span<const TensorSpec> specs,
                 std::string_view what) {
  const auto take_all = [&](Arena& arena) {
    std::vector<Tensor> views;
    for (const TensorSpec& spec : specs) {
      views.push_back(spec.shape.ndim() == 0 ? Tensor{} : arena.take(spec));
    }
    return views;
  };
  Arena measured = Arena::measuring();
  take_all(measured);
  Tensors made{Arena(device::Buffer(device, mem, measured.high_water(), what)), {}};
  made.views = take_all(made.arena);
  return made;
}

TensorSpec spec_of(const spec::Param& param) {
  const std::vector<int64_t>& shape = param.shard.shape;
  if (shape.empty()) return {};
  if (shape.size() == 3) return {{shape[0], shape[1], shape[2]}, DType::f32};
  return {shape.size() == 2 ? base::Shape{shape[0], shape[1]} : base::Shape{shape[0]}, DType::f32};
}

// Returns the slots that a block writes in its forward; the caller provides x.
std::vector<TensorSpec> slots_of(const spec::Facts& facts) {
  std::vector<TensorSpec> specs;
  for (const spec::Slot& slot : facts.stash) {
    const bool is_unused = slot.life == spec::Life::b_to_w || slot.backward_only;
    specs.push_back(is_unused ? TensorSpec{} : slot.spec);
  }
  specs[spec::slot_x] = {};
  return specs;
}

int64_t scratch_of(const spec::Facts& facts) {
  int64_t bytes = 0;
  for (const spec::ScratchSet& set : facts.scratch) {
    if (set.in_forward) bytes = std::max(bytes, spec::bytes_of(set));
  }
  return bytes;
}

class Forward {
 public:
  Forward(device::Device& device, const spec::ModelSpec& model, std::span<const int32_t> tokens,
          const ReadWeights& read, const StreamedLossOptions& options)
      : device_(device),
        model_(model),
        tokens_(tokens),
        read_(read),
        window_elements_(options.window_elements),
        count_(std::ssize(tokens) - 1),
        width_(std::get<spec::EmbeddingSpec>(model.layers.front()).width),
        recipe_(spec::recipe_from_name("fp32")),
        compute_(device.make_stream("streamed loss")),
        ids_(allocate(
            device, Mem::stash,
            std::vector<TensorSpec>{
                {{count_}, DType::i32}, {{count_}, DType::i32}, {{count_ + 1}, DType::i32}},
            "ids")),
        between_(allocate(
            device, Mem::stash,
            std::vector<TensorSpec>{{{count_, width_}, DType::f32}, {{count_, width_}, DType::f32}},
            "between layers")) {
    std::vector<int32_t> offsets(static_cast<size_t>(count_ + 1), static_cast<int32_t>(count_));
    offsets.front() = 0;
    std::vector<int32_t> places(static_cast<size_t>(count_));
    std::iota(places.begin(), places.end(), 0);
    compute_->upload(ids_[labels], std::as_bytes(tokens.subspan(1)));
    compute_->upload(ids_[positions], std::as_bytes(std::span(places)));
    compute_->upload(ids_[seq_offsets], std::as_bytes(std::span(offsets)));
    compute_->synchronize();
  }

  std::vector<float> losses() {
    embed(between_[0]);
    for (int b = 0; b < model_.blocks(); ++b) {
      const auto from = static_cast<size_t>(b % 2);
      block(b + 1, between_[from], between_[1 - from]);
    }
    return head(between_[static_cast<size_t>(model_.blocks() % 2)]);
  }

 private:
  enum : size_t { labels, positions, seq_offsets };  // of ids_

  void read_rows(const spec::Param& param, int64_t first, Tensor to) {
    compute_->synchronize();  // no queued work reads the old contents of `to`
    spec::Piece box{std::vector<int64_t>(param.shard.shape.size()), param.shard.shape, 0};
    box.lo[0] = first;
    box.hi[0] = first + to.rows();
    read_(param.shard.name, box,
          {reinterpret_cast<float*>(to.data), static_cast<size_t>(to.elements())});
  }

  // Reads parameters [begin, end); the others are absent.
  Tensors load(const std::vector<spec::Param>& params, size_t begin, size_t end) {
    std::vector<TensorSpec> specs(params.size());
    for (size_t i = begin; i < end; ++i) specs[i] = spec_of(params[i]);
    Tensors made = allocate(device_, Mem::params, specs, "weights of half a block");
    for (size_t i = begin; i < end; ++i) {
      if (!made[i]) continue;
      const int64_t rows = rows_at_once(made[i].cols());
      for (int64_t first = 0; first < made[i].rows(); first += rows) {
        const int64_t here = std::min(rows, made[i].rows() - first);
        read_rows(params[i], first, made[i].slice_rows(first, here));
      }
    }
    return made;
  }

  // Row t of the local table is the embedding of token t, so only rows that a token needs are read
  // and kept.
  void embed(Tensor y) {
    const std::vector<spec::Param> params = spec::params_of(model_, 0);
    const spec::Param& table = params[static_cast<size_t>(spec::EmbeddingParam::tokens)];
    const spec::Param& learned = params[static_cast<size_t>(spec::EmbeddingParam::positions)];
    const TensorSpec rows{{count_, width_}, DType::f32};
    const bool has_learned = !learned.shard.shape.empty();
    const Tensors tables =
        allocate(device_, Mem::params,
                 std::vector<TensorSpec>{rows, has_learned ? rows : TensorSpec{}}, "embedding");
    for (int64_t t = 0; t < count_; ++t) {
      read_rows(table, tokens_[static_cast<size_t>(t)], tables[0].slice_rows(t, 1));
    }
    if (has_learned) read_rows(learned, 0, tables[1]);
    ops::embedding_forward(*compute_, {.tokens = ids_[positions],
                                       .positions = ids_[positions],
                                       .table = tables[0],
                                       .position_table = tables[1],
                                       .y = y});
    compute_->synchronize();
  }

  void block(int layer, Tensor x, Tensor y) {
    const auto& block_spec = std::get<spec::BlockSpec>(model_.layers[static_cast<size_t>(layer)]);
    const spec::LocalShape shape{
        .tokens = count_, .seq_len = count_, .head_chunk_rows = count_, .mesh = {}};
    const spec::Facts facts =
        spec::facts(model_, layer, shape, recipe_, spec::Recompute::none, spec::cpu_backend());
    std::vector<TensorSpec> specs = slots_of(facts);
    if (block_spec.rope) specs.push_back({{count_, block_spec.head_dim}, DType::f32});
    Tensors slots = allocate(device_, Mem::stash, specs, "slots of a block");
    Tensor rope_table;
    if (block_spec.rope) {
      rope_table = slots.views.back();
      slots.views.pop_back();
      upload_floats(*compute_, {rope_table},
                    spec::rope_table(*block_spec.rope, block_spec.head_dim, count_));
    }
    slots.views[spec::slot_x] = x;
    Arena scratch(device::Buffer(device_, Mem::scratch, scratch_of(facts), "scratch of a block"));
    std::vector<uint8_t> taken(facts.stash.size());
    const std::vector<spec::Fate> fates(facts.stash.size(), spec::Fate::kept);
    nn::Stash stash(slots.views, taken, fates);
    nn::StepSink none;
    const nn::Block block(block_spec, shape, spec::cpu_backend(), nn::Boundaries());
    // The parameters of the second phase begin with the second norm.
    const auto cut = static_cast<size_t>(spec::BlockParam::norm2_weight);
    for (const int phase : {nn::Block::attention, nn::Block::feed_forward}) {
      const bool is_first = phase == nn::Block::attention;
      const Tensors weights =
          load(facts.params, is_first ? 0 : cut, is_first ? cut : facts.params.size());
      nn::Pass pass{.stream = *compute_,
                    .params = weights.views,
                    .grads = {},
                    .stash = stash,
                    .scratch = scratch,
                    .recipe = recipe_,
                    .x = x,
                    .y = y,
                    .evaluating = true,
                    .tokens = {},
                    .labels = ids_[labels],
                    .positions = ids_[positions],
                    .seq_offsets = ids_[seq_offsets],
                    .max_seq = count_,
                    .rope_table = rope_table,
                    .sink = none};
      block.forward(pass, phase);
      compute_->synchronize();
    }
  }

  // Computes the statistics of each range of the vocabulary, as a rank along tp does for its
  // columns, and merges them.
  std::vector<float> head(Tensor x) {
    const auto& head_spec = std::get<spec::HeadSpec>(model_.layers.back());
    const std::vector<spec::Param> params =
        spec::params_of(model_, static_cast<int>(model_.layers.size()) - 1);
    const spec::Param& weight = params[static_cast<size_t>(spec::HeadParam::weight)];
    const Tensors norm = load(params, 0, static_cast<size_t>(spec::HeadParam::weight));
    const int64_t columns = std::min({head_spec.vocab, rows_at_once(width_), rows_at_once(count_)});
    const int64_t parts = (head_spec.vocab + columns - 1) / columns;
    enum : size_t { h, norm_stats, all_stats, stats, losses, sums, logits };
    const Tensors own =
        allocate(device_, Mem::scratch,
                 std::vector<TensorSpec>{{{count_, width_}, DType::f32},
                                         {{count_, spec::norm_stats(head_spec.norm)}, DType::f32},
                                         {{parts * count_, 3}, DType::f32},
                                         {{count_, 3}, DType::f32},
                                         {{count_}, DType::f32},
                                         {{spec::step_sums_bytes}, DType::u8},
                                         {{count_ * columns}, DType::f32}},
                 "head");
    const Tensors rows =
        allocate(device_, Mem::params, std::vector<TensorSpec>{{{columns, width_}, DType::f32}},
                 "rows of the head");
    ops::norm_forward(*compute_, {.kind = head_spec.norm,
                                  .eps = head_spec.norm_eps,
                                  .x = x,
                                  .weight = norm[static_cast<size_t>(spec::HeadParam::norm_weight)],
                                  .bias = norm[static_cast<size_t>(spec::HeadParam::norm_bias)],
                                  .y = own[h],
                                  .stats = own[norm_stats]});
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t first = part * columns, n = std::min(columns, head_spec.vocab - first);
      read_rows(weight, first, rows[0].slice_rows(0, n));
      const Tensor y = own[logits].slice_rows(0, count_ * n).reshape({count_, n});
      ops::gemm(*compute_, {.a = own[h], .b = rows[0].slice_rows(0, n), .d = y, .trans_b = true});
      ops::cross_entropy_stats(*compute_,
                               {.logits = y,
                                .labels = ids_[labels],
                                .stats = own[all_stats].slice_rows(part * count_, count_),
                                .first_column = first});
    }
    ops::cross_entropy_merge(*compute_, {.parts = own[all_stats], .stats = own[stats]});
    ops::fill(*compute_, {.d = own[sums]});
    ops::cross_entropy_grad(*compute_,
                            {.logits = own[logits].slice_rows(0, count_).reshape({count_, 1}),
                             .stats = own[stats],
                             .labels = ids_[labels],
                             .sums = own[sums],
                             .token_losses = own[losses],
                             .loss_only = true});
    return download_floats(*compute_, {own[losses]});
  }

  int64_t rows_at_once(int64_t columns) const {
    return std::max<int64_t>(1, window_elements_ / columns);
  }

  device::Device& device_;
  const spec::ModelSpec& model_;
  std::span<const int32_t> tokens_;
  const ReadWeights& read_;
  const int64_t window_elements_, count_, width_;
  const spec::Recipe recipe_;
  std::unique_ptr<device::Stream> compute_;
  Tensors ids_, between_;
};

}  // namespace

std::vector<float> streamed_losses(device::Device& device, const spec::ModelSpec& model,
                                   std::span<const int32_t> tokens, const ReadWeights& read,
                                   const StreamedLossOptions& options) {
  TRIREME_CHECK(tokens.size() >= 2 && std::ssize(tokens) <= model.max_seq + 1,
                "{} tokens: must be from 2 to max_seq + 1, max_seq is {}", tokens.size(),
                model.max_seq);
  for (int layer = 0; layer < static_cast<int>(model.layers.size()); ++layer) {
    const auto state = spec::state_of(model, layer, {}, spec::recipe_from_name("fp32"));
    TRIREME_CHECK(spec::inference_state(state).empty(), "{} reads own tensors",
                  spec::name_of_layer(model, layer));
  }
  return Forward(device, model, tokens, read, options).losses();
}

}  // namespace trireme::engine
