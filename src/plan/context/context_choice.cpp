// SPDX-License-Identifier: Apache-2.0
#include "plan/context/context_choice.h"

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
  return c.f + c.f_tp + c.f_cp + c.f_ep + c.backward() + c.b_tp + c.b_cp + c.b_ep + c.r + c.r_tp +
         c.r_ep;
}

// Returns the key of layouts that get the same kind.
LayerKey choice_key(const Job& job, const Layout& l) {
  LayerKey key = layer_key(job, l);
  key.context_kind = spec::ContextKind::gather;
  key.ulysses = 1;
  return key;
}

}  // namespace

ContextChoice::ContextChoice(const Job& job, const std::vector<spec::ContextKind>& kinds,
                             Pricer& pricer)
    : job_(job),
      sizes_(sizes_of(job)),
      work_(workload_of(job)),
      kinds_(kinds.empty() ? all_kinds : kinds),
      pricer_(pricer) {}

std::vector<Layout> ContextChoice::legal_kinds(const Layout& layout) const {
  std::vector<Layout> all;
  const auto add = [&](Layout l, int ulysses) {
    l.ulysses = ulysses;
    if (spec::context_is_legal(sizes_, work_, l)) all.push_back(l);
  };
  for (const spec::ContextKind kind : kinds_) {
    Layout l = layout;
    l.context_kind = kind;
    const size_t before = all.size();
    // Large groups first: the fewer ranks gather or pass on, the fewer bytes.
    for (int ulysses = l.cp / 2; ulysses > 1 && is_product(kind); --ulysses) {
      if (l.cp % ulysses == 0) add(l, ulysses);
    }
    if (all.size() == before) add(l, spec::open_ulysses(l, sizes_.kv_heads));
  }
  return all;
}

std::vector<Layout> ContextChoice::chosen(const Layout& layout) {
  if (layout.cp == 1) return {layout};
  const auto [found, is_new] = known_.try_emplace(choice_key(job_, layout));
  if (is_new) found->second = kinds_of(layout);
  std::vector<Layout> all;
  for (const Kind& kind : found->second) {
    all.push_back(layout);
    all.back().context_kind = kind.kind;
    all.back().ulysses = kind.ulysses;
  }
  return all;
}

std::vector<ContextChoice::Kind> ContextChoice::kinds_of(const Layout& layout) {
  const std::vector<Layout> legal = legal_kinds(layout);
  if (legal.empty()) {
    Layout l = layout;
    l.context_kind = kinds_.front();
    return {{l.context_kind, spec::open_ulysses(l, sizes_.kv_heads)}};
  }
  std::vector<double> seconds, bytes;
  for (const Layout& l : legal) {
    const LayerCost& block = pricer_.layers(l).block;
    seconds.push_back(block_seconds(block));
    bytes.push_back(block.kept() + block.working());
  }
  const double limit = std::ranges::min(seconds) * (1 + tolerance);
  const auto fast = static_cast<size_t>(
      std::ranges::find_if(seconds, [limit](double s) { return s <= limit; }) - seconds.begin());
  const auto small = static_cast<size_t>(std::ranges::min_element(bytes) - bytes.begin());
  std::vector<Kind> kinds = {{legal[fast].context_kind, legal[fast].ulysses}};
  if (bytes[small] < bytes[fast]) {
    kinds.push_back({legal[small].context_kind, legal[small].ulysses});
  }
  return kinds;
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
