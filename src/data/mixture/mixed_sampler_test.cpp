// SPDX-License-Identifier: Apache-2.0
#include "data/mixture/mixed_sampler.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "data/files_test.h"
#include "data/samples/batch.h"
#include "data/samples/prefetch.h"
#include "data/samples/sampler.h"

namespace trireme::data {
namespace {

// Sources of different sizes; token i of source s is s * 100000 + i.
class MixedSamplerTest : public ::testing::Test {
 protected:
  static constexpr int64_t seq_len = 8;

  MixedSamplerTest() {
    for (int32_t source = 0; source < 3; ++source) {
      std::vector<int32_t> tokens(static_cast<size_t>(4001 + 800 * source));
      for (size_t i = 0; i < tokens.size(); ++i) {
        tokens[i] = source * 100'000 + static_cast<int32_t>(i);
      }
      data_.push_back(tokens_in_memory(tokens, -1));
      run_.sources.push_back(
          {.name = std::to_string(source), .epoch_tokens = data_.back()->tokens() - 1});
    }
    run_.steps = 50;
    run_.seed = 11;
    run_.phases = {{.name = "first", .weights = {5, 3, 2}, .seq_len = seq_len, .global_batch = 24},
                   {.name = "second",
                    .from_step = 20,
                    .weights = {1, 0, 1},
                    .seq_len = seq_len,
                    .global_batch = 24}};
  }

  // Returns samplers of all sources.
  std::vector<const SampleProvider*> samplers(int64_t length, int64_t shuffle_len = 0) {
    std::vector<const SampleProvider*> all;
    for (const auto& data : data_) {
      made_.push_back(std::make_unique<Sampler>(
          *data, SamplerOptions{.seed = 11, .seq_len = length, .shuffle_len = shuffle_len}));
      all.push_back(made_.back().get());
    }
    return all;
  }

  std::vector<std::unique_ptr<TokenData>> data_;
  std::vector<std::unique_ptr<Sampler>> made_;
  RunPhases run_;
};

TEST_F(MixedSamplerTest, each_sample_is_that_of_its_source) {
  const Phases phases(run_);
  const auto sources = samplers(seq_len);
  const MixedSampler mixed(phases, sources);
  EXPECT_EQ(mixed.samples(), 50 * 24);
  Batch all, one;
  for (int64_t i = 0; i < mixed.samples(); ++i) {
    const std::vector<int64_t> position = {i};
    fill_batch(mixed, position, all);
    const SampleOrigin origin = mixed.origin(i);
    ASSERT_EQ(all.tokens[0] / 100'000, origin.source);
    ASSERT_TRUE(i < 20 * 24 || origin.source != 1);
    const std::vector<int64_t> own = {origin.sample};
    fill_batch(*sources[static_cast<size_t>(origin.source)], own, one);
    ASSERT_EQ(all.tokens, one.tokens);
    ASSERT_EQ(all.labels, one.labels);
  }
}

TEST_F(MixedSamplerTest, any_number_of_ranks_reads_the_same_samples) {
  const Phases phases(run_);
  const MixedSampler mixed(phases, samplers(seq_len));
  const auto step_tokens = [&](int ranks, int64_t step) {
    const Phases own(run_);  // every rank has its own objects
    const MixedSampler of_rank(own, samplers(seq_len));
    std::vector<int32_t> tokens(static_cast<size_t>(24 * seq_len));
    std::vector<int64_t> positions;
    Batch batch;
    for (int rank = 0; rank < ranks; ++rank) {
      batch_positions({.global_batch = 24, .ranks = ranks, .rank = rank}, step, 0, positions);
      fill_batch(of_rank, positions, batch);
      for (size_t i = 0; i < positions.size(); ++i) {
        const int64_t at = (positions[i] - step * 24) * seq_len;
        std::copy_n(batch.tokens.begin() + static_cast<int64_t>(i) * seq_len, seq_len,
                    tokens.begin() + at);
      }
    }
    return tokens;
  };
  for (const int64_t step : {0, 7, 19, 20, 49}) {
    const std::vector<int32_t> wanted = step_tokens(1, step);
    for (const int ranks : {2, 3, 8}) EXPECT_EQ(step_tokens(ranks, step), wanted) << ranks;
  }
}

TEST_F(MixedSamplerTest, a_resumed_run_reads_what_an_unbroken_one_reads) {
  const Phases phases(run_);
  const MixedSampler mixed(phases, samplers(seq_len));
  const BatchSplit split{.global_batch = 24};
  const auto positions = [&](int64_t batch, std::vector<int64_t>& out) {
    batch_positions(split, batch, 0, out);
  };
  // Reading ahead beyond the run ends in an error only if that batch is requested.
  Prefetcher unbroken(mixed, positions, {.depth = 4});
  std::vector<Batch> all;
  for (int step = 0; step < 50; ++step) all.push_back(unbroken.next());
  EXPECT_TRUE(says(message_of<base::Error>([&] { unbroken.next(); }),
                   {"sample 1200; the phases of the run have 1200"}));
  for (const int64_t first : {1, 13, 19, 20, 21, 49}) {
    const Phases again(run_);
    const MixedSampler resumed(again, samplers(seq_len));
    Prefetcher prefetcher(resumed, positions, {.first_batch = first, .depth = 1});
    EXPECT_EQ(prefetcher.next(), all[static_cast<size_t>(first)]) << "step " << first;
  }
}

TEST_F(MixedSamplerTest, a_longer_seq_len_continues_without_repeating_a_token) {
  run_.phases = {
      {.name = "short", .weights = {1, 1, 1}, .seq_len = 8, .global_batch = 12},
      {.name = "long", .from_step = 20, .weights = {1, 1, 1}, .seq_len = 32, .global_batch = 3}};
  run_.steps = 60;
  const Phases phases(run_);
  const MixedSampler short_ones(phases, samplers(8, 32)), long_ones(phases, samplers(32, 32));
  EXPECT_TRUE(says(message_of<base::Error>([&] {
                     Batch batch;
                     fill_batch(short_ones, std::vector<int64_t>{240}, batch);
                   }),
                   {"sample 240 is in phase 'long' with a seq_len of 32, not 8"}));
  std::set<int32_t> seen;
  Batch batch;
  for (int64_t i = 0; i < phases.samples(); ++i) {
    const bool is_long = phases.at_sample(i).phase == 1;
    fill_batch(is_long ? long_ones : short_ones, std::vector<int64_t>{i}, batch);
    for (const int32_t token : batch.tokens) ASSERT_TRUE(seen.insert(token).second) << token;
  }
  EXPECT_EQ(seen.size(), 20U * 12 * 8 + 40U * 3 * 32);
}

TEST_F(MixedSamplerTest, samplers_that_do_not_fit_are_refused) {
  const Phases phases(run_);
  auto sources = samplers(seq_len);
  sources[2] = samplers(16)[2];
  EXPECT_TRUE(
      says(message_of<base::ConfigError>([&] { const MixedSampler mixed(phases, sources); }),
           {"source '2' has a seq_len of 16, source '0' of 8"}));
  sources.pop_back();
  EXPECT_TRUE(
      says(message_of<base::ConfigError>([&] { const MixedSampler mixed(phases, sources); }),
           {"2 samplers for 3 sources"}));
}

}  // namespace
}  // namespace trireme::data
