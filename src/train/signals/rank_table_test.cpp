// SPDX-License-Identifier: Apache-2.0
#include "train/signals/rank_table.h"

#include <gtest/gtest.h>

#include "base/text/json.h"

namespace trireme::train {
namespace {

using obs::RankColumn;
using spec::Axis;

TEST(RankTableTest, late_is_the_rank_that_waits_least) {
  spec::Sizes mesh;
  mesh[Axis::dp] = 2;
  mesh[Axis::tp] = 2;
  std::vector<obs::RankSample> samples(4);  // rank = 2 dp + tp
  const float tp_waits[] = {3, 1, 2, 2}, data_waits[] = {0, 5, 4, 5};
  for (size_t rank = 0; rank < samples.size(); ++rank) {
    samples[rank][RankColumn::wait_tp] = tp_waits[rank];
    samples[rank][RankColumn::wait_data] = data_waits[rank];
    samples[rank][RankColumn::wait_closing] = rank == 3 ? 0.F : 1.F;
    samples[rank][RankColumn::wait_pp] = 7;
    samples[rank][RankColumn::work] = rank == 0 ? 7.F : 3.F;
  }
  complete_samples(mesh, samples);
  const float late_tp[] = {0, 2, 0, 0}, late_data[] = {4, 0, 0, 0}, late_closing[] = {0, 0, 0, 1};
  for (size_t rank = 0; rank < samples.size(); ++rank) {
    EXPECT_EQ(samples[rank][RankColumn::late_tp], late_tp[rank]) << rank;
    EXPECT_EQ(samples[rank][RankColumn::late_data], late_data[rank]) << rank;
    EXPECT_EQ(samples[rank][RankColumn::late_closing], late_closing[rank]) << rank;
    EXPECT_EQ(samples[rank][RankColumn::late_pp], 0) << rank;  // a group of one
    EXPECT_EQ(samples[rank][RankColumn::late_ep], 0) << rank;
    EXPECT_FLOAT_EQ(samples[rank][RankColumn::work], rank == 0 ? 1.75F : 0.75F) << rank;
  }
}

TEST(RankTableTest, lateness_of_experts_is_along_their_axes) {
  spec::Sizes mesh;
  mesh[Axis::dp] = 4;
  mesh[Axis::edp] = 2;
  mesh[Axis::ep] = 2;
  std::vector<obs::RankSample> samples(4);
  const float waits[] = {3, 1, 2, 9};
  for (size_t rank = 0; rank < samples.size(); ++rank) {
    samples[rank][RankColumn::wait_ep] = waits[rank];
  }
  complete_samples(mesh, samples);
  const float late[] = {0, 2, 7, 0};
  for (size_t rank = 0; rank < samples.size(); ++rank) {
    EXPECT_EQ(samples[rank][RankColumn::late_ep], late[rank]) << rank;
  }
}

// Stages have other layers, so the mean is that of a stage.
TEST(RankTableTest, work_is_relative_to_the_stage) {
  spec::Sizes mesh;
  mesh[Axis::pp] = 2;
  mesh[Axis::dp] = 2;
  std::vector<obs::RankSample> samples(4);  // rank = 2 pp + dp
  const float work[] = {1, 3, 10, 10};
  for (size_t rank = 0; rank < samples.size(); ++rank) {
    samples[rank][RankColumn::work] = work[rank];
  }
  complete_samples(mesh, samples);
  const float relative[] = {0.5, 1.5, 1, 1};
  for (size_t rank = 0; rank < samples.size(); ++rank) {
    EXPECT_FLOAT_EQ(samples[rank][RankColumn::work], relative[rank]) << rank;
  }
}

TEST(RankTableTest, table_names_nodes_devices_and_coordinates) {
  spec::Sizes mesh;
  mesh[Axis::pp] = 2;
  const std::vector<RankPlace> places = {rank_place("a", "GPU"),
                                         rank_place(std::string(100, 'b'), "\xff<b>")};
  const obs::TableShape shape = rank_table_shape(mesh, places);
  EXPECT_EQ(shape.table, "ranks");
  EXPECT_EQ(shape.rows, (std::vector<std::string>{"rank 0", "rank 1"}));
  ASSERT_EQ(shape.columns.size(), obs::rank_columns);
  EXPECT_EQ(shape.columns[0], "steps");
  const base::Json about = base::Json::parse(shape.about);
  EXPECT_EQ(about["nodes"][0], "a");
  EXPECT_EQ(about["nodes"][1], std::string(63, 'b'));
  EXPECT_EQ(about["devices"][0], "GPU");
  EXPECT_EQ(about["coords"][1]["pp"], 1);
  EXPECT_EQ(about["coords"][1]["tp"], 0);
  EXPECT_FALSE(about["coords"][1].contains("ep"));
  std::vector<obs::RankSample> samples(2);
  samples[1][RankColumn::steps] = 4;
  const std::vector<float> values = rank_table_values(samples);
  ASSERT_EQ(values.size(), 2 * obs::rank_columns);
  EXPECT_EQ(values[obs::rank_columns], 4);
}

}  // namespace
}  // namespace trireme::train
