// SPDX-License-Identifier: Apache-2.0
#include "engine/state/shared_table.h"

#include <gtest/gtest.h>

#include <functional>

#include "comm/threads.h"
#include "device/cpu/cpu_device.h"
#include "engine/state/host_floats.h"
#include "kernels/table.h"
#include "spec/memory/predict.h"

namespace trireme::engine {
namespace {

using device::Mem;

constexpr int64_t vocab = 24, width = 16;
constexpr int64_t table_bytes = vocab * width * 2, grad_bytes = vocab * width * 4;  // bf16, fp32

spec::ModelSpec tied_model() {
  return spec::make_model({.name = "tied",
                           .family = spec::Family::llama,
                           .layers = 2,
                           .hidden = width,
                           .heads = 2,
                           .kv_heads = 2,
                           .head_dim = 8,
                           .ffn = 32,
                           .vocab = vocab,
                           .max_seq = 8,
                           .tied_head = true});
}

device::Arena arena_of(device::Device& device, Mem mem, int64_t bytes) {
  return device::Arena(device::Buffer(device, mem, bytes, name_of(mem)));
}

// One rank along pp with its buckets and the table, and no layers that compute.
struct TableRank {
  TableRank(const spec::ModelSpec& model, const spec::Plan& plan, comm::Mesh* mesh)
      : device(kernels::cpu_kernels(), {}),
        compute(device.make_stream("compute")),
        groups(plan, mesh, device, *compute),
        pipe(model, plan, mesh, device, *compute),
        bytes(spec::predict_memory(model, plan, {}, pipe.rank())),
        params(arena_of(device, Mem::params, bytes.params)),
        grads(arena_of(device, Mem::grads, bytes.grads + (1 << 20))),  // leaves of the stash, too
        comm(arena_of(device, Mem::comm, bytes.comm)) {
    pipe.set_memory(comm, spec::pipe_buffers(model, plan, pipe.rank()));
    for (const int layer : spec::layers_of_rank(model, plan, pipe.rank())) {
      buckets.emplace_back(spec::params_of(model, layer),
                           spec::layer_buckets(model, layer, plan.recipe, plan.mesh).front(), plan,
                           groups.coord(), BucketMemory{params, grads, {}, {}, {}});
    }
    table.emplace(model, plan, groups, pipe, std::span(buckets),
                  SharedTable::Memory{params, grads, comm});
  }
  int head() const { return static_cast<int>(buckets.size()) - 1; }
  static device::Tensor embedding(std::span<const device::Tensor> all) {
    return all[static_cast<size_t>(spec::EmbeddingParam::tokens)];
  }
  device::Tensor head_weight() const {
    return buckets.back().params()[static_cast<size_t>(spec::HeadParam::weight)];
  }
  device::Tensor head_grads() const {
    return buckets.back().grads()[static_cast<size_t>(spec::HeadParam::weight)];
  }
  void write(device::Tensor to, float value) {
    upload_floats(*compute, {to}, std::vector<float>(static_cast<size_t>(to.elements()), value));
  }
  float first_of(device::Tensor from) { return download_floats(*compute, {from}).front(); }

  device::CpuDevice device;
  std::unique_ptr<device::Stream> compute;
  DataGroups groups;
  Pipe pipe;
  spec::MemoryTable bytes;
  device::Arena params, grads, comm;
  std::vector<Bucket> buckets;
  std::optional<SharedTable> table;
};

void run_two(int logical_dp, const std::function<void(TableRank&)>& body) {
  const spec::ModelSpec model = tied_model();
  const spec::Plan plan = spec::solve_or_throw(model, {.seq_len = 8},
                                               {.pp = 2,
                                                .accumulation = 4 / logical_dp,
                                                .logical_dp = logical_dp,
                                                .precision = *spec::precision_from_name("bf16")},
                                               {});
  comm::ThreadWorld world(2, 60);
  comm::run_ranks(world, [&](int rank) {
    const auto communicator = world.communicator(rank, {.name = "world"});
    comm::Mesh mesh(*communicator, plan.mesh);
    TableRank r(model, plan, &mesh);
    body(r);
    r.pipe.close(comm::End::finish);
  });
}

TEST(SharedTableTest, the_reader_gets_the_owners_table_once_it_is_stale) {
  run_two(1, [](TableRank& r) {
    const bool is_owner = r.pipe.rank() == 0;
    EXPECT_EQ(r.table->read_with(r.head()), -1) << "the table is in no bucket of the reader";
    const auto bring = [&](float value, bool is_step) {
      if (is_owner) {
        r.table->before_change(0);
        r.write(TableRank::embedding(r.buckets.front().params()), value);
      }
      is_step ? r.table->begin_step() : r.table->begin_evaluation();
      r.table->use(is_owner ? 0 : r.head());
      r.compute->synchronize();
    };
    bring(3, true);
    if (!is_owner) {
      EXPECT_EQ(r.first_of(r.head_weight()), 3);
    }
    EXPECT_FALSE(r.table->is_stale());
    bring(5, false);  // not stale: nothing is sent
    if (!is_owner) {
      EXPECT_EQ(r.first_of(r.head_weight()), 3);
    }
    r.table->set_stale();
    bring(5, false);
    if (!is_owner) {
      EXPECT_EQ(r.first_of(r.head_weight()), 5);
    }
    EXPECT_EQ(r.pipe.traffic().pp_table, is_owner ? 2 * table_bytes : 0);
  });
}

TEST(SharedTableTest, the_heads_gradients_are_added_to_the_owners_leaf_by_leaf) {
  for (const int leaves : {1, 4}) {
    run_two(leaves, [leaves](TableRank& r) {
      const bool is_owner = r.pipe.rank() == 0;
      if (!is_owner) {
        EXPECT_EQ(r.table->staged(), leaves == 1 ? 0U : 1U);
      }
      for (int leaf = 0; leaf < leaves; ++leaf) {
        if (is_owner) {
          r.write(TableRank::embedding(r.buckets.front().grads()), 100);
          r.table->bring_grads(0);
          EXPECT_EQ(r.first_of(TableRank::embedding(r.buckets.front().grads())),
                    100 + static_cast<float>(leaf));
        } else {
          r.table->before_zero(r.head());
          r.write(r.head_grads(), static_cast<float>(leaf));
          r.table->bring_grads(r.head());
        }
      }
      EXPECT_EQ(r.pipe.traffic().pp_table, is_owner ? 0 : leaves * grad_bytes);
    });
  }
}

TEST(SharedTableTest, on_one_rank_the_head_reads_the_embeddings_bucket) {
  const spec::ModelSpec model = tied_model();
  const spec::Plan plan = spec::solve_or_throw(model, {.seq_len = 8}, {}, {});
  TableRank r(model, plan, nullptr);
  EXPECT_EQ(r.table->read_with(r.head()), 0);
  EXPECT_EQ(r.table->read_with(0), -1);
  const device::Tensor own = TableRank::embedding(r.buckets.front().grads());
  EXPECT_EQ(r.head_weight().data, TableRank::embedding(r.buckets.front().params()).data);
  EXPECT_NE(r.head_grads().data, own.data);
  r.write(own, 1);
  r.write(r.head_grads(), 2);
  r.table->bring_grads(0);
  EXPECT_EQ(r.first_of(own), 3);
  EXPECT_EQ(r.first_of(r.head_grads()), 2);
}

}  // namespace
}  // namespace trireme::engine
