// SPDX-License-Identifier: Apache-2.0
// scripts/gpu_record.sh on small trees: which sources count, and what is recorded and compared.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

namespace trireme::tidy {
namespace {

namespace fs = std::filesystem;

// A tree with the script and these files, which is removed at the end.
class GpuTree {
 public:
  explicit GpuTree(const std::vector<std::string>& files) {
    static int number = 0;
    root_ = fs::path(testing::TempDir()) /
            ("gpu_record_" + std::to_string(::getpid()) + "_" + std::to_string(number++));
    fs::remove_all(root_);
    fs::create_directories(root_ / "scripts");
    fs::copy_file(fs::path(TRIREME_SOURCE_DIR) / "scripts/gpu_record.sh",
                  root_ / "scripts/gpu_record.sh");
    for (const std::string& file : files) write(file, "// " + file + "\n");
    write("src/floors.txt", "# words\n0  base : \n2  kernels : base\n4  engine : base kernels\n");
    write("scripts/test_gpu.sh", "#!/bin/sh\n");
  }
  ~GpuTree() {
    std::error_code error;
    fs::remove_all(root_, error);
    EXPECT_FALSE(error) << error.message();
  }
  GpuTree(const GpuTree&) = delete;
  GpuTree& operator=(const GpuTree&) = delete;

  void write(const std::string& file, const std::string& text) const {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file, std::ios::binary) << text;
  }
  void remove(const std::string& file) const { fs::remove(root_ / file); }
  std::string record() const {
    std::ifstream in(root_ / "tests/gpu/record.json", std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  // Returns what bash prints for commands that are run in the tree, with the script sourced.
  std::string run(const std::string& commands) const {
    const std::string call = "cd '" + root_.string() +
                             "' && bash -c 'set -uo pipefail; . scripts/gpu_record.sh; " +
                             commands + "' 2>&1";
    FILE* pipe = ::popen(call.c_str(), "r");
    if (pipe == nullptr) throw std::runtime_error("bash cannot be started");
    std::string printed;
    std::array<char, 256> part{};
    for (size_t size = 0; (size = std::fread(part.data(), 1, part.size(), pipe)) > 0;) {
      printed.append(part.data(), size);
    }
    ::pclose(pipe);
    return printed;
  }
  std::string status() const { return run("gpu_record_status"); }

 private:
  fs::path root_;
};

const std::vector<std::string> reaching = {
    "src/base/check.h",          "src/engine/engine.cpp",
    "src/kernels/cuda/a.cu",     "src/kernels/cuda/a.cuh",
    "src/kernels/ops.h",         "src/kernels/ops_test.cpp",
    "src/kernels/tests/rig.h",   "tests/gpu/x_test.cpp",
    "tests/ranks/ranks_rig.cpp", "tests/launch/rank_program.cpp"};
const std::vector<std::string> others = {"src/base/check_test.cpp", "src/base/rig_test.h",
                                         "src/kernels/notes.md",    "src/cli/main.cpp",
                                         "tests/ranks/x_test.cpp",  "tests/gpu/hf.py"};

// What a test program of googletest does with GTEST_OUTPUT.
std::string program(int tests, int skipped) {
  std::string report = "{ \"tests\": " + std::to_string(tests) + ",\n \"failures\": 0,\n";
  for (int i = 0; i < skipped; ++i) report += " \"result\": \"SKIPPED\",\n";
  return "report() { cat > \"${GTEST_OUTPUT#json:}\" <<\"END\"\n" + report + "END\n}; ";
}

TEST(GpuRecord, sources_that_reach_a_gpu_are_those_below_the_engine) {
  std::vector<std::string> all = reaching;
  all.insert(all.end(), others.begin(), others.end());
  const GpuTree tree(all);
  std::vector<std::string> sorted = reaching;
  sorted.push_back("scripts/test_gpu.sh");
  std::sort(sorted.begin(), sorted.end());
  std::string expected;
  for (const std::string& file : sorted) expected += file + "\n";
  EXPECT_EQ(tree.run("gpu_files"), expected);
}

TEST(GpuRecord, the_hash_depends_on_content_and_names_alone) {
  const GpuTree tree(reaching);
  const std::string hash = tree.run("gpu_hash");
  EXPECT_EQ(hash.size(), 17U) << hash;
  std::vector<std::string> reversed(reaching.rbegin(), reaching.rend());
  reversed.insert(reversed.end(), others.begin(), others.end());
  const GpuTree again(reversed);
  EXPECT_EQ(again.run("export LC_ALL=C.UTF-8; gpu_hash"), hash);
  again.write("src/cli/main.cpp", "changed");
  EXPECT_EQ(again.run("gpu_hash"), hash);
  again.write("src/kernels/cuda/a.cuh", "changed");
  EXPECT_NE(again.run("gpu_hash"), hash);
}

TEST(GpuRecord, a_whole_run_is_recorded_and_compared) {
  const GpuTree tree(reaching);
  EXPECT_EQ(tree.status(),
            "GPU suite: no whole run is recorded in tests/gpu/record.json; run scripts/test_gpu.sh "
            "on a machine with a GPU\n");
  const std::string printed = tree.run(
      "export TRIREME_COMMIT=0123456789ab; record_part build false; echo $?; " + program(7, 2) +
      "begin_record parts; record_part \"ranks: one\" report; record_part \"ranks: two\" "
      "report; record_part hf true; write_record \"NVIDIA \\\"H200\\\"\"");
  EXPECT_EQ(printed, "1\n");
  const std::string record = tree.record();
  for (const char* part :
       {"\"commit\": \"0123456789ab\"", "\"device\": \"NVIDIA H200\"", "\"files\": 11",
        "\"tests\": 14,", "{\"name\": \"ranks\", \"tests\": 14, \"skipped\": 4, \"seconds\": ",
        "{\"name\": \"hf\", \"tests\": 0, \"skipped\": 0, \"seconds\": 0}"}) {
    EXPECT_NE(record.find(part), std::string::npos) << part << " in\n" << record;
  }
  EXPECT_EQ(record.find("build"), std::string::npos) << record;
  EXPECT_EQ(tree.status(), "");

  tree.write("src/kernels/ops.h", "changed");
  tree.write("src/base/check_test.cpp", "changed");
  EXPECT_EQ(tree.status(),
            "GPU suite: last run whole on commit 0123456789ab (NVIDIA H200); changed since: "
            "src/kernels; run scripts/test_gpu.sh on a machine with a GPU\n");
  tree.write("src/kernels/ops.h", "// src/kernels/ops.h\n");
  EXPECT_EQ(tree.status(), "");
  tree.remove("tests/gpu/x_test.cpp");
  EXPECT_NE(tree.status().find("changed since: tests;"), std::string::npos) << tree.status();
  tree.write("tests/gpu/record.json", "{}");
  EXPECT_NE(tree.status().find("cannot be read"), std::string::npos) << tree.status();
}

TEST(GpuRecord, skipped_and_empty_runs_are_not_recorded) {
  const GpuTree tree(reaching);
  EXPECT_EQ(tree.run(program(3, 3) +
                     "begin_record parts; record_part kernels report; write_record GPU; echo $?"),
            "gpu_record: nothing is recorded: every test of kernels was skipped\n1\n");
  EXPECT_EQ(tree.run("begin_record parts; record_part kernels true; write_record GPU; echo $?"),
            "gpu_record: nothing is recorded: no test ran\n1\n");
  EXPECT_EQ(tree.record(), "");
}

TEST(GpuRecord, of_this_tree_has_one_line_at_most) {
  const std::string call = "bash '" TRIREME_SOURCE_DIR "/scripts/gpu_record.sh' status";
  FILE* pipe = ::popen(call.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  int lines = 0;
  for (int c = 0; (c = std::fgetc(pipe)) != EOF;) lines += c == '\n' ? 1 : 0;
  EXPECT_EQ(::pclose(pipe), 0);
  EXPECT_LE(lines, 1);
}

}  // namespace
}  // namespace trireme::tidy
