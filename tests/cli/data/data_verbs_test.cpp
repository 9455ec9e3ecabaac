// SPDX-License-Identifier: Apache-2.0
// data build, convert, inspect and tokenizer as a user calls them.
#include <gtest/gtest.h>

#include "base/text/json.h"
#include "tests/cli/program.h"

namespace trireme::tests {
namespace {

// Runs a shell command in the folder of the test, with the program as $T.
Outcome in_shell(const Scratch& s, const std::string& script) {
  return Running(s.path(), {"/bin/bash", "-c", "T=" TRIREME_PROGRAM "\n" + script}).wait();
}

// Trains tok/ on text.txt.
base::Json train_tokenizer(const Scratch& s) {
  write_tiny(s);
  return trireme_json(s, {"data", "tokenizer", "train", "text.txt", "--output", "tok", "--vocab",
                          "275", "--special", "<|end|>", "<|pad|>", "--pad", "<|pad|>"});
}

TEST(TokenizerVerbs, a_trained_tokenizer_encodes_and_decodes) {
  const Scratch s;
  const base::Json trained = train_tokenizer(s);
  EXPECT_EQ(trained["vocab"], 275);
  EXPECT_EQ(trained["merges"], 275 - 256 - 2);
  EXPECT_EQ(trained["eos"], "<|end|>");
  EXPECT_GT(trained["bytes_per_token"].get<double>(), 1.5);
  const base::Json config = base::Json::parse(s.read("tok/tokenizer_config.json"));
  EXPECT_EQ(config["eos_token"], "<|end|>");
  EXPECT_EQ(config["pad_token"], "<|pad|>");
  EXPECT_FALSE(config.contains("bos_token"));

  const base::Json shown = trireme_json(s, {"data", "tokenizer", "inspect", "tok"});
  EXPECT_EQ(shown["vocab"], 275);
  EXPECT_EQ(shown["special"]["named"]["eos"]["id"], 0);
  EXPECT_EQ(shown["special"]["named"]["pad"]["id"], 1);
  EXPECT_EQ(shown["fingerprint"], trained["fingerprint"]);
  EXPECT_EQ(shown["normalizer"], "none");
  EXPECT_TRUE(shown["pre_tokenizer"].get<std::string>().starts_with("Split("));

  const std::string text = "9 bottles of caf\xc3\xa9";
  const base::Json encoded = trireme_json(s, {"data", "tokenizer", "encode", "tok", text});
  std::string ids;
  for (const base::Json& id : encoded["ids"]) ids += id.dump() + " ";
  EXPECT_EQ(in_shell(s, "$T data tokenizer decode tok " + ids).out, text + "\n");
  EXPECT_EQ(in_shell(s, "printf '%s' '" + text + "' | $T data tokenizer encode tok").out,
            ids.substr(0, ids.size() - 1) + "\n");
  EXPECT_EQ(in_shell(s, "echo '" + encoded["ids"].dump() + "' | $T data tokenizer decode tok").out,
            text + "\n");
  const Outcome pieces = trireme(s, {"data", "tokenizer", "encode", "tok", "<|pad|>", "--pieces"});
  EXPECT_EQ(pieces.out, "1\t<|pad|>\n");
  EXPECT_EQ(trireme(s, {"data", "tokenizer", "inspect", "tok"}).exit_code, 0);
}

TEST(TokenizerVerbs, training_gives_the_same_file_for_any_workers_and_replaces_on_request) {
  const Scratch s;
  write_tiny(s);
  std::vector<std::string> call = {"data", "tokenizer", "train", "text.txt",  "--output",
                                   "tok",  "--vocab",   "270",   "--workers", "1"};
  trireme_json(s, call);
  const std::string one = s.read("tok/tokenizer.json");
  call.back() = "3";
  EXPECT_EQ(trireme(s, call).exit_code, 2);
  call.emplace_back("--overwrite");
  const Outcome again = trireme(s, call);
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_NE(again.out.find("vocabulary 270, 13 merges"), std::string::npos) << again.out;
  EXPECT_TRUE(s.read("tok/tokenizer.json") == one);
}

TEST(BuildVerb, the_tokenizer_travels_with_the_data) {
  const Scratch s;
  train_tokenizer(s);
  s.write("a.jsonl", "{\"text\": \"9 bottles of beer\"}\n{\"text\": \"on the wall\"}\n");
  const base::Json built = trireme_json(
      s, {"data", "build", "a.jsonl", "--output", "d", "--tokenizer", "tok", "--bod", "<|pad|>"});
  EXPECT_EQ(built["documents"], 2);
  EXPECT_EQ(built["vocab"], 275);
  EXPECT_EQ(built["tokenizer"]["end_of_document"], 0);
  EXPECT_EQ(built["tokenizer"]["begin_of_document"], 1);
  EXPECT_EQ(s.read("d.tokenizer/tokenizer.json"), s.read("tok/tokenizer.json"));
  EXPECT_EQ(s.read("d.tokenizer/tokenizer_config.json"), s.read("tok/tokenizer_config.json"));
  std::filesystem::remove_all(s.at("tok"));
  std::filesystem::remove(s.at("a.jsonl"));

  const base::Json shown = trireme_json(s, {"data", "inspect", "d", "--show", "5"});
  ASSERT_EQ(shown["shown"].size(), 2U);
  EXPECT_EQ(shown["shown"][0]["text"], "<|pad|>9 bottles of beer<|end|>");
  EXPECT_EQ(shown["manifest"]["tokenizer"]["fingerprint"], built["tokenizer"]["fingerprint"]);
  EXPECT_EQ(shown["manifest"]["shards"][0]["file"], "a.jsonl");
  const std::string text = trireme(s, {"data", "inspect", "d.bin", "--show", "1"}).out;
  for (const char* part : {"source     a.jsonl, 2 documents", "--- document 0", "9 bottles"}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
  // Joined with itself by its tokens: the same tokenizer beside the result.
  EXPECT_EQ(trireme(s, {"data", "build", "d.bin", "--output", "e"}).exit_code, 2);
  const base::Json joined =
      trireme_json(s, {"data", "build", "d.bin", "--output", "e", "--tokenizer", "d.tokenizer"});
  EXPECT_EQ(joined["tokens"], built["tokens"]);
  EXPECT_TRUE(s.read("e.bin") == s.read("d.bin"));
  // Bytes again: the tokenizer of the earlier data set is gone.
  trireme_json(s, {"data", "build", "text.txt", "--output", "d", "--overwrite"});
  EXPECT_FALSE(s.has("d.tokenizer"));
  EXPECT_EQ(trireme_json(s, {"data", "inspect", "d", "--show", "1"})["shown"][0]["document"], 0);
}

TEST(BuildVerb, documents_come_through_a_pipe) {
  const Scratch s;
  s.write("a.jsonl", "{\"text\": \"one\"}\n{\"text\": \"two\"}\n");
  const Outcome piped = in_shell(s, "cat a.jsonl | $T data build - --kind jsonl --output d --json");
  EXPECT_EQ(piped.exit_code, 0) << piped.err;
  EXPECT_EQ(only_object(piped.out)["documents"], 2);
  trireme_json(s, {"data", "build", "a.jsonl", "--output", "e"});
  EXPECT_EQ(s.read("d.bin"), s.read("e.bin"));
  const Outcome lines = in_shell(
      s, "printf 'x\\ny\\n' | $T data build - --kind text --split-lines --output f --json");
  EXPECT_EQ(only_object(lines.out)["documents"], 2) << lines.err;
}

TEST(BuildVerb, prompts_and_masks_go_through_all_formats) {
  const Scratch s;
  s.write("a.jsonl", "{\"q\": \"ab\", \"a\": {\"x\": \"cd\"}}\n");
  const base::Json built = trireme_json(s, {"data", "build", "a.jsonl", "--output", "d",
                                            "--prompt-key", "q", "--completion-key", "a.x"});
  EXPECT_EQ(built["has_mask"], true);
  EXPECT_EQ(s.read("d.mask.bin"), std::string("\0\0\1\1\1", 5));
  std::string from = "d";
  for (const std::string format : {"llmc", "nanogpt", "megatron"}) {
    const base::Json set = trireme_json(s, {"data", "convert", from, "--output", "new/to/" + format,
                                            "--format", format, "--eod", "0"});
    EXPECT_EQ(set["has_mask"], true);
    EXPECT_EQ(set["vocab"], 256);
    from = "new/to/" + format;
  }
  EXPECT_EQ(s.read("new/to/megatron.bin"), s.read("d.bin"));
  EXPECT_EQ(s.read("new/to/megatron.idx"), s.read("d.idx"));
  EXPECT_EQ(s.read("new/to/megatron.mask.idx"), s.read("d.mask.idx"));
}

// The name that data build prints is the name that every other command takes.
TEST(BuildVerb, what_was_built_opens_by_its_prefix) {
  const Scratch s;
  write_tiny(s);
  trireme_json(s, {"train", "tiny_run.toml", "--training.steps=1"});
  for (const std::string format : {"llmc", "nanogpt"}) {
    const std::string set = "new/" + format;
    trireme_json(s, {"data", "build", "text.txt", "--output", set, "--format", format});
    for (const std::string& name : {set, set + ".bin"}) {
      EXPECT_EQ(trireme_json(s, {"data", "inspect", name})["format"], format);
    }
    trireme_json(s, {"train", "tiny_run.toml", "--training.steps=1", "--data", set,
                     "--job.dump_folder=" + format});
    EXPECT_TRUE(trireme_json(s, {"eval", "run", "--data", set}).contains("loss"));
    EXPECT_EQ(trireme_json(s, {"data", "build", set, "--output", "new/joined", "--vocab", "256",
                               "--overwrite"})["documents"],
              1);
  }
  trireme_json(s,
               {"data", "tokenizer", "train", "text.txt", "--output", "other/t", "--vocab", "300"});
  EXPECT_TRUE(s.has("other/t/tokenizer.json"));
}

TEST(BuildVerb, an_unfinished_build_of_other_options_is_discarded_on_request) {
  const Scratch s;
  write_tiny(s);
  s.write("d.build/state.json", "{\"version\":1,\"identity\":{\"format\":\"llmc\"}}");
  EXPECT_EQ(trireme(s, {"data", "build", "text.txt", "--output", "d"}).exit_code, 2);
  const base::Json built =
      trireme_json(s, {"data", "build", "text.txt", "--output", "d", "--overwrite"});
  EXPECT_EQ(built["resumed_shards"], 0);
  EXPECT_FALSE(s.has("d.build"));
}

}  // namespace
}  // namespace trireme::tests
