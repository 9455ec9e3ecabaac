// SPDX-License-Identifier: Apache-2.0
// The text form: <stage><operation>[<micro-batch>][>|<peer], actions separated by blanks, one line
// per rank; the two actions of a pair are joined by &.
#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <concepts>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "base/check.h"
#include "schedule/schedule.h"

namespace trireme::schedule {
namespace {

using base::Result;

// By the value of Op.
constexpr std::array<std::string_view, 11> names = {
    "F", "B", "W", "BW", "SendY", "RecvX", "SendDx", "RecvDy", "R", "ReduceGrads", "SyncTied"};

constexpr int unknown = -1;  // rank of a stage that no action names

struct Word {
  std::string_view text;
  size_t line = 1, column = 1;  // counted from 1
};

struct Placed {
  Word word;
  Action action;
};

struct Parsed {
  Action action;
  size_t length = 0;  // characters of the word, an & included
};

std::vector<std::vector<Word>> words_of(std::string_view text);
// Reads the first action of a word, which has two if they are joined.
Result<Parsed> parse(const Word& word);
template <std::integral Number>
std::optional<Number> take_number(std::string_view& rest);
std::optional<Op> take_op(std::string_view& rest);
Result<std::vector<Lane>> find_lanes(const std::vector<Placed>& actions);
std::vector<Lane> default_lanes(const std::map<std::pair<int, int>, int>& rank_of, int count,
                                int stages);
int deviations(const std::map<std::pair<int, int>, int>& rank_of, const std::vector<Lane>& lanes);
const Lane& lane_of(const std::vector<Lane>& lanes, int microbatch);
std::string refusal(const Word& word, std::string_view expected, std::string_view found);

bool has_microbatch(Op op) { return op != Op::ReduceGrads && op != Op::SyncTied; }
bool is_compute(Op op) { return op == Op::F || op == Op::B || op == Op::W || op == Op::BW; }

}  // namespace

std::string_view name_of(Op op) {
  const auto index = static_cast<size_t>(op);
  TRIREME_CHECK(index < names.size(), "operation {}", index);
  return names[index];
}

std::string to_text(const Action& action) {
  std::string text = fmt::format("{}{}", action.stage, name_of(action.op));
  if (has_microbatch(action.op)) text += fmt::format("{}", action.microbatch);
  if (is_send(action.op)) text += fmt::format(">{}", action.peer);
  if (is_receive(action.op)) text += fmt::format("<{}", action.peer);
  if (action.with_next) text += '&';
  return text;
}

std::string to_text(const Schedule& schedule) {
  std::string text;
  for (const std::vector<Action>& program : schedule.program) {
    for (size_t i = 0; i < program.size(); ++i) {
      text += (i == 0 || program[i - 1].with_next ? "" : " ") + to_text(program[i]);
    }
    text += '\n';
  }
  return text;
}

Result<Schedule> from_text(std::string_view text) {
  Schedule schedule;
  std::vector<Placed> actions;
  int last_microbatch = -1;
  for (const std::vector<Word>& line : words_of(text)) {
    std::vector<Action>& program = schedule.program.emplace_back();
    for (Word word : line) {
      while (!word.text.empty()) {
        const Result<Parsed> parsed = parse(word);
        if (!parsed) return Result<Schedule>::no(parsed.reason());
        const auto& [action, length] = parsed.value();
        program.push_back(action);
        actions.push_back({{word.text.substr(0, length), word.line, word.column}, action});
        last_microbatch = std::max(last_microbatch, action.microbatch);
        word = {word.text.substr(length), word.line, word.column + length};
      }
    }
  }
  if (last_microbatch < 0) {
    return Result<Schedule>::no(refusal({}, "an action of a micro-batch", "none"));
  }
  // Each micro-batch has at least one action; this also bounds the allocation for a mistyped
  // number.
  for (const Placed& placed : actions) {
    if (placed.action.microbatch < std::ssize(actions) && placed.action.stage < std::ssize(actions))
      continue;
    return Result<Schedule>::no(refusal(
        placed.word,
        fmt::format("stages and micro-batches below {}, the number of actions", actions.size()),
        fmt::format("\"{}\"", placed.word.text)));
  }
  schedule.ranks = static_cast<int>(schedule.program.size());
  schedule.microbatches = last_microbatch + 1;
  const Result<std::vector<Lane>> lanes = find_lanes(actions);
  if (!lanes) return Result<Schedule>::no(lanes.reason());
  schedule.lanes = lanes.value();
  return schedule;
}

namespace {

std::vector<std::vector<Word>> words_of(std::string_view text) {
  std::vector<std::vector<Word>> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    std::vector<Word>& words = lines.emplace_back();
    for (size_t at = line.find_first_not_of(" \t"); at != line.npos;) {
      const size_t stop = std::min(line.find_first_of(" \t", at), line.size());
      words.push_back({line.substr(at, stop - at), lines.size(), at + 1});
      at = line.find_first_not_of(" \t", stop);
    }
    begin = end + 1;
  }
  return lines;
}

Result<Parsed> parse(const Word& word) {
  std::string_view rest = word.text;
  const auto no = [&](std::string_view expected) {
    const Word here{rest, word.line, word.column + word.text.size() - rest.size()};
    return Result<Parsed>::no(
        refusal(here, expected, rest.empty() ? "the end" : fmt::format("\"{}\"", rest)));
  };
  Action action;
  const std::optional<int16_t> stage = take_number<int16_t>(rest);
  if (!stage) return no("a stage");
  action.stage = *stage;
  const std::optional<Op> op = take_op(rest);
  if (!op) return no("an operation");
  action.op = *op;
  action.microbatch = -1;
  if (has_microbatch(*op)) {
    const std::optional<int32_t> microbatch = take_number<int32_t>(rest);
    if (!microbatch) return no("a micro-batch");
    action.microbatch = *microbatch;
  }
  if (is_send(*op) || is_receive(*op)) {
    const char mark = is_send(*op) ? '>' : '<';
    if (!rest.starts_with(mark)) return no(fmt::format("{} and a peer", mark));
    rest.remove_prefix(1);
    const std::optional<int16_t> peer = take_number<int16_t>(rest);
    if (!peer) return no("a peer");
    action.peer = *peer;
  }
  if (rest.starts_with('&')) {
    rest.remove_prefix(1);
    if (rest.empty()) return no("the other action of a pair");
    action.with_next = true;
  } else if (!rest.empty()) {
    return no("a blank");
  }
  return Parsed{action, word.text.size() - rest.size()};
}

template <std::integral Number>
std::optional<Number> take_number(std::string_view& rest) {
  Number number = 0;
  if (rest.starts_with('-')) return {};
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
  if (error != std::errc{}) return {};
  rest.remove_prefix(static_cast<size_t>(end - rest.data()));
  return number;
}

std::optional<Op> take_op(std::string_view& rest) {
  const auto letters = static_cast<size_t>(
      std::ranges::find_if_not(rest, [](unsigned char c) { return std::isalpha(c) != 0; }) -
      rest.begin());
  const auto found = std::ranges::find(names, rest.substr(0, letters));
  if (found == names.end()) return {};
  rest.remove_prefix(letters);
  return static_cast<Op>(found - names.begin());
}

// Finds one lane if every F, B and W of a stage is on one rank, two if those of even and of odd
// micro-batches are. Otherwise the actions that are not on the rank of most actions of their stage
// are wrong, and the error names the first of them.
Result<std::vector<Lane>> find_lanes(const std::vector<Placed>& actions) {
  using Lanes = Result<std::vector<Lane>>;
  std::map<std::pair<int, int>, int> rank_of;  // of (stage, micro-batch)
  int stages = 0;
  for (const auto& [word, action] : actions) {
    stages = std::max(stages, action.stage + 1);
    if (!is_compute(action.op)) continue;
    const int rank = static_cast<int>(word.line) - 1;
    const auto [known, is_new] = rank_of.try_emplace({action.stage, action.microbatch}, rank);
    if (!is_new && known->second != rank) {
      return Lanes::no(refusal(word,
                               fmt::format("stage {} of micro-batch {} on rank {} only",
                                           action.stage, action.microbatch, known->second),
                               fmt::format("\"{}\"", word.text)));
    }
  }
  const std::vector<Lane> one = default_lanes(rank_of, 1, stages),
                          two = default_lanes(rank_of, 2, stages);
  const bool is_one = deviations(rank_of, one) == 0;
  // Two lanes that agree in most stages are one lane with a mistake.
  int apart = 0;
  for (size_t stage = 0; stage < two[0].size(); ++stage) {
    apart += two[0][stage] != two[1][stage] ? 1 : 0;
  }
  const bool is_two = !is_one && deviations(rank_of, two) == 0 && 2 * apart > stages;
  if (!is_one && !is_two) {
    const bool nearly_two = deviations(rank_of, two) < deviations(rank_of, one) / 4;
    const std::vector<Lane>& lanes = nearly_two ? two : one;
    for (const auto& [word, action] : actions) {
      if (!is_compute(action.op)) continue;
      const int usual = lane_of(lanes, action.microbatch)[static_cast<size_t>(action.stage)];
      if (usual == static_cast<int>(word.line) - 1) continue;
      return Lanes::no(refusal(
          word, fmt::format("stage {} on rank {} as for other micro-batches", action.stage, usual),
          fmt::format("\"{}\"", word.text)));
    }
  }
  const std::vector<Lane>& lanes = is_one ? one : two;
  for (int stage = 0; stage < stages; ++stage) {
    for (const Lane& lane : lanes) {
      if (lane[static_cast<size_t>(stage)] != unknown) continue;
      return Lanes::no(
          refusal({}, fmt::format("F, B or W of stage {} for every lane", stage), "none"));
    }
  }
  return lanes;
}

// Returns, by lane and stage, the rank with most of its micro-batches; the lowest of equals.
std::vector<Lane> default_lanes(const std::map<std::pair<int, int>, int>& rank_of, int count,
                                int stages) {
  std::vector<Lane> lanes(static_cast<size_t>(count), Lane(static_cast<size_t>(stages), unknown));
  std::map<std::array<int, 3>, int> votes;  // of (lane, stage, rank)
  for (const auto& [key, rank] : rank_of) ++votes[{key.second % count, key.first, rank}];
  std::vector<Lane> max_votes(lanes.size(), Lane(static_cast<size_t>(stages), 0));
  for (const auto& [key, number] : votes) {
    const auto lane = static_cast<size_t>(key[0]), stage = static_cast<size_t>(key[1]);
    if (number <= max_votes[lane][stage]) continue;
    max_votes[lane][stage] = number;
    lanes[lane][stage] = key[2];
  }
  return lanes;
}

int deviations(const std::map<std::pair<int, int>, int>& rank_of, const std::vector<Lane>& lanes) {
  int count = 0;
  for (const auto& [key, rank] : rank_of) {
    count += lane_of(lanes, key.second)[static_cast<size_t>(key.first)] != rank ? 1 : 0;
  }
  return count;
}

const Lane& lane_of(const std::vector<Lane>& lanes, int microbatch) {
  return lanes[static_cast<size_t>(microbatch) % lanes.size()];
}

std::string refusal(const Word& word, std::string_view expected, std::string_view found) {
  return fmt::format("line {}, column {}: expected {}, found {}", word.line, word.column, expected,
                     found);
}

}  // namespace
}  // namespace trireme::schedule
