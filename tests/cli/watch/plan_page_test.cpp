// SPDX-License-Identifier: Apache-2.0
// The planner's page gives the answers of `trireme plan --json`: random questions, good and bad,
// are asked both ways and compared value by value.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <thread>

#include "base/text/json.h"
#include "cli/watch/plan_page.h"
#include "tests/cli/program.h"

namespace trireme::tests {
namespace {

using Query = std::vector<std::pair<std::string, std::string>>;

board::Request request_to(const std::string& path, const Query& query) {
  board::Request request;
  request.path = path;
  request.query = query;
  return request;
}

// A question of small jobs, so that hundreds take minutes. About one in six is refused.
Query random_question(std::mt19937& random) {
  const auto one_of = [&](const std::vector<std::string>& list) {
    return list[std::uniform_int_distribution<size_t>(0, list.size() - 1)(random)];
  };
  const auto chance = [&](double share) { return std::bernoulli_distribution(share)(random); };
  Query query = {{"model", one_of({"gpt2-124m", "gpt2-10m", "llama-11m", "kjv-llama", "qwen2-0.5b",
                                   "kjv-moe", "llama3.2-1b", "gpt2-774m"})},
                 {"machine", one_of({"a100-40gb", "a100-80gb", "h100", "h200", "b200", "cpu"})},
                 {"gpus", one_of({"1", "2", "4", "8", "16", "6", "many"})},
                 {"batch_tokens", one_of({"4e4", "1e5", "262144"})},
                 {"seq_len", one_of({"128", "256", "250"})}};
  if (chance(0.3)) query.emplace_back("tokens", one_of({"1e9", "2e10"}));
  if (query.back().first == "tokens" && chance(0.5)) query.emplace_back("price", "2.5");
  if (chance(0.3)) query.emplace_back("stack", one_of({"trireme", "fsdp", "megatron-core"}));
  if (chance(0.3)) query.emplace_back("tp", one_of({"1", "1,2", "2", "x"}));
  if (chance(0.3)) query.emplace_back("pp", one_of({"1", "1,2,4"}));
  if (chance(0.3)) query.emplace_back("zero", one_of({"0", "1,3", "3", "9"}));
  if (chance(0.3))
    query.emplace_back("recompute", one_of({"none", "full", "selective,full", "some"}));
  if (chance(0.3)) query.emplace_back("memory_fraction", one_of({"0.9", "0.5", "0.002", "1.5"}));
  if (chance(0.2)) query.emplace_back("micro_batch", one_of({"1", "1,2,4"}));
  if (chance(0.2)) query.emplace_back("layout", one_of({"tp=2", "zero=1", "tp=3 nonsense"}));
  return query;
}

std::vector<std::string> command_of(const Query& query) {
  std::vector<std::string> words = {"plan"};
  for (const auto& [name, value] : query) {
    std::string option = "--" + name;
    for (char& c : option) c = c == '_' ? '-' : c;
    words.push_back(option + "=" + value);
  }
  words.emplace_back("--json");
  return words;
}

// Times of the search differ from call to call.
base::Json without_times(base::Json answer) {
  if (answer.contains("search")) {
    answer["search"].erase("seconds");
    answer["search"].erase("layouts_per_second");
  }
  return answer;
}

TEST(PlanPage, gives_the_numbers_of_plan_json) {
  const bool is_full = std::getenv("TRIREME_FULL") != nullptr;
  const Scratch scratch;
  cli::PlanPage page;
  std::mt19937 random(26);
  int answered = 0, refused = 0, without_fit = 0;
  for (int i = 0; i < (is_full ? 200 : 20); ++i) {
    const Query query = random_question(random);
    const Outcome printed = trireme(scratch, command_of(query));
    const base::Json expected = only_object(printed.out);
    const std::optional<board::Response> response = page.handle(request_to("/api/plan", query));
    ASSERT_TRUE(response);
    const base::Json found = base::Json::parse(response->body);
    SCOPED_TRACE(testing::PrintToString(command_of(query)));
    if (response->status == 200) {
      EXPECT_EQ(without_times(found), without_times(expected));
      ++(printed.exit_code == 0 ? answered : without_fit);
    } else {
      EXPECT_EQ(response->status, 400);
      EXPECT_EQ(found.at("error"), expected.at("error"));
      ++refused;
    }
  }
  EXPECT_GT(answered, 0);
  EXPECT_GT(refused, 0);
  if (is_full) {
    EXPECT_GT(without_fit, 0);
  }
}

const Query pipeline_question = {{"model", "gpt2-124m"}, {"machine", "h100"}, {"gpus", "4"},
                                 {"batch", "32"},        {"seq_len", "256"},  {"pp", "4"}};

TEST(PlanPage, draws_the_schedule_of_the_answer) {
  cli::PlanPage page;
  const auto response = page.handle(request_to("/api/plan/schedule", pipeline_question));
  ASSERT_TRUE(response);
  ASSERT_EQ(response->status, 200) << response->body;
  const auto svg = base::Json::parse(response->body).at("svg").get<std::string>();
  EXPECT_NE(svg.find("<svg"), std::string::npos) << svg.substr(0, 80);
  EXPECT_NE(svg.find("pp=4"), std::string::npos);
  cli::PlanPage small({.picture_actions = 3});
  const auto refused = small.handle(request_to("/api/plan/schedule", pipeline_question));
  EXPECT_NE(refused->body.find("a picture has 3 at most"), std::string::npos) << refused->body;
}

TEST(PlanPage, lists_what_can_be_chosen) {
  cli::PlanPage page;
  const base::Json choices =
      base::Json::parse(page.handle(request_to("/api/plan/choices", {}))->body);
  for (const char* list : {"models", "machines", "stacks"}) EXPECT_GT(choices.at(list).size(), 3U);
  EXPECT_FALSE(page.handle(request_to("/api/plan/other", {})));
}

TEST(PlanPage, opens_no_file_that_a_browser_names) {
  cli::PlanPage page;
  const auto status_of = [&](const Query& query) {
    return page.handle(request_to("/api/plan", query))->status;
  };
  for (const char* file : {"/etc/passwd", "../kjv.toml", "configs/models/gpt2-124m.toml", "x"}) {
    for (const char* name : {"model", "machine", "stack"}) {
      Query query = pipeline_question;
      std::erase_if(query, [&](const auto& one) { return one.first == name; });
      query.emplace_back(name, file);
      EXPECT_EQ(status_of(query), 400) << name << " " << file;
    }
  }
  for (const char* name : {"config", "out", "from_hf", "from_megatron", "from_torchtitan",
                           "validate", "explain", "json", "overwrite", "training.steps"}) {
    Query query = pipeline_question;
    query.emplace_back(name, "x");
    EXPECT_EQ(status_of(query), 400) << name;
  }
  Query twice = pipeline_question;
  twice.emplace_back("gpus", "8");
  EXPECT_EQ(status_of(twice), 400);
}

TEST(PlanPage, one_search_runs_at_a_time_and_ends_at_its_limit) {
  cli::PlanPage short_search({.search_seconds = 0});
  const auto late = short_search.handle(request_to("/api/plan", pipeline_question));
  EXPECT_EQ(late->status, 503);
  EXPECT_NE(late->body.find("the search has taken more than"), std::string::npos) << late->body;
  cli::PlanPage page;
  std::vector<std::thread> threads;
  std::vector<int> status(6, 0);
  for (size_t i = 0; i < status.size(); ++i) {
    threads.emplace_back([&page, &status, i] {
      status[i] = page.handle(request_to("/api/plan", pipeline_question))->status;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(status, std::vector<int>(6, 200));
}

}  // namespace
}  // namespace trireme::tests
