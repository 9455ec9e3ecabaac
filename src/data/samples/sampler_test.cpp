// SPDX-License-Identifier: Apache-2.0
#include "data/samples/sampler.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/system/refused_threads_test.h"
#include "data/files_test.h"
#include "data/samples/batch.h"
#include "data/samples/loss_mask.h"
#include "data/samples/permutation.h"
#include "data/samples/prefetch.h"

namespace trireme::data {
namespace {

// Token i is i, so that a sample shows where it comes from.
std::unique_ptr<TokenData> counting(int64_t tokens, int32_t end_of_document = -1) {
  std::vector<int32_t> values(static_cast<size_t>(tokens));
  std::iota(values.begin(), values.end(), 0);
  return tokens_in_memory(std::move(values), end_of_document);
}

Batch batch_of(const Sampler& sampler, std::vector<int64_t> positions) {
  Batch batch;
  fill_batch(sampler, positions, batch);
  return batch;
}

TEST(PermutationTest, every_index_appears_once_for_many_sizes) {
  for (int64_t size : {1,  2,   3,   4,   5,   7,    8,    15,   16,   17,    63,    64,
                       65, 100, 255, 256, 257, 1000, 1023, 1025, 4097, 10007, 65536, 65537}) {
    for (const uint64_t key : {1ULL, 99ULL}) {
      const Permutation permutation(key, size);
      std::vector<bool> seen(static_cast<size_t>(size));
      for (int64_t i = 0; i < size; ++i) {
        const int64_t to = permutation(i);
        ASSERT_TRUE(to >= 0 && to < size) << size;
        ASSERT_FALSE(seen[static_cast<size_t>(to)]) << size;
        seen[static_cast<size_t>(to)] = true;
      }
    }
  }
}

TEST(PermutationTest, huge_sizes_stay_in_range) {
  const int64_t size = (int64_t{1} << 62) - 57;
  const Permutation permutation(3, size);
  for (const int64_t i : {int64_t{0}, int64_t{1}, size / 2, size - 1}) {
    EXPECT_LT(permutation(i), size);
    EXPECT_GE(permutation(i), 0);
  }
}

// Over many keys each of 24 orders of four should come up about equally often, and over a large
// size neighbours should not stay neighbours.
TEST(PermutationTest, orders_look_random) {
  std::map<std::vector<int64_t>, int> orders;
  constexpr int keys = 24000;
  for (uint64_t key = 0; key < keys; ++key) {
    const Permutation permutation(base::rng_key(key, "test"), 4);
    ++orders[{permutation(0), permutation(1), permutation(2), permutation(3)}];
  }
  EXPECT_GE(orders.size(), 12U);  // a Feistel network on two bits reaches the even ones at least
  const Permutation permutation(7, 10000);
  int close = 0;
  for (int64_t i = 0; i + 1 < 10000; ++i)
    close += std::abs(permutation(i) - permutation(i + 1)) < 100;
  EXPECT_NEAR(close, 2 * 100, 60);  // four standard deviations of a binomial with p = 0.02
}

TEST(SamplerTest, a_sample_is_a_window_and_its_labels_the_next_tokens) {
  const auto data = counting(21);
  const Sampler sampler(*data, {.seq_len = 5, .split = Split::whole});
  EXPECT_EQ(sampler.samples(), 4);
  const Batch batch = batch_of(sampler, {1, 3, 4});
  EXPECT_TRUE(holds(batch.tokens, {5, 6, 7, 8, 9, 15, 16, 17, 18, 19, 0, 1, 2, 3, 4}));
  EXPECT_TRUE(holds(batch.labels, {6, 7, 8, 9, 10, 16, 17, 18, 19, 20, 1, 2, 3, 4, 5}));
  EXPECT_TRUE(holds(batch.positions, {0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4}));
  EXPECT_TRUE(
      holds(batch.seq_offsets, {0, 5, 10, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15}));
}

TEST(SamplerTest, each_epoch_takes_every_sample_once_in_its_own_order) {
  const auto data = counting(1001);
  const Sampler sampler(*data, {.seed = 4, .seq_len = 10});
  ASSERT_EQ(sampler.samples(), 100);
  std::set<std::vector<int64_t>> orders;
  for (int64_t epoch = 0; epoch < 5; ++epoch) {
    std::vector<int64_t> order;
    for (int64_t i = 0; i < 100; ++i) order.push_back(sampler.first_token(epoch * 100 + i));
    orders.insert(order);
    std::sort(order.begin(), order.end());
    for (int64_t i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i * 10);
  }
  EXPECT_EQ(orders.size(), 5U);
}

TEST(SamplerTest, the_order_is_fixed_by_seed_data_and_position) {
  const auto first_five = [](const TokenData& data, uint64_t seed) {
    const Sampler sampler(data, {.seed = seed, .seq_len = 10});
    std::vector<int64_t> found;
    for (int64_t i = 0; i < 5; ++i) found.push_back(sampler.first_token(i));
    return found;
  };
  const auto data = counting(10001), other = counting(10002);
  EXPECT_EQ(first_five(*data, 1), first_five(*counting(10001), 1));
  EXPECT_NE(first_five(*data, 1), first_five(*data, 2));
  EXPECT_NE(first_five(*data, 1), first_five(*other, 1));
  // Pinned: a run that is resumed by a later version must continue with the same samples.
  EXPECT_TRUE(holds(first_five(*data, 1), {9140, 6440, 3720, 6230, 7250}));
}

TEST(SamplerTest, the_splits_share_no_token) {
  for (const int64_t tokens : {1000, 1001, 1004, 1009}) {
    for (const double fraction : {0.001, 0.1, 0.5, 0.9}) {
      const auto data = counting(tokens);
      const Sampler train(*data, {.seq_len = 10, .validation_fraction = fraction});
      const Sampler validation(
          *data, {.seq_len = 10, .split = Split::validation, .validation_fraction = fraction});
      EXPECT_NEAR(static_cast<double>(validation.samples()),
                  std::max(1.0, fraction * static_cast<double>((tokens - 1) / 10)), 0.51);
      EXPECT_GE(train.samples() + validation.samples(), (tokens - 1) / 10 - 1);
      int64_t last_of_train = 0, previous = -1;
      for (int64_t i = 0; i < train.samples(); ++i) {
        last_of_train = std::max(last_of_train, train.first_token(i) + 10);
      }
      for (int64_t i = 0; i < validation.samples(); ++i) {
        EXPECT_GT(validation.first_token(i), previous);  // in order
        previous = validation.first_token(i);
        EXPECT_GT(previous, last_of_train);
        EXPECT_LE(previous + 10, tokens - 1);
      }
      EXPECT_EQ(validation.first_token(validation.samples()), validation.first_token(0));
    }
  }
}

TEST(SamplerTest, masked_documents_restart_and_do_not_predict_each_other) {
  // Documents 1 2 0 | 3 0 | 4 5 6 0 | 7 8 9
  const auto data = tokens_in_memory({1, 2, 0, 3, 0, 4, 5, 6, 0, 7, 8, 9}, 0);
  const Sampler masked(*data, {.seq_len = 5, .split = Split::whole, .document_mask = true});
  const Batch batch = batch_of(masked, {0, 1});
  EXPECT_TRUE(holds(batch.tokens, {1, 2, 0, 3, 0, 4, 5, 6, 0, 7}));
  EXPECT_TRUE(holds(batch.labels, {2, 0, -1, 0, -1, 5, 6, 0, -1, 8}));
  EXPECT_TRUE(holds(batch.positions, {0, 1, 2, 0, 1, 0, 1, 2, 3, 0}));
  EXPECT_TRUE(holds(batch.seq_offsets, {0, 3, 5, 9, 10, 10, 10, 10, 10, 10, 10}));
  const Sampler open(*data, {.seq_len = 5, .split = Split::whole});
  const Batch plain = batch_of(open, {0, 1});
  EXPECT_EQ(plain.tokens, batch.tokens);
  EXPECT_TRUE(holds(plain.labels, {2, 0, 3, 0, 4, 5, 6, 0, 7, 8}));
}

TEST(SamplerTest, tokens_of_a_prompt_are_read_but_not_predicted) {
  // Documents 1 2 | 3 4 0 and 5 | 6 7 0: prompt | completion
  const auto data = tokens_in_memory({1, 2, 3, 4, 0, 5, 6, 7, 0}, 0);
  const auto mask = loss_mask_in_memory({0, 0, 1, 1, 1, 0, 1, 1, 1});
  const Sampler open(*data, {.seq_len = 4, .split = Split::whole, .loss_mask = mask.get()});
  const Batch batch = batch_of(open, {0, 1});
  EXPECT_TRUE(holds(batch.tokens, {1, 2, 3, 4, 0, 5, 6, 7}));
  EXPECT_TRUE(holds(batch.labels, {-1, 3, 4, 0, -1, 6, 7, 0}));
  const auto short_mask = loss_mask_in_memory({0, 1});
  EXPECT_TRUE(says(message_of<base::ConfigError>([&] {
                     const Sampler sampler(*data, {.seq_len = 4, .loss_mask = short_mask.get()});
                   }),
                   {"9 tokens, but its loss mask has 2"}));
}

// A run that doubles seq_len at any token reads every token of the epoch once.
TEST(SamplerTest, samplers_of_one_shuffle_len_read_the_same_tokens) {
  const auto data = counting(1009);
  const SamplerOptions options{
      .seed = 4, .seq_len = 10, .validation_fraction = 0.1, .shuffle_len = 40};
  SamplerOptions longer = options;
  longer.seq_len = 20;
  const Sampler ten(*data, options), twenty(*data, longer);
  ASSERT_EQ(ten.samples(), 2 * twenty.samples());
  for (int64_t i = 0; i < 3 * twenty.samples(); ++i) {
    EXPECT_EQ(ten.first_token(2 * i), twenty.first_token(i));
    EXPECT_EQ(ten.first_token(2 * i + 1), twenty.first_token(i) + 10);
  }
  EXPECT_TRUE(says(message_of<base::ConfigError>(
                       [&] { const Sampler sampler(*data, {.seq_len = 10, .shuffle_len = 25}); }),
                   {"shuffle_len = 25; allowed: 0 and multiples of seq_len 10"}));
}

TEST(SamplerTest, data_that_is_too_short_is_refused_with_numbers) {
  const auto refused = [](const TokenData& data, const SamplerOptions& options) {
    return message_of<base::ConfigError>([&] { const Sampler sampler(data, options); });
  };
  EXPECT_TRUE(says(refused(*counting(0), {.seq_len = 8}), {"holds no tokens"}));
  EXPECT_TRUE(
      says(refused(*counting(8), {.seq_len = 8}), {"8 tokens; one sample of seq_len 8 takes 9"}));
  EXPECT_TRUE(says(refused(*counting(9), {.seq_len = 0}), {"seq_len = 0"}));
  EXPECT_TRUE(says(refused(*counting(17), {.seq_len = 8, .validation_fraction = 0.1}),
                   {"leaves 8 tokens for training"}));
  EXPECT_TRUE(says(refused(*counting(99), {.seq_len = 8, .validation_fraction = 1}),
                   {"validation fraction 1"}));
  EXPECT_TRUE(
      says(refused(*counting(99), {.seq_len = 8, .split = Split::validation}), {"fraction of 0"}));
}

TEST(SamplerTest, a_token_outside_the_vocabulary_is_found_in_the_sample) {
  const auto data = counting(21);
  const Sampler sampler(*data, {.seq_len = 5, .split = Split::whole, .vocab = 10});
  EXPECT_TRUE(holds(batch_of(sampler, {0}).tokens, {0, 1, 2, 3, 4}));
  EXPECT_TRUE(says(message_of<base::IoError>([&] { batch_of(sampler, {1}); }),
                   {"token 10 (number 10 of document 0) is 10; the model's vocabulary is 10"}));
}

TEST(BatchTest, any_split_of_the_batch_takes_the_same_samples) {
  for (const int ranks : {1, 2, 3, 4, 6}) {
    for (const int micro_batches : {1, 2}) {
      for (int64_t step = 0; step < 3; ++step) {
        std::vector<int64_t> all, some;
        for (int rank = 0; rank < ranks; ++rank) {
          const BatchSplit split{
              .global_batch = 24, .ranks = ranks, .rank = rank, .micro_batches = micro_batches};
          check_split(split);
          for (int m = 0; m < micro_batches; ++m) {
            batch_positions(split, step, m, some);
            EXPECT_EQ(static_cast<int64_t>(some.size()), split.samples());
            all.insert(all.end(), some.begin(), some.end());
          }
        }
        std::sort(all.begin(), all.end());
        std::vector<int64_t> wanted(24);
        std::iota(wanted.begin(), wanted.end(), step * 24);
        EXPECT_EQ(all, wanted) << ranks << " ranks, " << micro_batches << " micro-batches";
      }
    }
  }
  EXPECT_TRUE(
      says(message_of<base::ConfigError>([] { check_split({.global_batch = 10, .ranks = 4}); }),
           {"10 samples does not divide by 4 ranks x 1 micro-batches"}));
}

TEST(PrefetcherTest, the_depth_changes_no_batch) {
  const auto data = counting(5000, 77);
  const Sampler sampler(*data, {.seed = 9, .seq_len = 16, .document_mask = true});
  const BatchSplit split{.global_batch = 6, .ranks = 2, .rank = 1};
  const auto positions = [&](int64_t batch, std::vector<int64_t>& out) {
    batch_positions(split, batch, 0, out);
  };
  for (const int depth : {1, 2, 7}) {
    Prefetcher prefetcher(sampler, positions, {.first_batch = 3, .depth = depth});
    for (int64_t i = 3; i < 200; ++i) {
      std::vector<int64_t> wanted;
      positions(i, wanted);
      ASSERT_EQ(prefetcher.next(), batch_of(sampler, wanted))
          << "batch " << i << ", depth " << depth;
    }
  }
}

TEST(PrefetcherTest, an_error_comes_in_its_turn_and_stays) {
  const auto data = counting(101);
  const Sampler sampler(*data, {.seq_len = 10, .split = Split::whole, .vocab = 45});
  Prefetcher prefetcher(sampler, [](int64_t batch, std::vector<int64_t>& out) { out = {batch}; },
                        {.depth = 8});
  for (int i = 0; i < 4; ++i) EXPECT_EQ(prefetcher.next().tokens[0], i * 10);
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(says(message_of<base::IoError>([&] { prefetcher.next(); }), {"token 45"}));
  }
}

TEST(PrefetcherTest, it_can_be_left_at_any_time) {
  const auto data = counting(1000);
  const Sampler sampler(*data, {.seq_len = 10});
  for (int taken = 0; taken < 30; ++taken) {
    Prefetcher prefetcher(sampler, [](int64_t batch, std::vector<int64_t>& out) { out = {batch}; },
                          {.depth = 2});
    for (int i = 0; i < taken; ++i) prefetcher.next();
  }
}

TEST(PrefetcherTest, a_thread_that_cannot_be_started_is_named) {
  const auto data = counting(1000);
  const Sampler sampler(*data, {.seq_len = 10});
  const base::RefusedThreads refused;
  EXPECT_TRUE(says(message_of<base::Error>([&] {
                     Prefetcher(sampler, [](int64_t, std::vector<int64_t>&) {}, {.depth = 2});
                   }),
                   {"the thread that reads batches ahead cannot be started"}));
}

}  // namespace
}  // namespace trireme::data
