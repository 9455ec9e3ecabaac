// SPDX-License-Identifier: Apache-2.0
// The complete job: what is removed, what is written, and that threads change nothing.
#include "data/clean/clean_test.h"

#include <gtest/gtest.h>

#include "data/archives_test.h"
#include "data/readers/byte_stream.h"

namespace trireme::data {
namespace {

class CleanTest : public CleanFilesTest {
 protected:
  CleanOptions options(const std::vector<std::string>& inputs,
                       const std::string& output = "out.jsonl") const {
    CleanOptions o;
    for (const std::string& input : inputs) o.inputs.push_back(path(input).string());
    o.output = path(output);
    return o;
  }
  std::string decompressed(const std::string& name) const {
    ShardStream stream(path(name));
    std::string bytes(1 << 20, '\0');
    bytes.resize(stream.read(std::as_writable_bytes(std::span(bytes))));
    return bytes;
  }
};

// Words 0 .. 59 with some replaced: every replaced word in the middle changes five shingles of 56.
std::string variant(const std::vector<size_t>& replaced) {
  std::vector<std::string> words;
  for (size_t i = 0; i < 60; ++i) words.push_back(fmt::format("word{}", i));
  for (const size_t i : replaced) words[i] = fmt::format("other{}", i);
  return joined(words);
}

TEST_F(CleanTest, the_first_of_equal_and_of_similar_documents_stays) {
  const std::string a = variant({}), similar = variant({30}), different = "something else entirely";
  write("a.jsonl", json_line(a) + json_line(different) + json_line(a) + json_line(similar));
  write("b.jsonl", json_line(similar) + json_line("only here") + json_line(different));
  const CleanReport report = clean_documents(options({"a.jsonl", "b.jsonl"}));
  EXPECT_TRUE(holds(texts("out.jsonl"), {a, different, "only here"}));
  EXPECT_EQ(report.total.documents, 7);
  EXPECT_EQ(report.total.kept, 3);
  EXPECT_EQ(report.total.exact_duplicates, 3);
  EXPECT_EQ(report.total.near_duplicates, 1);
  ASSERT_EQ(report.sources.size(), 2U);
  EXPECT_EQ(report.sources[1].documents, 3);
  EXPECT_EQ(report.sources[1].kept, 1);
  EXPECT_EQ(report.clusters, (std::map<int64_t, int64_t>{{2, 1}, {4, 1}}));
  const std::vector<base::Json> removed = lines("out.jsonl.removed.jsonl");
  ASSERT_EQ(removed.size(), 4U);
  EXPECT_EQ(removed[0].at("reason"), "exact_duplicate");
  EXPECT_EQ(removed[0].at("line"), 3);
  EXPECT_EQ(removed[0].at("kept").at("line"), 1);
  EXPECT_EQ(removed[1].at("reason"), "near_duplicate");
  EXPECT_NEAR(removed[1].at("similarity").get<double>(), 51.0 / 61, 1e-6);
  // An exact copy of a near-duplicate names the document that is kept.
  EXPECT_EQ(removed[2].at("reason"), "exact_duplicate");
  EXPECT_EQ(removed[2].at("file"), path("b.jsonl").string());
  EXPECT_EQ(removed[2].at("kept").at("file"), path("a.jsonl").string());
  EXPECT_EQ(removed[2].at("kept").at("line"), 1);
  EXPECT_NEAR(removed[2].at("similarity").get<double>(), 51.0 / 61, 1e-6);
}

// Each is similar to the next, the ends are not: the third stays because the second does not.
TEST_F(CleanTest, chains_do_not_remove_documents_that_differ_from_all_kept_ones) {
  const std::string first = variant({}), second = variant({20}), third = variant({20, 40});
  write("a.jsonl", json_line(first) + json_line(second) + json_line(third));
  clean_documents(options({"a.jsonl"}));
  EXPECT_TRUE(holds(texts("out.jsonl"), {first, third}));
}

TEST_F(CleanTest, normalization_compares_without_case_and_spaces_and_writes_as_it_was) {
  write("a.jsonl", json_line("Some  Text\n") + json_line("some text") + json_line("some texts"));
  CleanOptions o = options({"a.jsonl"});
  o.near.reset();
  clean_documents(o);
  EXPECT_EQ(texts("out.jsonl").size(), 3U);
  o.normalized = o.replaces_output = true;
  clean_documents(o);
  EXPECT_TRUE(holds(texts("out.jsonl"), {"Some  Text\n", "some texts"}));
}

TEST_F(CleanTest, every_function_can_be_switched_off) {
  const std::string similar = variant({30}), spam = "spam spam spam spam spam spam spam spam";
  write("a.jsonl", json_line(variant({})) + json_line(similar) + json_line(similar) +
                       json_line(spam) + json_line(" ") + json_line("\n"));
  CleanOptions o = options({"a.jsonl"});
  o.replaces_output = true;
  o.removes_exact = false;
  EXPECT_EQ(clean_documents(o).total.near_duplicates, 2);
  o.removes_exact = true;
  o.near.reset();
  EXPECT_EQ(clean_documents(o).total.kept, 5);
  o.repetition = RepetitionLimits{};
  const CleanReport report = clean_documents(o);
  EXPECT_EQ(report.total.kept, 4);
  EXPECT_EQ(report.total.repetition[static_cast<size_t>(RepetitionRule::top_2_gram)], 1);
  const std::vector<base::Json> removed = lines("out.jsonl.removed.jsonl");
  EXPECT_EQ(removed.back().at("reason"), "repetition");
  EXPECT_EQ(removed.back().at("rule"), "top_2_gram");
  EXPECT_GT(removed.back().at("part"), 0.2);
  EXPECT_FALSE(removed.back().contains("kept"));
}

TEST_F(CleanTest, all_kinds_of_inputs_are_read_and_rejected_documents_are_listed) {
  write("a.txt", "a text");
  write("b.jsonl.gz", gzip_stored(json_line("compressed") + "oops\n" + json_line("a text")));
  write("c.tar", tar_member("1.txt", "in tar") + tar_member("2.txt", "\xff") + tar_end);
  const CleanReport report = clean_documents(options({"a.txt", "b.jsonl.gz", "c.tar"}));
  EXPECT_TRUE(holds(texts("out.jsonl"), {"a text", "compressed", "in tar"}));
  EXPECT_EQ(report.total.all_rejected(), 2);
  const std::vector<base::Json> removed = lines("out.jsonl.removed.jsonl");
  ASSERT_EQ(removed.size(), 3U);
  EXPECT_EQ(removed[0].at("rule"), "json_error");
  EXPECT_EQ(removed[0].at("line"), 2);
  EXPECT_EQ(removed[1].at("kept").at("file"), path("a.txt").string());
  EXPECT_EQ(removed[2].at("rule"), "invalid_utf8");
  EXPECT_EQ(removed[2].at("member"), "2");
}

TEST_F(CleanTest, prompts_and_completions_are_compared_and_written_together) {
  const auto line = [](const std::string& prompt, const std::string& completion) {
    return base::Json{{"q", prompt}, {"a", completion}}.dump() + "\n";
  };
  write("a.jsonl", line("why?", "so") + line("why?", "thus") + line("why?", "so"));
  CleanOptions o = options({"a.jsonl"});
  o.documents.prompt_field = "q";
  o.documents.completion_field = "a";
  clean_documents(o);
  EXPECT_EQ(read("out.jsonl"),
            "{\"prompt\":\"why?\",\"completion\":\"so\"}\n"
            "{\"prompt\":\"why?\",\"completion\":\"thus\"}\n");
}

TEST_F(CleanTest, strings_are_escaped_and_read_back) {
  const std::string text = "quote \" back \\ tab \t line \n bell \x07 \u00e9 \U0001f600 / \x7f";
  write("a.jsonl", json_line(text));
  clean_documents(options({"a.jsonl"}));
  EXPECT_TRUE(holds(texts("out.jsonl"), {text}));
}

TEST_F(CleanTest, bytes_do_not_depend_on_workers_and_compression_is_read_back) {
  TestRandom random(6);
  std::string input;
  std::vector<std::string> last;
  for (int i = 0; i < 20000; ++i) {
    // One in three is a variant of the one before.
    if (last.empty() || random.below(3) > 0) last = random.words(20 + random.below(30));
    if (random.below(4) > 0) last[random.below(last.size())] = random.word();
    input += json_line(joined(last));
  }
  write("a.jsonl", input);
  std::vector<std::string> first;
  for (const int workers : {1, 3}) {
    CleanOptions o = options({"a.jsonl"});
    o.workers = workers;
    o.replaces_output = true;
    o.near->threshold = 0.6;
    o.repetition = RepetitionLimits{};
    const CleanReport report = clean_documents(o);
    EXPECT_GT(report.total.near_duplicates, 1000);
    const std::vector<std::string> files = {read("out.jsonl"), read("out.jsonl.removed.jsonl"),
                                            read("out.jsonl.report.json")};
    if (first.empty()) first = files;
    EXPECT_TRUE(files == first) << workers;
  }
}

TEST_F(CleanTest, output_is_compressed_by_its_name) {
  write("a.jsonl", json_line("one") + json_line("two") + json_line("two"));
  for (const char* name : {"out.jsonl.gz", "out.jsonl.zst"}) {
    clean_documents(options({"a.jsonl"}, name));
    EXPECT_EQ(decompressed(name), json_line("one") + json_line("two")) << name;
    EXPECT_LT(read(name).find_first_of("\x1f\x28"), 1U);
  }
}

TEST_F(CleanTest, a_folder_gets_parts_and_loses_old_ones) {
  std::string input;
  for (int i = 0; i < 70000; ++i) input += json_line(fmt::format("document {}", i));
  write("a.jsonl", input);
  CleanOptions o = options({"a.jsonl"}, "parts");
  o.part_bytes = 1 << 20;
  const CleanReport report = clean_documents(o);
  EXPECT_EQ(report.files.size(), 4U);  // two parts, the report, the list
  EXPECT_EQ(texts("parts/part-00000.jsonl").size() + texts("parts/part-00001.jsonl").size(),
            70000U);
  o.part_bytes = 1 << 30;
  o.replaces_output = true;
  clean_documents(o);
  EXPECT_EQ(read("parts/part-00000.jsonl"), input);
  EXPECT_FALSE(std::filesystem::exists(path("parts/part-00001.jsonl")));
  EXPECT_TRUE(holds(names(), {"a.jsonl", "parts", "parts.removed.jsonl", "parts.report.json"}));
}

TEST_F(CleanTest, the_report_has_examples_and_no_documents_are_written_on_request) {
  const std::string a = variant({}), b = variant({30});
  std::string input;
  for (int i = 0; i < 9; ++i) input += json_line(a);
  write("a.jsonl", input + json_line(b) + "oops\n");
  CleanOptions o = options({"a.jsonl"});
  o.writes_documents = false;
  o.examples = 2;
  const CleanReport report = clean_documents(o);
  EXPECT_TRUE(holds(names(), {"a.jsonl", "out.jsonl.removed.jsonl", "out.jsonl.report.json"}));
  const base::Json json = base::Json::parse(read("out.jsonl.report.json"));
  EXPECT_EQ(json, to_json(report));
  EXPECT_EQ(json.at("counts").at("removed"), 10);
  EXPECT_EQ(json.at("counts").at("rejected").at("json_error"), 1);
  EXPECT_EQ(json.at("largest_cluster"), 10);
  EXPECT_EQ(json.at("clusters").at(0).at("min_documents"), 9);
  EXPECT_EQ(json.at("near_duplicates").at("bands"), 15);
  ASSERT_EQ(json.at("examples").size(), 4U);
  const base::Json& near = json.at("examples").at(2);
  EXPECT_EQ(near.at("removed"), path("a.jsonl").string() + ":10");
  EXPECT_EQ(near.at("kept"), path("a.jsonl").string() + ":1");
  EXPECT_EQ(near.at("removed_text").get<std::string>(), b.substr(0, 200));
  EXPECT_NEAR(near.at("similarity").get<double>(), 51.0 / 61, 1e-4);
  EXPECT_TRUE(says(to_text(report), {"11 documents read, 1 kept", "15 bands with 7 rows",
                                     "near_duplicate", "rejected: json_error", "9 to 16"}));
}

}  // namespace
}  // namespace trireme::data
