// SPDX-License-Identifier: Apache-2.0
#include "data/corpus/in_order.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

namespace trireme::data {
namespace {

struct NumberBlock {
  int64_t number = 0, square = 0;
};

TEST(InOrderTest, every_block_is_written_once_and_in_order) {
  for (const int workers : {1, 2, 5}) {
    int64_t next = 0;
    std::vector<int64_t> written;
    std::atomic<int> reading{0}, writing{0};
    InOrder<NumberBlock> stages({.read =
                                     [&](NumberBlock& block) {
                                       EXPECT_EQ(reading++, 0);
                                       block.number = next++;
                                       --reading;
                                       return block.number < 500;
                                     },
                                 .work =
                                     [&](NumberBlock& block, size_t worker) {
                                       EXPECT_LT(worker, static_cast<size_t>(workers));
                                       // Blocks take different times.
                                       volatile int64_t sum = 0;
                                       for (int64_t i = 0; i < block.number % 7 * 1000; ++i)
                                         sum = sum + i;
                                       block.square = block.number * block.number;
                                     },
                                 .write =
                                     [&](NumberBlock& block) {
                                       EXPECT_EQ(writing++, 0);
                                       written.push_back(block.square);
                                       --writing;
                                     }},
                                workers);
    stages.run();
    ASSERT_EQ(written.size(), 500U) << workers;
    for (size_t i = 0; i < written.size(); ++i) EXPECT_EQ(written[i], static_cast<int64_t>(i * i));
  }
}

// The failing stage of the earliest block is reported, for any number of workers.
TEST(InOrderTest, the_first_error_in_the_order_of_reading_is_thrown) {
  struct Case {
    int64_t read, work, write;  // blocks that fail; -1: none
    const char* expected;
    int64_t written;
  };
  for (const Case& c : {Case{40, 30, -1, "work 30", 30}, Case{20, 30, -1, "read 20", 20},
                        Case{-1, 30, 10, "write 10", 10}, Case{0, -1, -1, "read 0", 0}}) {
    for (const int workers : {1, 2, 4}) {
      int64_t next = 0, written = 0;
      const auto fail = [](const std::string& what, int64_t number) {
        throw std::runtime_error(what + std::to_string(number));
      };
      InOrder<NumberBlock> stages({.read =
                                       [&](NumberBlock& block) {
                                         block.number = next++;
                                         if (block.number == c.read) fail("read ", block.number);
                                         return block.number < 100;
                                       },
                                   .work =
                                       [&](NumberBlock& block, size_t) {
                                         if (block.number == c.work) fail("work ", block.number);
                                       },
                                   .write =
                                       [&](NumberBlock& block) {
                                         if (block.number == c.write) fail("write ", block.number);
                                         ++written;
                                       }},
                                  workers);
      try {
        stages.run();
        ADD_FAILURE() << "nothing was thrown";
      } catch (const std::runtime_error& error) {
        EXPECT_STREQ(error.what(), c.expected) << workers;
      }
      EXPECT_EQ(written, c.written);
    }
  }
}

}  // namespace
}  // namespace trireme::data
