// SPDX-License-Identifier: Apache-2.0
#include "board/run/table_column.h"

#include <gtest/gtest.h>

#include <cmath>

#include "obs/scratch_folder_test.h"

namespace trireme::board {
namespace {

TEST(TableColumnTest, the_largest_value_of_a_cell_is_shown) {
  obs::ScratchFolder folder;
  const auto file = folder / "ranks.bin";
  obs::TableWriter writer(file);
  writer.begin({.table = "ranks", .rows = {"a", "b"}, .columns = {"x", "y"}, .about = "{}"});
  for (int i = 0; i < 100; ++i) {
    const float spike = i == 57 ? 1000.0F : 1.0F;
    writer.add({.step = i * 10, .values = {0, spike, 0, i % 2 == 0 ? NAN : -1.0F}});
  }
  TableColumn column(file, "y");
  column.poll();
  ASSERT_TRUE(column.is_known());
  for (const int cols : {1, 3, 50, 100, 4000}) {
    const HeatMap map = column.heat({.cols = cols});
    ASSERT_EQ(map.steps.size(), std::min<size_t>(100, static_cast<size_t>(cols)));
    EXPECT_EQ(map.max, 1000);
    EXPECT_EQ(map.min, -1);
    int cells = 0;
    for (size_t col = 0; col < map.steps.size(); ++col) {
      const bool has_spike = map.steps[col].first <= 570 && map.steps[col].second >= 570;
      EXPECT_EQ(map.cells[col], has_spike ? 1000 : 1);
      cells += has_spike ? 1 : 0;
    }
    EXPECT_EQ(cells, 1);
  }
  EXPECT_EQ(column.heat({.from = 995, .to = 2000}).steps.size(), 0U);
  EXPECT_FALSE(TableColumn(file, "z").is_known());
}

TEST(TableColumnTest, the_smallest_value_of_a_cell_is_shown_if_asked_for) {
  obs::ScratchFolder folder;
  const auto file = folder / "numerics.bin";
  obs::TableWriter writer(file);
  writer.begin({.table = "numerics", .rows = {"a"}, .columns = {"snr_db"}, .about = "{}"});
  for (int i = 0; i < 100; ++i) writer.add({.step = i, .values = {i == 57 ? 3.0F : 30.0F}});
  TableColumn column(file, "snr_db");
  column.poll();
  const HeatMap map = column.heat({.cols = 10, .lowest = true});
  ASSERT_EQ(map.cells.size(), 10U);
  for (size_t col = 0; col < 10; ++col) EXPECT_EQ(map.cells[col], col == 5 ? 3 : 30);
  EXPECT_EQ(column.heat({.cols = 1}).cells[0], 30);
}

TEST(TableColumnTest, attempts_may_have_other_rows_and_repeat_steps) {
  obs::ScratchFolder folder;
  const auto file = folder / "ranks.bin";
  obs::TableWriter writer(file);
  writer.begin({.table = "ranks", .rows = {"a", "b"}, .columns = {"x"}, .about = "{}"});
  for (int step = 1; step <= 5; ++step) writer.add({.step = step, .values = {1, 2}});
  TableColumn column(file, "x");
  column.poll();
  writer.begin({.table = "ranks", .rows = {"b", "c"}, .columns = {"w", "x"}, .about = "{}"});
  writer.add({.step = 4, .attempt = 2, .values = {0, 7, 0, 8}});
  column.poll();
  const HeatMap map = column.heat({});
  EXPECT_EQ(map.rows, (std::vector<std::string>{"a", "b", "c"}));
  ASSERT_EQ(map.steps.size(), 4U);
  EXPECT_TRUE(std::isnan(map.cells[0 * 4 + 3]));
  EXPECT_EQ(map.cells[1 * 4 + 2], 2);
  EXPECT_EQ(map.cells[1 * 4 + 3], 7);
  EXPECT_EQ(map.cells[2 * 4 + 3], 8);
  EXPECT_EQ(heat_bytes(map, "x").size() % 4, 0U);
}

}  // namespace
}  // namespace trireme::board
