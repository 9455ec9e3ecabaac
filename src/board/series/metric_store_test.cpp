// SPDX-License-Identifier: Apache-2.0
#include "board/series/metric_store.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <random>

#include "board/series/buckets.h"
#include "board/series/raw_points.h"
#include "board/series/written_metrics_test.h"
#include "obs/scratch_folder_test.h"

namespace trireme::board {
namespace {

namespace fs = std::filesystem;

std::string csv_of(const fs::path& file, const std::string& tag) {
  std::string text;
  write_raw(file, {.tag = tag}, [&](std::string_view part) {
    text += part;
    return true;
  });
  return text;
}

std::vector<double> values_of(const MetricStore& store, const char* tag) {
  return store.track(store.find(tag).value()).values.values();
}

TEST(MetricStoreTest, lines_are_read_once_they_are_complete) {
  obs::ScratchFolder folder;
  const fs::path file = folder / "metrics.jsonl";
  MetricStore store(file);
  EXPECT_FALSE(store.poll());
  EXPECT_EQ(store.problems().size(), 1U);  // it is missing
  const std::string second = train_line(2, 11, "\"a\":2.5");
  write_text(file, train_line(1, 10, "\"a\":1") + second.substr(0, 20));
  EXPECT_TRUE(store.poll());
  EXPECT_EQ(values_of(store, "a"), (std::vector<double>{1}));
  EXPECT_FALSE(store.poll());
  write_text(file, second.substr(20), true);
  EXPECT_TRUE(store.poll());
  EXPECT_EQ(values_of(store, "a"), (std::vector<double>{1, 2.5}));
  EXPECT_EQ(store.last_step(), 2);
  EXPECT_TRUE(store.problems().empty());
}

TEST(MetricStoreTest, a_replaced_or_shorter_file_is_read_from_its_beginning) {
  obs::ScratchFolder folder;
  const fs::path file = folder / "metrics.jsonl";
  MetricStore store(file);
  write_text(file, train_line(1, 10, "\"a\":1") + train_line(2, 11, "\"a\":2"));
  store.poll();
  write_text(file, train_line(1, 20, "\"b\":7"));
  EXPECT_TRUE(store.poll());
  EXPECT_FALSE(store.find("a").has_value());
  EXPECT_EQ(values_of(store, "b"), (std::vector<double>{7}));
  // Longer than before, with other bytes before the place.
  write_text(file, train_line(5, 30, "\"c\":1") + train_line(6, 31, "\"c\":2"));
  EXPECT_TRUE(store.poll());
  EXPECT_EQ(values_of(store, "c"), (std::vector<double>{1, 2}));
  EXPECT_EQ(store.restarts(), 2);
  fs::remove(file);
  EXPECT_TRUE(store.poll());
  EXPECT_TRUE(store.rows().empty());
}

TEST(MetricStoreTest, the_last_line_of_a_step_is_drawn_and_all_are_in_the_csv) {
  obs::ScratchFolder folder;
  const fs::path file = folder / "metrics.jsonl";
  MetricStore store(file);
  std::string text;
  for (int step = 1; step <= 6; ++step)
    text += train_line(step, step, fmt::format("\"a\":{}", step));
  write_text(file, text);
  store.poll();
  text = "{\"kind\":\"resume\",\"attempt\":2,\"step\":3,\"time\":50,\"resumed_from\":3}\n";
  for (int step = 4; step <= 8; ++step) {
    text += train_line(step, 50 + step, fmt::format("\"a\":{}", step * 10), 2);
  }
  write_text(file, text, true);
  store.poll();
  EXPECT_EQ(values_of(store, "a"), (std::vector<double>{1, 2, 3, 40, 50, 60, 70, 80}));
  EXPECT_EQ(csv_of(file, "a"),
            "step,time,value\n1,1,1\n2,2,2\n3,3,3\n4,4,4\n5,5,5\n6,6,6\n"
            "4,54,40\n5,55,50\n6,56,60\n7,57,70\n8,58,80\n");
  EXPECT_EQ(drawn_points_json(store, store.find("a").value(), {.from = 3, .to = 4}),
            R"({"step":[3,4],"time":[3,54],"value":[3,40]})");
  EXPECT_EQ(store.last_attempt(), 2);
}

TEST(MetricStoreTest, steps_in_any_order_are_sorted_in_time) {
  obs::ScratchFolder folder;
  std::string text;
  std::vector<int> steps(5000);
  for (int i = 0; i < 5000; ++i) steps[static_cast<size_t>(i)] = 5000 - i;
  for (const int step : steps) text += train_line(step, 1, fmt::format("\"a\":{}", step));
  write_text(folder / "metrics.jsonl", text);
  MetricStore store(folder / "metrics.jsonl");
  store.poll();
  const std::vector<double> values = values_of(store, "a");
  ASSERT_EQ(values.size(), 5000U);
  EXPECT_TRUE(std::is_sorted(values.begin(), values.end()));
}

TEST(MetricStoreTest, csv_has_the_digits_of_the_file) {
  obs::ScratchFolder folder;
  const fs::path file = folder / "metrics.jsonl";
  const std::vector<std::string> digits = {"1.0",    "0.1",     "3.7155414237877844", "1e-07",
                                           "-12E+3", "\"NaN\"", "\"-Infinity\"",      "null",
                                           "1e999",  "5e-324"};
  std::string text, expected = "step,time,value\n";
  for (size_t i = 0; i < digits.size(); ++i) {
    text += fmt::format("{{\"kind\":\"train\",\"step\":{},\"time\":1794899517.6368136,\"a\":{}}}\n",
                        i, digits[i]);
    std::string shown = digits[i];
    std::erase(shown, '"');
    expected += fmt::format("{},1794899517.6368136,{}\n", i, shown);
  }
  write_text(file, text);
  EXPECT_EQ(csv_of(file, "a"), expected);
  MetricStore store(file);
  store.poll();
  const std::vector<double> values = values_of(store, "a");
  ASSERT_EQ(values.size(), digits.size());
  EXPECT_EQ(values[2], 3.7155414237877844);
  EXPECT_TRUE(std::isnan(values[5]) && std::isnan(values[7]));
  EXPECT_EQ(values[6], -std::numeric_limits<double>::infinity());
  EXPECT_EQ(values[9], 5e-324);
}

TEST(MetricStoreTest, damaged_and_long_lines_are_counted_and_the_others_shown) {
  obs::ScratchFolder folder;
  const fs::path file = folder / "metrics.jsonl";
  const std::string name(10'000, 'x');
  std::string text = train_line(1, 1, "\"a\":1");
  text += "not JSON\n{\"step\":}\n{\"step\":1,\"time\":1,\"a\":inf}\n{\"a\":1}\n[1,2]\n";
  text += "{\"step\":1e300,\"a\":1}\n{\"step\":1,\"time\":1,\"a\":1}x\n";
  text += train_line(2, 2, fmt::format("\"{}\":2,\"b\":{{\"c\":[1,{{}}]}},\"d\":\"text\"", name));
  text += std::string(3 << 20, 'y') + "\n";  // 3 MiB
  text += std::string(100, '\0') + "\n";
  text += train_line(3, 3, "\"a\":3");
  write_text(file, text);
  MetricStore store(file);
  store.poll();
  EXPECT_EQ(values_of(store, "a"), (std::vector<double>{1, 3}));
  EXPECT_EQ(values_of(store, name.c_str()), (std::vector<double>{2}));
  const std::vector<std::string> problems = store.problems();
  ASSERT_EQ(problems.size(), 2U);
  EXPECT_EQ(problems[0], "metrics.jsonl: 8 damaged lines, the first is line 2; not shown");
  EXPECT_EQ(problems[1], "metrics.jsonl: 1 line above 1048576 bytes; not shown");
}

TEST(MetricStoreTest, names_may_have_escapes_and_bytes_that_are_no_text) {
  obs::ScratchFolder folder;
  write_text(folder / "metrics.jsonl", train_line(1, 1, R"("a\"\u00e9\\":1,"<img onerror=x>":2)") +
                                           train_line(2, 2, "\"\xff\xfe\":3"));
  MetricStore store(folder / "metrics.jsonl");
  store.poll();
  EXPECT_TRUE(store.find("a\"\u00e9\\").has_value());
  EXPECT_TRUE(store.find("<img onerror=x>").has_value());
  EXPECT_TRUE(store.find("\ufffd\ufffd").has_value());
}

TEST(MetricStoreTest, pipes_and_folders_are_problems) {
  obs::ScratchFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  MetricStore pipe(folder / "pipe"), directory(folder.path());
  pipe.poll();
  directory.poll();
  EXPECT_EQ(pipe.problems(), (std::vector<std::string>{"pipe: is no regular file"}));
  EXPECT_EQ(directory.problems().size(), 1U);
}

TEST(MetricCacheTest, a_cache_continues_where_it_was_saved) {
  obs::ScratchFolder folder;
  const fs::path file = folder / "metrics.jsonl", cache = folder / "a.cache";
  std::mt19937_64 random(3);
  std::string text;
  for (int step = 1; step <= 3000; ++step) {
    text += train_line(step % 1000, step,
                       fmt::format("\"a\":{},\"tokens\":{}", random() % 100, step * 100));
  }
  write_text(file, text);
  MetricStore first(file);
  first.poll();
  first.save_cache(cache);
  write_text(file, train_line(5000, 9000, "\"a\":1,\"new\":2"), true);
  first.poll();

  MetricStore second(file);
  ASSERT_TRUE(second.load_cache(cache));
  EXPECT_TRUE(second.poll());
  EXPECT_EQ(second.tags(), first.tags());
  EXPECT_EQ(second.bytes(), first.bytes());
  for (const char* tag : {"a", "tokens", "new"}) {
    EXPECT_EQ(values_of(second, tag), values_of(first, tag));
    for (const Axis axis : {Axis::step, Axis::tokens, Axis::time}) {
      std::string a, b;
      append_json(a, buckets_of(first, first.find(tag).value(), {.axis = axis, .px = 50}));
      append_json(b, buckets_of(second, second.find(tag).value(), {.axis = axis, .px = 50}));
      EXPECT_EQ(a, b);
    }
  }
  // Another file under the same name, and damaged caches.
  MetricStore other(file);
  write_text(file, std::string(text.size(), ' ') + "\n");
  EXPECT_FALSE(other.load_cache(cache));
  write_text(file, text);
  const std::string bytes = obs::content_of(cache);
  for (int round = 0; round < 80; ++round) {
    std::string damaged = bytes.substr(0, round % 3 == 0 ? random() % bytes.size() : bytes.size());
    if (!damaged.empty() && round % 3 != 0)
      damaged[random() % std::min<size_t>(damaged.size(), 400)] ^= 0x41;
    write_text(cache, damaged);
    MetricStore third(file);
    third.load_cache(cache);  // accepted or not, it does not crash
    third.poll();
  }
}

}  // namespace
}  // namespace trireme::board
