// SPDX-License-Identifier: Apache-2.0
#include "plan/search/kinds.h"

#include <algorithm>
#include <array>

namespace trireme::plan {
namespace {

void keep(std::vector<Candidate>& kept, const Layout& layout, const Price& price) {
  const bool is_full = kept.size() == Kinds::max_kept;
  if (is_full && kept.back().price.seconds <= price.seconds) return;
  if (is_full) kept.pop_back();
  const auto at = std::ranges::upper_bound(kept, price.seconds, {},
                                           [](const Candidate& c) { return c.price.seconds; });
  kept.insert(at, {layout, price});
}

}  // namespace

LayoutKind kind_of(const Layout& l) {
  if (l.cp > 1) return LayoutKind::context;
  if (l.pp == 1) {
    if (l.tp > 1) return LayoutKind::tensor;
    return l.zero_stage > 0 ? LayoutKind::fsdp : LayoutKind::ddp;
  }
  if (l.schedule == Kind::one_f_one_b || l.schedule == Kind::gpipe) return LayoutKind::one_f_one_b;
  return l.schedule == Kind::interleaved ? LayoutKind::interleaved : LayoutKind::zero_bubble;
}

std::string_view name_of(LayoutKind kind) {
  constexpr std::array<std::string_view, static_cast<size_t>(LayoutKind::count)> names = {
      "DDP",
      "FSDP or ZeRO",
      "tensor parallel",
      "pipeline by 1F1B",
      "interleaved pipeline",
      "zero-bubble pipeline",
      "context parallel"};
  return names[static_cast<size_t>(kind)];
}

Simplicity simplicity_of(const Layout& l) {
  Simplicity s;
  s.is_quantized = spec::is_fp8(l.precision) || l.precision == Precision::fp4;
  for (const int degree : {l.data_ranks(), l.tp, l.cp, l.pp, l.ep})
    s.parallelisms += degree > 1 ? 1 : 0;
  if (l.dp_replicate > 1 && l.dp_shard > 1) ++s.parallelisms;  // HSDP
  s.is_staged = l.pp > 1;
  s.is_not_1f1b = l.pp > 1 && l.schedule != Kind::one_f_one_b;
  s.chunks = l.pp > 1 ? l.chunks : 1;
  s.recompute = static_cast<int>(l.recompute);
  s.tp = l.tp;
  return s;
}

void Kinds::add(const Layout& layout, const Price& price) {
  keep(of_kind_[kind_of(layout)], layout, price);
  keep(simple_[simplicity_of(layout)], layout, price);
}

}  // namespace trireme::plan
