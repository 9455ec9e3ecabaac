// SPDX-License-Identifier: Apache-2.0
#include "train/weights/upcycle.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <map>

#include "base/error.h"
#include "base/rng.h"
#include "ckpt/disk/memory_disk.h"
#include "ckpt/generation/folder.h"
#include "ckpt/generation/generation.h"
#include "ckpt/hf/hf_names.h"
#include "ckpt/hf/hf_weights.h"
#include "train/checkpointing/checkpoint_weights.h"

namespace trireme::train {
namespace {

using Weights = std::map<std::string, std::vector<float>>;

class UpcycleTest : public testing::Test {
 protected:
  UpcycleTest() {
    disk_.make_folder("/run");
    std::filesystem::remove_all(weights_);
    for (const ckpt::HfParam& param : ckpt::hf_params(how_.dense)) {
      std::vector<float>& values = dense_[param.name];
      for (int64_t i = 0; i < param.elements(); ++i) {
        values.push_back(
            base::rng_normal(base::rng_key(5, param.name), static_cast<uint64_t>(i), 0.5F));
      }
    }
    ckpt::export_hf(weights_, how_.dense,
                    ckpt::ReadParam([&](const std::string& name) { return dense_.at(name); }), {});
    how_.moe = how_.dense;
    how_.moe.name = "moe";
    how_.moe.moe = {.router = {.experts = 3, .chosen = 2, .renormalizes = true}, .ffn = 12};
    how_.moe.dense_layers = 1;
  }
  ~UpcycleTest() override { std::filesystem::remove_all(weights_); }

  Weights upcycled() {
    const std::filesystem::path made = upcycle_weights(disk_, weights_, how_, "/run");
    const auto generation = ckpt::Generation::open(disk_, made);
    Weights all;
    CheckpointWeights(generation, how_.moe)
        .read_all([&](const std::string& name, std::span<const float> values) {
          all[name].assign(values.begin(), values.end());
        });
    return all;
  }
  std::string refusal() {
    try {
      upcycle_weights(disk_, weights_, how_, "/run");
    } catch (const base::ConfigError& error) {
      EXPECT_TRUE(disk_.list("/run").empty());
      return error.what();
    }
    return "";
  }

  Upcycling how_{
      .dense = {
          .name = "m", .layers = 2, .hidden = 8, .heads = 2, .ffn = 12, .vocab = 16, .max_seq = 8}};
  Weights dense_;
  std::filesystem::path weights_ =
      std::filesystem::temp_directory_path() / ("trireme_upcycle_" + std::to_string(::getpid()));
  ckpt::MemoryDisk disk_;
};

TEST_F(UpcycleTest, every_expert_is_a_copy_of_the_dense_feed_forward) {
  how_.seed = 9;
  const Weights all = upcycled();
  for (const auto& [name, values] : all) {
    const size_t at = name.find("experts.");
    if (name.ends_with("router.weight")) {
      const base::RngKey key = base::rng_key(9, name);
      for (size_t i = 0; i < values.size(); ++i) {
        EXPECT_EQ(values[i], base::rng_normal(key, i, how_.moe.init_std));
      }
    } else if (at == std::string::npos) {
      EXPECT_EQ(values, dense_.at(name)) << name;
    } else {
      const std::vector<float>& one = dense_.at(std::string(name).erase(at, 8));
      ASSERT_EQ(values.size(), 3 * one.size()) << name;
      for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], one[i % one.size()]) << name;
    }
  }
  EXPECT_TRUE(all.contains("blocks.1.experts.gate_up.weight"));
  EXPECT_TRUE(all.contains("blocks.0.gate_up.weight"));
}

TEST_F(UpcycleTest, noise_makes_experts_differ_by_its_standard_deviation) {
  how_.noise = 0.01;
  const Weights all = upcycled();
  const std::vector<float>& experts = all.at("blocks.1.experts.down.weight");
  const std::vector<float>& one = dense_.at("blocks.1.down.weight");
  double squares = 0;
  for (size_t i = 0; i < experts.size(); ++i) {
    const double difference =
        static_cast<double>(experts[i]) - static_cast<double>(one[i % one.size()]);
    squares += difference * difference;
  }
  EXPECT_NEAR(std::sqrt(squares / static_cast<double>(experts.size())), 0.01, 0.002);
  EXPECT_NE(experts[0], experts[one.size()]);
  EXPECT_EQ(all.at("blocks.0.down.weight"), dense_.at("blocks.0.down.weight"));
}

TEST_F(UpcycleTest, models_that_do_not_fit_are_refused_with_every_size) {
  how_.moe.moe->ffn = 6;
  how_.moe.vocab = 17;
  const std::string message = refusal();
  EXPECT_NE(message.find("expert_ffn = 6: every expert is a copy of the dense feed-forward, so it "
                         "must be 12"),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("vocab = 17: the dense model has 16"), std::string::npos) << message;
  how_.moe = how_.dense;
  EXPECT_NE(refusal().find("it has no experts"), std::string::npos);
}

}  // namespace
}  // namespace trireme::train
