// SPDX-License-Identifier: Apache-2.0
#include "train/verify/verify_experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "spec/experts/expert_rows.h"

namespace trireme::train {
namespace {

constexpr int64_t max_chosen = 3, max_groups = 4, width_of_a_rank = 24;
// Three narrow matrices of small weights would hardly change the loss, whatever rows they get.
constexpr float min_init_std = 0.1F;

// Returns a router with few experts, in the same number of experts per rank up to a few, more than
// are chosen if the full one has more.
spec::RouterSpec small_router(const spec::RouterSpec& full, int ep) {
  spec::RouterSpec r = full;
  const bool chooses_all = full.chosen == full.experts;
  r.groups = std::min(full.groups, max_groups);
  r.chosen_groups = std::max<int64_t>(full.chosen_groups * r.groups / full.groups, 1);
  r.chosen = std::min(full.chosen, max_chosen);
  const int64_t unit = std::lcm<int64_t>(ep, r.groups);
  const int64_t wanted = std::max({2 * r.chosen, 2 * r.groups, 2 * int64_t{ep}});
  r.experts = (wanted + unit - 1) / unit * unit;
  if (full.experts == ep) r.experts = ep;  // one expert a rank
  if (r.experts >= full.experts || r.experts % r.groups != 0) return full;
  const int64_t in_groups = r.experts / r.groups * r.chosen_groups;
  r.chosen = chooses_all ? r.experts : std::min(r.chosen, in_groups);
  if (r.groups > 1 && r.experts / r.groups < 2) return full;
  return r;
}

// Do ranks that share sequences route different tokens of them?
bool cuts_sequences(const spec::Layout& l) { return l.cp > 1 || (l.tp > 1 && l.sequence_parallel); }

}  // namespace

void scale_experts(spec::ModelDims& small, spec::Layout& l, std::vector<std::string>& notes) {
  if (!small.moe) return;
  spec::MoeSpec& moe = *small.moe;
  moe.router = small_router(moe.router, l.ep);
  // Products in 8 bits have sizes of multiples of their grain.
  const int64_t grain = spec::is_fp8(l.precision) ? spec::recipe_of(l.precision).fp8->grain() : 1;
  moe.ffn = std::min(moe.ffn, base::round_up(width_of_a_rank, grain) * l.etp);
  moe.shared_ffn = std::min(moe.shared_ffn, width_of_a_rank * l.tp);
  small.init_std = std::max(small.init_std, min_init_std);
  small.dense_layers = std::min({small.dense_layers, 1, small.layers - 1});
  small.expert_step = std::min({small.expert_step, 2, small.layers - small.dense_layers});

  const double budget = spec::largest_row_budget(moe, l.ep);
  if (l.ep * l.etp > 1 && l.row_budget < budget) {
    notes.push_back(
        fmt::format("moe.row_budget = {:g} runs as {:g}: with few tokens some would exceed it",
                    l.row_budget, budget));
  }
  l.row_budget = std::max(l.row_budget, budget);
  if (l.expert_capacity > 0 && cuts_sequences(l)) {
    notes.push_back(fmt::format(
        "moe.capacity = {:g} runs as 0: it limits the rows of one rank, and cp and tp divide "
        "them",
        l.expert_capacity));
    l.expert_capacity = 0;
  }
  if (moe.balance.aux != 0 && moe.balance.scope == spec::AuxScope::global) {
    notes.push_back(
        "the auxiliary loss compares micro-batches instead of the step so far, in which one rank "
        "sees other micro-batches");
    moe.balance.scope = spec::AuxScope::micro_batch;
  }
}

spec::ModelDims with_all_chosen(spec::ModelDims small, const spec::ModelDims& full) {
  if (!small.moe) return small;
  small.init_std = full.init_std;
  spec::RouterSpec& r = small.moe->router;
  r.groups = r.chosen_groups = 1;
  r.chosen = r.experts;
  return small;
}

void shrink_expert_axes(spec::Layout& l, std::vector<std::string>& notes) {
  const int asked = l.ep;
  while (l.ep > 1 && (asked % l.ep != 0 || !spec::expert_sizes(l))) --l.ep;
  if (l.ep == asked) return;
  notes.push_back(fmt::format("ep = {} runs as {}: it follows the reduced data axes", asked, l.ep));
}

}  // namespace trireme::train
