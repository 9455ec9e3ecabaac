// SPDX-License-Identifier: Apache-2.0
// bench train --as-rank: what it prints about one rank of a layout, and that memory and bytes are
// the predicted ones. tests/ranks/alone_test.cpp compares ops and bytes with real ranks.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/text/json.h"
#include "tests/cli/program.h"

namespace trireme::tests {
namespace {

std::vector<std::string> as_rank(int rank, const std::string& layout,
                                 const std::vector<std::string>& more = {}) {
  std::vector<std::string> words = {
      "bench",     "train", "--model",       "tiny.toml", "--seq",     "16",
      "--steps",   "2",     "--warmup",      "1",         "--device",  "cpu",
      "--threads", "1",     "--peak-tflops", "1",         "--as-rank", std::to_string(rank),
      "--layout",  layout};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// Expects what holds for every rank of every layout.
base::Json expect_as_predicted(const Scratch& s, int rank, const std::string& layout) {
  SCOPED_TRACE(layout + ", rank " + std::to_string(rank));
  base::Json answer = trireme_json(s, as_rank(rank, layout));
  const base::Json own = answer.at("as_rank");
  EXPECT_EQ(answer.at("peak_bytes").at("predicted"), answer.at("peak_bytes").at("measured"));
  EXPECT_EQ(own.at("memory").at("predicted"), own.at("memory").at("measured"));
  EXPECT_EQ(answer.at("ledger_bytes").get<int64_t>(),
            own.at("memory").at("predicted").at("total").get<int64_t>() +
                own.at("stand_in_bytes").get<int64_t>());
  for (const auto& [kind, bytes] : own.at("sent_bytes").items()) {
    EXPECT_EQ(bytes.at("predicted"), bytes.at("measured")) << kind;
    EXPECT_GT(bytes.at("measured").get<int64_t>(), 0) << kind;
  }
  EXPECT_EQ(own.at("skipped_steps"), 0);
  EXPECT_EQ(own.at("rank"), rank);
  EXPECT_EQ(own.at("transfers"), "local copies, no link");
  EXPECT_TRUE(own.at("predicted").is_null());
  EXPECT_GT(own.at("measured_seconds").get<double>(), 0);
  const auto seconds = [&own](const char* key) { return own.at(key).get<double>(); };
  EXPECT_GT(seconds("transfer_seconds"), 0);
  EXPECT_GE(seconds("exposed_transfer_seconds"), 0);
  EXPECT_LE(seconds("exposed_transfer_seconds"), 1.000001 * seconds("transfer_seconds"));
  EXPECT_GT(seconds("op_seconds"), 0);
  EXPECT_GT(seconds("op_seconds_without_transfers"), 0);
  EXPECT_GT(seconds("measured_seconds_without_transfers"), 0);
  EXPECT_EQ(answer.at("captured"), false);
  EXPECT_FALSE(answer.contains("tokens_per_second"));
  return answer;
}

TEST(AsRankTest, every_rank_has_its_place_memory_and_bytes) {
  const Scratch s;
  write_tiny(s);
  for (const std::string layout : {"tp=2 sp", "pp=2 accumulate=4", "pp=2 zb-h1 accumulate=4",
                                   "dp=2 zero=3", "cp=2 kind=ring fp32"}) {
    for (const int rank : {0, 1}) expect_as_predicted(s, rank, layout);
  }
}

TEST(AsRankTest, stages_and_coordinates_are_those_of_the_rank) {
  const Scratch s;
  write_tiny(s);
  const std::string layout = "tp=2 pp=2 dp=2 zero=1 accumulate=2 micro=2";
  const base::Json first = expect_as_predicted(s, 1, layout),
                   last = expect_as_predicted(s, 6, layout);
  EXPECT_EQ(first["as_rank"]["ranks"], 8);
  EXPECT_EQ(first["as_rank"]["coordinates"],
            (base::Json{{"pp", 0}, {"dp", 0}, {"zero", 0}, {"cp", 0}, {"tp", 1}}));
  EXPECT_EQ(last["as_rank"]["coordinates"],
            (base::Json{{"pp", 1}, {"dp", 0}, {"zero", 1}, {"cp", 0}, {"tp", 0}}));
  EXPECT_EQ(first["as_rank"]["stages"][0]["stage"], 0);
  EXPECT_EQ(last["as_rank"]["stages"][0]["stage"], 1);
  // Both stages together have all layers: embedding, blocks and head.
  const auto layers = [](const base::Json& answer) {
    return answer["as_rank"]["stages"][0]["layers"].get<int>();
  };
  EXPECT_EQ(last["as_rank"]["stages"][0]["first_layer"], layers(first));
  EXPECT_EQ(layers(first) + layers(last), 4);
  // Only the last stage has a loss.
  EXPECT_TRUE(first["loss"].is_null());
  EXPECT_TRUE(std::isfinite(last["loss"].get<double>()));
  EXPECT_EQ(first["micro_batch"], 2);
  EXPECT_EQ(first["accumulate"], 2);
  EXPECT_EQ(first["dtype"], "bf16");
  EXPECT_LT(first["as_rank"]["parameters"], first["parameters"]);
}

TEST(AsRankTest, options_set_what_the_layout_leaves_open) {
  const Scratch s;
  write_tiny(s);
  const base::Json answer = trireme_json(
      s,
      as_rank(0, "pp=2 micro=2", {"--dtype", "fp32", "--accumulate", "3", "--micro-batch", "2"}));
  EXPECT_EQ(answer["dtype"], "fp32");
  EXPECT_EQ(answer["accumulate"], 3);
  EXPECT_EQ(answer["micro_batch"], 2);
}

TEST(AsRankTest, times_are_predicted_for_a_machine) {
  const Scratch s;
  write_tiny(s);
  const base::Json answer =
      trireme_json(s, as_rank(1, "pp=2 fp32 accumulate=4", {"--machine", "cpu"}));
  const base::Json& time = answer["as_rank"]["predicted"];
  EXPECT_EQ(time["machine"], "cpu");
  EXPECT_GT(time["compute_seconds"].get<double>(), 0);
  EXPECT_GT(time["update_seconds"].get<double>(), 0);
  // A step of the job also has the bubble of the pipeline.
  EXPECT_GT(time["step_seconds"].get<double>(), time["compute_seconds"].get<double>());
}

TEST(AsRankTest, the_text_names_the_rank_and_its_transfers) {
  const Scratch s;
  write_tiny(s);
  const Outcome outcome = trireme(s, as_rank(1, "pp=2 accumulate=2", {"--machine", "h100"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* part : {"rank               1 of 2: pp 1", "layout             tp=1 pp=2 1f1b",
                           "local copies, no link", "pp_gradients", "stages             1 (layers",
                           "predicted ms", "h100", "HFU"}) {
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part << "\n" << outcome.out;
  }
  EXPECT_EQ(outcome.out.find("tokens per second"), std::string::npos) << outcome.out;
}

}  // namespace
}  // namespace trireme::tests
