// SPDX-License-Identifier: Apache-2.0
// The writer's memory, counted in operator new: live blocks of at least a page. Smaller blocks are
// names, threads and messages, which do not grow with the model.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "ckpt/disk/aligned.h"
#include "ckpt/disk/posix_disk.h"
#include "ckpt/generation/save.h"

namespace {

std::atomic<int64_t> live{0}, peak{0};

// Before every block: the requested number of bytes.
constexpr size_t head_bytes = alignof(std::max_align_t);

// Not inlined: otherwise the compiler warns of sizes that no caller requests.
[[gnu::noinline]] void* take(size_t bytes) {
  auto* block = static_cast<size_t*>(std::malloc(bytes + head_bytes));
  if (block == nullptr) throw std::bad_alloc();
  *block = bytes;
  if (bytes >= static_cast<size_t>(trireme::ckpt::page_bytes)) {
    const int64_t now = live += static_cast<int64_t>(bytes);
    for (int64_t seen = peak; seen < now && !peak.compare_exchange_weak(seen, now);) {
    }
  }
  return reinterpret_cast<std::byte*>(block) + head_bytes;
}

void give(void* memory) noexcept {
  if (memory == nullptr) return;
  auto* block = reinterpret_cast<size_t*>(static_cast<std::byte*>(memory) - head_bytes);
  if (*block >= static_cast<size_t>(trireme::ckpt::page_bytes)) {
    live -= static_cast<int64_t>(*block);
  }
  std::free(block);
}

}  // namespace

void* operator new(size_t bytes) { return take(bytes); }
void* operator new[](size_t bytes) { return take(bytes); }
void operator delete(void* memory) noexcept { give(memory); }
void operator delete[](void* memory) noexcept { give(memory); }
void operator delete(void* memory, size_t) noexcept { give(memory); }
void operator delete[](void* memory, size_t) noexcept { give(memory); }

namespace trireme::ckpt {
namespace {

// A file of `tensors` tensors with `rows` rows of 1 KiB each, every tensor in two boxes.
FileLayout layout_of(int tensors, int64_t rows) {
  std::vector<TensorPieces> pieces;
  for (int i = 0; i < tensors; ++i) {
    pieces.push_back({{"weight/" + std::to_string(i), base::DType::f32, {rows, 256}},
                      {{{0, 0}, {1, 256}, 0}, {{1, 0}, {rows, 256}, 0}}});
  }
  return plan_file(pieces);
}

TEST(WriterMemoryTest, is_as_predicted) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() /
                                       ("trireme_writer_memory_" + std::to_string(::getpid()));
  const auto disk = posix_disk();
  int number = 100;  // of the rank, another one for every file
  std::filesystem::create_directories(folder);
  for (const FileLayout& layout : {layout_of(0, 0), layout_of(3, 100), layout_of(400, 40)}) {
    for (const IoOptions& io : {IoOptions{.queue_depth = 1},
                                {.queue_depth = 8},
                                {.queue_depth = 1, .reread = true},
                                {.queue_depth = 8, .reread = true}}) {
      AlignedBytes file;
      const auto bytes = file.of(layout.bytes);
      std::ranges::fill(bytes, std::byte{7});
      const auto peak_of = [&](Workspace* workspace) {
        const int64_t before = live;
        peak = before;
        (void)write_data(*disk, {folder, number++, layout, bytes, workspace}, io);
        EXPECT_EQ(live, before);
        return peak - before;
      };
      // Memory that it allocates itself is page-aligned, which takes one more page.
      const int64_t predicted = writer_bytes(layout, number, io);
      EXPECT_EQ(peak_of(nullptr), predicted + page_bytes);
      // In given memory it uses all that was predicted, and allocates no other block.
      AlignedBytes memory;
      Workspace workspace(memory.of(predicted));
      EXPECT_EQ(peak_of(&workspace), 0);
      EXPECT_EQ(workspace.high_water(), predicted);
    }
  }
  std::filesystem::remove_all(folder);
}

// A workspace that is smaller than predicted is detected as a bug.
TEST(WriterMemoryTest, a_workspace_below_the_prediction_is_detected) {
  const FileLayout layout = layout_of(3, 100);
  const auto disk = posix_disk();
  AlignedBytes memory, file;
  Workspace workspace(memory.of(writer_bytes(layout, 0) - page_bytes));
  EXPECT_DEATH((void)write_data(*disk, {"/nowhere", 0, layout, file.of(layout.bytes), &workspace}),
               "of a workspace of");
}

}  // namespace
}  // namespace trireme::ckpt
