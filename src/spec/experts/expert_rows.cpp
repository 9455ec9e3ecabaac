// SPDX-License-Identifier: Apache-2.0
#include "spec/experts/expert_rows.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "spec/facts/facts.h"

namespace trireme::spec {
namespace {

int64_t ceiling(double value) { return static_cast<int64_t>(std::ceil(value)); }

}  // namespace

double largest_row_budget(const MoeSpec& moe, int ep) {
  const int64_t groups = moe.router.experts / ep;
  return static_cast<double>(std::min(moe.router.chosen, groups) * ep) /
         static_cast<double>(moe.router.chosen);
}

int64_t expert_grain(const Recipe& recipe) {
  return recipe.fp8 && recipe.fp8->rows == ScaleShape::row_128 ? scale_block : 1;
}

ExpertRows expert_rows(const MoeSpec& moe, const LocalShape& shape, const Backend& backend) {
  ExpertRows r;
  r.tokens = shape.rows();
  r.chosen = moe.router.chosen;
  r.experts = moe.router.experts;
  r.ep = shape.mesh[Axis::ep];
  r.etp = shape.mesh[Axis::etp];
  TRIREME_CHECK(r.experts % r.ep == 0, "{} experts on {} ranks", r.experts, r.ep);
  r.groups = r.experts / r.ep;
  r.tile = std::max(backend.expert_tile, shape.expert_grain);
  const auto pairs = static_cast<double>(r.pairs());
  if (shape.expert_capacity > 0) {
    r.capacity = ceiling(pairs * shape.expert_capacity / static_cast<double>(r.experts));
  }
  const auto padded = [&r](int64_t rows) {
    return base::round_up(rows + r.groups * (r.tile - 1), r.tile);
  };
  if (r.is_local()) {
    r.grouped = r.gathered = r.sent = r.block = padded(r.pairs());
    return r;
  }
  const int64_t largest = r.tokens * std::min(r.chosen, r.groups);
  r.block = std::min(largest, ceiling(pairs * shape.row_budget / r.ep));
  r.sent = r.ep * r.block;
  r.gathered = r.etp * r.sent;
  r.grouped = padded(r.gathered);
  return r;
}

}  // namespace trireme::spec
