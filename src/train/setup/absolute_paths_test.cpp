// SPDX-License-Identifier: Apache-2.0
#include "train/setup/absolute_paths.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace trireme::train {
namespace {

TEST(AbsolutePaths, inputs_and_folders_become_absolute_and_names_stay) {
  config::Config c;
  c.job.dump_folder = "runs/a";
  c.training.dataset_path = "./text";
  c.training.dataset = {{.name = "a", .path = "data/a"}};
  c.validation.dataset = {{.name = "b", .path = "/data/b"}};
  c.system.machine = "h100";
  c.elastic.domains = "racks.txt";
  const config::Config absolute = with_absolute_paths(c);
  const std::filesystem::path here = std::filesystem::current_path();
  EXPECT_EQ(absolute.job.dump_folder, (here / "runs/a").string());
  EXPECT_EQ(absolute.training.dataset_path, (here / "text").string());
  EXPECT_EQ(absolute.training.dataset[0].path, (here / "data/a").string());
  EXPECT_EQ(absolute.validation.dataset[0].path, "/data/b");
  EXPECT_EQ(absolute.training.tokenizer, "");
  EXPECT_EQ(absolute.system.machine, "h100");
  EXPECT_EQ(absolute.elastic.domains, (here / "racks.txt").string());
  c.system.machine = "machines/mine.toml";
  EXPECT_EQ(with_absolute_paths(c).system.machine, (here / "machines/mine.toml").string());
}

TEST(AbsolutePaths, the_folder_above_a_link_is_that_of_its_target) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::weakly_canonical(testing::TempDir()) / "absolute_paths";
  fs::remove_all(folder);
  fs::create_directories(folder / "a/b");
  fs::create_directory_symlink(folder / "a/b", folder / "link");
  config::Config c;
  c.training.dataset_path = (folder / "link/../text").string();
  EXPECT_EQ(with_absolute_paths(c).training.dataset_path, (folder / "a/text").string());
  fs::remove_all(folder);
}

}  // namespace
}  // namespace trireme::train
