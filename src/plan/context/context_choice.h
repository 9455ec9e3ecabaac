// SPDX-License-Identifier: Apache-2.0
// Chooses kinds of context parallelism. The kind changes the time of attention's transfers in a
// block and the block's memory, and nothing else, so a search tries kinds once for all layouts
// whose blocks cost the same.
#pragma once

#include <unordered_map>
#include <vector>

#include "plan/price/layer_cost.h"
#include "plan/price/price.h"

namespace trireme::plan {

class ContextChoice {
 public:
  // `kinds` in the order of preference; empty: all. Job and pricer must outlive this
  // object.
  ContextChoice(const Job&, const std::vector<spec::ContextKind>& kinds, Pricer&);

  // Returns the layout with its fastest legal kind, or an earlier one that is as fast within 0.5 %
  // of a block's time; and with the kind whose block needs the least memory, if that is another
  // one. Deterministic attention over whole sequences needs much of it. If no kind is legal, the
  // layout has the first one; if cp is 1, it is returned as it is.
  std::vector<Layout> chosen(const Layout&);

  // Returns the kinds of a layout that keep the rules cp.*, with every legal Ulysses degree.
  std::vector<Layout> legal_kinds(const Layout&) const;

 private:
  struct Kind {
    spec::ContextKind kind = spec::ContextKind::gather;
    int ulysses = 1;
  };

  std::vector<Kind> kinds_of(const Layout&);

  const Job& job_;
  const spec::ModelSizes sizes_;
  const spec::Workload work_;
  const std::vector<spec::ContextKind> kinds_;
  Pricer& pricer_;
  std::unordered_map<LayerKey, std::vector<Kind>, LayerKeyHash> known_;
};

// Returns the degrees that a search tries if none are given: 1, and for sequences of at least
// 16,384 tokens powers of two that leave a rank at least 2,048 rows of each.
std::vector<int> default_context_degrees(const Job&, int64_t gpus);

}  // namespace trireme::plan
