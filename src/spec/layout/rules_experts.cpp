// SPDX-License-Identifier: Apache-2.0
// Rules about experts: what expert parallelism cuts, the ranks on which it fits, and row budgets.
#include <fmt/format.h>

#include <algorithm>

#include "spec/layout/rules_internal.h"

namespace trireme::spec {
namespace {

bool ep_divides(const ModelSizes& model, int64_t ep) {
  return ep == 1 || (model.experts > 0 && model.experts % ep == 0);
}

bool etp_divides(const ModelSizes& model, int64_t etp) {
  return etp == 1 || (model.experts > 0 && model.expert_ffn % etp == 0);
}

// Returns the values of a degree on both sides of the requested one with which is_legal(layout)
// holds: "2 or 8".
template <typename IsLegal>
std::string nearest(const RuleCase& c, int Layout::*degree, int64_t most, IsLegal is_legal) {
  Layout l = c.l;
  const int asked = c.l.*degree;
  std::vector<std::string> near;
  const auto try_value = [&](int64_t value) {
    l.*degree = static_cast<int>(value);
    if (!is_legal(l)) return false;
    near.push_back(fmt::format("{}", value));
    return true;
  };
  for (int64_t value = std::min<int64_t>(asked - 1, most); value >= 1; --value) {
    if (try_value(value)) break;
  }
  for (int64_t value = asked + 1; value <= most; ++value) {
    if (try_value(value)) break;
  }
  return joined(near, "or");
}

// The sizes of the model and the ranks of the layout, together.
bool fits(const RuleCase& c, const Layout& l) {
  return ep_divides(c.model, l.ep) && etp_divides(c.model, l.etp) && expert_sizes(l).has_value();
}

std::string divides_message(const RuleCase& c, LayoutKey key, int Layout::*degree, int64_t size,
                            const char* what) {
  const std::string start = fmt::format("{} = {}: ", c.name(key), c.l.*degree);
  if (c.model.experts == 0) return start + "the model has no experts; nearest: 1";
  const std::string near = nearest(c, degree, size, [&c](const Layout& l) { return fits(c, l); });
  return fmt::format("{}{} {} do not divide by it; nearest: {}", start, size, what,
                     near.empty() ? "1" : near);
}

std::string ranks_message(const RuleCase& c) {
  using enum LayoutKey;
  const int64_t inner = int64_t{c.l.dp_shard} * c.l.cp * c.l.tp;
  const std::string product =
      c.l.etp == 1 ? fmt::format("{} = {}", c.name(ep), c.l.ep)
                   : fmt::format("{} x {} = {} x {}", c.name(ep), c.name(etp), c.l.ep, c.l.etp);
  const std::string near = nearest(c, &Layout::ep, std::max<int64_t>(c.model.experts, c.l.ep),
                                   [&c](const Layout& l) { return fits(c, l); });
  return fmt::format(
      "{}: it must divide {} x {} x {} = {} ranks, or be a multiple of them that divides by {} = "
      "{} "
      "copies; nearest: {} = {}",
      product, c.name(dp_shard), c.name(cp), c.name(tp), inner, c.name(dp_replicate),
      c.l.dp_replicate, c.name(ep), near.empty() ? "1" : near);
}

bool is_in(double value, double low) { return value >= low && value <= max_row_budget; }

}  // namespace

std::vector<Rule> expert_rules() {
  using enum LayoutKey;
  return {
      {.id = "ep.divides",
       .whose = Whose::any,
       .keys = {ep, model},
       .needs = Known::degrees,
       .holds = [](const RuleCase& c) { return ep_divides(c.model, c.l.ep); },
       .message =
           [](const RuleCase& c) {
             return divides_message(c, ep, &Layout::ep, c.model.experts, "experts");
           }},
      {.id = "etp.divides",
       .whose = Whose::any,
       .keys = {etp, model},
       .needs = Known::degrees,
       .holds = [](const RuleCase& c) { return etp_divides(c.model, c.l.etp); },
       .message =
           [](const RuleCase& c) {
             return divides_message(c, etp, &Layout::etp, c.model.expert_ffn,
                                    "columns of an expert");
           }},
      {.id = "ep.ranks",
       .whose = Whose::any,
       .keys = {ep, etp, dp_replicate, dp_shard, cp, tp},
       .needs = Known::degrees,
       // Without experts the rules above report the degrees.
       .holds =
           [](const RuleCase& c) { return c.model.experts == 0 || expert_sizes(c.l).has_value(); },
       .message = ranks_message},
      {.id = "ep.sequence",
       .whose = Whose::engine,
       .keys = {sequence_parallel, tp, model},
       .needs = Known::degrees,
       .holds =
           [](const RuleCase& c) {
             return c.model.experts == 0 || c.l.tp == 1 || c.l.sequence_parallel;
           },
       .message =
           [](const RuleCase& c) {
             return fmt::format(
                 "{} = false: with {} = {} ranks of a model with experts route different tokens; "
                 "nearest: {} = true, or {} = 1",
                 c.name(sequence_parallel), c.name(tp), c.l.tp, c.name(sequence_parallel),
                 c.name(tp));
           }},
      {.id = "ep.ffn_rows",
       .whose = Whose::engine,
       .keys = {ffn_rows, model},
       .holds = [](const RuleCase& c) { return c.model.experts == 0 || c.l.ffn_rows == 0; },
       .message =
           [](const RuleCase& c) {
             return fmt::format(
                 "{} = {}: a feed-forward of experts is not computed in tiles; nearest: 0",
                 c.name(ffn_rows), c.l.ffn_rows);
           }},
      {.id = "row_budget.range",
       .whose = Whose::any,
       .keys = {row_budget},
       .holds = [](const RuleCase& c) { return is_in(c.l.row_budget, 1); },
       .message =
           [](const RuleCase& c) {
             return fmt::format("{} = {}: from 1 to {}", c.name(row_budget), c.l.row_budget,
                                max_row_budget);
           }},
      {.id = "expert_capacity.range",
       .whose = Whose::any,
       .keys = {expert_capacity},
       .holds = [](const RuleCase& c) { return is_in(c.l.expert_capacity, 0); },
       .message =
           [](const RuleCase& c) {
             return fmt::format("{} = {}: from 0, which drops nothing, to {}",
                                c.name(expert_capacity), c.l.expert_capacity, max_row_budget);
           }},
  };
}

}  // namespace trireme::spec
