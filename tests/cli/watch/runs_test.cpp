// SPDX-License-Identifier: Apache-2.0
// trireme runs on folders of runs that a test writes: columns, search, order, differences.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/text/json.h"
#include "tests/cli/program.h"

namespace trireme::tests {
namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Writes runs/a, runs/b and runs/c; b has no validation.
void write_runs(const Scratch& s) {
  const auto write = [&](const std::string& name, const std::string& config,
                         const std::string& lines) {
    s.write("runs/" + name + "/run.json", config);
    s.write("runs/" + name + "/metrics.jsonl",
            R"({"kind":"start","attempt":1,"step":0,"time":1000})"
            "\n" +
                lines);
  };
  const std::string validation =
      R"({"kind":"validation","attempt":1,"step":2,"time":1003,"validation_metrics/loss":)";
  const auto train = [](const std::string& loss) {
    return R"({"kind":"train","attempt":1,"step":2,"time":1002,"loss_metrics/global_avg_loss":)" +
           loss + "}\n";
  };
  write("a",
        R"({"job":{"name":"a","tags":"baseline"},"optimizer":{"lr":0.001},"api_key":"hunter2"})",
        train("10.5") + validation + "9.25}\n");
  write("b", R"({"job":{"name":"b"},"optimizer":{"lr":0.01},"api_key":"swordfish"})", train("3"));
  write("c", R"({"job":{"name":"c"},"optimizer":{"lr":1e-4},"moe":{"experts":8}})",
        train("2.5") + validation + "2.75}\n");
}

std::string names_of(const Scratch& s, std::vector<std::string> words) {
  words.insert(words.begin(), "runs");
  words.emplace_back("--json");
  std::string names;
  const base::Json runs = only_object(trireme(s, words).out).at("runs");
  for (const base::Json& run : runs) names += run.at("name").get<std::string>();
  return names;
}

TEST(Runs, are_searched_and_sorted) {
  const Scratch s;
  write_runs(s);
  const Outcome table = trireme(s, {"runs", "--sort", "name"});
  EXPECT_EQ(table.exit_code, 0) << table.err;
  EXPECT_TRUE(has(table.out, "validation")) << table.out;
  EXPECT_TRUE(has(table.out, "10.5000 |     9.2500")) << table.out;
  EXPECT_EQ(names_of(s, {"--sort", "loss"}), "cba") << "numbers are no texts";
  EXPECT_EQ(names_of(s, {"--sort", "validation", "--reverse"}), "acb");
  EXPECT_EQ(names_of(s, {"--sort=lr", "--filter", "loss<11 optimizer.lr>=0.001"}), "ab");
  EXPECT_EQ(names_of(s, {"--filter=BASELINE"}), "a");
  EXPECT_EQ(names_of(s, {"--filter=experts=8"}), "c");
  EXPECT_EQ(names_of(s, {"--filter=nothing"}), "");
}

TEST(Runs, a_search_that_means_nothing_is_refused_with_what_is_allowed) {
  const Scratch s;
  write_runs(s);
  const Outcome typo = trireme(s, {"runs", "--filter", "los<3"});
  EXPECT_EQ(typo.exit_code, 2);
  EXPECT_TRUE(has(typo.err, "--filter: los is neither a key")) << typo.err;
  EXPECT_TRUE(has(typo.err, "validation")) << typo.err;
  EXPECT_EQ(trireme(s, {"runs", "--sort", "los"}).exit_code, 2);
  EXPECT_EQ(trireme(s, {"runs", "--diff", "runs/a"}).exit_code, 2);
  EXPECT_EQ(trireme(s, {"runs", "--diff", "runs/a", "runs/b", "--sort=loss"}).exit_code, 2);
  EXPECT_NE(trireme(s, {"runs", "--diff", "runs/a", "runs/gone"}).exit_code, 0);
}

TEST(Runs, differences_of_configurations_are_listed_without_secrets) {
  const Scratch s;
  write_runs(s);
  const Outcome text = trireme(s, {"runs", "--diff", "runs/a", "runs/c"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_TRUE(has(text.out, "optimizer.lr")) << text.out;
  EXPECT_TRUE(has(text.out, "(none)")) << text.out;
  EXPECT_FALSE(has(text.out, "hunter2")) << text.out;
  const base::Json found =
      only_object(trireme(s, {"runs", "--diff", "runs/a", "runs/b", "--json"}).out);
  EXPECT_EQ(found.at("differences").dump(), R"([{"key":"job.name","values":["a","b"]},)"
                                            R"({"key":"job.tags","values":["baseline",null]},)"
                                            R"({"key":"optimizer.lr","values":["0.001","0.01"]}])")
      << "masked values are equal";
  EXPECT_TRUE(has(trireme(s, {"runs", "--diff", "runs/a", "runs/a"}).out, "are equal"));
}

}  // namespace
}  // namespace trireme::tests
