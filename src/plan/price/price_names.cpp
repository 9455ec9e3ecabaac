// SPDX-License-Identifier: Apache-2.0
// The names and meanings of the parts of a price.
#include "plan/price/price.h"

namespace trireme::plan {

std::string_view name_of(Term term) {
  constexpr std::array<std::string_view, static_cast<size_t>(Term::count)> names = {
      "forward", "backward", "recompute", "ends",      "tensor", "context", "expert",
      "bubble",  "messages", "data",      "optimizer", "host",   "jitter",  "rest"};
  return names[static_cast<size_t>(term)];
}

std::string_view meaning_of(Term term) {
  constexpr std::array<std::string_view, static_cast<size_t>(Term::count)> meanings = {
      "forward of the blocks",
      "backward of the blocks",
      "forward recomputed for dropped activations",
      "embedding, head and loss",
      "tensor parallel collectives, exposed",
      "context parallel transfers, exposed",
      "expert parallel all-to-alls, exposed",
      "waiting for other stages",
      "pipeline messages, exposed",
      "data parallel and ZeRO collectives, exposed",
      "gradient norm and update",
      "kernels launched more slowly than they run",
      "waiting for the slowest rank",
      "data loading and logging"};
  return meanings[static_cast<size_t>(term)];
}

std::string_view name_of(Item item) {
  constexpr std::array<std::string_view, static_cast<size_t>(Item::count)> names = {
      "weights", "gradients", "optimizer", "activations", "working", "transfers", "reserved"};
  return names[static_cast<size_t>(item)];
}

}  // namespace trireme::plan
