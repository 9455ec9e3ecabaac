// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <thread>

#include "base/dtype.h"
#include "base/error.h"
#include "base/rng.h"
#include "base/sha256.h"
#include "base/shape.h"
#include "base/split_float.h"
#include "base/system/mapped_ranges.h"
#include "base/system/refused_threads_test.h"
#include "base/system/start_thread.h"
#include "base/system/threads.h"

namespace trireme::base {
namespace {

TEST(Bf16Test, rounds_to_nearest_even_and_keeps_nan) {
  EXPECT_EQ(Bf16(1.0F).bits, 0x3f80);
  EXPECT_EQ(Bf16(std::bit_cast<float>(0x3f808000U)).bits, 0x3f80);  // tie goes to even
  EXPECT_EQ(Bf16(std::bit_cast<float>(0x3f818000U)).bits, 0x3f82);
  EXPECT_EQ(Bf16(std::bit_cast<float>(0x3f808001U)).bits, 0x3f81);
  EXPECT_TRUE(std::isnan(static_cast<float>(Bf16(std::bit_cast<float>(0x7f800001U)))));
  EXPECT_TRUE(std::isinf(static_cast<float>(Bf16(std::numeric_limits<float>::max()))));
}

TEST(SplitFloatTest, parts_restore_every_number_and_the_high_part_is_the_nearest_bf16) {
  // Every high part with the low parts at which rounding changes.
  for (uint32_t upper = 0; upper < 0x10000U; ++upper) {
    for (const uint32_t lower : {0U, 1U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU}) {
      const uint32_t bits = upper << 16U | lower;
      const uint32_t packed = split_bits(bits);
      const auto value = std::bit_cast<float>(bits);
      Bf16 high;
      high.bits = static_cast<uint16_t>(packed >> 16U);
      if (std::isnan(value)) {
        EXPECT_TRUE(std::isnan(static_cast<float>(high)));
        EXPECT_TRUE(std::isnan(std::bit_cast<float>(joined_bits(packed))));
        continue;
      }
      EXPECT_EQ(joined_bits(packed), bits);
      if (lower == 0x8000U) {
        EXPECT_EQ(high.bits, upper + 1) << "farther from zero";
      } else {
        EXPECT_EQ(high, Bf16(value));
      }
    }
  }
}

TEST(ShapeTest, bytes_are_rounded_to_the_grain) {
  EXPECT_EQ(bytes_of({{3, 5}, DType::f32}), 256);
  EXPECT_EQ(bytes_of({{64}, DType::f32}), 256);
  EXPECT_EQ(bytes_of({{65}, DType::f32}), 512);
  EXPECT_EQ(bytes_of({}), 0);
  EXPECT_EQ((Shape{2, 3, 4}).row_elements(), 12);
  EXPECT_EQ((Shape{2, 3, 4}).to_string(), "[2, 3, 4]");
}

TEST(DTypeTest, names_round_trip_and_unknown_ones_are_refused) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::i64, DType::f8e5m2, DType::u16}) {
    EXPECT_EQ(dtype_from_name(name_of(dtype)), dtype);
  }
  EXPECT_THROW(dtype_from_name("fp16"), ConfigError);
}

TEST(RngTest, philox_matches_the_published_vector) {
  // Known-answer test of the Random123 library: counter 0, key 0.
  const auto r = philox(0, 0);
  EXPECT_EQ(r, (std::array<uint32_t, 4>{0x6627e8d5U, 0xe169c58dU, 0xbc57ac4cU, 0x9b00dbd8U}));
}

TEST(RngTest, normal_has_mean_zero_and_the_given_deviation) {
  const RngKey key = rng_key(7, "layers.0.wqkv");
  const int n = 200000;
  double sum = 0, squares = 0;
  for (int i = 0; i < n; ++i) {
    const double x = rng_normal(key, static_cast<uint64_t>(i), 0.02F);
    sum += x;
    squares += x * x;
  }
  // Five standard errors: of a mean sigma/sqrt(n), of a deviation about sigma/sqrt(2n).
  EXPECT_NEAR(sum / n, 0, 5 * 0.02 / std::sqrt(n));
  EXPECT_NEAR(std::sqrt(squares / n), 0.02, 5 * 0.02 / std::sqrt(2.0 * n));
  EXPECT_NE(rng_key(7, "a"), rng_key(7, "b"));
  EXPECT_NE(rng_key(7, "a"), rng_key(8, "a"));
}

TEST(Sha256Test, matches_the_standard_vectors) {
  const auto hash = [](const std::string& text) {
    Sha256 sha;
    sha.update(std::as_bytes(std::span(text)));
    return sha.hex();
  };
  EXPECT_EQ(hash(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hash("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hash(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(ThreadPoolTest, every_task_runs_once_also_from_several_callers) {
  for (const int threads : {1, 2, 4}) {
    ThreadPool pool(threads);
    std::vector<std::thread> callers;
    for (int caller = 0; caller < 3; ++caller) {
      callers.emplace_back([&pool] {
        for (int round = 0; round < 50; ++round) {
          std::vector<int> hits(97, 0);
          pool.for_each(97, [&hits](int64_t i) { ++hits[static_cast<size_t>(i)]; });
          EXPECT_EQ(std::accumulate(hits.begin(), hits.end(), 0), 97);
        }
      });
    }
    for (std::thread& caller : callers) caller.join();
  }
}

TEST(ThreadPoolTest, a_task_may_wait_for_earlier_ones) {
  for (const int threads : {1, 2, 4}) {
    ThreadPool pool(threads);
    std::atomic<int64_t> next{0};
    pool.for_each(500, [&next](int64_t i) {
      while (next.load() != i) std::this_thread::yield();
      next.store(i + 1);
    });
    EXPECT_EQ(next.load(), 500);
  }
}

TEST(ThreadPoolTest, works_with_fewer_threads_if_the_system_refuses_them) {
  testing::internal::CaptureStderr();
  const RefusedThreads refused;
  ThreadPool pool(4);
  EXPECT_EQ(pool.threads(), 1);
  const std::string message = testing::internal::GetCapturedStderr();
  EXPECT_NE(message.find("warning: only 1 of 4 threads could be started"), std::string::npos)
      << message;
  EXPECT_NE(message.find("(ulimit -u)"), std::string::npos) << message;
  std::vector<int> hits(97, 0);
  pool.for_each(97, [&hits](int64_t i) { ++hits[static_cast<size_t>(i)]; });
  EXPECT_EQ(std::accumulate(hits.begin(), hits.end(), 0), 97);
}

TEST(StartThreadTest, a_refusal_names_thread_and_limits) {
  const RefusedThreads refused;
  try {
    start_thread("that tests", [] {}).join();
    FAIL() << "it was started";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(message.rfind("the thread that tests cannot be started: Resource temporarily", 0), 0U)
        << message;
    EXPECT_NE(message.find("(pids.max)"), std::string::npos) << message;
  }
}

TEST(MappedRangesTest, the_file_at_an_address_is_named) {
  const std::vector<std::byte> a(100), b(1000);
  std::array<char, 300> text;
  const auto described = [&text](const std::byte* at) {
    return std::string(text.data(), describe_mapping_fault(at, text));
  };
  EXPECT_EQ(described(a.data()), "");
  {
    const MappedRange first(a, "/data/a.bin");
    MappedRange second(b, "/data/b.bin");
    EXPECT_EQ(described(b.data() + 999).rfind("/data/b.bin: byte 999 of 1000 cannot", 0), 0U)
        << described(b.data() + 999);
    EXPECT_EQ(described(a.data()).rfind("/data/a.bin: byte 0 of 100 cannot", 0), 0U);
    EXPECT_EQ(described(b.data() + 1000), "");
    second = MappedRange();
    EXPECT_EQ(described(b.data()), "");
    const MappedRange moved = MappedRange(b, std::string(1000, 'x'));
    EXPECT_EQ(described(b.data()).size(), text.size());
  }
  EXPECT_EQ(described(a.data()), "");
}

}  // namespace
}  // namespace trireme::base
