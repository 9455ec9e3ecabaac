// SPDX-License-Identifier: Apache-2.0
// The installed program: the libraries that it links, its data files, and that it runs without the
// build folder and without CUDA.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/cli/program.h"

namespace trireme::tests {
namespace {

namespace fs = std::filesystem;

Outcome shell(const Scratch& s, const std::string& line) {
  return Running(s.path(), {"/bin/sh", "-c", line}).wait();
}

// Runs `cmake --install` to a prefix in the folder.
void install(const Scratch& s, const std::string& prefix) {
  const Outcome outcome =
      shell(s, std::string("'" TRIREME_CMAKE "' --install '" TRIREME_BUILD_DIR "' --prefix '") +
                   s.at(prefix).string() + "'");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
}

// One program serves machines with CUDA and without: it must not link these libraries, nor export
// the functions that it forwards, which would replace the real ones.
TEST(InstallTest, no_gpu_library_is_linked) {
  const Scratch s;
  const Outcome outcome = shell(s, "LC_ALL=C readelf --wide --dynamic --dyn-syms '" TRIREME_PROGRAM
                                   "' | grep -E 'NEEDED|FUNC|OBJECT'");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("[libc.so.6]"), std::string::npos) << outcome.out;
  for (const char* name : {"cublas", "cudnn", "nccl", "libcuda", "libnv"}) {
    EXPECT_EQ(outcome.out.find(name), std::string::npos) << name << "\n" << outcome.out;
  }
}

TEST(InstallTest, an_installed_program_finds_its_files_from_any_prefix) {
  const Scratch s;
  install(s, "first");
  if (HasFatalFailure()) return;
  for (const char* file :
       {"bin/trireme", "share/trireme/models/llama3.2-1b.toml", "share/trireme/machines/h200.toml",
        "share/trireme/machines/measured/h200.toml", "share/trireme/stacks/fsdp.toml",
        "share/trireme/configs/kjv.toml", "share/doc/trireme/README.md",
        "share/doc/trireme/docs/install.md", "share/doc/trireme/LICENSE",
        "share/doc/trireme/CHANGELOG.md", "share/doc/trireme/copyright",
        "share/doc/trireme/changelog.gz", "share/man/man1/trireme.1.gz"}) {
    EXPECT_TRUE(s.has(std::string("first/") + file)) << file;
  }
  EXPECT_FALSE(s.has("first/share/trireme/configs/models"));
  const Outcome paths = shell(s, "LC_ALL=C readelf --dynamic first/bin/trireme");
  EXPECT_EQ(paths.out.find("RUNPATH"), std::string::npos) << paths.out;

  // Moved, started through a link, and from another folder.
  fs::rename(s.at("first"), s.at("second"));
  fs::create_directories(s.at("elsewhere"));
  fs::create_symlink(s.at("second/bin/trireme"), s.at("elsewhere/oars"));
  const Outcome plan = shell(s,
                             "cd elsewhere && ./oars plan --model llama-1b --machine h200 --gpus 8 "
                             "--batch 512 --seq-len 4096 --json");
  EXPECT_EQ(plan.exit_code, 0) << plan.err;
  EXPECT_EQ(only_object(plan.out)["ok"], true);
}

// A login node without a CUDA folder and search path: in a mount namespace, an empty folder
// replaces that of CUDA.
TEST(InstallTest, an_installed_program_trains_where_cuda_is_hidden) {
  const Scratch s;
  const std::string hidden =
      "unshare --map-root-user --mount sh -c 'for folder in /usr/local/cuda*; "
      "do test ! -d $folder || mount -t tmpfs none $folder; done; ";
  if (shell(s, hidden + "true'").exit_code != 0) {
    GTEST_SKIP() << "no mount namespace for this user";
  }
  install(s, "prefix");
  if (HasFatalFailure()) return;
  write_tiny(s);
  const std::string bare = hidden + "env -i HOME=" + s.path().string() + " prefix/bin/trireme ";
  const Outcome train = shell(s, bare + "train tiny_run.toml --device cpu'");
  EXPECT_EQ(train.exit_code, 0) << train.err;
  EXPECT_TRUE(s.has(final_weights));
  const Outcome doctor = shell(s, bare + "doctor --json'");
  ASSERT_EQ(doctor.exit_code, 0) << doctor.err;
  const base::Json cuda = only_object(doctor.out)["cuda"];
  EXPECT_EQ(cuda["libraries"].empty(), cuda["in_build"] == false);
  for (const base::Json& library : cuda["libraries"]) {
    if (library["loaded"] == true) continue;  // ldconfig found it elsewhere
    const auto problem = library["problem"].get<std::string>();
    EXPECT_NE(problem.find(library["file"].get<std::string>() + " cannot be loaded"),
              std::string::npos)
        << problem;
    EXPECT_NE(problem.find("install "), std::string::npos) << problem;
  }
}

}  // namespace
}  // namespace trireme::tests
