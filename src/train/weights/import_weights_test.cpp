// SPDX-License-Identifier: Apache-2.0
#include "train/weights/import_weights.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <limits>

#include "base/error.h"
#include "ckpt/disk/forward_disk_test.h"
#include "ckpt/disk/memory_disk.h"
#include "ckpt/generation/folder.h"
#include "ckpt/hf/hf_names.h"
#include "ckpt/hf/hf_weights.h"

namespace trireme::train {
namespace {

// Counts files and folders that are created on it.
class CountingDisk final : public ckpt::ForwardDisk {
 public:
  explicit CountingDisk(ckpt::Disk& below) : ForwardDisk(below) {}
  std::unique_ptr<ckpt::DiskFile> create(const Path& path, int64_t bytes) override {
    ++made;
    return ForwardDisk::create(path, bytes);
  }
  void make_folder(const Path& path) override {
    ++made;
    ForwardDisk::make_folder(path);
  }

  int made = 0;
};

class ImportWeightsTest : public testing::Test {
 protected:
  ImportWeightsTest() {
    below_.make_folder("/run");
    std::filesystem::remove_all(weights_);
  }
  ~ImportWeightsTest() override { std::filesystem::remove_all(weights_); }

  // Writes weights that are all `value`.
  void write(float value) {
    std::map<std::string, int64_t> elements;
    for (const ckpt::HfParam& param : ckpt::hf_params(dims_)) {
      elements[param.name] = param.elements();
    }
    ckpt::export_hf(weights_, dims_, ckpt::ReadParam([&](const std::string& name) {
                      return std::vector<float>(static_cast<size_t>(elements.at(name)), value);
                    }),
                    {});
  }
  std::string refusal(const spec::ModelDims& dims) {
    try {
      import_weights(disk_, weights_, dims, "/run");
    } catch (const base::IoError& error) {
      return error.what();
    }
    return "";
  }

  spec::ModelDims dims_{
      .name = "m", .layers = 1, .hidden = 8, .heads = 2, .ffn = 12, .vocab = 16, .max_seq = 8};
  std::filesystem::path weights_ =
      std::filesystem::temp_directory_path() / ("trireme_import_" + std::to_string(::getpid()));
  ckpt::MemoryDisk below_;
  CountingDisk disk_{below_};
};

TEST_F(ImportWeightsTest, another_model_is_refused_before_anything_is_made) {
  write(0.5F);
  spec::ModelDims other = dims_;
  other.ffn = 1 << 20;
  EXPECT_NE(refusal(other).find("the model wants"), std::string::npos);
  EXPECT_EQ(disk_.made, 0);
  EXPECT_EQ(refusal(dims_), "");
  EXPECT_EQ(ckpt::committed_steps(disk_, "/run"), std::vector<int64_t>{0});
}

TEST_F(ImportWeightsTest, weights_that_are_not_finite_leave_no_checkpoint) {
  write(std::numeric_limits<float>::quiet_NaN());
  EXPECT_NE(refusal(dims_).find("not finite, the first is nan at [0, 0] of tensor "),
            std::string::npos);
  EXPECT_TRUE(below_.list("/run").empty());
}

}  // namespace
}  // namespace trireme::train
