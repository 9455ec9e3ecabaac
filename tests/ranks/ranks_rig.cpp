// SPDX-License-Identifier: Apache-2.0
#include "tests/ranks/ranks_rig.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "device/accelerator.h"
#include "spec/facts/backend.h"
#include "spec/facts/op_shapes.h"
#include "spec/layout/layout_samples_test.h"
#include "spec/layout/layout_text.h"
#include "spec/memory/predict.h"

namespace trireme::tests {
namespace {

constexpr int64_t short_seq_len = 24;  // allows all slices of cp = 2, 3 and 4
constexpr double deadline_seconds = 60;
constexpr double enough_rows = 64;  // of experts, for any routing

// The micro-batches of one rank, by their index in the global batch.
class ShareOfStep final : public engine::MicrobatchSource {
 public:
  ShareOfStep(const spec::Plan& plan, const spec::Coord& coord, int64_t vocab)
      : plan_(plan), coord_(coord), all_(7, vocab, plan.layout.micro_batch, plan.seq_len) {
    all_.cut_documents(plan.document_mask);
  }

  void fill(int index, const engine::HostMicrobatch& out) override {
    all_.fill(static_cast<int>(spec::global_microbatch(plan_, coord_, index)), out);
  }
  void next_step() { all_.next_step(); }

 private:
  const spec::Plan& plan_;
  spec::Coord coord_;
  RandomSource all_;
};

std::string to_string(const spec::TrafficTable& t) {
  return fmt::format(
      "reduce {} gather grads {} gather params {} sums {} updates {} state {} tp forward {} "
      "backward {} grads {} cp forward {} backward {} ep forward {} backward {} pp activations {} "
      "gradients {} table {} other {} to other nodes {}",
      t.reduce_grads, t.gather_grads, t.gather_params, t.step_sums, t.updates, t.layer_state,
      t.tp_forward, t.tp_backward, t.tp_grads, t.cp_forward, t.cp_backward, t.ep_forward,
      t.ep_backward, t.pp_activations, t.pp_gradients, t.pp_table, t.other, t.reduce_network);
}

// Runs steps and expects on every rank that
//   - the bytes sent are the predicted ones. Both are sums of formulas: comm::Communicator counts
//     each call by the sizes of its tensors. sizes_test.cpp has numbers by hand.
//   - every take of memory is in the prediction, and the prediction has no more.
//   - nothing else was allocated: slabs have the predicted sizes, so the ledger has their sum.
void train(RankRig& rig, const std::string& what, int steps, Results* results) {
  spec::TrafficTable sent_before = rig.engine.traffic(), predicted = sent_before;
  for (int i = 0; i < steps; ++i) {
    if (results != nullptr && i == 0) {
      rig.engine.accumulate(rig.source);
      for (const auto& param : rig.engine.parameters()) {
        results->grads[param.name] = rig.engine.read_grads(param.name);
      }
      predicted.other = rig.engine.traffic().other;
      rig.engine.apply(1e-3);
    } else {
      rig.engine.step(rig.source, 1e-3);
      // The first step of delayed scaling sends more.
      const spec::Recipe& recipe = rig.engine.plan().recipe;
      if (i == 0 && recipe.fp8 && recipe.fp8->is_delayed) {
        predicted.other = rig.engine.traffic().other;
      }
    }
    rig.next_step();
    predicted = predicted + spec::predict_traffic(rig.model, rig.engine.plan(), rig.mesh.coord(),
                                                  rig.mesh.world().options().nodes);
    if (results == nullptr) continue;
    const engine::StepReport report = rig.engine.report();
    EXPECT_FALSE(report.was_skipped) << what;
    results->losses.push_back(report.mean_loss);
    results->norms.push_back(report.grad_norm);
  }
  rig.engine.compute().synchronize();
  const spec::TrafficTable sent = rig.engine.traffic();
  EXPECT_EQ(sent, predicted) << what << "\n  sent      " << to_string(sent) << "\n  predicted "
                             << to_string(predicted);
  const spec::MemoryTable& memory = rig.engine.predicted_memory();
  EXPECT_EQ(rig.engine.measured(), memory) << what;
  // On a GPU the first step benchmarks algorithms, with memory that it frees again.
  const device::Ledger& ledger = rig.device.ledger();
  EXPECT_EQ(rig.is_gpu ? ledger.live() : ledger.peak(), memory.total()) << what;
  EXPECT_FALSE(rig.engine.report().was_skipped) << what;
}

// Returns a random layout of at most 8 ranks.
spec::Layout small_layout(spec::LayoutDice& dice, const spec::ModelDims& dims) {
  constexpr int64_t max_thread_ranks = 8;
  while (true) {
    const spec::Layout layout =
        spec::any_layout(dice, spec::sizes_of(spec::make_model(dims)), short_seq_len);
    if (layout.ranks() <= max_thread_ranks) return layout;
  }
}

// Returns the nodes of ranks, for Communicator::Options; none if `ranks_a_node` is 0.
std::vector<int> nodes_of(int ranks, int ranks_a_node) {
  std::vector<int> nodes;
  for (int rank = 0; ranks_a_node > 0 && rank < ranks; ++rank) nodes.push_back(rank / ranks_a_node);
  return nodes;
}

}  // namespace

int ranks_of(const Layout& l) { return l.pp * l.dp * l.zero * l.cp * l.tp; }

std::string bits_key(const Layout& l) {
  return fmt::format(
      "{} {} {} grad {} master {} L{} m{} x {} x {}{} {} in {}{}", l.dims.name,
      spec::name_of(l.optimizer), l.recipe, base::name_of(l.grad), base::name_of(l.master),
      l.logical_dp, l.microbatches, l.sequences, l.seq_len, l.documents ? " documents" : "",
      l.reduce == spec::ReduceWhen::once ? "once" : "each", base::name_of(l.reduce_dtype),
      l.ffn_rows > 0 ? fmt::format(" tiles of {}", l.ffn_rows) : "");
}

std::string to_string(const Layout& l) {
  const std::string pipe =
      l.pp == 1 && l.chunks == 0
          ? ""
          : fmt::format(" pp {} {} x {} cut [{}]{}", l.pp, l.schedule, l.chunks,
                        fmt::join(l.cut, " "), l.keep_params ? " keep" : "");
  const std::string context =
      l.cp == 1 ? ""
                : fmt::format(" cp {} {} {} {}", l.cp, spec::name_of(l.context_kind),
                              spec::name_of(l.context_slices), l.ulysses);
  const std::string experts = l.ep * l.etp == 1 ? "" : fmt::format(" ep {} etp {}", l.ep, l.etp);
  return fmt::format("{}:{}{}{} dp {} zero {} ZeRO-{} tp {}{} prefetch {}{} recompute {}{}{}",
                     bits_key(l), pipe, context, experts, l.dp, l.zero, l.stage, l.tp,
                     l.sequence_parallel ? " sp" : "", l.prefetch, l.prefetch_after ? " after" : "",
                     spec::name_of(l.recompute),
                     l.streams == device::StreamMode::worker_threads ? " workers" : "",
                     l.split_backward ? " split"
                     : l.on_gpu       ? " on a GPU"
                                      : "");
}

spec::Plan plan_of(const Layout& l, const spec::ModelSpec& model) {
  spec::Plan plan =
      spec::solve_or_throw(model, {.seq_len = l.seq_len, .document_mask = l.documents},
                           {.tp = l.tp,
                            .cp = l.cp,
                            .pp = l.pp,
                            .dp_replicate = l.dp,
                            .dp_shard = l.zero,
                            .ep = l.ep,
                            .etp = l.etp,
                            .zero_stage = l.stage,
                            .sequence_parallel = l.sequence_parallel,
                            .context_kind = l.context_kind,
                            .context_slices = l.context_slices,
                            .ulysses = l.ulysses,
                            .row_budget = l.row_budget,
                            .overflow = l.overflow,
                            .expert_capacity = l.expert_capacity,
                            .schedule = *schedule::kind_from_name(l.schedule),
                            .chunks = l.chunks,
                            .first_layers = l.cut,
                            .send_buffers = l.send_buffers,
                            .micro_batch = l.sequences,
                            .accumulation = l.microbatches,
                            .logical_dp = l.logical_dp,
                            .reduce = l.reduce,
                            .recompute = l.recompute,
                            .ffn_rows = l.ffn_rows,
                            .precision = *spec::precision_from_name(l.recipe),
                            .grad_dtype = l.grad,
                            .optimizer = l.optimizer,
                            .master_dtype = l.master,
                            .reduce_dtype = l.reduce_dtype,
                            .reshard = l.keep_params ? spec::Reshard::never : spec::Reshard::always,
                            .prefetch = l.prefetch,
                            .prefetch_after = l.prefetch_after,
                            .head_chunk_rows = 4},
                           backend_of(l));
  if (l.split_backward) {
    plan.schedule = schedule::add_tied(schedule::add_reduce(
        schedule::split_backward(schedule::one_f_one_b(1, plan.schedule.microbatches))));
  }
  return plan;
}

spec::Backend backend_of(const Layout& layout) {
  return layout.on_gpu ? spec::cuda_backend(true) : spec::Backend{};
}

void run_rank(const Layout& layout, comm::Communicator& world, device::Device& device,
              const std::function<void(RankRig&)>& body) {
  const spec::ModelSpec model = spec::make_model(layout.dims);
  const spec::Plan plan = plan_of(layout, model);
  comm::Mesh mesh(world, plan.mesh);
  engine::EngineOptions options;
  options.adamw.eps = layout.adam_eps;
  options.capture_ranks = layout.capture;
  engine::Engine engine(device, model, plan, backend_of(layout), options, &mesh);
  ShareOfStep source(plan, mesh.coord(), layout.dims.vocab);
  RankRig rig{device,       model, engine, mesh, source, [&source] { source.next_step(); },
              layout.on_gpu};
  body(rig);
  engine.close(comm::End::finish);
  mesh.close(comm::End::finish);
}

void run_layout(const Layout& layout, const std::function<void(RankRig&)>& body) {
  comm::ThreadWorld world(ranks_of(layout), deadline_seconds);
  comm::run_ranks(world, [&](int rank) {
    std::unique_ptr<device::Device> device;
    if (layout.on_gpu) {
      device = device::make_gpu(kernels::cuda_kernels(), {});
    } else {
      device = std::make_unique<device::CpuDevice>(
          kernels::cpu_kernels(), device::CpuDevice::Options{.streams = layout.streams});
    }
    const auto communicator = world.communicator(
        rank, {.name = "world", .nodes = nodes_of(world.ranks(), layout.ranks_a_node)});
    run_rank(layout, *communicator, *device, body);
  });
}

void train_settled(const spec::ModelDims& dims, const spec::Layout& layout, bool on_gpu,
                   int ranks_a_node) {
  const spec::ModelSpec model = spec::make_model(dims);
  const spec::Backend backend = on_gpu ? spec::cuda_backend(layout.deterministic) : spec::Backend{};
  const spec::Plan plan = spec::solve_or_throw(model, {.seq_len = short_seq_len}, layout, backend);
  comm::ThreadWorld world(static_cast<int>(layout.ranks()), deadline_seconds);
  comm::run_ranks(world, [&](int rank) {
    std::unique_ptr<device::Device> device;
    if (on_gpu) {
      device = device::make_gpu(kernels::cuda_kernels(), {});
    } else {
      device =
          std::make_unique<device::CpuDevice>(kernels::cpu_kernels(), device::CpuDevice::Options{});
    }
    const auto communicator =
        world.communicator(rank, {.name = "world", .nodes = nodes_of(world.ranks(), ranks_a_node)});
    comm::Mesh mesh(*communicator, plan.mesh);
    engine::Engine engine(*device, model, plan, backend, {}, &mesh);
    ShareOfStep source(plan, mesh.coord(), dims.vocab);
    RankRig rig{*device, model, engine, mesh, source, [&source] { source.next_step(); }, on_gpu};
    train(rig,
          fmt::format("{} {}, {} ranks a node, rank {}", dims.name, spec::to_text(layout),
                      ranks_a_node, rank),
          1, nullptr);
    engine.close(comm::End::finish);
  });
}

void train_random_layouts(uint64_t seed, int count, bool on_gpu) {
  SCOPED_TRACE(seed);
  spec::LayoutDice dice(seed);
  for (int i = 0; i < count; ++i) {
    spec::ModelDims dims = dice.either() ? tiny_llama() : tiny_gpt2();
    dims.layers = 4;
    dims.heads = 4;
    dims.max_seq = short_seq_len;
    train_settled(dims, small_layout(dice, dims), on_gpu, 2 * (i % 3));
  }
}

void train_random_experts(uint64_t seed, int count, bool on_gpu) {
  SCOPED_TRACE(seed);
  spec::LayoutDice dice(seed);
  for (int i = 0; i < count; ++i) {
    spec::ModelDims dims = dice.either() ? tiny_moe() : tiny_shared_moe();
    dims.layers = 4;
    dims.max_seq = short_seq_len;
    dims.expert_step = dims.ffn > 0 ? dice.of<int>({1, 2}) : 1;
    spec::MoeSpec& moe = *dims.moe;
    moe.router.experts = 8;
    moe.router.chosen = dice.of<int64_t>({1, 2, 3, 4});
    moe.shared_ffn = dice.of<int64_t>({0, 8, 16});
    moe.balance.scope =
        static_cast<spec::AuxScope>(dice.below(static_cast<size_t>(spec::AuxScope::count)));
    moe.balance.aux = dice.of<float>({0, 0.01F});
    moe.balance.z = dice.of<float>({0, 0.001F});
    spec::Layout layout = small_layout(dice, dims);
    if (layout.overflow == spec::Overflow::strict) layout.row_budget = enough_rows;
    train_settled(dims, layout, on_gpu);
  }
}

std::string train_layout(const Layout& layout, int steps) {
  std::vector<std::string> hashes(static_cast<size_t>(ranks_of(layout)));
  run_layout(layout, [&](RankRig& rig) {
    const int rank = rig.mesh.world().rank();
    train(rig, fmt::format("{}, rank {}", to_string(layout), rank), steps, nullptr);
    hashes[static_cast<size_t>(rank)] = rig.engine.weights_sha256();
  });
  for (const std::string& hash : hashes) EXPECT_EQ(hash, hashes.front()) << to_string(layout);
  return hashes.front();
}

Results results_of(const Layout& layout, int steps) {
  std::vector<Results> all(static_cast<size_t>(ranks_of(layout)));
  run_layout(layout, [&](RankRig& rig) {
    const int rank = rig.mesh.world().rank();
    Results& results = all[static_cast<size_t>(rank)];
    train(rig, fmt::format("{}, rank {}", to_string(layout), rank), steps, &results);
    for (const auto& param : rig.engine.parameters()) {
      results.weights[param.name] = rig.engine.read_weights(param.name);
    }
  });
  for (const Results& results : all) {
    EXPECT_EQ(results.weights, all.front().weights) << to_string(layout);
    EXPECT_EQ(results.grads, all.front().grads) << to_string(layout);
    EXPECT_EQ(results.losses, all.front().losses) << to_string(layout);
  }
  return all.front();
}

}  // namespace trireme::tests
