// SPDX-License-Identifier: Apache-2.0
// Audit of facts(): every op that a layer sends to the null device, with its shape, FLOPs and
// bytes, is in the facts at the same place.
#include <gtest/gtest.h>

#include <numeric>
#include <tuple>

#include "kernels/ops.h"
#include "nn/boundaries.h"
#include "nn/layer.h"
#include "spec/experts/expert_rows.h"
#include "spec/facts/facts.h"
#include "spec/facts/rope.h"
#include "tests/engine/rig.h"

namespace trireme::tests {
namespace {

using spec::OpCost;
using spec::Recompute;

class Recorder final : public kernels::OpObserver {
 public:
  void op(const device::Stream&, const OpCost& cost) override { costs_.push_back(cost); }
  std::vector<OpCost> take() { return std::exchange(costs_, {}); }

 private:
  std::vector<OpCost> costs_;
};

// The first of several ranks, without the others: calls are only checked and counted.
class SilentGroup final : public comm::Communicator {
 public:
  SilentGroup(int ranks, comm::FlightRecorder& recorder)
      : Communicator(0, first(ranks), {.name = "tp", .fixed_order = false}, recorder) {}
  void abort(const std::string& /*reason*/) noexcept override {}

 private:
  using Stream = device::Stream;
  using Tensor = device::Tensor;
  using ConstTensor = device::ConstTensor;

  static std::vector<int> first(int ranks) {
    std::vector<int> all(static_cast<size_t>(ranks));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  void do_all_gather(Stream&, Tensor, ConstTensor) override {}
  void do_exchange(Stream&, Tensor, const std::byte*, int64_t, int64_t,
                   std::span<const int>) override {}
  void do_shift(Stream&, Tensor, ConstTensor) override {}
  void do_broadcast(Stream&, Tensor, int) override {}
  void do_send(Stream&, ConstTensor, int) override {}
  void do_recv(Stream&, Tensor, int) override {}
  void do_barrier() override {}
  std::unique_ptr<Communicator> do_split(int, int, Options) override { return nullptr; }
  std::vector<std::string> do_gather_texts(const std::string& text) override { return {text}; }
  bool do_all_reduce(Stream&, Tensor, comm::Reduce) override { return true; }
  bool do_reduce_scatter(Stream&, Tensor, ConstTensor) override { return true; }
};

void expect_ops(const std::vector<OpCost>& facts, const std::vector<OpCost>& recorded,
                const std::string& what) {
  ASSERT_EQ(facts.size(), recorded.size()) << what;
  for (size_t i = 0; i < facts.size(); ++i) {
    EXPECT_EQ(facts[i], recorded[i])
        << what << ", op " << i << "\n  facts:    " << spec::to_string(facts[i])
        << "\n  recorded: " << spec::to_string(recorded[i]);
  }
}

// Runs one layer alone on the null device, with tensors of the shapes in its facts.
void audit(const spec::ModelSpec& model, int index, const spec::LocalShape& shape,
           const spec::Recipe& recipe, Recompute recompute) {
  const spec::Backend backend;
  const spec::Facts facts = spec::facts(model, index, shape, recipe, recompute, backend);
  const int ranks = shape.mesh[spec::Axis::tp];
  comm::FlightRecorder flight(0);
  SilentGroup group(ranks, flight);
  const spec::ContextSplit split = shape.context();
  SilentGroup ulysses(split.ulysses, flight), groups(split.groups, flight);
  const int row_ranks = shape.mesh[spec::Axis::cp] * ranks;
  SilentGroup ep(shape.mesh[spec::Axis::ep], flight), etp(shape.mesh[spec::Axis::etp], flight);
  SilentGroup other_rows(row_ranks, flight), step(row_ranks * shape.mesh[spec::Axis::dp], flight);
  device::NullDevice device(kernels::null_kernels());
  const auto stream = device.make_stream("compute"), side = device.make_stream("side");
  const auto layer = nn::make_layer(
      model.layers[static_cast<size_t>(index)], shape, backend,
      {{ranks > 1 ? &group : nullptr, shape.sequence_parallel},
       {split.ulysses > 1 ? &ulysses : nullptr, split.groups > 1 ? &groups : nullptr, side.get()},
       {ep.size() > 1 ? &ep : nullptr, etp.size() > 1 ? &etp : nullptr,
        other_rows.size() > 1 ? &other_rows : nullptr, step.size() > 1 ? &step : nullptr}});

  Recorder recorder;
  stream->set_observer(&recorder);

  device::Arena arena = device::Arena::measuring();
  std::vector<device::Tensor> params, grads, slots, scales;
  for (const spec::Param& param : facts.params) {
    const auto dims = param.shard.shape.empty() ? std::vector<int64_t>{}
                                                : spec::local_shape(param.shard, shape.mesh);
    const base::Shape local = dims.empty()       ? base::Shape{}
                              : dims.size() == 1 ? base::Shape{dims[0]}
                              : dims.size() == 2 ? base::Shape{dims[0], dims[1]}
                                                 : base::Shape{dims[0], dims[1], dims[2]};
    const bool has_codes = recipe.fp8 && param.is_matrix;
    params.push_back(dims.empty() ? device::Tensor{}
                                  : arena.take({local, has_codes ? recipe.format(spec::Role::w_fwd)
                                                                 : recipe.storage}));
    if (has_codes && dims.size() == 3) {  // one matrix after the other
      const base::TensorSpec one = spec::scale_spec(recipe.fp8->weights, dims[1], dims[2]);
      scales.push_back(arena.take({{dims[0] * one.shape.elements()}, one.dtype}));
    } else {
      scales.push_back(has_codes && !dims.empty()
                           ? arena.take(spec::scale_spec(recipe.fp8->weights, dims[0], dims[1]))
                           : device::Tensor{});
    }
    grads.push_back(dims.empty() ? device::Tensor{} : arena.take({local, recipe.grad}));
  }
  std::vector<device::Tensor> state;
  for (const spec::StateTensor& tensor : facts.state) {
    if (tensor.is_own()) state.push_back(arena.take({{tensor.shard.shape[0]}, base::DType::f32}));
  }
  std::vector<uint8_t> taken(facts.stash.size());
  std::vector<spec::Fate> fates(facts.stash.size());
  for (size_t i = 0; i < facts.stash.size(); ++i) {
    const spec::Slot& slot = facts.stash[i];
    slots.push_back(slot.spec.shape.ndim() == 0 ? device::Tensor{} : arena.take(slot.spec));
    fates[i] = spec::fate_of(slot, static_cast<int>(i), recompute);
  }
  const auto ids = [&](int64_t n) { return arena.take({{n}, base::DType::i32}); };
  const int64_t width = std::get<spec::EmbeddingSpec>(model.layers.front()).width;
  const base::TensorSpec stream_spec{{shape.rows(), width}, recipe.storage};
  nn::StepSink sink{.sums = arena.take({{spec::step_sums_bytes}, base::DType::u8})};
  nn::Stash stash(slots, taken, fates);
  nn::Pass pass{.stream = *stream,
                .params = params,
                .grads = grads,
                .state = state,
                .scales = scales,
                .delayed_amax = arena.take({{spec::quantized_count}, base::DType::f32}),
                .stash = stash,
                .scratch = arena,
                .recipe = recipe,
                .x = slots[spec::slot_x],
                .y = arena.take(stream_spec),
                .dy = slots[spec::slot_dy],
                .dx = arena.take(stream_spec),
                .tokens = ids(shape.tokens),
                .labels = ids(shape.tokens),
                .positions = ids(shape.tokens),
                .seq_offsets = ids(split.tokens() + 1),
                .sequences = shape.sequences,
                .max_seq = shape.seq_len,
                .context_keys = {.begin = ids(split.key_sources() * split.group_tokens()),
                                 .end = ids(split.key_sources() * split.group_tokens()),
                                 .order = ids(split.tokens()),
                                 .chunks = {}},
                .sink = sink};
  const base::TensorSpec rope = spec::rope_table_spec(model, shape.seq_len);
  if (rope.shape.ndim() > 0) pass.rope_table = arena.take(rope);

  const int64_t before_scratch = arena.used();
  const std::string what =
      fmt::format("{} layer {} {} {} tp {}{} cp {}x{}{} ffn_rows {} ep {} etp {}", model.name,
                  index, recipe.name, spec::name_of(recompute), ranks,
                  shape.sequence_parallel ? " sp" : "", split.ulysses, split.groups,
                  split.is_ring ? " ring" : "", shape.ffn_rows, ep.size(), etp.size());
  int64_t sent = 0, sent_along_cp = 0, sent_to_experts = 0;
  const auto expect_sent = [&](const std::vector<spec::CommCost>& costs, const char* phase) {
    sent += spec::sent_bytes(costs, spec::Axis::tp, shape.mesh);
    EXPECT_EQ(group.traffic().bytes, sent) << what << " " << phase;
    sent_along_cp += spec::sent_bytes(costs, spec::Axis::cp, shape.mesh);
    EXPECT_EQ(ulysses.traffic().bytes + groups.traffic().bytes, sent_along_cp)
        << what << " " << phase;
    for (const spec::CommCost& cost : costs) {
      if (cost.axis != spec::Axis::ep && cost.axis != spec::Axis::etp) continue;
      // Loads are small tensors, which a silent group sums as large ones.
      const int64_t bytes = cost.elements * base::size_of(cost.dtype);
      sent_to_experts += cost.kind == spec::CommKind::all_reduce
                             ? 2 * (cost.ranks - 1) * bytes / cost.ranks
                             : spec::sent_bytes({cost}, cost.axis, shape.mesh);
    }
    EXPECT_EQ(ep.traffic().bytes + etp.traffic().bytes + other_rows.traffic().bytes +
                  step.traffic().bytes,
              sent_to_experts)
        << what << " " << phase;
  };
  for (int phase = 0; phase < layer->phases(); ++phase) layer->forward(pass, phase);
  expect_ops(facts.f, recorder.take(), what + " F");
  expect_sent(facts.f_comm, "F");
  pass.recomputing = true;
  if (recompute != Recompute::none) {
    for (int phase = 0; phase < layer->phases(); ++phase) layer->forward(pass, phase);
  }
  expect_ops(facts.r, recorder.take(), what + " R");
  expect_sent(recompute == Recompute::none ? std::vector<spec::CommCost>{} : facts.r_comm, "R");
  pass.recomputing = false;
  for (int phase = layer->phases() - 1; phase >= 0; --phase) layer->backward_input(pass, phase);
  expect_ops(facts.b, recorder.take(), what + " B");
  expect_sent(facts.b_comm, "B");
  layer->backward_weight(pass);
  expect_ops(facts.w, recorder.take(), what + " W");
  expect_sent(facts.w_comm, "W");

  int64_t predicted_scratch = 0;
  for (const spec::ScratchSet& set : facts.scratch) {
    predicted_scratch = std::max(predicted_scratch, spec::bytes_of(set));
  }
  EXPECT_EQ(arena.high_water() - before_scratch, predicted_scratch) << what;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (!slots[i] || static_cast<int>(i) == spec::slot_x || static_cast<int>(i) == spec::slot_dy) {
      continue;
    }
    EXPECT_EQ(taken[i], 1) << what << ": slot '" << facts.stash[i].name << "' was never used";
  }
}

TEST(AuditTest, facts_are_what_layers_send) {
  for (const spec::ModelDims& dims : {tiny_gpt2(), tiny_llama(), tiny_qwen3(), tiny_whole_norm(),
                                      tiny_clipped(), tiny_moe(), tiny_shared_moe()}) {
    const spec::ModelSpec model = spec::make_model(dims);
    for (const char* recipe_name : {"fp32", "bf16"}) {
      for (const base::DType grad : {base::DType::f32, base::DType::bf16}) {
        spec::Recipe recipe = spec::recipe_from_name(recipe_name);
        recipe.grad = grad;
        for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
          for (const int64_t chunk : {5, 13, 26, 100}) {
            const spec::LocalShape shape{
                .tokens = 26, .sequences = 2, .seq_len = 13, .head_chunk_rows = chunk};
            for (int layer = 0; layer < static_cast<int>(model.layers.size()); ++layer) {
              const bool is_block = layer > 0 && layer + 1 < static_cast<int>(model.layers.size());
              audit(model, layer, shape, recipe, is_block ? recompute : Recompute::none);
            }
          }
        }
      }
    }
  }
}

// Sizes that products in 8 bits with one scale a tensor, or with scales of 128 values, support.
spec::ModelDims sized(spec::ModelDims dims, int64_t size) {
  dims.hidden = 2 * size;
  dims.heads = dims.kv_heads = 4;
  dims.head_dim = size / 2;
  dims.ffn = 3 * size;
  return dims;
}

TEST(AuditTest, facts_of_products_in_8_bits_are_what_layers_send) {
  for (const char* name : {"fp8-tensor", "fp8-block", "fp8-delayed"}) {
    const int64_t size = std::string(name) == "fp8-block" ? 256 : 32;
    for (const spec::ModelDims& base :
         {tiny_gpt2(), tiny_llama(), tiny_qwen3(), tiny_whole_norm(), tiny_clipped()}) {
      const spec::ModelSpec model = spec::make_model(sized(base, size));
      for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
        for (const int tp : {1, 2}) {
          for (const bool sequence_parallel : {false, true}) {
            if (tp == 1 ? sequence_parallel : base.qk_norm_whole) continue;
            spec::LocalShape shape{.tokens = 2 * size, .sequences = 2, .seq_len = size};
            shape.mesh[spec::Axis::tp] = tp;
            shape.sequence_parallel = sequence_parallel;
            shape.head_chunk_rows = 16;
            audit(model, 1, shape, spec::recipe_from_name(name), recompute);
          }
        }
      }
    }
  }
}

TEST(AuditTest, facts_along_tp_are_what_layers_send) {
  for (spec::ModelDims dims : {tiny_gpt2(), tiny_llama(), tiny_qwen3()}) {
    dims.hidden = 512;  // so that the stream is not summed as a small tensor
    dims.heads = dims.kv_heads = 4;
    dims.head_dim = 8;
    dims.ffn = 24;
    const spec::ModelSpec model = spec::make_model(dims);
    for (const int tp : {2, 4}) {
      for (const bool sequence_parallel : {false, true}) {
        for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
          spec::LocalShape shape{.tokens = 48, .sequences = 4, .seq_len = 12};
          shape.mesh[spec::Axis::tp] = tp;
          shape.sequence_parallel = sequence_parallel;
          shape.head_chunk_rows = sequence_parallel ? 5 : 16;
          for (int layer = 0; layer < static_cast<int>(model.layers.size()); ++layer) {
            const bool is_block = layer > 0 && layer + 1 < static_cast<int>(model.layers.size());
            audit(model, layer, shape, spec::recipe_from_name("bf16"),
                  is_block ? recompute : Recompute::none);
          }
        }
      }
    }
  }
}

TEST(AuditTest, facts_along_cp_are_what_layers_send) {
  for (spec::ModelDims dims :
       {tiny_gpt2(), tiny_llama(), tiny_qwen3(), tiny_whole_norm(), tiny_clipped()}) {
    dims.hidden = 64;
    dims.heads = 8;
    dims.kv_heads = dims.family == spec::Family::gpt2 ? 8 : 4;
    dims.head_dim = 8;
    dims.ffn = 24;
    const spec::ModelSpec model = spec::make_model(dims);
    for (const auto& [ulysses, groups, is_ring] : {std::tuple{2, 1, false},
                                                   {8, 1, false},
                                                   {1, 2, false},
                                                   {1, 4, true},
                                                   {2, 2, false},
                                                   {4, 2, true}}) {
      for (const int tp : {1, 2}) {
        if (tp * ulysses > 8) continue;
        if (tp > 1 && dims.qk_norm_whole) continue;  // a rule refuses it
        for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
          spec::LocalShape shape{.tokens = 64 / (ulysses * groups),
                                 .sequences = 2,
                                 .seq_len = 32,
                                 .head_chunk_rows = 5};
          shape.mesh[spec::Axis::tp] = tp;
          shape.mesh[spec::Axis::cp] = ulysses * groups;
          shape.ulysses = ulysses;
          shape.is_ring = is_ring;
          shape.sequence_parallel = tp > 1;
          for (const char* recipe : {"fp32", "bf16"}) {
            audit(model, 1, shape, spec::recipe_from_name(recipe), recompute);
          }
        }
      }
    }
  }
}

TEST(AuditTest, facts_of_experts_are_what_blocks_send) {
  for (spec::ModelDims dims : {tiny_moe(), tiny_shared_moe()}) {
    dims.hidden = 64;
    dims.heads = 8;
    dims.kv_heads = 4;
    dims.moe->router.experts = 8;
    for (const spec::AuxScope scope :
         {spec::AuxScope::sequence, spec::AuxScope::micro_batch, spec::AuxScope::global}) {
      dims.moe->balance.scope = scope;
      const spec::ModelSpec model = spec::make_model(dims);
      for (const auto& [ep, etp, tp, cp, dp] : {std::tuple{2, 1, 1, 1, 2},
                                                {8, 1, 2, 4, 1},
                                                {1, 2, 2, 1, 1},
                                                {2, 2, 2, 2, 1},
                                                {4, 4, 2, 2, 4}}) {
        spec::LocalShape shape{
            .tokens = 64 / cp, .sequences = 2, .seq_len = 32, .head_chunk_rows = 5};
        shape.mesh[spec::Axis::ep] = ep;
        shape.mesh[spec::Axis::etp] = etp;
        shape.mesh[spec::Axis::tp] = tp;
        shape.mesh[spec::Axis::cp] = cp;
        shape.mesh[spec::Axis::dp] = dp;
        shape.sequence_parallel = tp > 1;
        shape.row_budget = 1.5;
        for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
          for (const char* recipe : {"fp32", "bf16"}) {
            audit(model, 2, shape, spec::recipe_from_name(recipe), recompute);
          }
        }
      }
    }
  }
}

TEST(AuditTest, facts_of_experts_in_8_bits_are_what_blocks_send) {
  for (const char* name : {"fp8-tensor", "fp8-block", "fp8-delayed"}) {
    const spec::Recipe recipe = spec::recipe_from_name(name);
    const int64_t size = recipe.fp8->grain() == 16 ? 32 : 256;
    for (spec::ModelDims dims : {tiny_moe(), tiny_shared_moe()}) {
      dims = sized(dims, size);
      dims.moe->router.experts = 8;
      dims.moe->ffn = size;
      const spec::ModelSpec model = spec::make_model(dims);
      for (const auto& [ep, etp, tp, cp] :
           {std::tuple{1, 1, 1, 1}, {2, 1, 1, 1}, {1, 2, 2, 1}, {4, 1, 2, 2}, {2, 2, 2, 2}}) {
        spec::LocalShape shape{
            .tokens = 2 * size, .sequences = 2, .seq_len = size * cp, .head_chunk_rows = 5};
        shape.mesh[spec::Axis::ep] = ep;
        shape.mesh[spec::Axis::etp] = etp;
        shape.mesh[spec::Axis::tp] = tp;
        shape.mesh[spec::Axis::cp] = cp;
        shape.sequence_parallel = tp > 1;
        shape.row_budget = 1.5;
        shape.expert_grain = spec::expert_grain(recipe);
        for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
          audit(model, 2, shape, recipe, recompute);
        }
      }
    }
  }
}

// No model family has these combinations, but blocks support them: biases with SwiGLU and an RMS
// norm, GELU without biases.
TEST(AuditTest, facts_of_mixed_blocks_are_what_they_send) {
  for (const spec::ModelDims& dims : {tiny_gpt2(), tiny_llama()}) {
    spec::ModelSpec model = spec::make_model(dims);
    auto& block = std::get<spec::BlockSpec>(model.layers[1]);
    block.linear_bias = !block.linear_bias;
    block.heads = block.kv_heads = 4;
    for (const int tp : {1, 2}) {
      for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
        spec::LocalShape shape{.tokens = 24, .sequences = 2, .seq_len = 12, .head_chunk_rows = 5};
        shape.mesh[spec::Axis::tp] = tp;
        shape.sequence_parallel = tp > 1;
        audit(model, 1, shape, spec::recipe_from_name("bf16"), recompute);
      }
    }
  }
}

// Tiles of the feed-forward: of one row, with a remainder, with fewer rows than ranks, of all rows.
TEST(AuditTest, facts_of_tiles_are_what_blocks_send) {
  for (spec::ModelDims dims : {tiny_gpt2(), tiny_llama(), tiny_qwen3()}) {
    dims.hidden = 4096;  // so that no row of the stream is summed as a small tensor
    dims.heads = dims.kv_heads = 4;
    dims.head_dim = 8;
    dims.ffn = 24;
    for (const bool other_bias : {false, true}) {
      spec::ModelSpec model = spec::make_model(dims);
      auto& block = std::get<spec::BlockSpec>(model.layers[1]);
      block.linear_bias = block.linear_bias != other_bias;
      for (const int64_t ffn_rows : {1, 5, 7, 24, 100}) {
        for (const auto& [tp, sequence_parallel, cp] : {std::tuple{1, false, 1},
                                                        {2, false, 1},
                                                        {2, true, 1},
                                                        {4, false, 1},
                                                        {4, true, 1},
                                                        {1, false, 2},
                                                        {2, true, 2}}) {
          spec::LocalShape shape{.tokens = 48 / cp,
                                 .sequences = 4,
                                 .seq_len = 12,
                                 .head_chunk_rows = 5,
                                 .ffn_rows = ffn_rows};
          shape.mesh[spec::Axis::tp] = tp;
          shape.mesh[spec::Axis::cp] = cp;
          shape.sequence_parallel = sequence_parallel;
          for (const Recompute recompute :
               {Recompute::none, Recompute::selective, Recompute::full}) {
            for (const char* recipe : {"fp32", "bf16"}) {
              audit(model, 1, shape, spec::recipe_from_name(recipe), recompute);
            }
          }
        }
      }
    }
  }
}

TEST(AuditTest, a_whole_model_sends_its_predicted_flops) {
  // llama-8b's shape: far too large for this machine, but the null device allocates nothing.
  const spec::ModelSpec model = spec::make_model({.name = "llama-8b",
                                                  .family = spec::Family::llama,
                                                  .layers = 32,
                                                  .hidden = 4096,
                                                  .heads = 32,
                                                  .kv_heads = 8,
                                                  .ffn = 14336,
                                                  .vocab = 128256,
                                                  .max_seq = 8192,
                                                  .tied_head = false});
  EXPECT_EQ(spec::parameter_count(model), 8030261248);
  double model_flops = 0;
  for (const auto& [recompute, ffn_rows] : {std::pair{Recompute::none, int64_t{0}},
                                            {Recompute::full, 0},
                                            {Recompute::none, 1000},
                                            {Recompute::full, 1024}}) {
    const spec::Plan plan =
        spec::solve_or_throw(model, {.seq_len = 8192},
                             {.accumulation = 2, .recompute = recompute, .ffn_rows = ffn_rows}, {});
    if (model_flops == 0) model_flops = plan.predicted.model_flops;
    EXPECT_DOUBLE_EQ(plan.predicted.model_flops, model_flops);
    device::NullDevice device(kernels::null_kernels());
    engine::Engine engine(device, model, plan, {}, {});
    class Sum final : public kernels::OpObserver {
     public:
      void op(const device::Stream&, const OpCost& cost) override { flops += cost.flops; }
      double flops = 0;
    } sum;
    engine.compute().set_observer(&sum);
    RandomSource source(1, 128256, 1, 8192);
    engine.step(source, 1e-3);
    EXPECT_DOUBLE_EQ(sum.flops, engine.plan().predicted.hardware_flops);
    EXPECT_EQ(engine.measured().total(), engine.plan().predicted.memory.front().total());
  }
}

}  // namespace
}  // namespace trireme::tests
