// SPDX-License-Identifier: Apache-2.0
// MoeSpec: the feed-forward of a block as a mixture of experts. Every expert is a SwiGLU network of
// width `ffn`; a token's result is the weighted sum over the experts that the router chooses for
// it, plus that of the shared experts, which process every token and are one SwiGLU network of
// width `shared_ffn`.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "spec/experts/router.h"

namespace trireme::spec {

// The tokens whose choices the auxiliary loss compares with their scores: those of a sequence, of a
// micro-batch, or of all ranks in the step so far.
enum class AuxScope : uint8_t { sequence, micro_batch, global, count };
std::string_view name_of(AuxScope);
std::optional<AuxScope> aux_scope_from_name(std::string_view);

// Terms that keep experts equally busy. With f_e the share of pairs that chose expert e among the
// tokens of the scope and P_e the mean of their scores (RouterStats::probs): loss += aux E sum over
// e of f_e P_e, and loss += z mean(lse^2); in every layer, per token of the micro-batch.
struct BalanceSpec {
  float aux = 0;
  AuxScope scope = AuxScope::micro_batch;
  float z = 0;
  float bias_rate = 0;  // of the router's bias (RouterBiasArgs); 0: it does not change
  bool operator==(const BalanceSpec&) const = default;
};

struct MoeSpec {
  RouterSpec router;
  int64_t ffn = 0;
  int64_t shared_ffn = 0;  // 0: no shared experts
  BalanceSpec balance;
  bool operator==(const MoeSpec&) const = default;
};

}  // namespace trireme::spec
