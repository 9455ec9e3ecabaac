// SPDX-License-Identifier: Apache-2.0
#include "config/files/paths.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace trireme::config {
namespace {

TEST(ConfigPaths, inputs_and_folders_become_absolute_and_names_stay) {
  Config c;
  c.job.dump_folder = "runs/a";
  c.training.dataset_path = "./data/../text";
  c.training.dataset = {{.name = "a", .path = "data/a"}};
  c.validation.dataset = {{.name = "b", .path = "/data/b"}};
  c.system.machine = "h100";
  const Config absolute = with_absolute_paths(c);
  const std::filesystem::path here = std::filesystem::current_path();
  EXPECT_EQ(absolute.job.dump_folder, (here / "runs/a").string());
  EXPECT_EQ(absolute.training.dataset_path, (here / "text").string());
  EXPECT_EQ(absolute.training.dataset[0].path, (here / "data/a").string());
  EXPECT_EQ(absolute.validation.dataset[0].path, "/data/b");
  EXPECT_EQ(absolute.training.tokenizer, "");
  EXPECT_EQ(absolute.system.machine, "h100");
  c.system.machine = "machines/mine.toml";
  EXPECT_EQ(with_absolute_paths(c).system.machine, (here / "machines/mine.toml").string());
}

}  // namespace
}  // namespace trireme::config
