// SPDX-License-Identifier: Apache-2.0
#include "plan/validate/published.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/text/json.h"
#include "plan/samples_test.h"
#include "plan/validate/published_row.h"

namespace trireme::plan {
namespace {

using base::Json;

Json gpt3_row() {
  return Json::parse(R"({
    "id": "gpt3", "source": "Korthikanti 2022",
    "model": {"name": "GPT-3", "layers": 96, "hidden": 12288, "heads": 96, "kv_heads": null,
              "ffn": 49152, "vocab": 51200, "seq_len": 2048, "gated": false},
    "cluster": {"gpu": "A100-80GB", "gpus": 64, "gpus_per_node": 8,
                "interconnect": "NVLink3 600GB/s, 8x200Gb/s HDR IB per node"},
    "parallel": {"tp": 8, "pp": 8, "dp": 1, "cp": null, "ep": null, "vpp": 3, "sp": true,
                 "zero": 0},
    "precision": "fp16", "recompute": "selective", "micro_batch": 1, "global_batch": 64,
    "schedule": "interleaved 1F1B",
    "measured": {"iter_s": 13.75, "mem_gb": null}})");
}

const Finders shipped = {shipped_machine, shipped_stack};

PublishedRun run_of(const Json& row) { return published_run(row, shipped, "f:1"); }

// Returns gpt3_row() with one value changed, such as ("parallel", "zero") or ("", "recompute").
Json with(const std::string& section, const std::string& key, const Json& value) {
  Json row = gpt3_row();
  (section.empty() ? row : row[section])[key] = value;
  return row;
}

std::string refused(const Json& row) {
  try {
    (void)run_of(row);
  } catch (const base::ConfigError& error) {
    return error.what();
  }
  return "not refused";
}

TEST(Published, a_row_has_a_job_a_layout_and_a_machine) {
  const PublishedRun run = run_of(gpt3_row());
  EXPECT_EQ(run.reason, "");
  EXPECT_EQ(run.job.model.blocks(), 96);
  EXPECT_EQ(run.job.seq_len, 2048);
  EXPECT_EQ(run.job.global_batch, 64);
  Layout l;
  l.tp = l.pp = 8;
  l.chunks = 3;
  l.schedule = Kind::interleaved;
  l.recompute = spec::Recompute::selective;
  l.sequence_parallel = true;
  EXPECT_EQ(run.layout, l) << words(run.layout);
  EXPECT_EQ(run.machine.name, "a100-80gb");
  EXPECT_DOUBLE_EQ(run.machine.network.link.bytes_per_second, 25e9);
  EXPECT_EQ(run.stack.name, "megatron-2022");
  EXPECT_EQ(run.seconds, 13.75);
  EXPECT_EQ(run.bytes, 0);
}

TEST(Published, zero_stages_are_numbers_or_text) {
  const auto zero = [](const Json& value) {
    const PublishedRun run = run_of(with("parallel", "zero", value));
    return run.reason.empty() ? run.layout.zero_stage : -1;
  };
  EXPECT_EQ(zero(0), 0);
  EXPECT_EQ(zero(3), 3);
  EXPECT_EQ(zero("2"), 2);
  EXPECT_EQ(zero("FSDP(ZeRO-3)"), 3);
  EXPECT_EQ(zero("ZeRO-1"), 1);
  EXPECT_EQ(zero("FSDP2"), 3);
  EXPECT_EQ(zero(nullptr), 1);
  EXPECT_EQ(zero("ZeRO-x"), -1);
  EXPECT_EQ(zero("4"), -1);
  EXPECT_EQ(zero(4), -1);
  EXPECT_EQ(zero(1.5), -1);
}

TEST(Published, missing_or_impossible_values_are_the_reason) {
  const auto reason = [](const std::string& section, const std::string& key, const Json& value) {
    return run_of(with(section, key, value)).reason;
  };
  EXPECT_EQ(reason("model", "layers", nullptr), "model.layers is not stated");
  EXPECT_EQ(reason("", "global_batch", nullptr), "global_batch is not stated");
  EXPECT_EQ(reason("", "micro_batch", 0),
            "micro_batch = 0 is not a whole number from 1 to 1000000000000");
  EXPECT_NE(reason("model", "layers", 1e30).find("model.layers"), std::string::npos);
  EXPECT_NE(reason("model", "kv_heads", -1).find("model.kv_heads"), std::string::npos);
  EXPECT_NE(reason("parallel", "tp", 2.5).find("parallel.tp"), std::string::npos);
  EXPECT_NE(reason("cluster", "gpus_per_node", 0).find("gpus_per_node"), std::string::npos);
  EXPECT_EQ(reason("cluster", "gpus", 65), "65 GPUs do not divide by tp x pp x cp = 64");
  EXPECT_EQ(reason("cluster", "gpu", "TPU v4"), "no machine file describes the GPU TPU v4");
  EXPECT_EQ(reason("cluster", "gpu", nullptr), "cluster.gpu is not stated");
  EXPECT_EQ(reason("measured", "iter_s", nullptr), "neither time nor memory is stated");
  EXPECT_EQ(reason("measured", "iter_s", 0), "neither time nor memory is stated");
  EXPECT_EQ(reason("model", "attention", "mla"), "model.attention = mla is not modelled");
  EXPECT_NE(reason("parallel", "tp", 64), "");
  Json none = gpt3_row();
  none.erase("parallel");
  EXPECT_EQ(run_of(none).reason, "parallel.tp is not stated");
}

TEST(Published, values_of_another_type_are_rejected_with_their_line) {
  EXPECT_EQ(refused(with("parallel", "tp", "8")), "f:1: parallel.tp is not a number");
  EXPECT_EQ(refused(with("", "global_batch", "x")), "f:1: global_batch is not a number");
  EXPECT_EQ(refused(with("model", "gated", 1)), "f:1: model.gated is neither true nor false");
  EXPECT_EQ(refused(with("cluster", "gpu", 100)), "f:1: cluster.gpu is not a string");
  EXPECT_EQ(refused(with("model", "moe", 8)), "f:1: model.moe is not an object");
  EXPECT_EQ(refused(with("", "model", 3)), "f:1: model is not an object");
  EXPECT_EQ(refused(with("", "id", "")), "f:1: the run has no id");
  EXPECT_EQ(refused(Json::parse("[1]")), "f:1: not a JSON object");
}

TEST(Published, files_name_the_line) {
  const std::string good = gpt3_row().dump();
  EXPECT_EQ(published_runs(good + "\n\n" + good + "\n", shipped, "f").size(), 2U);
  const auto message = [](const std::string& text) {
    try {
      (void)published_runs(text, shipped, "runs.jsonl");
    } catch (const base::ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("not refused");
  };
  EXPECT_EQ(message(good + "\n\n{\"id\": "), "runs.jsonl:3: not JSON");
  EXPECT_EQ(message(good + "\n3"), "runs.jsonl:2: not a JSON object");
  EXPECT_EQ(message("\n \n"), "runs.jsonl: contains no run");
}

TEST(Published, times_are_derived_from_any_stated_rate) {
  Json row = with("measured", "iter_s", nullptr);
  row["measured"]["tokens_per_s_per_gpu"] = 1000;
  EXPECT_DOUBLE_EQ(run_of(row).seconds, 64 * 2048 / (1000.0 * 64));
  row["measured"]["tokens_per_s_per_gpu"] = 0;
  row["derived"]["iter_s"] = 5;
  EXPECT_DOUBLE_EQ(run_of(row).seconds, 5);
  row.erase("derived");
  row["measured"]["mfu"] = 0.5;
  const double half = run_of(row).seconds;
  row["measured"]["mfu"] = 0.25;
  EXPECT_DOUBLE_EQ(run_of(row).seconds, 2 * half);
  // 6 FLOPs per parameter and token, plus attention.
  const double flops = 6 * 174.6e9 * 64 * 2048;
  EXPECT_NEAR(half / (flops / (0.5 * 312e12 * 64)), 1.03, 0.02);
  row["measured"]["mfu"] = 50;
  EXPECT_EQ(run_of(row).reason, "measured.mfu = 50 is above 1");
  row["measured"] = {{"mem_gb", 70}};
  EXPECT_EQ(run_of(row).bytes, 70e9);
  EXPECT_EQ(run_of(row).reason, "");
}

TEST(Published, rows_may_state_the_kind_of_memory) {
  Json row = gpt3_row();
  row["measured"] = {{"mem_gb", 70}};
  EXPECT_EQ(run_of(row).memory_kind, MemoryKind::device);
  row["measured"]["mem_kind"] = "reserved";
  EXPECT_EQ(run_of(row).memory_kind, MemoryKind::reserved);
  row["measured"]["mem_kind"] = "peak";
  EXPECT_EQ(refused(row), "f:1: measured.mem_kind = peak: one of allocated, reserved, device");
}

TEST(Published, rows_may_name_their_program) {
  EXPECT_EQ(run_of(with("", "stack", "torchtitan")).stack.name, "torchtitan");
  const std::string message = refused(with("", "stack", "torchtian"));
  EXPECT_NE(message.find("f:1: stack: no stack 'torchtian'; did you mean 'torchtitan'?"),
            std::string::npos)
      << message;
}

TEST(Published, network_rates_are_read_from_text) {
  const auto rate = [](const std::string& text) { return network_rate(text, 8).value_or(-1); };
  EXPECT_DOUBLE_EQ(rate("Selene: NVLink3 600GB/s, 8x200Gb/s HDR IB per node"), 25e9);
  EXPECT_DOUBLE_EQ(rate("NVLink; 4x200Gb/s HDR per node (800Gb/s)"), 12.5e9);
  EXPECT_DOUBLE_EQ(rate("1600Gb/s RoCE per node"), 25e9);
  EXPECT_DOUBLE_EQ(rate("NVLink4, 8x50GB/s IB"), 50e9);
  EXPECT_DOUBLE_EQ(rate("8 x 400 Gbps"), 50e9);
  EXPECT_DOUBLE_EQ(rate("3.2Tb/s EFA"), 50e9);
  EXPECT_DOUBLE_EQ(rate("400Gb/s NDR per GPU"), 50e9);
  EXPECT_EQ(rate("NVLink4 900GB/s"), -1);
  EXPECT_EQ(rate(""), -1);
}

TEST(Published, schedules_determine_the_chunks) {
  EXPECT_EQ(run_of(with("", "schedule", "ZB-V")).layout.chunks, 2);
  const PublishedRun h1 = run_of(with("", "schedule", "zb-1p"));
  EXPECT_EQ(h1.layout.schedule, Kind::zb_h1);
  EXPECT_EQ(h1.layout.chunks, 1);
  const PublishedRun odd = run_of(with("", "global_batch", 60));
  EXPECT_EQ(odd.layout.schedule, Kind::one_f_one_b);
  EXPECT_FALSE(odd.assumed.empty());
}

TEST(Published, experts_need_count_top_k_and_width) {
  Json row = with("model", "gated", true);
  row["model"]["moe"] = {{"experts", 8}, {"top_k", 2}, {"moe_ffn", 4096}, {"shared", 1}};
  const PublishedRun run = run_of(row);
  ASSERT_TRUE(has_experts(run.job)) << run.reason;
  EXPECT_EQ(spec::moe_of(run.job.model)->shared_ffn, 4096);
  row["model"]["moe"].erase("top_k");
  EXPECT_EQ(run_of(row).reason, "model.moe needs experts, top_k and moe_ffn");
  row["model"]["moe"]["top_k"] = 1e300;
  EXPECT_EQ(run_of(row).reason, "model.moe.top_k = 1e+300 is not from 0 to 1e9");
}

}  // namespace
}  // namespace trireme::plan
