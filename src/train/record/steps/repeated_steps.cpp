// SPDX-License-Identifier: Apache-2.0
#include "train/record/steps/repeated_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

namespace trireme::train {
namespace {

bool has_other_samples(const RepeatedSteps::Result& was, const RepeatedSteps::Result& is) {
  return was.samples && is.samples && *was.samples != *is.samples;
}

std::string difference_text(const RepeatedSteps::Result& was, const RepeatedSteps::Result& is) {
  if (has_other_samples(was, is)) {
    return fmt::format("other samples: their hash is {:016x}, before {:016x}", *is.samples,
                       *was.samples);
  }
  if (was.tokens != is.tokens) {
    return fmt::format("another number of tokens: {} tokens, before {}", is.tokens, was.tokens);
  }
  return fmt::format(
      "another loss: loss {:.17g}, before {:.17g}; gradient norm {:.9g}, before {:.9g}", is.loss,
      was.loss, is.grad_norm, was.grad_norm);
}

}  // namespace

bool RepeatedSteps::is_same(const Result& was, const Result& is) const {
  if (has_other_samples(was, is) || was.tokens != is.tokens) return false;
  if (is_exact_) {
    return std::bit_cast<uint64_t>(was.loss) == std::bit_cast<uint64_t>(is.loss) &&
           std::bit_cast<uint32_t>(was.grad_norm) == std::bit_cast<uint32_t>(is.grad_norm);
  }
  if (std::isfinite(was.loss) != std::isfinite(is.loss)) return false;
  if (!std::isfinite(was.loss)) return true;
  return std::abs(was.loss - is.loss) <=
         tolerance * std::max(std::abs(was.loss), std::abs(is.loss));
}

std::optional<RepeatedSteps::Difference> RepeatedSteps::add(int64_t step, const Result& result) {
  const auto [found, is_new] = results_.emplace(step, result);
  if (is_new) {
    if (results_.size() > max_steps) results_.erase(results_.begin());
    return std::nullopt;
  }
  const Result was = found->second;
  if (is_reported_ || is_same(was, result)) return std::nullopt;
  is_reported_ = true;
  return Difference{.text = fmt::format("step {} was repeated with {} (corruption?)", step,
                                        difference_text(was, result)),
                    .is_in_samples = has_other_samples(was, result)};
}

}  // namespace trireme::train
