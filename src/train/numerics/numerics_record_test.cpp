// SPDX-License-Identifier: Apache-2.0
#include "train/numerics/numerics_record.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace trireme::train {
namespace {

using spec::Quantized;

std::vector<LayerFigures> two_blocks() {
  LayerFigures first{.layer = 2, .by = {}}, second{.layer = 5, .by = {}};
  first[Quantized::act] = {.amax = 8,
                           .is_measured = true,
                           .flushed = 0.25,
                           .saturated = 0,
                           .snr_db = 30,
                           .headroom_bits = 9};
  second[Quantized::act] = {.amax = 0.5,
                            .is_measured = true,
                            .flushed = 0.01,
                            .saturated = 0.02,
                            .snr_db = 27,
                            .headroom_bits = 11};
  second[Quantized::dy] = {.amax = 1};
  return {first, second};
}

double value_of(const NumericsMetrics& m, std::string_view name) {
  const auto found = std::ranges::find(m.names, name);
  return found == m.names.end() ? -1 : m.values[static_cast<size_t>(found - m.names.begin())];
}

TEST(NumericsRecordTest, metrics_have_every_magnitude_and_the_worst_shares) {
  const NumericsMetrics m = numerics_metrics(two_blocks());
  EXPECT_EQ(value_of(m, "numerics/blocks.1/act/amax"), 8);
  EXPECT_EQ(value_of(m, "numerics/blocks.4/act/amax"), 0.5);
  EXPECT_EQ(value_of(m, "numerics/blocks.4/dy/amax"), 1);
  EXPECT_EQ(value_of(m, "numerics/act/flushed"), 0.25);
  EXPECT_EQ(value_of(m, "numerics/act/saturated"), 0.02);
  EXPECT_EQ(value_of(m, "numerics/act/snr_db"), 27);
  EXPECT_EQ(value_of(m, "numerics/act/headroom_bits"), 9);
  EXPECT_EQ(m.names.size(), 7U);  // dy was not measured
}

TEST(NumericsRecordTest, a_record_has_a_row_for_each_matrix) {
  const std::vector<int> layers = {2, 3, 5};
  const obs::TableShape shape = numerics_shape(layers);
  ASSERT_EQ(shape.rows.size(), 3U * spec::quantized_count);
  const std::vector<float> values = numerics_values(layers, two_blocks());
  ASSERT_EQ(values.size(), shape.rows.size() * shape.columns.size());
  const auto value = [&](std::string_view row, std::string_view column) {
    const auto at = std::ranges::find(shape.rows, row) - shape.rows.begin();
    const auto of = std::ranges::find(shape.columns, column) - shape.columns.begin();
    return values[static_cast<size_t>(at) * shape.columns.size() + static_cast<size_t>(of)];
  };
  EXPECT_EQ(value("blocks.1 act", "amax_bits"), 3);
  EXPECT_EQ(value("blocks.1 act", "flushed_share"), 0.25F);
  EXPECT_EQ(value("blocks.4 dy", "amax_bits"), 0);
  EXPECT_TRUE(std::isnan(value("blocks.4 dy", "snr_db")));
  EXPECT_TRUE(std::isnan(value("blocks.2 act", "amax_bits")));  // in bf16
}

TEST(NumericsRecordTest, the_line_names_the_matrices_that_lose_most) {
  EXPECT_EQ(numerics_line(two_blocks()),
            "numerics  lowest SNR 27.0 dB: act of blocks.4; most flushed 25 %: act of blocks.1; "
            "most saturated 2 %: act of blocks.4");
  EXPECT_EQ(numerics_line({}), "");
}

}  // namespace
}  // namespace trireme::train
