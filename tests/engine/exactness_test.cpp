// SPDX-License-Identifier: Apache-2.0
// Same bits for any number of threads, stream mode, recompute policy, order of actions, and for
// head chunking where it must not matter.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "tests/engine/rig.h"

namespace trireme::tests {
namespace {

using device::StreamMode;
using spec::Recompute;

std::string sha_after(const RigOptions& o, int steps) {
  Rig rig(o);
  rig.train(steps, 1e-3);
  return rig.engine.weights_sha256();
}

std::string param_of(const Rig& rig) { return rig.engine.parameters().front().name; }

TEST(ExactnessTest, threads_and_stream_modes_give_the_same_bits) {
  for (const spec::ModelDims& dims : {tiny_gpt2(), tiny_qwen3(), tiny_shared_moe()}) {
    for (const char* recipe : {"fp32", "bf16"}) {
      RigOptions o{.dims = dims, .recipe = recipe, .microbatches = 2};
      const std::string expected = sha_after(o, 50);
      for (const StreamMode mode : {StreamMode::inline_calls, StreamMode::worker_threads}) {
        for (const int threads : {1, 2, 3, 4}) {
          o.threads = threads;
          o.streams = mode;
          EXPECT_EQ(sha_after(o, 50), expected) << dims.name << " " << recipe << " " << threads;
        }
      }
    }
  }
}

TEST(ExactnessTest, recompute_changes_no_bit) {
  for (const spec::ModelDims& dims : {tiny_gpt2(), tiny_llama(), tiny_qwen3(), tiny_whole_norm(),
                                      tiny_clipped(), tiny_moe(), tiny_shared_moe()}) {
    for (const char* recipe : {"fp32", "bf16"}) {
      RigOptions o{.dims = dims, .recipe = recipe, .microbatches = 2, .threads = 2};
      const std::string expected = sha_after(o, 5);
      for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
        o.recompute = recompute;
        for (const int blocks : {-1, 1}) {
          o.recompute_blocks = blocks;
          EXPECT_EQ(sha_after(o, 5), expected) << dims.name << " " << spec::name_of(recompute);
        }
      }
    }
  }
}

// One tile of all rows has the order of sums without tiles. Smaller tiles have another one, which
// neither recompute nor the order of B and W changes.
TEST(ExactnessTest, tiles_of_the_feed_forward_change_only_the_order_of_sums) {
  for (const spec::ModelDims& dims : {tiny_gpt2(), tiny_llama(), tiny_qwen3()}) {
    for (const char* recipe : {"fp32", "bf16"}) {
      RigOptions o{.dims = dims, .recipe = recipe, .microbatches = 2, .threads = 2};
      const std::string without = sha_after(o, 5);
      for (const int64_t ffn_rows : {100, 26, 7}) {
        o.ffn_rows = ffn_rows;
        o.recompute = Recompute::none;
        o.schedule.reset();
        const std::string expected = sha_after(o, 5);
        EXPECT_EQ(expected == without, ffn_rows >= 26) << dims.name << " " << ffn_rows;
        for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
          o.recompute = recompute;
          EXPECT_EQ(sha_after(o, 5), expected) << dims.name << " " << spec::name_of(recompute);
        }
        o.schedule = schedule::add_tied(schedule::split_backward(schedule::one_f_one_b(1, 2)));
        EXPECT_EQ(sha_after(o, 5), expected) << dims.name << " split backward";
      }
    }
  }
}

// Split fp32 masters hold the same fp32 values. Only parameters halfway between two bf16 values may
// differ, about one in 65,536 (base/split_float.h).
TEST(ExactnessTest, split_masters_begin_the_same_and_stay_near) {
  for (const spec::ModelDims& dims : {tiny_gpt2(), tiny_llama()}) {
    RigOptions o{.dims = dims, .recipe = "bf16"};
    Rig start(o), masters(o);
    o.master = base::DType::u16;
    Rig split(o);
    EXPECT_EQ(split.engine.weights_sha256(), masters.engine.weights_sha256());
    masters.train(20, 1e-3);
    split.train(20, 1e-3);
    double distance = 0, way = 0;
    for (const auto& param : masters.engine.parameters()) {
      const std::vector<float> first = start.engine.read_weights(param.name);
      const std::vector<float> expected = masters.engine.read_weights(param.name);
      const std::vector<float> found = split.engine.read_weights(param.name);
      for (size_t i = 0; i < expected.size(); ++i) {
        distance += std::pow(static_cast<double>(found[i] - expected[i]), 2);
        way += std::pow(static_cast<double>(expected[i] - first[i]), 2);
      }
    }
    EXPECT_LT(std::sqrt(distance), 0.02 * std::sqrt(way));
    // A written value is read back, whether or not it needs its low part.
    std::vector<float> values = masters.engine.read_weights(param_of(masters));
    for (float& value : values) value = std::nextafter(value * 1.001F, 1.0F);
    split.engine.write_weights(param_of(split), values);
    EXPECT_EQ(split.engine.read_weights(param_of(split)), values);
  }
}

TEST(ExactnessTest, schedules_of_one_rank_give_the_same_bits) {
  for (const spec::ModelDims& dims : {tiny_gpt2(), tiny_llama(), tiny_shared_moe()}) {
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      RigOptions o{.dims = dims, .recompute = recompute, .microbatches = 3};
      const std::string expected = sha_after(o, 4);
      const schedule::Schedule schedules[] = {
          schedule::add_tied(schedule::gpipe(1, 3)),
          schedule::add_tied(schedule::split_backward(schedule::one_f_one_b(1, 3))),
          schedule::add_tied(schedule::split_backward(schedule::gpipe(1, 3)))};
      for (const schedule::Schedule& s : schedules) {
        o.schedule = s;
        EXPECT_EQ(sha_after(o, 4), expected) << schedule::to_text(s);
      }
    }
  }
}

// All weight gradients run after all input gradients: several micro-batches are live between B and
// W.
TEST(ExactnessTest, weight_gradients_may_come_late) {
  schedule::Schedule late = schedule::gpipe(1, 2);
  late.program[0].clear();
  for (const schedule::Op op : {schedule::Op::F, schedule::Op::B, schedule::Op::W}) {
    for (int32_t m = 0; m < 2; ++m) late.program[0].push_back({.op = op, .microbatch = m});
  }
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    RigOptions o{.dims = tiny_llama(), .recompute = recompute, .microbatches = 2};
    const std::string expected = sha_after(o, 4);
    o.schedule = schedule::add_tied(late);
    EXPECT_EQ(sha_after(o, 4), expected);
    Rig rig(o);
    rig.train(1, 1e-3);
    EXPECT_EQ(rig.engine.measured(), rig.engine.plan().predicted.memory.front());
  }
}

TEST(ExactnessTest, accumulation_adds_up_the_gradients_of_its_micro_batches) {
  // Two micro-batches in one step against the sum of the same two in separate runs.
  RigOptions o{.dims = tiny_llama(), .microbatches = 2};
  Rig both(o);
  both.engine.accumulate(both.source);
  class One final : public engine::MicrobatchSource {
   public:
    One(RandomSource& source, int index) : source_(source), index_(index) {}
    void fill(int, const engine::HostMicrobatch& out) override { source_.fill(index_, out); }

   private:
    RandomSource& source_;
    int index_;
  };
  o.microbatches = 1;
  Rig first(o), second(o);
  One one(first.source, 0), two(second.source, 1);
  first.engine.accumulate(one);
  second.engine.accumulate(two);
  for (const auto& param : both.engine.parameters()) {
    const auto sum = both.engine.read_grads(param.name);
    const auto a = first.engine.read_grads(param.name), b = second.engine.read_grads(param.name);
    double error = 0, scale = 0;
    for (size_t i = 0; i < sum.size(); ++i) {
      const double expected = static_cast<double>(a[i]) + b[i];
      error += (sum[i] - expected) * (sum[i] - expected);
      scale += expected * expected;
    }
    // Only the order of fp32 additions differs: a few units in the last place.
    EXPECT_LE(std::sqrt(error), 1e-6 * std::sqrt(scale) + 1e-12) << param.name;
  }
}

TEST(ExactnessTest, start_weights_depend_on_seed_and_name_alone) {
  RigOptions o{.dims = tiny_llama()};
  o.engine.seed = 5;
  Rig a(o);
  o.recipe = "bf16";
  o.recompute = Recompute::full;
  o.threads = 3;
  Rig b(o);
  EXPECT_EQ(a.engine.weights_sha256(), b.engine.weights_sha256());
  o.engine.seed = 6;
  Rig c(o);
  EXPECT_NE(a.engine.weights_sha256(), c.engine.weights_sha256());
}

TEST(ExactnessTest, tokens_out_of_range_are_refused_before_anything_changes) {
  Rig rig({.dims = tiny_llama()});
  const std::string before = rig.engine.weights_sha256();
  class Bad final : public engine::MicrobatchSource {
   public:
    explicit Bad(int32_t token) : token_(token) {}
    void fill(int, const engine::HostMicrobatch& out) override {
      engine::set_equal_sequences(out, 2, 13);
      std::fill(out.tokens.begin(), out.tokens.end(), 1);
      std::fill(out.labels.begin(), out.labels.end(), 1);
      out.tokens[3] = token_;
    }

   private:
    int32_t token_;
  };
  for (const int32_t token : {-1, 61, 1 << 30}) {
    Bad bad(token);
    EXPECT_THROW(rig.engine.step(bad, 1e-3), base::ConfigError);
  }
  EXPECT_EQ(rig.engine.weights_sha256(), before);
}

TEST(ExactnessTest, a_norm_that_is_not_finite_skips_the_step) {
  Rig rig({.dims = tiny_llama()});
  rig.train(3, 1e-3);
  std::vector<float> weights = rig.engine.read_weights("blocks.0.down.weight");
  const std::vector<float> good = weights;
  weights[0] = std::nanf("");
  rig.engine.write_weights("blocks.0.down.weight", weights);
  const std::string before = rig.engine.weights_sha256();
  rig.train(1, 1e-3);
  const engine::StepReport report = rig.engine.report();
  EXPECT_TRUE(report.was_skipped);
  EXPECT_EQ(report.skipped, 1);
  EXPECT_EQ(report.applied, 3);
  EXPECT_EQ(rig.engine.weights_sha256(), before);
  rig.engine.write_weights("blocks.0.down.weight", good);
  rig.train(1, 1e-3);
  EXPECT_FALSE(rig.engine.report().was_skipped);
  EXPECT_EQ(rig.engine.report().skipped_in_a_row, 0);
}

// exp(logit of the label) / sum of exp(logits) is the probability whose -log is the token's loss.
TEST(ExactnessTest, logits_and_token_losses_agree) {
  for (const char* recipe : {"fp32", "bf16"}) {
    Rig rig({.dims = tiny_qwen3(), .recipe = recipe, .inference = true});
    std::vector<float> losses(26);
    const engine::EvalReport report = rig.engine.evaluate(rig.source, losses);
    double sum = 0;
    for (const float loss : losses) sum += static_cast<double>(loss);
    EXPECT_NEAR(sum, report.loss_sum, 1e-4);
    std::vector<int32_t> tokens(26), labels(26), positions(26), offsets(27);
    rig.source.fill(0, {tokens, labels, positions, offsets});
    for (const int64_t token : {0, 9, 10, 25}) {
      const std::vector<float> logits = rig.engine.logits(rig.source, token);
      ASSERT_EQ(logits.size(), 61U);
      const int32_t label = labels[static_cast<size_t>(token)];
      if (label < 0) continue;
      double total = 0;
      for (const float logit : logits) total += std::exp(static_cast<double>(logit));
      const double loss = std::log(total) - static_cast<double>(logits[static_cast<size_t>(label)]);
      EXPECT_NEAR(loss, static_cast<double>(losses[static_cast<size_t>(token)]), 1e-4);
    }
  }
}

// Documents packed into one sequence do not attend to each other: the loss of a packed stream is
// the sum of the losses of its documents.
TEST(ExactnessTest, packed_documents_equal_separate_ones) {
  for (const spec::ModelDims& dims : {tiny_gpt2(), tiny_llama()}) {
    const std::vector<int32_t> borders = {0, 4, 5, 13, 20, 26};
    class Packed final : public engine::MicrobatchSource {
     public:
      Packed(RandomSource& source, std::vector<int32_t> b)
          : source_(source), borders_(std::move(b)) {}
      void fill(int index, const engine::HostMicrobatch& out) override {
        source_.fill(index, out);
        std::fill(out.seq_offsets.begin(), out.seq_offsets.end(), 26);
        for (size_t i = 0; i < borders_.size(); ++i) out.seq_offsets[i] = borders_[i];
        for (size_t i = 0; i + 1 < borders_.size(); ++i) {
          for (int32_t t = borders_[i]; t < borders_[i + 1]; ++t) {
            out.positions[static_cast<size_t>(t)] = t - borders_[i];
          }
        }
      }

     private:
      RandomSource& source_;
      std::vector<int32_t> borders_;
    };
    class Document final : public engine::MicrobatchSource {
     public:
      Document(RandomSource& source, int32_t begin) : source_(source), begin_(begin) {}
      void fill(int index, const engine::HostMicrobatch& out) override {
        std::vector<int32_t> tokens(26), labels(26), positions(26), offsets(27);
        source_.fill(index, {tokens, labels, positions, offsets});
        const auto n = static_cast<int64_t>(out.tokens.size());
        engine::set_equal_sequences(out, 1, n);
        for (int64_t t = 0; t < n; ++t) {
          out.tokens[static_cast<size_t>(t)] = tokens[static_cast<size_t>(begin_ + t)];
          out.labels[static_cast<size_t>(t)] = labels[static_cast<size_t>(begin_ + t)];
        }
      }

     private:
      RandomSource& source_;
      int32_t begin_;
    };
    Rig packed({.dims = dims, .document_mask = true});
    Packed source(packed.source, borders);
    const engine::EvalReport whole = packed.engine.evaluate(source);
    engine::EvalReport sum;
    for (size_t i = 0; i + 1 < borders.size(); ++i) {
      Rig alone({.dims = dims, .sequences = 1, .seq_len = borders[i + 1] - borders[i]});
      Document document(packed.source, borders[i]);
      const engine::EvalReport part = alone.engine.evaluate(document);
      sum.loss_sum += part.loss_sum;
      sum.tokens += part.tokens;
    }
    EXPECT_EQ(whole.tokens, sum.tokens);
    // GEMMs of other shapes differ by fp32 rounding only.
    EXPECT_NEAR(whole.loss_sum, sum.loss_sum, 1e-5 * sum.loss_sum) << dims.name;
  }
}

}  // namespace
}  // namespace trireme::tests
