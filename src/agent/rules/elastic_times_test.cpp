// SPDX-License-Identifier: Apache-2.0
#include "agent/rules/elastic_times.h"

#include <gtest/gtest.h>

#include "comm/world/rank_env.h"

namespace trireme::agent {
namespace {

// Each of these is found before the one that makes more of a job stop.
TEST(ElasticTimesTest, times_are_nested_for_every_detect_s) {
  for (const double detect_s : {0.5, 1.0, 5.0, 60.0}) {
    const ElasticTimes times = elastic_times(detect_s);
    EXPECT_EQ(times.detect, detect_s);
    EXPECT_LT(times.silence, times.detect);
    EXPECT_GT(times.node_silence, times.detect);
    EXPECT_GE(times.leave, times.detect);
    EXPECT_GT(times.leave, times.node_grace);
  }
  EXPECT_LT(elastic_times(5).node_silence, comm::isolate_seconds);
}

TEST(ElasticTimesTest, the_line_of_the_start_has_the_times_of_nodes_if_there_are_several) {
  const std::string one = to_text(elastic_times(5), 1), several = to_text(elastic_times(5), 2);
  EXPECT_NE(one.find("after 3.75 s without a heartbeat (verdict within 5 s)"), std::string::npos);
  EXPECT_NE(one.find("8 s to leave"), std::string::npos);
  EXPECT_EQ(one.find("node"), std::string::npos);
  EXPECT_NE(several.find("lost after 10 s of silence"), std::string::npos);
  EXPECT_NE(several.find("stops after 30 s"), std::string::npos);
}

}  // namespace
}  // namespace trireme::agent
