// SPDX-License-Identifier: Apache-2.0
#include "plan/search/context_choice.h"

#include <algorithm>

#include "plan/price/rules.h"

namespace trireme::plan {
namespace {

constexpr int64_t long_sequence = 16384, min_rows = 2048;
constexpr double tolerance = 0.005;  // of a block's time

const std::vector<spec::ContextKind> all_kinds = {
    spec::ContextKind::ulysses, spec::ContextKind::gather, spec::ContextKind::ulysses_gather,
    spec::ContextKind::ring, spec::ContextKind::ulysses_ring};

bool is_product(spec::ContextKind kind) {
  return spec::has_ulysses(kind) && kind != spec::ContextKind::ulysses;
}

double block_seconds(const LayerCost& c) {
  return c.f + c.f_tp + c.f_cp + c.backward() + c.b_tp + c.b_cp + c.r + c.r_tp;
}

// Returns the key of layouts that get the same kind.
LayerKey choice_key(const Layout& l) {
  LayerKey key = layer_key(l);
  key.context_kind = spec::ContextKind::gather;
  key.ulysses = 1;
  return key;
}

}  // namespace

ContextChoice::ContextChoice(const Job& job, const std::vector<spec::ContextKind>& kinds,
                             Pricer& pricer)
    : sizes_(sizes_of(job)),
      work_(workload_of(job)),
      kinds_(kinds.empty() ? all_kinds : kinds),
      pricer_(pricer) {}

std::vector<Layout> ContextChoice::legal_kinds(const Layout& layout) const {
  std::vector<Layout> all;
  for (const spec::ContextKind kind : kinds_) {
    Layout l = layout;
    l.context_kind = kind;
    const bool is_ulysses = kind == spec::ContextKind::ulysses;
    // Large groups first: the fewer ranks gather or pass on, the fewer bytes.
    const int most = is_product(kind) ? l.cp / 2 : is_ulysses ? l.cp : 1;
    for (int ulysses = most; ulysses >= 1; --ulysses) {
      if (l.cp % ulysses != 0 || (is_product(kind) && ulysses == 1)) continue;
      if (!is_product(kind) && ulysses != most) continue;
      l.ulysses = ulysses;
      if (spec::context_is_legal(sizes_, work_, l)) all.push_back(l);
    }
  }
  return all;
}

Layout ContextChoice::chosen(const Layout& layout) {
  if (layout.cp == 1) return layout;
  const auto [found, is_new] = known_.try_emplace(choice_key(layout));
  if (is_new) {
    const std::vector<Layout> legal = legal_kinds(layout);
    std::vector<double> seconds;
    for (const Layout& l : legal) seconds.push_back(block_seconds(pricer_.layers(l).block));
    const double limit = legal.empty() ? 0 : std::ranges::min(seconds) * (1 + tolerance);
    for (size_t i = legal.size(); i-- > 0;) {
      if (seconds[i] <= limit) found->second = {legal[i].context_kind, legal[i].ulysses};
    }
  }
  Layout result = layout;
  if (!found->second) return result;
  result.context_kind = found->second->kind;
  result.ulysses = found->second->ulysses;
  return result;
}

std::vector<int> default_context_degrees(const Job& job, int64_t gpus) {
  std::vector<int> degrees = {1};
  if (job.seq_len < long_sequence) return degrees;
  for (int64_t cp = 2; cp <= gpus && job.seq_len / cp >= min_rows && job.seq_len % (2 * cp) == 0;
       cp *= 2) {
    degrees.push_back(static_cast<int>(cp));
  }
  return degrees;
}

}  // namespace trireme::plan
