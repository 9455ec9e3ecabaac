// SPDX-License-Identifier: Apache-2.0
// The report of `trireme plan`: days and cost of a run, percentages that agree with the printed
// times, one unit of memory, and the same figures in JSON and text.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <regex>
#include <sstream>

#include "base/text/json.h"
#include "tests/cli/program.h"

namespace trireme::tests {
namespace {

using base::Json;

const std::string seventy =
    "plan --model llama3-70b --machine h100 --gpus 1024 --batch 512 --seq-len 8192 ";
const std::string eight = "plan --model llama-8b --machine h100 --gpus 8 --batch 512 ";
const std::string megatron_job =
    "plan --from-megatron '--num-layers 32 --hidden-size 4096 --num-attention-heads 32 "
    "--seq-length 4096 --max-position-embeddings 4096 --vocab-size 32000 --micro-batch-size 1 "
    "--global-batch-size 128 --tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 "
    "--bf16 --swiglu --ffn-hidden-size 11008' --gpus 64 --machine a100-80gb ";

std::string plan_text(const Scratch& s, const std::string& line, int exit_code = 0) {
  const Outcome outcome = trireme(s, words_of(line));
  EXPECT_EQ(outcome.exit_code, exit_code) << outcome.err;
  return outcome.out;
}

// Returns the lines of a section, without its label.
std::vector<std::string> section_of(const std::string& text, const std::string& label) {
  std::vector<std::string> lines;
  std::istringstream all(text);
  std::string line, now;
  while (std::getline(all, line)) {
    if (!line.starts_with(' ')) now = line.substr(0, line.find(' '));
    if (now == label) lines.push_back(line.substr(std::min<size_t>(10, line.size())));
  }
  return lines;
}

double seconds_in(const std::string& line) {
  std::smatch found;
  EXPECT_TRUE(std::regex_search(line, found, std::regex("([0-9.]+) s\\b"))) << line;
  return found.empty() ? 0 : std::stod(found[1]);
}

double percent_in(const std::string& line) {
  std::smatch found;
  EXPECT_TRUE(std::regex_search(line, found, std::regex("([+-]?[0-9.]+) %"))) << line;
  return found.empty() ? 0 : std::stod(found[1]);
}

// Four digits of each time and one of the percentage are printed.
constexpr double rounding = 0.16;

// Expects that the percentage of each line is that of its time relative to the reference.
void expect_percentages(const std::vector<std::string>& lines, double reference) {
  for (const std::string& line : lines) {
    EXPECT_NEAR(percent_in(line), 100 * (seconds_in(line) / reference - 1),
                rounding * std::max(1.0, seconds_in(line) / reference))
        << line;
  }
}

TEST(PlanAnswerTest, percentages_agree_with_the_times_that_are_printed) {
  const Scratch s;
  for (const std::string& question : {seventy, eight + "--seq-len 8192"}) {
    const std::string text = plan_text(s, question);
    const double best = seconds_in(section_of(text, "answer").at(1));
    const std::vector<std::string> others = section_of(text, "others");
    EXPECT_GE(others.size(), 3U) << text;
    expect_percentages(others, best);
    for (const std::string& line : others) EXPECT_GE(percent_in(line), 0) << line;
    const std::vector<std::string> fastest = section_of(text, "fastest");
    for (size_t i = 0; i + 1 < fastest.size(); ++i) {
      const double gain = 100 * (1 - seconds_in(fastest[i]) / best);
      EXPECT_NEAR(percent_in(fastest[i]), gain, rounding) << fastest[i];
      EXPECT_LE(gain, 2.1);
    }
    for (const std::string& line : section_of(text, "textbook")) {
      if (line.find(" s a step, ") == std::string::npos) continue;
      EXPECT_NEAR(std::stod(line.substr(line.find(", ") + 2)), 100 * (seconds_in(line) / best - 1),
                  1.0)
          << line;
    }
    // The label "with fewer GPUs" stands on a separate line.
    std::vector<std::string> fewer = section_of(text, "with");
    ASSERT_GE(fewer.size(), 2U) << text;
    fewer.erase(fewer.begin());
    for (const std::string& line : fewer) {
      std::string digits = line.substr(0, line.find(' '));
      std::erase(digits, ',');
      const double gpus = std::stod(digits), all = question == seventy ? 1024 : 8;
      EXPECT_NEAR(percent_in(line), 100 * best * all / (seconds_in(line) * gpus), 0.7) << line;
    }
  }
  const std::string text = plan_text(s, megatron_job);
  EXPECT_EQ(section_of(text, "better").size(), 3U);
  expect_percentages(section_of(text, "better"), seconds_in(section_of(text, "yours").at(1)));
}

TEST(PlanAnswerTest, a_run_has_its_days_its_gpu_hours_and_its_price) {
  const Scratch s;
  const Json json =
      trireme_json(s, words_of(seventy + "--tokens 2e12 --price 2.5 --layout 'tp=8 sp zero=1'"));
  const auto check = [](const Json& layout) {
    const Json& run = layout.at("run");
    const double seconds = layout.at("confirmed").at("seconds");
    const double gpus = layout.at("layout").at("gpus");
    EXPECT_EQ(run.at("tokens"), 2e12);
    EXPECT_EQ(run.at("steps"), 476838);  // of 512 x 8,192 tokens, rounded up
    EXPECT_NEAR(run.at("days"), 476838 * seconds / 86400, 1e-9);
    EXPECT_NEAR(run.at("gpu_hours"), 476838 * seconds / 3600 * gpus, 1e-3);
    EXPECT_NEAR(run.at("dollars"), 2.5 * run.at("gpu_hours").get<double>(), 1e-3);
  };
  check(json.at("best"));
  check(json.at("asked"));
  EXPECT_EQ(json.at("run"), json.at("best").at("run"));
  ASSERT_GE(json.at("fewer").size(), 2U);
  for (const Json& fewer : json.at("fewer")) check(fewer);
  for (const Json& other : json.at("alternatives")) check(other);
  const std::string text = plan_text(s, seventy + "--tokens 2e12 --price 2.5");
  const std::regex line(
      R"(run +2\.00 T tokens in 476,838 steps of 4\.19 M: [0-9.]+ days, [0-9]{3},[0-9]{3} )"
      R"(GPU-hours, [0-9.]+ M\$ at 2\.50 \$/GPU-hour\n)");
  EXPECT_TRUE(std::regex_search(text, line)) << text;
}

TEST(PlanAnswerTest, the_default_price_is_that_of_the_machine_file) {
  const Scratch s;
  const std::string call = eight + "--tokens 1e12 ";
  const Json without = trireme_json(s, words_of(call));
  EXPECT_TRUE(without.at("run").at("dollars").is_null());
  EXPECT_GT(without.at("run").at("days"), 0);
  EXPECT_EQ(plan_text(s, call).find('$'), std::string::npos);
  std::ifstream shipped(std::string(TRIREME_SOURCE_DIR) + "/machines/h100.toml");
  std::stringstream file;
  file << shipped.rdbuf();
  s.write("priced.toml",
          replaced(replaced(file.str(), "time_error", "price_per_hour = 3\ntime_error"),
                   "[sources]", "[sources]\n\"price_per_hour\" = \"a bill\""));
  const std::string priced = replaced(call, "--machine h100", "--machine priced.toml");
  const Json own = trireme_json(s, words_of(priced)).at("run");
  EXPECT_NEAR(own.at("dollars"), 3 * own.at("gpu_hours").get<double>(), 1e-6);
  const Json given = trireme_json(s, words_of(priced + "--price 2")).at("run");
  EXPECT_NEAR(given.at("dollars"), 2 * given.at("gpu_hours").get<double>(), 1e-6);
  EXPECT_TRUE(trireme_json(s, words_of(eight)).at("run").is_null());
}

TEST(PlanAnswerTest, memory_is_in_one_unit_and_json_has_it_to_the_byte) {
  const Scratch s;
  const std::string call = seventy + "--layout 'tp=8 sp zero=1' ";
  for (const std::string& text :
       {plan_text(s, call + "--long"), plan_text(s, replaced(eight, "--gpus 8", "--gpus 1"), 1),
        plan_text(s, seventy + "--explain 'tp=8 sp zero=1' --explain 'tp=8 sp zero=3'")}) {
    EXPECT_EQ(text.find(" GB"), std::string::npos) << text;
    EXPECT_EQ(text.find("processor"), std::string::npos) << text;
    EXPECT_FALSE(std::regex_search(text, std::regex("[0-9]e[+-][0-9]"))) << text;
    EXPECT_NE(text.find("GiB"), std::string::npos) << text;
  }
  const Json json = trireme_json(s, words_of(call));
  for (const char* name : {"best", "asked"}) {
    const Json& planned = json.at(name);
    int64_t sum = 0;
    for (const Json& item : planned.at("items")) {
      EXPECT_TRUE(item.is_number_integer());
      sum += item.get<int64_t>();
    }
    EXPECT_TRUE(planned.at("bytes").is_number_integer());
    EXPECT_EQ(planned.at("bytes"), sum);
    EXPECT_EQ(planned.at("confirmed").at("bytes"), sum);
    EXPECT_EQ(planned.at("phases").at("step_bytes"), sum);
  }
}

TEST(PlanAnswerTest, other_programs_settings_are_labelled_in_words_of_the_field) {
  const Scratch s;
  const std::string text = plan_text(s, replaced(megatron_job, "--bf16", "--bf16 --colour blue"));
  EXPECT_FALSE(section_of(text, "assumed").empty()) << text;
  EXPECT_FALSE(section_of(text, "ignored").empty()) << text;
  EXPECT_FALSE(section_of(text, "warning").empty()) << text;
  for (const char* old : {"\ntaken ", "\nnot seen ", "\nbeware "}) {
    EXPECT_EQ(text.find(old), std::string::npos) << old;
  }
}

// Seconds, rates, days and terms of a layout are those of the simulated pipeline.
TEST(PlanAnswerTest, every_layout_has_one_time) {
  const Scratch s;
  const Json json = trireme_json(
      s, words_of("plan --model llama3.1-70b --machine h100 --gpus 256 --batch 512 --seq-len 8192 "
                  "--tokens 1e12"));
  const double step_tokens = 512 * 8192;
  int simulated = 0;
  const auto check = [&](const Json& one) {
    const double seconds = one.at("seconds");
    EXPECT_EQ(one.at("confirmed").at("seconds"), seconds);
    EXPECT_NEAR(one.at("tokens_per_second"), step_tokens / seconds, 1e-9 * step_tokens / seconds);
    const Json& run = one.at("run");
    EXPECT_NEAR(run.at("days"), run.at("steps").get<double>() * seconds / 86400, 1e-9 * seconds);
    double sum = 0;
    for (const Json& term : one.at("terms")) sum += term.get<double>();
    EXPECT_NEAR(sum, seconds, 1e-12 * seconds);
    if (one.at("confirmed").at("priced_seconds") == seconds) return;
    ++simulated;
    EXPECT_EQ(one.at("terms").at("bubble"), one.at("confirmed").at("bubble_seconds"));
  };
  check(json.at("best"));
  for (const char* list : {"alternatives", "fewer", "passed_over", "better"}) {
    for (const Json& one : json.at(list)) check(one);
  }
  EXPECT_GT(simulated, 2);
  const double best = json.at("best").at("seconds");
  EXPECT_NEAR(json.at("textbook").at("time_change"),
              json.at("textbook").at("seconds").get<double>() / best - 1, 1e-12);
}

}  // namespace
}  // namespace trireme::tests
