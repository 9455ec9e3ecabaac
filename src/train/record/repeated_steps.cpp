// SPDX-License-Identifier: Apache-2.0
#include "train/record/repeated_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

namespace trireme::train {

bool RepeatedSteps::is_same(const Result& was, const Result& is) const {
  if (was.tokens != is.tokens) return false;
  if (is_exact_) {
    return std::bit_cast<uint64_t>(was.loss) == std::bit_cast<uint64_t>(is.loss) &&
           std::bit_cast<uint32_t>(was.grad_norm) == std::bit_cast<uint32_t>(is.grad_norm);
  }
  if (std::isfinite(was.loss) != std::isfinite(is.loss)) return false;
  if (!std::isfinite(was.loss)) return true;
  return std::abs(was.loss - is.loss) <=
         tolerance * std::max(std::abs(was.loss), std::abs(is.loss));
}

std::optional<std::string> RepeatedSteps::add(int64_t step, const Result& result) {
  const auto [found, is_new] = results_.emplace(step, result);
  if (is_new) {
    if (results_.size() > max_steps) results_.erase(results_.begin());
    return std::nullopt;
  }
  const Result was = found->second;
  if (is_reported_ || is_same(was, result)) return std::nullopt;
  is_reported_ = true;
  const std::string results =
      was.tokens != result.tokens
          ? fmt::format("{} tokens, before {}", result.tokens, was.tokens)
          : fmt::format("loss {:.17g}, before {:.17g}; gradient norm {:.9g}, before {:.9g}",
                        result.loss, was.loss, result.grad_norm, was.grad_norm);
  return fmt::format("step {} was repeated with another {}: {} (corruption?)", step,
                     was.tokens != result.tokens ? "number of tokens" : "loss", results);
}

}  // namespace trireme::train
