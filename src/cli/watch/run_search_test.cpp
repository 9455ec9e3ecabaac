// SPDX-License-Identifier: Apache-2.0
#include "cli/watch/run_search.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"
#include "base/text/json.h"

namespace trireme::cli {
namespace {

SearchedRun run_with(const std::string& name, std::optional<double> loss, const char* config) {
  RunSummary s;
  s.run.name = name;
  s.run.folder = "runs/" + name;
  s.run.state = analysis::RunState::done;
  s.run.config = base::Json::parse(config);
  s.loss = loss;
  return searched_run(s, std::nullopt);
}

std::vector<SearchedRun> three_runs() {
  return {run_with("Small llama", 2.5, R"({"optimizer":{"lr":0.001},"api_key":"hunter2"})"),
          run_with("gpt", 10.25, R"({"optimizer":{"lr":0.01},"model":{"size":"big"}})"),
          run_with("empty", {}, R"({"optimizer":{"lr":1e-05},"validation":{"size":"4"}})")};
}

std::string found(const std::string& text) {
  std::vector<SearchedRun> runs = three_runs();
  RunSearch search(text);
  search.resolve(runs);
  std::string names;
  for (const SearchedRun& run : runs) {
    if (search.finds(run)) names += run.values.at("name")->substr(0, 1);
  }
  return names;
}

TEST(RunSearch, finds_runs_by_words_and_conditions) {
  EXPECT_EQ(found(""), "Sge");
  EXPECT_EQ(found("LLAMA"), "S");
  EXPECT_EQ(found("\"small llama\""), "S");
  EXPECT_EQ(found("small gpt"), "");
  EXPECT_EQ(found("loss<10"), "S") << "numbers are compared as numbers";
  EXPECT_EQ(found("loss>=2.5"), "Sg");
  EXPECT_EQ(found("loss!=2.5"), "ge") << "a run without a loss has another loss";
  EXPECT_EQ(found("optimizer.lr=1e-3"), "S");
  EXPECT_EQ(found("lr<0.005 state=Done"), "Se");
  EXPECT_EQ(found("lr<0.005 state==Done"), "Se");
  EXPECT_EQ(found("name~GP"), "g");
  EXPECT_EQ(found("model.size=big"), "g");
  EXPECT_EQ(found("hunter2"), "");
  EXPECT_EQ(found("api_key=hunter2"), "") << "secrets are not searched";
}

TEST(RunSearch, refuses_what_it_does_not_understand) {
  for (const char* text : {"loss<", "loss!3", "loss<<3", "loss=>3", "typo=3", "size=4"}) {
    EXPECT_THROW(found(text), base::ConfigError) << text;
  }
  EXPECT_TRUE(RunSearch("cost>3").names("cost"));
  EXPECT_FALSE(RunSearch("cost").names("cost"));
}

TEST(RunSearch, orders_numbers_and_puts_unknown_values_last) {
  const std::vector<SearchedRun> runs = three_runs();
  EXPECT_EQ(order_of(runs, "loss", false), (std::vector<size_t>{0, 1, 2}));
  EXPECT_EQ(order_of(runs, "loss", true), (std::vector<size_t>{1, 0, 2}));
  EXPECT_EQ(order_of(runs, "optimizer.lr", false), (std::vector<size_t>{2, 0, 1}));
  EXPECT_EQ(order_of(runs, "name", false), (std::vector<size_t>{2, 1, 0}));
}

TEST(RunSearch, losses_that_are_not_finite_are_found_by_their_names) {
  std::vector<SearchedRun> runs = {run_with("nan", std::numeric_limits<double>::quiet_NaN(), "{}"),
                                   run_with("inf", std::numeric_limits<double>::infinity(), "{}"),
                                   run_with("fine", 2.0, "{}")};
  RunSearch nan("loss=NaN"), high("loss>100");
  EXPECT_TRUE(nan.finds(runs[0]));
  EXPECT_FALSE(nan.finds(runs[2]));
  EXPECT_TRUE(high.finds(runs[1]));
  EXPECT_EQ(order_of(runs, "loss", false), (std::vector<size_t>{2, 1, 0}));
}

}  // namespace
}  // namespace trireme::cli
