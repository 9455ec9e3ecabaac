// SPDX-License-Identifier: Apache-2.0
#include "train/report/losses/validation_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <numbers>

#include "base/text/json.h"

namespace trireme::train {
namespace {

std::string sum_text(const ValidationSum& sum) {
  std::string text = fmt::format("loss: {:8.5f}  tokens: {}", sum.loss(), sum.tokens);
  if (const auto bits = sum.bits_per_byte()) text += fmt::format("  bits per byte: {:.4f}", *bits);
  if (sum.dropped > 0) text += fmt::format("  without {} dropped rows of experts", sum.dropped);
  return text;
}

}  // namespace

double ValidationSum::loss() const {
  return loss_sum / static_cast<double>(std::max<int64_t>(1, tokens));
}

std::optional<double> ValidationSum::bits_per_byte() const {
  if (bytes == 0) return std::nullopt;
  return loss_sum / std::numbers::ln2 / static_cast<double>(bytes);
}

ValidationSum ValidationFigures::total() const {
  ValidationSum all;
  for (const Set& set : sets) {
    all.loss_sum += set.sum.loss_sum;
    all.tokens += set.sum.tokens;
    all.bytes += set.sum.bytes;
    all.dropped += set.sum.dropped;
  }
  if (std::ranges::any_of(sets, [](const Set& set) { return set.sum.bytes == 0; })) all.bytes = 0;
  return all;
}

std::vector<std::string> validation_lines(int64_t step, const ValidationFigures& figures) {
  std::vector<std::string> lines = {
      fmt::format("validate step: {}  {}", step, sum_text(figures.total()))};
  if (figures.sets.size() == 1) return lines;
  for (const ValidationFigures::Set& set : figures.sets) {
    lines.push_back(fmt::format("validate step: {}  {}  ({})", step, sum_text(set.sum), set.name));
  }
  return lines;
}

ValidationMetrics validation_metrics(const ValidationFigures& figures) {
  ValidationMetrics result;
  const auto add = [&result](const std::string& name, double value) {
    result.names.push_back("validation_metrics/" + name);
    result.metrics.push_back({result.names.back(), value});
  };
  const auto add_sum = [&add](const std::string& suffix, const ValidationSum& sum) {
    add("loss" + suffix, sum.loss());
    add("tokens" + suffix, static_cast<double>(sum.tokens));
    if (const auto bits = sum.bits_per_byte()) add("bits_per_byte" + suffix, *bits);
  };
  add_sum("", figures.total());
  if (figures.sets.size() == 1) return result;
  for (const ValidationFigures::Set& set : figures.sets) add_sum("/" + set.name, set.sum);
  return result;
}

base::Json to_json(const ValidationFigures& figures) {
  base::Json json = base::Json::object();
  for (const ValidationFigures::Set& set : figures.sets) {
    json[set.name] = {{"loss", set.sum.loss()}, {"tokens", set.sum.tokens}};
    if (const auto bits = set.sum.bits_per_byte()) json[set.name]["bits_per_byte"] = *bits;
  }
  return json;
}

}  // namespace trireme::train
