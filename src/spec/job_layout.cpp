// SPDX-License-Identifier: Apache-2.0
#include "spec/job_layout.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include "base/check.h"

namespace trireme::spec {
namespace {

std::string joined(const std::vector<std::string>& parts, std::string_view last) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) text += i + 1 == parts.size() ? fmt::format(" {} ", last) : ", ";
    text += parts[i];
  }
  return text;
}

class Checker {
 public:
  Checker(const ModelDims& dims, const JobLayout& asked, const LayoutNames& names)
      : names_(names), asked_(asked), check_{asked, {}}, vocab_(dims.vocab) {
    if (dims.heads > 0) {
      tp_cuts_ = {{"heads", dims.heads},
                  {"kv_heads", dims.kv_heads > 0 ? dims.kv_heads : dims.heads},
                  {"ffn", dims.ffn}};
    }
  }

  LayoutCheck run() {
    const bool is_solved = solve_degrees();
    check_tp();
    check_tokens();
    if (is_solved) {
      solve_data();
      check_data();
    }
    return std::move(check_);
  }

 private:
  JobLayout& layout() { return check_.layout; }
  const std::string& name(LayoutKey key) const { return names_[static_cast<size_t>(key)]; }
  void add(std::vector<LayoutKey> keys, std::string text) {
    check_.problems.push_back({std::move(keys), std::move(text)});
  }

  // Every rank has rows of the vocabulary, which is padded where it does not divide.
  bool vocab_is_legal(int64_t tp) const {
    return tp == 1 || vocab_ == 0 || (tp - 1) * ((vocab_ + tp - 1) / tp) < vocab_;
  }
  bool tp_is_legal(int64_t tp) const {
    return vocab_is_legal(tp) &&
           std::all_of(tp_cuts_.begin(), tp_cuts_.end(),
                       [tp](const auto& cut) { return cut.second % tp == 0; });
  }

  // ---- degrees and the world

  struct Choice {
    int64_t dp, zero, tp;
  };
  // How far from what was asked: degrees that change, then by how much; replicas rather than
  // shards.
  std::tuple<int, double, int64_t, int64_t> distance(const Choice& choice) const {
    int changed = 0;
    double ratio = 0;
    for (const auto& [to, from] :
         {std::pair{choice.dp, asked_.dp}, {choice.zero, asked_.zero}, {choice.tp, asked_.tp}}) {
      if (from == -1 || from == to) continue;
      ++changed;
      ratio += std::abs(std::log2(static_cast<double>(to) / static_cast<double>(from)));
    }
    return {changed, ratio, choice.tp, choice.zero};
  }
  std::string nearest_choices() const {
    std::vector<Choice> all;
    for (int64_t tp = 1; tp <= asked_.world; ++tp) {
      if (asked_.world % tp != 0 || !tp_is_legal(tp)) continue;
      const int64_t data = asked_.world / tp;
      for (int64_t zero = 1; zero <= data; ++zero) {
        if (data % zero == 0) all.push_back({data / zero, zero, tp});
      }
    }
    const size_t shown = std::min<size_t>(2, all.size());
    std::partial_sort(
        all.begin(), all.begin() + static_cast<std::ptrdiff_t>(shown), all.end(),
        [this](const Choice& a, const Choice& b) { return distance(a) < distance(b); });
    std::vector<std::string> parts;
    for (size_t i = 0; i < shown; ++i) parts.push_back(changes_text(all[i]));
    return joined(parts, "or");
  }
  std::string changes_text(const Choice& choice) const {
    std::vector<std::string> changes;
    for (const auto& [key, to, from] : {std::tuple{LayoutKey::dp, choice.dp, asked_.dp},
                                        {LayoutKey::zero, choice.zero, asked_.zero},
                                        {LayoutKey::tp, choice.tp, asked_.tp}}) {
      if (from != to && from != -1) changes.push_back(fmt::format("{} = {}", name(key), to));
    }
    return joined(changes, "with");
  }

  // False: what is left of the world is not known.
  bool solve_degrees() {
    int64_t fixed = 1;
    std::optional<LayoutKey> open;
    std::vector<LayoutKey> keys;
    std::vector<std::string> factors;
    for (const auto& [key, degree] : {std::pair{LayoutKey::dp, &layout().dp},
                                      {LayoutKey::zero, &layout().zero},
                                      {LayoutKey::tp, &layout().tp}}) {
      if (*degree == -1) {
        open = key;
        continue;
      }
      fixed *= *degree;
      keys.push_back(key);
      if (*degree != 1) factors.push_back(fmt::format("{} = {}", name(key), *degree));
    }
    if (factors.empty()) factors.push_back(fmt::format("{} = 1", name(keys.front())));
    const int64_t world = asked_.world == 0 ? fixed : asked_.world;
    if (open) {
      int64_t& degree = *open == LayoutKey::dp     ? layout().dp
                        : *open == LayoutKey::zero ? layout().zero
                                                   : layout().tp;
      degree = std::max<int64_t>(1, world / fixed);
      if (world % fixed == 0) return true;
      add(keys, fmt::format("{}: {} ranks do not divide by {}; nearest: {}", joined(factors, "x"),
                            world, fixed, nearest_choices()));
      return false;
    }
    if (world == fixed) return true;
    add(keys, fmt::format("{}: that is {} rank{}, and there are {}; nearest: {}, or {} rank{}",
                          joined(factors, "x"), fixed, fixed == 1 ? "" : "s", world,
                          nearest_choices(), fixed, fixed == 1 ? "" : "s"));
    return true;
  }

  // ---- the model and tp

  std::string nearest_tp() const {
    int64_t common = asked_.world;
    for (const auto& [what, size] : tp_cuts_) common = std::gcd(common, size);
    const int64_t tp = check_.layout.tp;
    int64_t below = 1, above = 0;
    for (int64_t d = 1; d * d <= common; ++d) {
      if (common % d != 0) continue;
      for (const int64_t divisor : {d, common / d}) {
        if (!tp_is_legal(divisor)) continue;
        if (divisor < tp) below = std::max(below, divisor);
        if (divisor > tp && (above == 0 || divisor < above)) above = divisor;
      }
    }
    return above == 0 ? fmt::format("{}", below) : fmt::format("{} or {}", below, above);
  }

  void check_tp() {
    const int64_t tp = layout().tp;
    if (tp_is_legal(tp)) return;
    std::vector<std::string> broken;
    for (const auto& [what, size] : tp_cuts_) {
      if (size % tp != 0) broken.push_back(fmt::format("{} = {}", what, size));
    }
    if (broken.empty()) {
      add({LayoutKey::tp, LayoutKey::model},
          fmt::format("{} = {}: a vocabulary of {} leaves a rank without a row; nearest: {}",
                      name(LayoutKey::tp), tp, vocab_, nearest_tp()));
      return;
    }
    add({LayoutKey::tp, LayoutKey::model},
        fmt::format("{} = {}: {} {} not divide by it; nearest: {}", name(LayoutKey::tp), tp,
                    joined(broken, "and"), broken.size() == 1 ? "does" : "do", nearest_tp()));
  }

  void check_tokens() {
    const JobLayout& l = layout();
    const int64_t tokens = l.local_batch * l.seq_len;
    if (!l.sequence_parallel || l.tp == 1 || tokens % l.tp == 0) return;
    const int64_t unit = l.tp / std::gcd(l.tp, l.local_batch);
    add({LayoutKey::seq_len, LayoutKey::local_batch, LayoutKey::tp, LayoutKey::sequence_parallel},
        fmt::format("{} = {}: with {} the {} tokens of a micro-batch must divide by {} = {}; "
                    "nearest: {}",
                    name(LayoutKey::seq_len), l.seq_len, name(LayoutKey::sequence_parallel), tokens,
                    name(LayoutKey::tp), l.tp, nearest_multiples(l.seq_len, unit)));
  }

  // ---- workers, batch, and what is sharded

  void solve_data() {
    JobLayout& l = layout();
    if (l.zero == 1) {
      l.zero_stage = 0;
    } else if (l.zero_stage == -1) {
      l.zero_stage = 3;
    }
    if (l.logical_dp == 0) l.logical_dp = l.data_ranks();
    if (l.global_batch == -1) l.global_batch = l.local_batch * l.logical_dp;
    const bool needs_each = l.zero_stage >= 2 && l.microbatches() > 1;
    if (!l.reduce) l.reduce = needs_each ? ReduceWhen::each : ReduceWhen::once;
  }

  void check_data() {
    const JobLayout& l = layout();
    const int64_t ranks = l.data_ranks();
    if (ranks > most_degree) {
      add({LayoutKey::zero, LayoutKey::dp},
          fmt::format("{} = {}: with {} = {} at most {} data ranks; nearest: {}",
                      name(LayoutKey::zero), l.zero, name(LayoutKey::dp), l.dp, most_degree,
                      most_degree / l.dp));
      return;
    }
    if (l.zero > 1 && l.zero_stage == 0) {
      add({LayoutKey::zero_stage, LayoutKey::zero},
          fmt::format("{} = 0: shards nothing over {} = {}; nearest: 1, or {} = {} with {} = 1",
                      name(LayoutKey::zero_stage), name(LayoutKey::zero), l.zero,
                      name(LayoutKey::dp), ranks, name(LayoutKey::zero)));
    }
    if (l.logical_dp % ranks != 0) {
      add({LayoutKey::logical_dp, LayoutKey::dp, LayoutKey::zero},
          fmt::format("{} = {}: must be a multiple of the {} data ranks; nearest: {}",
                      name(LayoutKey::logical_dp), l.logical_dp, ranks,
                      nearest_multiples(l.logical_dp, ranks)));
      return;
    }
    const int64_t unit = l.local_batch * l.logical_dp;
    if (l.global_batch % unit != 0) {
      const std::string workers =
          l.logical_dp == 1
              ? ""
              : fmt::format(" x {} {} = {}", l.logical_dp,
                            l.logical_dp == ranks ? "data ranks" : "workers (logical_dp)", unit);
      add({LayoutKey::global_batch, LayoutKey::local_batch, LayoutKey::dp, LayoutKey::zero,
           LayoutKey::logical_dp},
          fmt::format("{} = {}: must be a multiple of {} = {}{}; nearest: {}",
                      name(LayoutKey::global_batch), l.global_batch, name(LayoutKey::local_batch),
                      l.local_batch, workers, nearest_multiples(l.global_batch, unit)));
      return;
    }
    if (l.zero_stage >= 2 && l.microbatches() > 1 && l.reduce == ReduceWhen::once) {
      add({LayoutKey::reduce, LayoutKey::zero_stage, LayoutKey::global_batch},
          fmt::format("{} = once: with {} = {} and {} micro-batches a worker gradients are summed "
                      "after each, because a whole one lives only as long as its layer's backward; "
                      "nearest: each, or {} = 1",
                      name(LayoutKey::reduce), name(LayoutKey::zero_stage), l.zero_stage,
                      l.microbatches(), name(LayoutKey::zero_stage)));
    }
  }

  const LayoutNames& names_;
  const JobLayout asked_;
  LayoutCheck check_;
  const int64_t vocab_;                                   // 0: not known
  std::vector<std::pair<std::string, int64_t>> tp_cuts_;  // sizes that tp must divide
};

}  // namespace

LayoutNames layout_names() {
  return {"dp",
          "zero",
          "tp",
          "zero_stage",
          "logical_dp",
          "reduce",
          "sequence_parallel",
          "local_batch",
          "global_batch",
          "seq_len",
          "model"};
}

LayoutCheck check_layout(const ModelDims& dims, JobLayout asked, const LayoutNames& names) {
  TRIREME_CHECK((asked.dp == -1) + (asked.zero == -1) + (asked.tp == -1) <= 1,
                "dp = {}, zero = {}, tp = {}: one at most can be what is left", asked.dp,
                asked.zero, asked.tp);
  return Checker(dims, asked, names).run();
}

SplitOptions split_of(const JobLayout& layout) {
  TRIREME_CHECK(layout.dp > 0 && layout.zero > 0 && layout.tp > 0 && layout.zero_stage >= 0 &&
                    layout.logical_dp > 0 && layout.reduce,
                "a layout with {} x {} x {} ranks that was not checked", layout.dp, layout.zero,
                layout.tp);
  SplitOptions split;
  split.dp = static_cast<int>(layout.dp);
  split.zero = static_cast<int>(layout.zero);
  split.tp = static_cast<int>(layout.tp);
  split.sequence_parallel = layout.sequence_parallel && layout.tp > 1;
  split.residency = {.params = layout.zero_stage >= 3,
                     .grads = layout.zero_stage >= 2,
                     .optim = layout.zero_stage >= 1};
  split.logical_dp = static_cast<int>(layout.logical_dp);
  split.reduce = *layout.reduce;
  return split;
}

}  // namespace trireme::spec
