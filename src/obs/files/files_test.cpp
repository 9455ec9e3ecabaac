// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>

#include "obs/files/event.h"
#include "obs/files/phases.h"
#include "obs/files/rank_columns.h"
#include "obs/files/table_file.h"
#include "obs/scratch_folder_test.h"

namespace trireme::obs {
namespace {

TableShape two_rows() {
  return {.table = "ranks", .rows = {"rank 0", "rank 1"}, .columns = {"a", "b"}, .about = "{}"};
}

TableRecord record_at(int64_t step) {
  const auto x = static_cast<float>(step);
  return {.step = step, .attempt = 1, .time = 5.5, .values = {x, x + 1, x + 2, x + 3}};
}

std::vector<TableRecord> records_of(TableReader& reader) {
  std::vector<TableRecord> all;
  reader.poll([&](const TableShape&, const TableRecord& record) { all.push_back(record); });
  return all;
}

TEST(TableFile, returns_what_was_written_while_it_grows) {
  const ScratchFolder folder;
  TableReader reader(folder / "t.bin");
  EXPECT_TRUE(records_of(reader).empty());
  TableWriter writer(folder / "t.bin");
  writer.begin(two_rows());
  writer.add(record_at(1));
  EXPECT_EQ(records_of(reader), std::vector{record_at(1)});
  EXPECT_TRUE(records_of(reader).empty());
  writer.add(record_at(2));
  writer.add(record_at(3));
  EXPECT_EQ(records_of(reader), (std::vector{record_at(2), record_at(3)}));
  EXPECT_EQ(writer.bytes(), static_cast<int64_t>(std::filesystem::file_size(folder / "t.bin")));
}

TEST(TableFile, every_cut_leaves_complete_records_and_can_be_continued) {
  const ScratchFolder folder;
  {
    TableWriter writer(folder / "t.bin");
    writer.begin(two_rows());
    for (int64_t step = 1; step <= 3; ++step) writer.add(record_at(step));
  }
  const std::string whole = content_of(folder / "t.bin");
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    std::ofstream(folder / "cut.bin", std::ios::binary) << whole.substr(0, bytes);
    TableReader reader(folder / "cut.bin");
    const size_t complete = records_of(reader).size();
    ASSERT_LT(complete, 3U);
    {
      TableWriter writer(folder / "cut.bin");
      writer.begin(two_rows());
      writer.add(record_at(9));
    }
    TableReader again(folder / "cut.bin");
    const std::vector<TableRecord> all = records_of(again);
    ASSERT_EQ(all.size(), complete + 1) << bytes;
    ASSERT_EQ(all.back(), record_at(9));
  }
}

TEST(TableFile, damage_ends_the_table_and_never_yields_a_wrong_value) {
  const ScratchFolder folder;
  {
    TableWriter writer(folder / "t.bin");
    writer.begin(two_rows());
    for (int64_t step = 1; step <= 3; ++step) writer.add(record_at(step));
  }
  const std::string whole = content_of(folder / "t.bin");
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x41);
    std::ofstream(folder / "bad.bin", std::ios::binary) << damaged;
    TableReader reader(folder / "bad.bin");
    const std::vector<TableRecord> all = records_of(reader);
    ASSERT_LT(all.size(), 3U);
    for (size_t i = 0; i < all.size(); ++i) {
      ASSERT_EQ(all[i], record_at(static_cast<int64_t>(i) + 1)) << at;
    }
  }
}

TEST(TableFile, a_replaced_file_is_read_from_its_beginning) {
  const ScratchFolder folder;
  TableReader reader(folder / "t.bin");
  {
    TableWriter writer(folder / "t.bin");
    writer.begin(two_rows());
    for (int64_t step = 1; step <= 5; ++step) writer.add(record_at(step));
  }
  EXPECT_EQ(records_of(reader).size(), 5U);
  std::filesystem::remove(folder / "t.bin");
  {
    TableWriter writer(folder / "t.bin");
    writer.begin(two_rows());
    writer.add(record_at(1));
  }
  EXPECT_EQ(records_of(reader), std::vector{record_at(1)});
  EXPECT_TRUE(reader.is_restarted());
}

TEST(Event, survives_its_json_form) {
  Event event{.time = 1.5,
              .step = 7,
              .attempt = 2,
              .epoch = 3,
              .kind = EventKind::verdict,
              .severity = Severity::error,
              .node = "n<1>",
              .rank = 4,
              .text = "rank 4 \"died\"",
              .data = {{"reason", "signal 9"}},
              .evidence = {"flight/rank_4.json"}};
  const std::optional<Event> read = event_from(base::Json::parse(to_json(event).dump()));
  ASSERT_TRUE(read);
  EXPECT_EQ(to_json(*read), to_json(event));
  EXPECT_EQ(read->kind, EventKind::verdict);
  EXPECT_EQ(read->severity, Severity::error);
}

TEST(Event, what_is_no_event_is_left_out) {
  for (const char* text : {"null", "[]", "{}", R"({"kind":"verdict"})",
                           R"({"kind":"later","time":1})", R"({"kind":3,"time":1})"}) {
    EXPECT_FALSE(event_from(base::Json::parse(text))) << text;
  }
  const std::optional<Event> loose =
      event_from(base::Json::parse(R"({"kind":"end","time":1,"step":"x","data":3,"text":5})"));
  ASSERT_TRUE(loose);
  EXPECT_EQ(loose->step, -1);
  EXPECT_EQ(loose->text, "");
}

TEST(Phases, names_are_distinct_and_read_back) {
  std::set<std::string_view> names;
  for (size_t i = 0; i < static_cast<size_t>(Phase::count); ++i) {
    const std::string_view name = name_of(static_cast<Phase>(i));
    EXPECT_TRUE(names.insert(name).second && !name.empty()) << i;
    EXPECT_EQ(phase_from(name), static_cast<Phase>(i));
  }
  EXPECT_FALSE(phase_from("other"));
}

TEST(Phases, seconds_sum_to_the_wall_time_whatever_is_changed_and_moved) {
  double now = 100;
  PhaseClock clock(Phase::startup, 90, [&now] { return now; });
  clock.change(Phase::useful);
  now += 5;
  {
    const PhaseClock::Scope scope(clock, Phase::data_wait);
    now += 2;
  }
  now += 1;
  clock.move(Phase::useful, Phase::skipped, 4);
  clock.move(Phase::useful, Phase::straggler, 100);  // at most what there is
  const PhaseClock::Span span = clock.take();
  EXPECT_EQ(span.begin, 90);
  EXPECT_EQ(span.end, 108);
  EXPECT_EQ(std::accumulate(span.seconds.begin(), span.seconds.end(), 0.0), 18);
  EXPECT_EQ(span.seconds[static_cast<size_t>(Phase::startup)], 10);
  EXPECT_EQ(span.seconds[static_cast<size_t>(Phase::data_wait)], 2);
  EXPECT_EQ(span.seconds[static_cast<size_t>(Phase::skipped)], 4);
  EXPECT_EQ(span.seconds[static_cast<size_t>(Phase::straggler)], 2);
  now += 3;
  const PhaseClock::Span next = clock.take();
  EXPECT_EQ(next.begin, span.end);
  EXPECT_EQ(next.seconds[static_cast<size_t>(Phase::useful)], 3);
}

TEST(RankColumns, names_are_distinct) {
  std::set<std::string_view> names;
  for (size_t i = 0; i < rank_columns; ++i) {
    const std::string_view name = name_of(static_cast<RankColumn>(i));
    EXPECT_TRUE(names.insert(name).second && !name.empty()) << i;
  }
}

}  // namespace
}  // namespace trireme::obs
