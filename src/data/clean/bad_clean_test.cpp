// SPDX-License-Identifier: Apache-2.0
// Bad options, inputs and outputs: one message, and no file is written.
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "data/archives_test.h"
#include "data/clean/clean_test.h"

namespace trireme::data {
namespace {

class BadCleanTest : public CleanFilesTest {
 protected:
  CleanOptions good() const {
    CleanOptions o;
    o.inputs = {write("a.jsonl", json_line("a text")).string()};
    o.output = path("out.jsonl");
    return o;
  }
  // Returns the message of the refusal; no file may be left beside those that were there.
  template <typename Error = base::ConfigError>
  std::string refusal(const CleanOptions& o) const {
    const std::vector<std::string> before = names();
    const std::string message = message_of<Error>([&] { clean_documents(o); });
    EXPECT_EQ(names(), before);
    return message;
  }
};

TEST_F(BadCleanTest, options) {
  CleanOptions o = good();
  for (const double threshold : {0.0, -0.5, 1.5, std::nan("")}) {
    o.near->threshold = threshold;
    EXPECT_TRUE(says(refusal(o), {"a threshold of", "above 0, at most 1"}));
  }
  o = good();
  o.near->permutations = 0;
  EXPECT_TRUE(says(refusal(o), {"0 permutations", "1 .. 4096"}));
  o = good();
  o.near->bands = Bands{.bands = 20, .rows = 7};
  EXPECT_TRUE(says(refusal(o), {"20 bands of 7 rows", "at most the 128"}));
  o.near->bands = Bands{.bands = 0, .rows = 7};
  EXPECT_TRUE(says(refusal(o), {"0 bands of 7 rows"}));
  o = good();
  o.near->shingles.size = 0;
  EXPECT_TRUE(says(refusal(o), {"shingles of 0 words", "1 .. 1000"}));
  o = good();
  o.workers = 0;
  EXPECT_TRUE(says(refusal(o), {"0 workers", "1 .. 1024"}));
  o = good();
  o.examples = -1;
  EXPECT_TRUE(says(refusal(o), {"-1 examples", "0 .. 1000"}));
  o = good();
  o.documents.max_document_bytes = 0;
  EXPECT_TRUE(says(refusal(o), {"at most 0 bytes"}));
  o = good();
  o.documents.raw_bytes = true;
  EXPECT_TRUE(says(refusal(o), {"UTF-8"}));
  o = good();
  o.documents.prompt_field = "q";
  EXPECT_TRUE(says(refusal(o), {"prompt field 'q'", "together"}));
  o = good();
  o.removes_exact = false;
  o.near.reset();
  EXPECT_TRUE(says(refusal(o), {"nothing to remove"}));
}

TEST_F(BadCleanTest, outputs) {
  CleanOptions o = good();
  o.output = "";
  EXPECT_TRUE(says(refusal(o), {"no output", ".jsonl.zst"}));
  for (const char* name : {"out.json", "out.txt", "out.gz", "out.csv.zst", "out.parquet"}) {
    o.output = path(name);
    EXPECT_TRUE(says(refusal(o), {name, "ends in .jsonl"}));
  }
  o.output = path("no/such/out.jsonl");
  EXPECT_TRUE(says(refusal(o), {"out.jsonl: the folder", "no/such does not exist"}));
  o.output = path("a.jsonl");
  EXPECT_TRUE(says(refusal(o), {"a.jsonl: is read and would be replaced"}));
  std::filesystem::create_directories(path("in"));
  write("in/b.jsonl", json_line("b"));
  o.inputs = {path("in").string()};
  o.output = path("in/out.jsonl");
  EXPECT_TRUE(says(refusal(o), {"the output lies in the input folder"}));
  o.output = path("in");
  EXPECT_TRUE(says(refusal(o), {"the output lies in the input folder"}));
  o = good();
  std::filesystem::create_directories(path("folder.jsonl"));
  o.output = path("folder.jsonl");
  EXPECT_TRUE(says(refusal(o), {"folder.jsonl: exists and is not a regular file"}));
  write("plain", "");
  o.output = path("plain");
  EXPECT_TRUE(says(refusal(o), {"plain: exists and is not a folder"}));
  for (const char* name : {"old.jsonl", "old.jsonl.report.json"}) {
    write(name, "kept");
    o.output = path("old.jsonl");
    EXPECT_TRUE(says(refusal(o), {name, "already exists", "--overwrite"}));
    EXPECT_EQ(read(name), "kept");
    std::filesystem::remove(path(name));
  }
}

TEST_F(BadCleanTest, inputs) {
  CleanOptions o = good();
  o.inputs = {path("gone.jsonl").string()};
  EXPECT_TRUE(says(refusal<base::Error>(o), {"gone.jsonl"}));
  o.inputs = {write("a.csv", "x").string()};
  EXPECT_TRUE(says(refusal(o), {"a.csv", "give the kind"}));
  o.inputs = {write("a.bin", "xx").string()};
  EXPECT_TRUE(says(refusal(o), {"a.bin: holds tokens", "text, jsonl, tar or mds"}));
  o.inputs = {write("empty.jsonl", "\n").string()};
  EXPECT_TRUE(says(refusal<base::IoError>(o), {"the 1 file hold no document"}));
  o.inputs = {write("bad.jsonl", "oops\n{}\n").string()};
  EXPECT_TRUE(says(refusal<base::IoError>(o), {"no document is left of 2", "2 rejected"}));
  o.output = path("folder");
  EXPECT_TRUE(says(refusal<base::IoError>(o), {"no document is left of 2"}));
  o.output = path("out.jsonl");
  o.max_rejected = 1;
  EXPECT_TRUE(says(refusal<base::IoError>(o), {"bad.jsonl:2", "wrong_field", "allowed: 1"}));
  o = good();
  o.inputs = {write("cut.jsonl.gz", gzip_stored(json_line("a")).substr(0, 25)).string()};
  EXPECT_TRUE(says(refusal<base::IoError>(o), {"cut.jsonl.gz: truncated"}));
}

}  // namespace
}  // namespace trireme::data
