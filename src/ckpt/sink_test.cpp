// SPDX-License-Identifier: Apache-2.0
// Sinks: nothing is found in a place until it is sealed, and a receipt has the hash that readers
// compare.
#include "ckpt/sink.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/system/descriptor.h"
#include "ckpt/disk/aligned.h"
#include "ckpt/disk/forward_disk_test.h"
#include "ckpt/disk/memory_disk.h"
#include "ckpt/generation/file_sink.h"
#include "ckpt/generation/folder.h"
#include "ckpt/generation/small_generation_test.h"
#include "ckpt/memory/copy_sink.h"

namespace trireme::ckpt {
namespace {

const Disk::Path folder = "/draft";
const FileLayout& small_layout() {
  static const FileLayout layout = plan_file(SmallGeneration{.rows = 300'000}.pieces_of(0));
  return layout;
}
std::span<const std::byte> small_content(AlignedBytes& memory, int64_t step = 3) {
  return fill_small(step, {.rows = 300'000}, small_layout(), memory);
}

// A disk that fails at the calls whose name is `call`.
class BrokenDisk final : public ForwardDisk {
 public:
  BrokenDisk(Disk& disk, std::string call) : ForwardDisk(disk), call_(std::move(call)) {}
  std::unique_ptr<DiskFile> create(const Path& path, int64_t bytes) override {
    fail_at("create");
    return std::make_unique<File>(*this, ForwardDisk::create(path, bytes));
  }
  void fail_at(const std::string& call) const {
    if (call == call_) throw base::IoError("planned: " + call);
  }

 private:
  class File final : public ForwardFile {
   public:
    File(const BrokenDisk& disk, std::unique_ptr<DiskFile> file)
        : ForwardFile(std::move(file)), disk_(disk) {}
    void write_at(int64_t offset, std::span<const std::byte> bytes) override {
      disk_.fail_at("write");
      ForwardFile::write_at(offset, bytes);
    }
    void sync() override {
      disk_.fail_at("sync");
      ForwardFile::sync();
    }

   private:
    const BrokenDisk& disk_;
  };

  const std::string call_;
};

// Returns the call of the sink that failed; empty: none.
std::string failed_call(Sink& sink, std::span<const std::byte> content) {
  std::string call = "begin";
  try {
    sink.begin();
    call = "write";
    sink.write(content);
    call = "seal";
    (void)sink.seal();
    return "";
  } catch (const base::IoError&) {
    // Which call threw it is the result.
    return call;
  }
}

TEST(FileSinkTest, a_file_is_sealed_by_the_hash_of_its_index) {
  MemoryDisk disk;
  disk.make_folder(folder);
  AlignedBytes memory;
  const auto content = small_content(memory);
  FileSink sink({.disk = disk, .folder = folder, .rank = 0, .layout = small_layout()});
  sink.begin();
  sink.write(content);
  EXPECT_FALSE(disk.exists(folder / index_name(0)));
  const Receipt receipt = sink.seal();
  EXPECT_EQ(receipt.bytes, std::ssize(content));
  const MemoryDisk::Bytes& index = disk.bytes(folder / index_name(0));
  EXPECT_EQ(receipt.index_bytes, std::ssize(index));
  EXPECT_EQ(receipt.hash, hash_of(index));
  const MemoryDisk::Bytes& data = disk.bytes(folder / data_name(0));
  EXPECT_EQ(hash_of(data), hash_of(content));
}

TEST(FileSinkTest, a_disk_that_fails_ends_the_call_that_uses_it) {
  AlignedBytes memory;
  const auto content = small_content(memory);
  for (const auto& [at, call] : std::vector<std::pair<std::string, std::string>>{
           {"create", "begin"}, {"write", "write"}, {"sync", "seal"}, {"", ""}}) {
    MemoryDisk below;
    below.make_folder(folder);
    BrokenDisk disk(below, at);
    FileSink sink({.disk = disk, .folder = folder, .rank = 0, .layout = small_layout()},
                  {.queue_depth = 2});
    EXPECT_EQ(failed_call(sink, content), call) << at;
    EXPECT_EQ(below.exists(folder / index_name(0)), call.empty()) << at;
  }
}

// A disk that stores other bytes than it was given.
class LyingDisk final : public ForwardDisk {
 public:
  using ForwardDisk::ForwardDisk;
  std::unique_ptr<DiskFile> create(const Path& path, int64_t bytes) override {
    return std::make_unique<File>(ForwardDisk::create(path, bytes));
  }

 private:
  class File final : public ForwardFile {
   public:
    using ForwardFile::ForwardFile;
    void write_at(int64_t offset, std::span<const std::byte> bytes) override {
      std::vector<std::byte> other(bytes.begin(), bytes.end());
      other.back() ^= std::byte{1};
      ForwardFile::write_at(offset, other);
    }
  };
};

TEST(FileSinkTest, what_was_stored_wrongly_is_not_sealed_if_it_is_read_back) {
  AlignedBytes memory;
  const auto content = small_content(memory);
  for (const bool reread : {true, false}) {
    MemoryDisk below;
    below.make_folder(folder);
    LyingDisk disk(below);
    FileSink sink({.disk = disk, .folder = folder, .rank = 0, .layout = small_layout()},
                  {.queue_depth = 2, .reread = reread});
    EXPECT_EQ(failed_call(sink, content), reread ? "seal" : "");
  }
}

TEST(SinkDeathTest, calls_out_of_order_are_a_bug) {
  MemoryDisk disk;
  disk.make_folder(folder);
  FileSink sink({.disk = disk, .folder = folder, .rank = 0, .layout = small_layout()});
  EXPECT_DEATH((void)sink.seal(), "call 3 of a sink after call 0");
  sink.begin();
  EXPECT_DEATH(sink.begin(), "call 1 of a sink after call 1");
  EXPECT_DEATH(sink.write({}), "0 bytes for a file of");
}

class CopySinkTest : public testing::Test {
 protected:
  static CopyShape shape() {
    return {.layout = hash_of("layout"), .bytes = 100'000, .rank = 1, .buffers = 2};
  }
  static CopyLabel label(int64_t step) { return {.epoch = 1, .step = step}; }
  static std::vector<std::byte> content(int value) {
    return std::vector<std::byte>(static_cast<size_t>(shape().bytes),
                                  static_cast<std::byte>(value));
  }

  const base::Descriptor descriptor_{::memfd_create("copies", MFD_CLOEXEC)};
  CopyMemory memory_{descriptor_.value(), shape()};
};

TEST_F(CopySinkTest, a_copy_is_found_once_it_is_sealed_by_its_hash) {
  const std::vector<std::byte> bytes = content(7);
  CopySink sink(memory_, 1, label(5));
  sink.begin();
  sink.write(bytes);
  EXPECT_TRUE(memory_.copies().empty());
  const Receipt receipt = sink.seal();
  EXPECT_EQ(receipt.bytes, shape().bytes);
  EXPECT_EQ(receipt.index_bytes, 0);
  ASSERT_EQ(memory_.copies().size(), 1U);
  EXPECT_EQ(memory_.copies()[0].buffer, 1);
  EXPECT_EQ(memory_.copies()[0].label.step, 5);
  EXPECT_TRUE(memory_.verify(1));
}

TEST_F(CopySinkTest, a_block_that_was_filled_in_place_is_sealed_as_one_that_was_copied) {
  const std::vector<std::byte> bytes = content(9);
  CopySink in_place(memory_, 0, label(5)), copied(memory_, 1, label(6));
  in_place.begin();
  std::ranges::copy(bytes, in_place.block().begin());
  in_place.write(in_place.block());
  copied.begin();
  copied.write(bytes);
  const Receipt receipt = in_place.seal();
  EXPECT_EQ(receipt, copied.seal());
  CopySink other(memory_, 0, label(7));
  other.begin();
  other.write(content(10));
  EXPECT_NE(other.seal().hash, receipt.hash);
}

TEST_F(CopySinkTest, a_sink_that_is_given_up_leaves_no_copy_in_its_buffer) {
  for (const int64_t step : {5, 6}) {
    CopySink sink(memory_, static_cast<int>(step % 2), label(step));
    EXPECT_EQ(failed_call(sink, content(1)), "");
  }
  {
    CopySink given_up(memory_, 1, label(7));
    given_up.begin();
    given_up.write(content(2));
  }
  ASSERT_EQ(memory_.copies().size(), 1U);
  EXPECT_EQ(memory_.copies()[0].label.step, 6);
}

}  // namespace
}  // namespace trireme::ckpt
