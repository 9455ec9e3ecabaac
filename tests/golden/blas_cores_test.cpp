// SPDX-License-Identifier: Apache-2.0
// OpenBLAS has kernels for many CPUs, which sum in different orders, and chooses when it is loaded.
// This program starts itself once for each kernel set that this CPU can run; parity with PyTorch
// must hold with all of them, so that a green suite does not depend on the CPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

namespace trireme::tests {
namespace {

struct BlasCore {
  const char* name;      // as OPENBLAS_CORETYPE spells it
  const char* features;  // flags of /proc/cpuinfo that its kernels need
};

#if defined(__aarch64__)
const auto blas_cores = testing::Values(
    BlasCore{"ARMV8", "asimd"}, BlasCore{"CORTEXA53", "asimd"}, BlasCore{"CORTEXA57", "asimd"},
    BlasCore{"CORTEXA72", "asimd"}, BlasCore{"NEOVERSEN1", "asimd atomics fphp asimddp"},
    BlasCore{"THUNDERX2T99", "asimd atomics"}, BlasCore{"TSV110", "asimd atomics fphp"},
    BlasCore{"NEOVERSEV1", "sve i8mm bf16"}, BlasCore{"NEOVERSEN2", "sve2 i8mm bf16"});
#else
const auto blas_cores = testing::Values(
    BlasCore{"Prescott", "pni"}, BlasCore{"Core2", "ssse3"}, BlasCore{"Nehalem", "sse4_2"},
    BlasCore{"Sandybridge", "avx"}, BlasCore{"Haswell", "avx2 fma"}, BlasCore{"Zen", "avx2 fma"},
    BlasCore{"SkylakeX", "avx512f avx512cd avx512bw avx512dq avx512vl"},
    BlasCore{"Cooperlake", "avx512f avx512cd avx512bw avx512dq avx512vl avx512_bf16"});
#endif

std::set<std::string> features_of_cpu() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  std::set<std::string> features;
  for (std::string line; std::getline(cpuinfo, line);) {
    if (!line.starts_with("flags") && !line.starts_with("Features")) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    for (std::string word; words >> word;) features.insert(word);
    break;
  }
  return features;
}

struct Output {
  int status;
  std::string text;
};

Output output_of(const std::string& command) {
  Output output{-1, {}};
  std::FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return output;
  std::array<char, 4096> part{};
  for (size_t n = 0; (n = std::fread(part.data(), 1, part.size(), pipe)) > 0;) {
    output.text.append(part.data(), n);
  }
  output.status = ::pclose(pipe);
  return output;
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

class BlasCoreTest : public testing::TestWithParam<BlasCore> {};

TEST_P(BlasCoreTest, parity_holds) {
  const std::set<std::string> features = features_of_cpu();
  std::istringstream needed(GetParam().features);
  for (std::string feature; needed >> feature;) {
    if (!features.contains(feature)) GTEST_SKIP() << "this CPU has no " << feature;
  }
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  const Output output =
      // All of its tests, also where this process has a share of them (tests/run_tests.sh).
      output_of("env -u GTEST_TOTAL_SHARDS -u GTEST_SHARD_INDEX OPENBLAS_CORETYPE=" +
                std::string(GetParam().name) + " '" + program +
                "' --gtest_filter='Goldens/ParityTest.*:Models/HfParityTest.*_of_transformers*' "
                "--gtest_brief=1 2>&1");
  const std::string asked = "openblas kernels: " + lower(GetParam().name) + "\n";
  if (output.status == 0 && lower(output.text).find(asked) == std::string::npos) {
    GTEST_SKIP() << "this OpenBLAS has no kernels of that name";
  }
  EXPECT_EQ(output.status, 0) << output.text;
}

INSTANTIATE_TEST_SUITE_P(Cores, BlasCoreTest, blas_cores,
                         [](const auto& core) { return std::string(core.param.name); });

}  // namespace
}  // namespace trireme::tests
