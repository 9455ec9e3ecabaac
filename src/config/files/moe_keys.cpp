// SPDX-License-Identifier: Apache-2.0
#include "config/files/moe_keys.h"

#include <algorithm>

#include "base/check.h"
#include "base/text/json.h"
#include "config/numbers/decimal.h"

namespace trireme::config {
namespace {

constexpr std::string_view softmax = "softmax", sigmoid = "sigmoid";

}  // namespace

void add_moe_keys(KeyList& k, MoeKeys& m) {
  const Range count{.low = 0, .high = 1 << 16};
  const Range width{.low = 0, .high = 1 << 30};
  const Range weight{.low = 0, .high = 1000};
  k.section("moe");
  k.number("experts", m.experts, count, "experts of a block; required");
  k.number("experts_per_token", m.experts_per_token, count,
           "experts that the router chooses for a token; required");
  k.number("expert_ffn", m.expert_ffn, width, "width inside an expert; required");
  k.number("shared_ffn", m.shared_ffn, width,
           "width of the shared experts together, which process every token; 0: none");
  k.choice("score", m.score, {softmax, sigmoid}, "score of an expert, computed from its logit");
  k.boolean("renormalize", m.renormalize,
            "the weights of a token's experts are their scores divided by the sum of these scores");
  k.number("expert_groups", m.expert_groups, count,
           "groups of adjacent experts; a token chooses groups first, by their two best experts");
  k.number("chosen_groups", m.chosen_groups, count, "groups from which a token chooses experts");
  k.number("routed_scale", m.routed_scale, {.low = 0, .high = 1000, .low_excluded = true},
           "factor on the weights of a token's experts");
  k.boolean("router_bias", m.router_bias,
            "experts are chosen by score plus a bias that balances them (DeepSeek-V3)");
  k.number("aux_loss", m.aux_loss, weight,
           "factor of the auxiliary loss that balances experts; 0: none");
  k.choice("aux_scope", m.aux_scope, {"sequence", "micro_batch", "global"},
           "tokens that the auxiliary loss balances: of each sequence, of a micro-batch, or of all "
           "ranks in the step so far");
  k.number("z_loss", m.z_loss, weight, "factor of the loss on large router logits; 0: none");
  k.number("bias_rate", m.bias_rate, weight,
           "change of the router's bias in a step, with router_bias; 0: it does not change");
  k.number("dense_layers", m.dense_layers, {.low = 0, .high = 100000},
           "blocks, from the first, that have a feed-forward of width ffn instead of experts");
  k.number("expert_step", m.expert_step, {.low = 1, .high = 100000},
           "after them every expert_step-th block has experts, the others a feed-forward");
}

std::string first_missing(const MoeKeys& m) {
  if (m.experts == 0) return "experts";
  if (m.experts_per_token == 0) return "experts_per_token";
  return m.expert_ffn == 0 ? "expert_ffn" : "";
}

bool is_moe_key(const std::string& name) {
  MoeKeys unused;
  KeyList list;
  add_moe_keys(list, unused);
  return std::ranges::any_of(list.take(), [&](const Key& key) { return key.name == name; });
}

void set_moe(const MoeKeys& m, spec::ModelDims& d) {
  const auto scope = spec::aux_scope_from_name(m.aux_scope);
  TRIREME_CHECK(scope.has_value(), "aux_scope '{}'", m.aux_scope);
  d.moe = spec::MoeSpec{
      .router = {.experts = m.experts,
                 .chosen = m.experts_per_token,
                 .score =
                     m.score == sigmoid ? spec::RouterScore::sigmoid : spec::RouterScore::softmax,
                 .renormalizes = m.renormalize,
                 .groups = m.expert_groups,
                 .chosen_groups = m.chosen_groups,
                 .scale = static_cast<float>(m.routed_scale),
                 .has_bias = m.router_bias},
      .ffn = m.expert_ffn,
      .shared_ffn = m.shared_ffn,
      .balance = {.aux = static_cast<float>(m.aux_loss),
                  .scope = *scope,
                  .z = static_cast<float>(m.z_loss),
                  .bias_rate = static_cast<float>(m.bias_rate)},
  };
  d.dense_layers = static_cast<int>(m.dense_layers);
  d.expert_step = static_cast<int>(m.expert_step);
}

base::Json moe_to_json(const spec::ModelDims& d) {
  TRIREME_CHECK(d.moe.has_value(), "'{}' has no experts", d.name);
  const spec::RouterSpec& router = d.moe->router;
  const spec::BalanceSpec& balance = d.moe->balance;
  return {
      {"experts", router.experts},
      {"experts_per_token", router.chosen},
      {"expert_ffn", d.moe->ffn},
      {"shared_ffn", d.moe->shared_ffn},
      {"score", std::string(router.score == spec::RouterScore::sigmoid ? sigmoid : softmax)},
      {"renormalize", router.renormalizes},
      {"expert_groups", router.groups},
      {"chosen_groups", router.chosen_groups},
      {"routed_scale", decimal(router.scale)},
      {"router_bias", router.has_bias},
      {"aux_loss", decimal(balance.aux)},
      {"aux_scope", std::string(spec::name_of(balance.scope))},
      {"z_loss", decimal(balance.z)},
      {"bias_rate", decimal(balance.bias_rate)},
      {"dense_layers", d.dense_layers},
      {"expert_step", d.expert_step},
  };
}

}  // namespace trireme::config
