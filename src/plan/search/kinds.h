// SPDX-License-Identifier: Apache-2.0
// Kinds of layouts by their common names (FSDP alone, tensor parallelism without stages, ...), and
// an order by simplicity. Kinds collects the best layouts of each while a search prices them.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "plan/search/search.h"

namespace trireme::plan {

enum class LayoutKind : uint8_t {
  ddp,          // data parallelism alone, nothing sharded
  fsdp,         // ZeRO alone
  tensor,       // tp, no stages
  one_f_one_b,  // stages, by 1F1B or GPipe
  interleaved,
  zero_bubble,  // the schedules that split backward
  context,      // cp > 1, with or without other axes
  count
};
LayoutKind kind_of(const Layout&);
std::string_view name_of(LayoutKind);

// Orders layouts, the simplest first: no products in 8 bits or less, fewer kinds of parallelism, no
// stages, 1F1B before other schedules, fewer chunks, less recompute, smaller tp.
struct Simplicity {
  bool is_quantized = false;
  int parallelisms = 0;  // number of axes above 1, of dp, tp, cp, pp and ep; HSDP counts once more
  bool is_staged = false;
  bool is_not_1f1b = false;
  int chunks = 1;
  int recompute = 0;
  int tp = 1;
  auto operator<=>(const Simplicity&) const = default;
};
Simplicity simplicity_of(const Layout&);

// Keeps the fastest layouts of each kind and of each degree of simplicity.
class Kinds {
 public:
  void add(const Layout&, const Price&);

  // Sorted by time, at most `max_kept` of each.
  static constexpr size_t max_kept = 3;
  const std::map<LayoutKind, std::vector<Candidate>>& of_kind() const { return of_kind_; }
  const std::map<Simplicity, std::vector<Candidate>>& by_simplicity() const { return simple_; }

 private:
  std::map<LayoutKind, std::vector<Candidate>> of_kind_;
  std::map<Simplicity, std::vector<Candidate>> simple_;
};

}  // namespace trireme::plan
