// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/bench_gpu_text.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "base/error.h"
#include "base/text/json.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

base::Json figures() {
  return {{"format", 1},
          {"source", "measured by \"trireme bench gpu\""},
          {"gpu", {{"name", "NVIDIA H200"}, {"memory_bytes", 150000000000}}},
          {"gemm",
           {{{"m", 1024}, {"layout", "nt"}, {"accumulate", false}, {"tflops", 700.5}},
            {{"m", 2048}, {"layout", "nt"}, {"accumulate", true}, {"tflops", 710.0}}}}};
}

TEST(BenchGpuTextTest, a_machine_file_is_toml) {
  EXPECT_EQ(machine_file_text(figures()),
            "# Written by trireme bench gpu. machines/README.md describes the format.\n"
            "format = 1\n"
            "source = \"measured by \\\"trireme bench gpu\\\"\"\n"
            "\n[gpu]\nname = \"NVIDIA H200\"\nmemory_bytes = 150000000000\n"
            "\n[[gemm]]\nm = 1024\nlayout = \"nt\"\naccumulate = false\ntflops = 700.5\n"
            "\n[[gemm]]\nm = 2048\nlayout = \"nt\"\naccumulate = true\ntflops = 710.0\n");
}

TEST(BenchGpuTextTest, tables_leave_out_what_never_changes) {
  const std::string text = figures_text(figures());
  EXPECT_NE(text.find("gemm\n   m | accumulate | tflops\n"), std::string::npos) << text;
  EXPECT_NE(text.find("2048 | true       |  710.0\n"), std::string::npos) << text;
  EXPECT_NE(text.find("NVIDIA H200"), std::string::npos) << text;
  EXPECT_EQ(text.find("layout"), std::string::npos) << text;
}

TEST(BenchGpuTextTest, files_are_replaced_only_when_asked) {
  const fs::path folder =
      fs::path(testing::TempDir()) / ("bench_gpu_text." + std::to_string(::getpid()));
  fs::create_directory(folder);
  const fs::path file = folder / "gpu.toml";
  check_machine_file(file, false);
  write_machine_file(file, "a = 1\n");
  EXPECT_THROW(check_machine_file(file, false), base::ConfigError);
  check_machine_file(file, true);
  write_machine_file(file, "a = 2\n");
  std::ifstream in(file);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), "a = 2\n");
  EXPECT_THROW(check_machine_file(folder, true), base::ConfigError);
  EXPECT_THROW(check_machine_file(folder / "none" / "gpu.toml", false), base::ConfigError);
  EXPECT_THROW(write_machine_file(folder / "none" / "gpu.toml", ""), base::IoError);
  // No temporary file is left.
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 1);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace trireme::cli
