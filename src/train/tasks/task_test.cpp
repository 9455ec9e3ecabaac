// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "train/tasks/task_item.h"
#include "train/tasks/task_scores.h"

namespace trireme::train {
namespace {

std::string refusal(std::string_view line) {
  try {
    task_from_json(line, "t.jsonl:7");
  } catch (const base::ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(TaskItemTest, both_spellings_are_read) {
  const TaskItem item =
      task_from_json(R"({"ctx": "A", "endings": ["x", "yy"], "label": "1", "other": 3})", "f:1");
  EXPECT_EQ(item.context, "A");
  EXPECT_EQ(item.choices, (std::vector<std::string>{"x", "yy"}));
  EXPECT_EQ(item.label, 1U);
  EXPECT_EQ(task_from_json(R"({"context": "", "choices": ["x", "y"], "gold": 0})", "f:1").label,
            0U);
}

TEST(TaskItemTest, bad_lines_are_refused_with_their_place) {
  struct Case {
    const char* line;
    const char* part;
  };
  for (const Case& c : std::vector<Case>{
           {"{", "not valid JSON"},
           {"[1]", "not an object"},
           {R"({"choices": ["a", "b"], "label": 0})", "\"context\" (or \"ctx\") is missing"},
           {R"({"ctx": 3, "choices": ["a", "b"], "label": 0})", "not a text"},
           {R"({"ctx": "", "context": "", "choices": ["a", "b"], "label": 0})", "the same field"},
           {R"({"ctx": "", "choices": ["a"], "label": 0})", "at least two"},
           {R"({"ctx": "", "choices": ["a", ""], "label": 0})", "a choice is empty"},
           {R"({"ctx": "", "choices": ["a", 1], "label": 0})", "not a text"},
           {R"({"ctx": "", "choices": ["a", "b"], "label": 2})", "there are 2 choices"},
           {R"({"ctx": "", "choices": ["a", "b"], "label": -1})", "\"label\" is -1"},
           {R"({"ctx": "", "choices": ["a", "b"], "label": "x"})", "not an integer"},
           {R"({"ctx": "", "choices": ["a", "b"], "label": 0.5})", "not an integer"}}) {
    const std::string message = refusal(c.line);
    EXPECT_TRUE(message.starts_with("t.jsonl:7: ")) << c.line << "\n" << message;
    EXPECT_NE(message.find(c.part), std::string::npos) << c.line << "\n" << message;
  }
}

std::string text_of_ending(const TextCodec& codec, const TaskTokens& t) {
  return codec.decode(std::span(t.tokens).last(t.ending));
}

TEST(TaskTokensTest, white_space_at_the_end_of_the_context_belongs_to_the_ending) {
  const TextCodec bytes({}, 257);
  const auto split = [&](std::string_view context, std::string_view ending) {
    const TaskTokens t = task_tokens(bytes, context, ending, " ", "f:1");
    return std::pair(bytes.decode(t.tokens), text_of_ending(bytes, t));
  };
  using Texts = std::pair<std::string, std::string>;
  EXPECT_EQ(split("The sky is", "blue"), (Texts{"The sky is blue", " blue"}));
  EXPECT_EQ(split("The sky is ", "blue"), (Texts{"The sky is blue", " blue"}));
  EXPECT_EQ(split("The sky is", " blue"), (Texts{"The sky is blue", " blue"}));
  EXPECT_EQ(split("Q: why\nA: \n", "x"), (Texts{"Q: why\nA: \nx", " \nx"}));
  EXPECT_EQ(split("thin\xe2\x80\x89", "x"), (Texts{"thin\xe2\x80\x89x", "\xe2\x80\x89x"}));
}

TEST(TaskTokensTest, without_a_context_the_start_token_stands_before_the_ending) {
  const TaskTokens t = task_tokens(TextCodec({}, 257), "", "ab", " ", "f:1");
  EXPECT_EQ(t.tokens, (std::vector<int32_t>{256, ' ', 'a', 'b'}));
  EXPECT_EQ(t.ending, 3U);
  EXPECT_THROW(task_tokens(TextCodec({}, 256), "", "ab", " ", "f:1"), base::ConfigError);
}

TEST(PackRequestsTest, every_request_is_inside_of_one_sequence_and_none_overlap) {
  const std::vector<int64_t> lengths = {3, 10, 1, 7, 7, 2, 10, 5, 4, 4, 1};
  const auto batches = pack_requests(lengths, 2, 10);
  std::vector<int> seen(lengths.size());
  for (const auto& batch : batches) {
    std::vector<int> used(20);
    for (const PackedRequest& part : batch) {
      ++seen[part.request];
      EXPECT_EQ(part.count, lengths[part.request]);
      EXPECT_EQ(part.begin / 10, (part.begin + part.count - 1) / 10);
      for (int64_t t = part.begin; t < part.begin + part.count; ++t) {
        EXPECT_EQ(used[static_cast<size_t>(t)]++, 0);
      }
    }
  }
  EXPECT_EQ(seen, std::vector<int>(lengths.size(), 1));
  EXPECT_LE(batches.size(), 4U);
}

TEST(TaskScoresTest, answers_and_errors_are_those_of_the_formulas) {
  const TaskItem a{"c", {"x", "yyyy"}, 1}, b{"c", {"x", "y", "z"}, 0};
  // By sum the first is higher (-2 above -4), by byte the second (-1 above -2).
  const ItemScore first = score_item(a, {-2, -4});
  EXPECT_EQ(first.by_sum, 0U);
  EXPECT_EQ(first.by_byte, 1U);
  EXPECT_FALSE(first.is_right);
  EXPECT_TRUE(first.is_right_by_byte);
  // Ties: the lowest index.
  const ItemScore second = score_item(b, {-1, -1, -1});
  EXPECT_EQ(second.by_sum, 0U);
  EXPECT_TRUE(second.is_right);
  const TaskScore task = score_task(std::vector{a, b}, std::vector{first, second});
  EXPECT_EQ(task.items, 2);
  EXPECT_DOUBLE_EQ(task.accuracy, 0.5);
  EXPECT_DOUBLE_EQ(task.accuracy_by_byte, 1);
  // The deviation of {0, 1} with n - 1 is sqrt(1/2); divided by sqrt(2).
  EXPECT_DOUBLE_EQ(task.accuracy_error, 0.5);
  EXPECT_DOUBLE_EQ(task.accuracy_by_byte_error, 0);
  // 4 nats of 4 bytes and 1 nat of 1 byte.
  EXPECT_DOUBLE_EQ(task.bits_per_byte, 5 / std::log(2.0) / 5);
}

}  // namespace
}  // namespace trireme::train
