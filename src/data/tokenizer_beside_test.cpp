// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer_beside.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/text/json.h"
#include "data/corpus/corpus.h"
#include "data/files_test.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

class TokenizerBesideTest : public FilesTest {
 protected:
  // Builds a.txt with a tokenizer whose files are these.
  CorpusReport build(const std::vector<std::string>& files, const std::string& fingerprint) {
    CorpusOptions o;
    o.inputs = {write("a.txt", "text").string()};
    o.output = path("out");
    o.start_over = true;
    o.tokenizer.fingerprint = fingerprint;
    for (const std::string& file : files) o.tokenizer.files.push_back(path(file));
    return build_corpus(o);
  }
};

TEST_F(TokenizerBesideTest, files_travel_with_the_data_set) {
  fs::create_directories(path("model"));
  write("model/my.json", "{\"a\":1}");
  write("model/tokenizer_config.json", "{}");
  const CorpusReport report = build({"model/my.json", "model/tokenizer_config.json"}, "f1");
  EXPECT_EQ(read("out.tokenizer/tokenizer.json"), "{\"a\":1}");
  EXPECT_EQ(read("out.tokenizer/tokenizer_config.json"), "{}");
  EXPECT_TRUE(holds(
      names(), {"a.txt", "model", "out.bin", "out.idx", "out.manifest.json", "out.tokenizer"}));
  EXPECT_EQ(report.files.back().filename(), "out.manifest.json");
  for (const char* name : {"out", "out.bin", "out.idx"}) {
    EXPECT_EQ(tokenizer_beside(path(name)), path("out.tokenizer")) << name;
    const auto manifest = manifest_beside(path(name));
    ASSERT_TRUE(manifest) << name;
    EXPECT_EQ((*manifest)["tokenizer"]["fingerprint"], "f1");
    EXPECT_EQ((*manifest)["tokenizer"]["vocab"], 256);
    EXPECT_EQ((*manifest)["tokenizer"]["folder"], "out.tokenizer");
  }
  EXPECT_FALSE(tokenizer_beside(path("a.txt")));
  EXPECT_FALSE(manifest_beside(path("a.txt")));
}

TEST_F(TokenizerBesideTest, a_new_data_set_replaces_the_folder_or_removes_it) {
  write("one.json", "1");
  write("two.model", "2");
  write("vocab.json", "3");
  build({"one.json", "vocab.json"}, "f1");
  build({"two.model"}, "f2");
  EXPECT_EQ(read("out.tokenizer/tokenizer.model"), "2");
  EXPECT_FALSE(fs::exists(path("out.tokenizer/tokenizer.json")));
  EXPECT_FALSE(fs::exists(path("out.tokenizer/vocab.json")));
  EXPECT_FALSE(fs::exists(path("out.build")));
  build({}, "bytes");
  EXPECT_FALSE(tokenizer_beside(path("out")));
}

TEST_F(TokenizerBesideTest, a_folder_with_other_files_is_not_replaced) {
  write("one.json", "1");
  fs::create_directories(path("out.tokenizer"));
  write("out.tokenizer/thesis.txt", "x");
  EXPECT_TRUE(says(message_of<base::ConfigError>([&] { build({"one.json"}, "f"); }),
                   {"out.tokenizer/thesis.txt: is no file of a tokenizer", "another output"}));
  fs::remove_all(path("out.tokenizer"));
  write("out.tokenizer", "a file");
  EXPECT_TRUE(says(message_of<base::ConfigError>([&] { build({"one.json"}, "f"); }),
                   {"out.tokenizer: is not a folder"}));
  fs::remove(path("out.tokenizer"));
  EXPECT_TRUE(says(message_of<base::IoError>([&] { build({"gone.json"}, "f"); }),
                   {"gone.json: cannot be read"}));
  EXPECT_TRUE(holds(names(), {"a.txt", "one.json"}));
}

TEST_F(TokenizerBesideTest, a_manifest_of_something_else_is_refused) {
  for (const char* text : {"", "[1]", "{}", "{\"trireme_data\":"}) {
    write("out.manifest.json", text);
    EXPECT_TRUE(says(message_of<base::IoError>([&] { (void)manifest_beside(path("out.bin")); }),
                     {"out.manifest.json: is not a manifest of data build"}));
  }
}

}  // namespace
}  // namespace trireme::data
