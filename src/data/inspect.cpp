// SPDX-License-Identifier: Apache-2.0
#include "data/inspect.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "base/check.h"
#include "base/text/json.h"

namespace trireme::data {
namespace {

constexpr int32_t counted_ids = 1 << 20;
constexpr size_t top_count = 10;

using LengthCounts = std::map<int64_t, int64_t>;  // documents of each length

// How often each token occurs.
class TokenCounts {
 public:
  void add(std::span<const int32_t> tokens) {
    for (const int32_t token : tokens) {
      min_ = std::min(min_, token);
      max_ = std::max(max_, token);
      if (token < counted_ids) {
        ++counts_[static_cast<size_t>(token)];
      } else {
        add_large(token);
      }
    }
  }

  void report_to(DatasetReport& report) const {
    report.token_min = max_ < 0 ? -1 : min_;
    report.token_max = max_;
    report.distinct_tokens = distinct_large_;
    std::vector<TokenCount>& top = report.top_tokens;
    for (int32_t token = 0; token < counted_ids; ++token) {
      const int64_t count = counts_[static_cast<size_t>(token)];
      if (count == 0) continue;
      ++report.distinct_tokens;
      if (top.size() == top_count && top.back().count >= count) continue;
      top.push_back({token, count});
      std::stable_sort(top.begin(), top.end(),
                       [](const auto& a, const auto& b) { return a.count > b.count; });
      if (top.size() > top_count) top.pop_back();
    }
  }

 private:
  void add_large(int32_t token) {
    // A bit for every id; a wrong token type is the usual reason for such ids.
    if (seen_.empty()) seen_.resize(size_t{1} << 31);
    if (!seen_[static_cast<size_t>(token)]) ++distinct_large_;
    seen_[static_cast<size_t>(token)] = true;
  }

  std::vector<int64_t> counts_ = std::vector<int64_t>(counted_ids);
  std::vector<bool> seen_;
  int64_t distinct_large_ = 0;
  int32_t min_ = std::numeric_limits<int32_t>::max(), max_ = -1;
};

// Returns the smallest length that at least `share` of the documents do not exceed.
int64_t quantile(const LengthCounts& lengths, int64_t documents, double share) {
  const auto wanted = static_cast<int64_t>(std::ceil(share * static_cast<double>(documents)));
  int64_t seen = 0;
  for (const auto& [length, count] : lengths) {
    seen += count;
    if (seen >= wanted) return length;
  }
  return lengths.empty() ? 0 : lengths.rbegin()->first;
}

LengthStatistics statistics(const LengthCounts& lengths, int64_t documents, int64_t tokens) {
  LengthStatistics result;
  if (documents == 0) return result;
  result.min = lengths.begin()->first;
  result.max = lengths.rbegin()->first;
  result.median = quantile(lengths, documents, 0.5);
  result.p90 = quantile(lengths, documents, 0.9);
  result.p99 = quantile(lengths, documents, 0.99);
  const auto n = static_cast<double>(documents);
  result.mean = static_cast<double>(tokens) / n;
  double second = 0, third = 0;
  for (const auto& [length, count] : lengths) {
    const double d = static_cast<double>(length) - result.mean;
    second += static_cast<double>(count) * d * d / n;
    third += static_cast<double>(count) * d * d * d / n;
  }
  if (second > 0) result.skew = third / (second * std::sqrt(second));
  return result;
}

}  // namespace

DatasetReport inspect(const TokenData& data, const ScanProgress& progress) {
  DatasetReport report{.name = data.name(),
                       .format = std::string(name_of(data.format())),
                       .type = std::string(name_of(data.type())),
                       .tokens = data.tokens()};
  for (const MappedFile& file : data.files()) {
    report.files.push_back({file.path().string(), static_cast<int64_t>(file.bytes().size())});
  }

  TokenCounts counts;
  LengthCounts lengths;
  std::vector<int32_t> chunk(1 << 16);
  std::vector<int64_t> starts;
  int64_t open_start = 0, found = 0;  // the current document, and the number of those before it
  for (int64_t at = 0; at < data.tokens();) {
    const int64_t count = std::min<int64_t>(static_cast<int64_t>(chunk.size()), data.tokens() - at);
    const auto tokens = std::span(chunk).first(static_cast<size_t>(count));
    data.read(at, tokens);
    counts.add(tokens);
    starts.clear();
    data.documents().starts_in(std::max<int64_t>(at, 1), at + count, starts);
    for (const int64_t start : starts) {
      ++lengths[start - open_start];
      ++found;
      open_start = start;
    }
    at += count;
    if (progress) progress(at, data.tokens());
  }
  if (data.tokens() > 0) {
    ++lengths[data.tokens() - open_start];
    ++found;
  }
  // Only an index can hold empty documents, and it contains their number.
  report.documents = data.format() == TokenFormat::megatron ? data.documents().count() : found;
  TRIREME_CHECK(report.documents >= found, "{} documents in the index, {} in the stream",
                report.documents, found);
  if (report.documents > found) lengths[0] += report.documents - found;
  report.length = statistics(lengths, report.documents, report.tokens);
  counts.report_to(report);
  return report;
}

std::string to_text(const DatasetReport& report) {
  std::string text = fmt::format("{}\n  format     {}, tokens stored as {}\n", report.name,
                                 report.format, report.type);
  for (const FileSize& file : report.files) {
    text += fmt::format("  file       {}, {} bytes\n", file.path, file.bytes);
  }
  const LengthStatistics& length = report.length;
  text += fmt::format("  documents  {}\n  tokens     {}\n", report.documents, report.tokens);
  text += fmt::format(
      "  length     min {}, median {}, p90 {}, p99 {}, max {}, mean {:.1f}, skew {:.2f}\n",
      length.min, length.median, length.p90, length.p99, length.max, length.mean, length.skew);
  text += fmt::format("  token ids  {} .. {}, {} distinct\n  most often ", report.token_min,
                      report.token_max, report.distinct_tokens);
  for (const TokenCount& top : report.top_tokens) {
    text +=
        fmt::format(" {} ({:.2f} %)", top.token,
                    100.0 * static_cast<double>(top.count) / static_cast<double>(report.tokens));
  }
  return text + "\n";
}

base::Json to_json(const DatasetReport& report) {
  using base::Json;
  Json files = Json::array(), top = Json::array();
  for (const FileSize& file : report.files) {
    files.push_back({{"path", file.path}, {"bytes", file.bytes}});
  }
  for (const TokenCount& entry : report.top_tokens) {
    top.push_back({{"token", entry.token}, {"count", entry.count}});
  }
  const LengthStatistics& length = report.length;
  return {{"name", report.name},
          {"format", report.format},
          {"type", report.type},
          {"files", files},
          {"documents", report.documents},
          {"tokens", report.tokens},
          {"length",
           {{"min", length.min},
            {"median", length.median},
            {"p90", length.p90},
            {"p99", length.p99},
            {"max", length.max},
            {"mean", length.mean},
            {"skew", length.skew}}},
          {"token_min", report.token_min},
          {"token_max", report.token_max},
          {"distinct_tokens", report.distinct_tokens},
          {"top_tokens", top}};
}

}  // namespace trireme::data
