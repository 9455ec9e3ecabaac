// SPDX-License-Identifier: Apache-2.0
#include "ckpt/hf/export_folder.h"

#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "ckpt/hf/hf_names.h"
#include "ckpt/hf/hf_weights.h"
#include "ckpt/hf/safetensors.h"

namespace trireme::ckpt {
namespace {

namespace fs = std::filesystem;

class ExportFolderTest : public testing::Test {
 protected:
  ExportFolderTest()
      : folder_(fs::temp_directory_path() / ("trireme_exports_" + std::to_string(::getpid()))) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~ExportFolderTest() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  void export_to(const std::string& name) const {
    const spec::ModelDims dims{
        .name = "llama", .layers = 1, .hidden = 4, .heads = 1, .ffn = 4, .vocab = 8, .max_seq = 4};
    const ReadParam zeros = [&dims](const std::string& wanted) {
      for (const HfParam& param : hf_params(dims)) {
        if (param.name == wanted) return std::vector<float>(static_cast<size_t>(param.elements()));
      }
      return std::vector<float>();
    };
    export_hf(folder_ / name, dims, zeros, {});
  }
  void write(const std::string& name) const {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << "precious";
  }
  bool has(const std::string& name) const { return fs::exists(folder_ / name); }

  const fs::path folder_;
};

// A process that has ended and whose number is not reused yet.
pid_t ended_process() {
  pid_t process = -1;
  char name[] = "/bin/true";
  char* words[] = {name, nullptr};
  EXPECT_EQ(::posix_spawn(&process, name, nullptr, nullptr, words, nullptr), 0);
  ::waitpid(process, nullptr, 0);
  return process;
}

std::string draft_of(const std::string& name, pid_t process) {
  std::string draft = export_draft_name(name);
  const std::string own = std::to_string(::getpid());
  return draft.replace(draft.find(".tmp") + 4, own.size(), std::to_string(process));
}

TEST_F(ExportFolderTest, the_oldest_weights_beyond_the_wanted_number_go) {
  for (const char* name : {"step-00000002", "step-00000010", "step-00000001", "final"}) {
    export_to(name);
  }
  EXPECT_TRUE(prune_exports(folder_, 0).empty());
  EXPECT_TRUE(prune_exports(folder_, INT64_MAX).empty());
  EXPECT_TRUE(has("step-00000001"));
  EXPECT_TRUE(prune_exports(folder_, 1).empty());
  EXPECT_FALSE(has("step-00000001") || has("step-00000002"));
  EXPECT_TRUE(has("step-00000010/config.json") && has("final/config.json"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 2);
}

TEST_F(ExportFolderTest, what_others_put_there_stays_and_is_not_counted) {
  write("step-0-notes/thesis.txt");
  write("step-00000001/thesis.txt");
  write("step-00000002-handmade/config.json");
  // Weights of another program under a strict name.
  write("step-00000003/config.json");
  write_safetensors(folder_ / "step-00000003" / "model.safetensors", {}, {{"format", "pt"}});
  // Our weights with something beside them.
  export_to("step-00000004");
  write("step-00000004/README.md");
  // Our weights in another place.
  export_to("archive/step-00000005");
  fs::create_directory_symlink(folder_ / "archive/step-00000005", folder_ / "step-00000005");
  export_to("step-00000006");
  export_to("step-00000007");
  EXPECT_TRUE(prune_exports(folder_, 1).empty());
  for (const char* name :
       {"step-0-notes/thesis.txt", "step-00000001/thesis.txt", "step-00000002-handmade/config.json",
        "step-00000003/model.safetensors", "step-00000004/README.md",
        "step-00000004/model.safetensors", "step-00000005/model.safetensors",
        "archive/step-00000005/model.safetensors", "step-00000007/model.safetensors"}) {
    EXPECT_TRUE(has(name)) << name;
  }
  EXPECT_FALSE(has("step-00000006"));
}

TEST_F(ExportFolderTest, drafts_of_ended_processes_go_and_count_for_nothing) {
  const pid_t ended = ended_process();
  export_to("step-00000001");
  const std::vector<std::string> abandoned = {draft_of("step-00000002", ended),
                                              draft_of("final", ended)};
  const std::vector<std::string> kept = {
      export_draft_name("step-00000003"),               // of this process
      draft_of("step-00000003", ::getppid()),           // of one that runs
      draft_of("final", ended) + ".elsewhere",          // of another host
      "final.tmp" + std::to_string(ended),              // of a host that is not known
      draft_of("notes", ended),                         // not of weights of a run
      "final.old" + std::to_string(ended) + "-backup",  // no draft
  };
  for (const auto* names : {&abandoned, &kept}) {
    for (const std::string& name : *names) write(name + "/model.safetensors");
  }
  EXPECT_TRUE(prune_exports(folder_, 1).empty());
  for (const std::string& name : abandoned) EXPECT_FALSE(has(name)) << name;
  for (const std::string& name : kept) EXPECT_TRUE(has(name)) << name;
  EXPECT_TRUE(has("step-00000001/model.safetensors"));
}

TEST_F(ExportFolderTest, errors_are_returned) {
  const std::vector<std::string> problems = prune_exports(folder_ / "gone", 1);
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_NE(problems[0].find("No such file"), std::string::npos) << problems[0];
}

}  // namespace
}  // namespace trireme::ckpt
