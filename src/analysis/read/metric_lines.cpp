// SPDX-License-Identifier: Apache-2.0
#include "analysis/read/metric_lines.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/system/regular_file.h"

namespace trireme::analysis {
namespace {

// The values of one line. A key or a text is as written, with its escapes.
class LineScanner {
 public:
  explicit LineScanner(std::string_view line) : at_(line.data()), end_(at_ + line.size()) {
    is_good_ = skip('{');
  }
  // Moves to the next key and its value. Returns false at the end of the object, and if the line is
  // no JSON object; is_good() tells these apart.
  bool next() {
    if (!is_good_ || is_closed_) return false;
    if (is_first_ && skip('}')) is_closed_ = true;
    if (is_closed_) return false;
    is_good_ = (is_first_ || skip(',')) && text(key_) && skip(':') && value();
    is_first_ = false;
    return is_good_;
  }
  // Returns whether the object was complete.
  bool is_good() {
    if (!is_good_ || !is_closed_) return false;
    space();
    return at_ == end_;
  }
  std::string_view key() const { return key_; }
  std::string_view raw() const { return raw_; }
  // Returns nothing if the value is no number and none of the texts for numbers that are not
  // finite. Older files have null for these.
  std::optional<double> number() const {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    if (raw_ == "null" || raw_ == "NaN") return std::numeric_limits<double>::quiet_NaN();
    if (raw_ == "Infinity") return infinity;
    if (raw_ == "-Infinity") return -infinity;
    if (raw_ == "true") return 1;
    if (raw_ == "false") return 0;
    double found = 0;
    const auto [end, error] = std::from_chars(raw_.data(), raw_.data() + raw_.size(), found);
    if (error != std::errc{} || end != raw_.data() + raw_.size()) return {};
    return found;
  }

 private:
  void space() {
    while (at_ < end_ && (*at_ == ' ' || *at_ == '\t' || *at_ == '\r')) ++at_;
  }
  bool skip(char wanted) {
    space();
    if (at_ == end_ || *at_ != wanted) return false;
    ++at_;
    return true;
  }
  bool text(std::string_view& found) {
    if (!skip('"')) return false;
    const char* begin = at_;
    while (at_ < end_ && *at_ != '"') at_ += *at_ == '\\' ? 2 : 1;
    if (at_ >= end_) return false;
    found = {begin, static_cast<size_t>(at_ - begin)};
    ++at_;
    return true;
  }
  bool value() {
    space();
    if (at_ == end_) return false;
    const bool is_object_end = *at_ == '"' ? text(raw_) : plain();
    if (!is_object_end) return false;
    space();
    if (at_ < end_ && *at_ == '}') {
      ++at_;
      is_closed_ = true;
    }
    return true;
  }
  // A number, a word, an array or an object.
  bool plain() {
    const char* begin = at_;
    int depth = 0;
    while (at_ < end_) {
      if (*at_ == '"') {
        std::string_view ignored;
        if (!text(ignored)) return false;
        continue;
      }
      if (depth == 0 && (*at_ == ',' || *at_ == '}' || *at_ == ' ')) break;
      if (*at_ == '[' || *at_ == '{') ++depth;
      if (*at_ == ']' || *at_ == '}') --depth;
      ++at_;
    }
    raw_ = {begin, static_cast<size_t>(at_ - begin)};
    return depth == 0 && !raw_.empty();
  }

  const char* at_;
  const char* end_;
  std::string_view key_, raw_;
  bool is_good_ = false, is_first_ = true, is_closed_ = false;
};

// A later attempt repeats steps: its values replace those from its first step on.
void add(Series& series, int64_t step, double value) {
  while (!series.steps.empty() && series.steps.back() >= step) {
    series.steps.pop_back();
    series.values.pop_back();
  }
  series.steps.push_back(step);
  series.values.push_back(value);
}

class Reader {
 public:
  Reader(MetricLines& found, std::span<const std::string_view> tags) : found_(found) {
    for (const std::string_view tag : tags) columns_.push_back({tag, nullptr, {}});
  }

  void line(std::string_view text) {
    if (text.empty()) return;
    LineScanner scan(text);
    std::string_view kind;
    std::optional<double> step, time, attempt;
    for (Column& column : columns_) column.value.reset();
    size_t next = 0;  // lines list their tags in one order
    while (scan.next()) {
      if (scan.key() == "kind") kind = scan.raw();
      if (scan.key() == "step") step = scan.number();
      if (scan.key() == "time") time = scan.number();
      if (scan.key() == "attempt") attempt = scan.number();
      for (size_t i = 0; i < columns_.size(); ++i, ++next) {
        if (next >= columns_.size()) next = 0;
        if (columns_[next].tag != scan.key()) continue;
        columns_[next++].value = scan.number();
        break;
      }
    }
    if (!scan.is_good() || kind.empty() || !step) {
      ++found_.damaged;
      return;
    }
    if (found_.begin_time == 0 && time) found_.begin_time = *time;
    if (time) found_.last_time = *time;
    if (attempt && static_cast<int64_t>(*attempt) != found_.attempt) {
      found_.attempt = static_cast<int64_t>(*attempt);
      found_.last_step = static_cast<int64_t>(*step);
    }
    if (kind != "train") return;
    const auto at = static_cast<int64_t>(*step);
    found_.last_step = std::max(found_.last_step, at);
    for (Column& column : columns_) {
      if (!column.value) continue;
      if (column.series == nullptr) column.series = &found_.series[std::string(column.tag)];
      add(*column.series, at, *column.value);
    }
  }

 private:
  struct Column {
    std::string_view tag;
    Series* series;
    std::optional<double> value;
  };
  MetricLines& found_;
  std::vector<Column> columns_;
};

}  // namespace

std::span<const std::string_view> read_tags() {
  static constexpr std::array<std::string_view, 16> tags = {"loss_metrics/global_avg_loss",
                                                            "loss_metrics/min",
                                                            "loss_metrics/median",
                                                            "loss_metrics/max",
                                                            "grad_norm",
                                                            "update_norm",
                                                            "lr",
                                                            "skipped",
                                                            "tokens/trained",
                                                            "tokens/masked",
                                                            "tokens/padding",
                                                            "tokens",
                                                            "throughput(tps)",
                                                            "mfu(%)",
                                                            "time_metrics/end_to_end(s)",
                                                            "time_metrics/data_loading(s)"};
  return tags;
}

MetricLines read_metrics(const std::filesystem::path& path,
                         std::span<const std::string_view> tags) {
  MetricLines found;
  Reader reader(found, tags);
  const base::LinesRead read =
      base::read_lines(path, {}, [&](std::string_view line) { reader.line(line); });
  found.damaged += read.too_long;
  found.problem = read.problem;
  return found;
}

std::optional<double> first_loss(const std::filesystem::path& path) {
  constexpr int max_lines = 1000;
  constexpr std::string_view tag = "loss_metrics/global_avg_loss";
  MetricLines found;
  Reader reader(found, std::span(&tag, 1));
  std::ifstream file(path);
  std::string line;
  for (int i = 0; i < max_lines && std::getline(file, line); ++i) {
    reader.line(line);
    if (!found.series.empty()) return found.series.begin()->second.values.front();
  }
  return {};
}

}  // namespace trireme::analysis
