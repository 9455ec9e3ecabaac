// SPDX-License-Identifier: Apache-2.0
#include "train/verify/verify_hints.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "spec/facts/facts.h"
#include "spec/parallel/pipeline_parallel.h"

namespace trireme::train {
namespace {

using spec::Axis;

// How tp shards a parameter.
enum class TpSharding : uint8_t { replicated, by_vocabulary, sharded };

TpSharding tp_sharding_of(const spec::ModelSpec& model, const std::string& name) {
  for (int layer = 0; layer < static_cast<int>(model.layers.size()); ++layer) {
    for (const spec::Param& param : spec::params_of(model, layer)) {
      if (param.tied_copy || param.shard.name != name) continue;
      const bool is_cut = std::any_of(param.shard.cuts.begin(), param.shard.cuts.end(),
                                      [](const spec::Cut& cut) { return cut.axis == Axis::tp; });
      const bool is_block =
          std::holds_alternative<spec::BlockSpec>(model.layers[static_cast<size_t>(layer)]);
      return !is_cut    ? TpSharding::replicated
             : is_block ? TpSharding::sharded
                        : TpSharding::by_vocabulary;
    }
  }
  return TpSharding::replicated;
}

struct Wrong {
  std::set<size_t> params;
  std::set<int> ranks;
  std::optional<double> factor;  // all wrong gradients are this multiple of the right ones
};

Wrong wrong_gradients(const CheckedRun& run) {
  Wrong wrong;
  bool is_one_factor = true;
  for (const RankResult& rank : run.layout.ranks) {
    for (size_t i = 0; i < rank.params.size(); ++i) {
      const Deviation& d = rank.params[i];
      if (d.grad <= run.bounds.grads) continue;
      wrong.params.insert(i);
      wrong.ranks.insert(rank.table.rank);
      if (!wrong.factor) wrong.factor = d.grad_factor;
      constexpr double close = 1e-3;
      is_one_factor = is_one_factor && d.grad_residual <= 10 * run.bounds.grads &&
                      std::abs(d.grad_factor - *wrong.factor) <= close * std::abs(*wrong.factor);
    }
  }
  if (!is_one_factor) wrong.factor.reset();
  return wrong;
}

int layer_of(const spec::ModelSpec& model, const std::string& name) {
  for (int layer = 0; layer < static_cast<int>(model.layers.size()); ++layer) {
    for (const spec::Param& param : spec::params_of(model, layer)) {
      if (!param.tied_copy && param.shard.name == name) return layer;
    }
  }
  return 0;
}

// Returns whether embedding and head of a tied model are on different ranks.
bool is_table_split(const CheckedRun& run) {
  const auto table = spec::shared_table(run.model, run.plan);
  return table && table->is_split();
}

// Returns a hint if the stages of the wrong parameters form a pattern; otherwise empty.
std::string stages_hint(const CheckedRun& run, const std::set<size_t>& params) {
  const std::vector<int>& cut = run.plan.first_layer_of_stage;
  if (cut.size() == 1) return "";
  std::set<int> stages;
  for (const size_t i : params) {
    const auto behind =
        std::upper_bound(cut.begin(), cut.end(), layer_of(run.model, run.reference.names[i]));
    stages.insert(static_cast<int>(behind - cut.begin()) - 1);
  }
  const int last = run.plan.stages() - 1;
  const bool is_table = is_table_split(run) && params.size() == 1 &&
                        layer_of(run.model, run.reference.names[*params.begin()]) == 0;
  if (is_table) return "only the shared table: its gradients from the head's rank";
  if (stages.size() == 1) {
    return fmt::format("only stage {}: its backward, and its place in the schedule",
                       *stages.begin());
  }
  if (*stages.rbegin() < last) {
    return fmt::format("stages 0 to {}: the gradients that stage {} sends", *stages.rbegin(),
                       *stages.rbegin() + 1);
  }
  return "";
}

// Returns whether all parameters of a block that its attention does not read after the keys, and no
// others of the last wrong layer, are wrong: norm, projection, and the norms of q and k.
bool ends_before_attention(const CheckedRun& run, const std::set<size_t>& params) {
  int last = 0;
  for (const size_t i : params) last = std::max(last, layer_of(run.model, run.reference.names[i]));
  if (!std::holds_alternative<spec::BlockSpec>(run.model.layers[static_cast<size_t>(last)])) {
    return false;
  }
  const std::vector<spec::Param> all = spec::params_of(run.model, last);
  const std::string& behind = all[static_cast<size_t>(spec::BlockParam::out_weight)].shard.name;
  for (const size_t i : params) {
    const std::string& name = run.reference.names[i];
    if (layer_of(run.model, name) != last) continue;
    if (name == behind) return false;
  }
  return true;
}

// Returns whether every wrong parameter belongs to experts, other than the shared ones.
bool are_experts(const CheckedRun& run, const std::set<size_t>& params) {
  return std::ranges::all_of(params, [&](size_t i) {
    const std::string& name = run.reference.names[i];
    const std::vector<spec::Param> all = spec::params_of(run.model, layer_of(run.model, name));
    return std::ranges::any_of(all, [&](const spec::Param& param) {
      return param.shard.name == name && param.view == spec::ParamView::expert;
    });
  });
}

// Returns whether in the last wrong layer the router is wrong and its experts are right.
bool begins_with_router(const CheckedRun& run, const std::set<size_t>& params) {
  int last = 0;
  for (const size_t i : params) last = std::max(last, layer_of(run.model, run.reference.names[i]));
  const auto* block = std::get_if<spec::BlockSpec>(&run.model.layers[static_cast<size_t>(last)]);
  if (block == nullptr || !block->moe) return false;
  const std::vector<spec::Param> all = spec::params_of(run.model, last);
  const auto is_wrong = [&](spec::BlockParam param) {
    return std::ranges::any_of(params, [&](size_t i) {
      return run.reference.names[i] == all[static_cast<size_t>(param)].shard.name;
    });
  };
  using enum spec::BlockParam;
  return is_wrong(router_weight) && !is_wrong(up_weight) && !is_wrong(down_weight);
}

// Returns what ranks along ep and etp exchange in the forward, to be put after other causes.
std::string expert_seams(const spec::Sizes& mesh) {
  if (mesh[Axis::ep] * mesh[Axis::etp] == 1) return "";
  return fmt::format("; rows of experts and their counts along {} (nn/experts/expert_exchange.h)",
                     mesh[Axis::etp] == 1  ? "ep"
                     : mesh[Axis::ep] == 1 ? "etp"
                                           : "ep and etp");
}

// Returns what ranks along cp exchange in the forward, and in the backward of attention.
struct ContextSeams {
  const char *forward, *backward;
};
ContextSeams context_seams(const spec::Layout& l) {
  switch (l.context_kind) {
    case spec::ContextKind::ulysses:
      return {"the exchange of rows for heads",
              "gradients of heads, exchanged back for rows along cp"};
    case spec::ContextKind::ring:
      return {"keys that go round", "gradients of keys and values, which go round along cp"};
    case spec::ContextKind::ulysses_gather:
      return {"the exchange of rows for heads, gathered keys",
              "gradients of keys and values, summed over the gathered keys of cp, or exchanged "
              "back for rows"};
    case spec::ContextKind::ulysses_ring:
      return {"the exchange of rows for heads, keys that go round",
              "gradients of keys and values, which go round along cp, or are exchanged back for "
              "rows"};
    default:
      return {"gathered keys and their order",
              "gradients of keys and values, summed over the gathered keys of cp"};
  }
}

std::string ranks_text(const std::set<int>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

}  // namespace

std::string loss_hint(const CheckedRun& run, bool begins_wrong) {
  if (!begins_wrong) {
    if (is_table_split(run)) {
      return "right at first: the update, or the shared table, which its owner sends again after "
             "the update";
    }
    return run.plan.zero.optim
               ? "right at first: the update, or parameters that are gathered before it is done"
               : "right at first: the update of the step before";
  }
  const std::string experts = expert_seams(run.plan.mesh);
  if (run.plan.mesh[Axis::pp] > 1) {
    return "the forward: activations between stages, of the right micro-batch and in their order; "
           "the shared table on the head's rank" +
           experts + "; or the loss's sum over data ranks";
  }
  if (run.plan.mesh[Axis::cp] > 1) {
    return fmt::format(
        "the forward: {}; rows, positions, labels and key ranges of a rank along cp "
        "(spec/context/token_slice.h){}{}; or the loss's sum over data ranks and cp",
        context_seams(run.plan.layout).forward, run.plan.mesh[Axis::tp] > 1 ? "; sums over tp" : "",
        experts);
  }
  if (run.plan.mesh[Axis::tp] > 1) {
    return "the forward: sums over tp, the vocabulary's range of each rank" + experts +
           "; or the loss's sum over data ranks";
  }
  const std::string sum = run.plan.zero.params
                              ? "the gather of parameters; or the loss's sum over data ranks"
                              : "the loss's sum over data ranks (step sums)";
  return experts.empty() ? sum : "the forward" + experts + "; or " + sum;
}

std::string norm_hint(bool begins_wrong) {
  return begins_wrong ? "the squares of a gradient element counted by none or by several ranks "
                        "(step sums)"
                      : "gradients of later steps: state that a step leaves for the next";
}

std::string gradient_hint(const CheckedRun& run) {
  const Wrong wrong = wrong_gradients(run);
  std::set<TpSharding> shardings;
  for (const size_t i : wrong.params) {
    shardings.insert(tp_sharding_of(run.model, run.reference.names[i]));
  }
  std::string hint;
  const bool all = wrong.params.size() == run.reference.names.size();
  if (are_experts(run, wrong.params)) {
    hint =
        "only experts: their sum over copies and shards of the expert view (edp, ezero), which "
        "has no factor of ep or etp; or the rows of their backward";
  } else if (begins_with_router(run, wrong.params)) {
    hint =
        "a router and what is before it, not its experts: its balance terms and the loads that "
        "they read, or the gradients of the rows' weights";
  } else if (run.plan.mesh[Axis::tp] > 1 && shardings == std::set{TpSharding::replicated}) {
    hint = "only parameters that tp does not cut: their sum over tp";
  } else if (run.plan.mesh[Axis::tp] > 1 && shardings == std::set{TpSharding::by_vocabulary}) {
    hint = "only parameters that are sharded by vocabulary: a rank's range of it";
  } else if (const std::string stages = stages_hint(run, wrong.params); !stages.empty()) {
    hint = stages;
  } else if (run.plan.mesh[Axis::cp] > 1 && ends_before_attention(run, wrong.params)) {
    hint = fmt::format("parameters before the attention of a block: {}",
                       context_seams(run.plan.layout).backward);
  } else if (all) {
    hint =
        run.plan.mesh[Axis::cp] > 1
            ? "all parameters: the sum over workers and cp, or the first gradient of the backward"
            : "all parameters: the sum over workers, or the first gradient of the backward";
  } else if (wrong.params.size() == 1) {
    hint = "one parameter: its own backward";
  } else {
    hint = "some parameters: the reduction of their layers";
  }
  if (wrong.factor && wrong.params.size() > 1) {
    hint += fmt::format("; each is {:.4g} times the right value", *wrong.factor);
  }
  if (wrong.ranks.size() < run.layout.ranks.size()) {
    hint += fmt::format("; on {} only", ranks_text(wrong.ranks));
  }
  return hint;
}

}  // namespace trireme::train
