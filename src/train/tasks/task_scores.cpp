// SPDX-License-Identifier: Apache-2.0
#include "train/tasks/task_scores.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "base/check.h"

namespace trireme::train {
namespace {

// The tokens that the model reads for a request: all but the last, of these the last seq_len.
struct Window {
  std::span<const int32_t> tokens;  // one more than the model reads
  int64_t length() const { return std::ssize(tokens) - 1; }
};
Window window_of(const TaskTokens& request, int64_t seq_len) {
  const size_t kept = std::min(request.tokens.size(), static_cast<size_t>(seq_len) + 1);
  return {std::span(request.tokens).last(kept)};
}

// Fills a micro-batch with packed requests; each is a separate sequence.
class PackedSource final : public engine::MicrobatchSource {
 public:
  PackedSource(std::span<const TaskTokens> requests, int64_t seq_len)
      : requests_(requests), seq_len_(seq_len) {}

  void set(std::span<const PackedRequest> parts) { parts_ = parts; }

  void fill(int /*index*/, const engine::HostMicrobatch& out) override {
    const auto total = static_cast<int64_t>(out.tokens.size());
    std::fill(out.tokens.begin(), out.tokens.end(), 0);
    std::fill(out.labels.begin(), out.labels.end(), -1);
    for (int64_t t = 0; t < total; ++t) {
      out.positions[static_cast<size_t>(t)] = static_cast<int32_t>(t % seq_len_);
    }
    // Requests and the padding behind them; sequences of the layout are borders, too.
    std::vector<int32_t> borders;
    for (int64_t t = 0; t < total; t += seq_len_) borders.push_back(static_cast<int32_t>(t));
    for (const PackedRequest& part : parts_) {
      borders.push_back(static_cast<int32_t>(part.begin));
      borders.push_back(static_cast<int32_t>(part.begin + part.count));
      place(part, out);
    }
    std::ranges::sort(borders);
    borders.erase(std::unique(borders.begin(), borders.end()), borders.end());
    std::fill(out.seq_offsets.begin(), out.seq_offsets.end(), static_cast<int32_t>(total));
    std::ranges::copy(borders, out.seq_offsets.begin());
    for (size_t i = 0; i < borders.size(); ++i) {
      const auto end_of = i + 1 < borders.size() ? borders[i + 1] : static_cast<int32_t>(total);
      for (int32_t t = borders[i]; t < end_of; ++t) {
        out.positions[static_cast<size_t>(t)] = t - borders[i];
      }
    }
  }

 private:
  void place(const PackedRequest& part, const engine::HostMicrobatch& out) const {
    const TaskTokens& request = requests_[part.request];
    const std::span<const int32_t> tokens = window_of(request, seq_len_).tokens;
    const auto ending = static_cast<int64_t>(std::min(request.ending, tokens.size() - 1));
    for (int64_t i = 0; i < part.count; ++i) {
      const auto at = static_cast<size_t>(part.begin + i);
      out.tokens[at] = tokens[static_cast<size_t>(i)];
      if (i >= part.count - ending) out.labels[at] = tokens[static_cast<size_t>(i) + 1];
    }
  }

  std::span<const TaskTokens> requests_;
  std::span<const PackedRequest> parts_;
  int64_t seq_len_;
};

size_t first_largest(std::span<const double> values) {
  return static_cast<size_t>(std::ranges::max_element(values) - values.begin());
}

// Returns the standard error of the mean of n values of which `mean` n are one and the others zero.
double standard_error(double mean, int64_t n) {
  return n < 2 ? 0 : std::sqrt(mean * (1 - mean) / static_cast<double>(n - 1));
}

}  // namespace

std::vector<std::vector<PackedRequest>> pack_requests(std::span<const int64_t> lengths,
                                                      int64_t sequences, int64_t seq_len) {
  std::vector<size_t> order(lengths.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return lengths[a] > lengths[b]; });
  std::vector<std::vector<PackedRequest>> batches;
  std::vector<int64_t> used;  // tokens of each sequence of the last batch
  for (const size_t request : order) {
    const int64_t count = lengths[request];
    TRIREME_CHECK(count >= 1 && count <= seq_len, "request {} of {} tokens", request, count);
    auto fits = std::ranges::find_if(used, [&](int64_t n) { return n + count <= seq_len; });
    if (fits == used.end()) {
      batches.emplace_back();
      used.assign(static_cast<size_t>(sequences), 0);
      fits = used.begin();
    }
    batches.back().push_back({request, (fits - used.begin()) * seq_len + *fits, count});
    *fits += count;
  }
  return batches;
}

std::vector<double> ending_likelihoods(Inference& model, std::span<const TaskTokens> requests,
                                       const std::function<void(int64_t done)>& progress) {
  std::vector<int64_t> lengths;
  for (const TaskTokens& request : requests) {
    lengths.push_back(window_of(request, model.seq_len()).length());
  }
  PackedSource source(requests, model.seq_len());
  std::vector<double> likelihoods(requests.size());
  int64_t done = 0;
  for (const auto& parts : pack_requests(lengths, model.sequences(), model.seq_len())) {
    source.set(parts);
    const std::vector<float> losses = model.token_losses(source);
    for (const PackedRequest& part : parts) {
      double sum = 0;
      // Tokens without a label have no loss.
      for (int64_t t = part.begin; t < part.begin + part.count; ++t) {
        sum -= static_cast<double>(losses[static_cast<size_t>(t)]);
      }
      likelihoods[part.request] = sum;
    }
    done += std::ssize(parts);
    if (progress) progress(done);
  }
  return likelihoods;
}

ItemScore score_item(const TaskItem& item, std::vector<double> likelihoods) {
  TRIREME_CHECK(likelihoods.size() == item.choices.size(), "{} likelihoods of {} choices",
                likelihoods.size(), item.choices.size());
  std::vector<double> by_byte;
  for (size_t i = 0; i < likelihoods.size(); ++i) {
    by_byte.push_back(likelihoods[i] / static_cast<double>(item.choices[i].size()));
  }
  ItemScore score{.likelihoods = std::move(likelihoods)};
  score.by_sum = first_largest(score.likelihoods);
  score.by_byte = first_largest(by_byte);
  score.is_right = score.by_sum == item.label;
  score.is_right_by_byte = score.by_byte == item.label;
  return score;
}

TaskScore score_task(std::span<const TaskItem> items, std::span<const ItemScore> scores) {
  TRIREME_CHECK(items.size() == scores.size() && !items.empty(), "{} items, {} scores",
                items.size(), scores.size());
  TaskScore task{.items = std::ssize(items)};
  double bits = 0, bytes = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    task.accuracy += scores[i].is_right ? 1 : 0;
    task.accuracy_by_byte += scores[i].is_right_by_byte ? 1 : 0;
    bits -= scores[i].likelihoods[items[i].label] / std::numbers::ln2;
    bytes += static_cast<double>(items[i].choices[items[i].label].size());
  }
  const auto n = static_cast<double>(task.items);
  task.accuracy /= n;
  task.accuracy_by_byte /= n;
  task.accuracy_error = standard_error(task.accuracy, task.items);
  task.accuracy_by_byte_error = standard_error(task.accuracy_by_byte, task.items);
  task.bits_per_byte = bits / bytes;
  return task;
}

}  // namespace trireme::train
