// SPDX-License-Identifier: Apache-2.0
// Any layout loads the checkpoint of any other, bit for bit: pairs of layouts, chains, and a
// thousand ranks. By default a sample of the pairs; all if TRIREME_FULL is set.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/rng.h"
#include "ckpt/disk/memory_disk.h"
#include "ckpt/generation/folder.h"
#include "ckpt/offline_reshard.h"
#include "layouts.h"

namespace trireme::ckpt_tests {
namespace {

constexpr uint64_t seed = 11;

// A vocabulary of prime size, fused q, k and v, and eight layers.
spec::ModelSpec tiny_model(bool tied) {
  spec::ModelDims dims;
  dims.layers = 6;
  dims.hidden = 24;
  dims.heads = 12;
  dims.head_dim = 2;
  dims.ffn = 24;
  dims.vocab = 37;
  dims.max_seq = 16;
  dims.tied_head = tied;
  dims.qkv_bias = true;
  dims.qk_norm = true;
  return spec::make_model(dims);
}

// Experts in every second block, which have weights of three dimensions.
spec::ModelSpec tiny_moe_model() {
  spec::ModelDims dims;
  dims.layers = 2;
  dims.hidden = 8;
  dims.heads = 4;
  dims.head_dim = 2;
  dims.ffn = 8;
  dims.vocab = 37;
  dims.max_seq = 16;
  dims.tied_head = false;
  dims.moe = spec::MoeSpec{
      .router = {.experts = 6, .chosen = 2}, .ffn = 4, .shared_ffn = 4, .balance = {}};
  dims.expert_step = 2;
  return spec::make_model(dims);
}

std::filesystem::path root_of(size_t layout) { return "/layout" + std::to_string(layout); }

// Loads pairs of layouts of up to eight ranks: `sampled` random ones, or all.
void expect_any_to_any(const spec::ModelSpec& model, size_t least, uint64_t sampled) {
  const bool is_full = std::getenv("TRIREME_FULL") != nullptr;
  const State state = state_of(model);
  const std::vector<Layout> layouts = all_layouts(model, 8);
  std::printf("seed %llu, %zu layouts\n", static_cast<unsigned long long>(seed), layouts.size());
  ASSERT_GT(layouts.size(), least);
  ckpt::MemoryDisk disk;
  std::vector<ckpt::Generation> generations;
  for (size_t i = 0; i < layouts.size(); ++i) {
    save(disk, root_of(i), 1, model, layouts[i], state);
    generations.push_back(ckpt::Generation::open(disk, root_of(i) / ckpt::generation_name(1)));
    ASSERT_TRUE(generations.back().damage({.queue_depth = 1}).empty()) << layouts[i].name();
  }
  const uint64_t all = layouts.size() * layouts.size();
  const uint64_t pairs = is_full ? all : sampled;
  for (uint64_t pair = 0; pair < pairs; ++pair) {
    const uint64_t pick = is_full ? pair : base::rng_below(seed, pair, all);
    const size_t from = pick / layouts.size(), to = pick % layouts.size();
    ASSERT_EQ(load_and_compare(generations[from], model, layouts[to], state), "")
        << "saved as " << layouts[from].name() << ", loaded as " << layouts[to].name();
  }
}

TEST(AnyToAnyTest, every_layout_loads_the_checkpoint_of_any_other) {
  expect_any_to_any(tiny_model(false), 60, 500);
}

TEST(AnyToAnyTest, experts_load_into_any_layout) { expect_any_to_any(tiny_moe_model(), 100, 500); }

ckpt::ReshardTarget target_of(const spec::ModelSpec& model, const Layout& layout,
                              const std::filesystem::path& root, int64_t window_bytes) {
  return {.root = root,
          .ranks = layout.ranks(),
          .pieces_of = [&model, layout](int rank) { return saved_by(model, layout, rank).tensors; },
          .plan = {{"layout", layout.name()}},
          .window_bytes = window_bytes};
}

// All data files and indexes of a generation.
std::vector<std::vector<std::byte>> files_of(ckpt::MemoryDisk& disk,
                                             const std::filesystem::path& folder) {
  std::vector<std::vector<std::byte>> files;
  for (const ckpt::DiskEntry& entry : disk.list(folder)) {
    if (entry.name != ckpt::manifest_name) files.push_back(disk.bytes(folder / entry.name));
  }
  return files;
}

TEST(AnyToAnyTest, a_chain_of_fifty_reshards_comes_back_byte_for_byte) {
  const spec::ModelSpec model = tiny_model(true);
  const State state = state_of(model);
  const std::vector<Layout> layouts = all_layouts(model, 8);
  ckpt::MemoryDisk disk;
  save(disk, "/0", 1, model, layouts[5], state);
  const auto first = files_of(disk, "/0/step-00000001");
  for (uint64_t hop = 1; hop <= 50; ++hop) {
    const Layout& layout =
        hop == 50 ? layouts[5] : layouts[base::rng_below(seed, 1'000 + hop, layouts.size())];
    const std::string from = "/" + std::to_string(hop - 1), to = "/" + std::to_string(hop);
    const auto generation = ckpt::Generation::open(disk, from + "/step-00000001");
    ckpt::reshard(disk, generation, target_of(model, layout, to, 1), {.queue_depth = 1});
    ckpt::remove_all(disk, from);
  }
  EXPECT_EQ(files_of(disk, "/50/step-00000001"), first);
  const auto last = ckpt::Generation::open(disk, "/50/step-00000001");
  EXPECT_EQ(last.manifest().state["step"], 1);
  EXPECT_EQ(last.manifest().plan["layout"], layouts[5].name());
  EXPECT_EQ(load_and_compare(last, model, layouts[0], state), "");
}

TEST(AnyToAnyTest, a_thousand_ranks_become_five_hundred) {
  spec::ModelDims dims;
  dims.layers = 14;
  dims.hidden = 32;
  dims.heads = 8;
  dims.head_dim = 4;
  dims.ffn = 32;
  dims.vocab = 67;
  dims.max_seq = 16;
  dims.tied_head = false;
  const spec::ModelSpec model = spec::make_model(dims);
  const State state = state_of(model);
  const Layout large{.dp = 16, .zero = 1, .tp = 8, .pp = 8};
  const Layout small{.dp = 1, .zero = 8, .tp = 4, .pp = 16};
  ASSERT_EQ(large.ranks(), 1024);
  ASSERT_EQ(small.ranks(), 512);
  ckpt::MemoryDisk disk;
  save(disk, "/large", 7, model, large, state);
  const auto from = ckpt::Generation::open(disk, "/large/step-00000007");
  ckpt::reshard(disk, from, target_of(model, small, "/small", 1 << 20), {.queue_depth = 1});
  save(disk, "/expected", 7, model, small, state);
  EXPECT_EQ(files_of(disk, "/small/step-00000007"), files_of(disk, "/expected/step-00000007"));
  const auto to = ckpt::Generation::open(disk, "/small/step-00000007");
  EXPECT_TRUE(to.damage({.queue_depth = 1}).empty());
  EXPECT_EQ(load_and_compare(to, model, {}, state), "");
}

TEST(AnyToAnyTest, windows_smaller_than_a_box_give_the_same_files) {
  // One tensor of 5 MiB, in windows of one chunk.
  const ckpt::TensorInfo tensor{"w", base::DType::f32, {1024, 1280}};
  const auto columns = [&](int rank) -> std::vector<ckpt::TensorPieces> {
    return {{tensor, {{{0, 640 * rank}, {1024, 640 * (rank + 1)}, 0}}}};
  };
  ckpt::MemoryDisk disk;
  const ckpt::Draft draft = ckpt::begin_generation(disk, "/a", 1);
  const ckpt::FileLayout layout =
      ckpt::plan_file(std::vector<ckpt::TensorPieces>{{tensor, {{{0, 0}, {1024, 1280}, 0}}}});
  std::vector<float> values(1024 * 1280);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  ckpt::Manifest manifest;
  manifest.step = 1;
  manifest.tensors = {tensor};
  manifest.files = {ckpt::write_data(
      disk, {draft.folder, 0, layout, std::as_bytes(std::span(values))}, {.queue_depth = 2})};
  ckpt::commit(disk, draft, manifest);
  const auto from = ckpt::Generation::open(disk, "/a/step-00000001");
  ckpt::reshard(disk, from, {.root = "/b", .ranks = 2, .pieces_of = columns, .window_bytes = 1});
  const auto whole = [&](int) -> std::vector<ckpt::TensorPieces> {
    return {{tensor, {{{0, 0}, {1024, 1280}, 0}}}};
  };
  const auto middle = ckpt::Generation::open(disk, "/b/step-00000001");
  ckpt::reshard(disk, middle, {.root = "/c", .ranks = 1, .pieces_of = whole, .window_bytes = 1});
  EXPECT_EQ(disk.bytes("/c/step-00000001/data-00000"), disk.bytes("/a/step-00000001/data-00000"));
  // A layout that leaves elements out is refused.
  EXPECT_THROW(ckpt::reshard(disk, from, {.root = "/d", .ranks = 1, .pieces_of = columns}),
               base::IoError);
  EXPECT_TRUE(disk.list("/d").empty());
}

}  // namespace
}  // namespace trireme::ckpt_tests
