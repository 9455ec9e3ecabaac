// SPDX-License-Identifier: Apache-2.0
// Debug mode: describes a collective in a text that is equal on all ranks, and finds ranks that
// differ.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "comm/communicator.h"

namespace trireme::comm {
namespace {

// "rank 2", "ranks 0, 1, 3".
std::string all_ranks_text(const std::vector<int>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

}  // namespace

void Communicator::compare(const Operation& operation) {
  // This rank has entered the call; streams mark it again when they reach it.
  recorder_.started(call_.record_id);
  // The output is compared, because ranks may contribute different numbers of input parts.
  const ConstTensor& tensor = operation.out ? operation.out : operation.in;
  std::string text = fmt::format("{} #{}", operation.op, call_.sequence);
  std::vector<std::string> details;
  if (operation.reduce[0] != '\0') details.emplace_back(operation.reduce);
  if (tensor) {
    details.push_back(fmt::format("{} {}", base::name_of(tensor.dtype), tensor.shape.to_string()));
  }
  if (operation.peer >= 0) {
    details.push_back(
        fmt::format("from rank {}", world_ranks_[static_cast<size_t>(operation.peer)]));
  }
  if (!details.empty()) text += fmt::format(" ({})", fmt::join(details, ", "));
  const std::vector<std::string> texts = do_gather_texts(text);

  std::map<std::string, std::vector<int>> ranks_of;  // world ranks, by the call that they entered
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    ranks_of[texts[rank]].push_back(world_ranks_[rank]);
  }
  if (ranks_of.size() == 1) return;
  // The majority is assumed to be right; of two equal groups, the one with the lowest rank.
  const auto majority =
      std::max_element(ranks_of.begin(), ranks_of.end(), [](const auto& a, const auto& b) {
        return std::pair(a.second.size(), -a.second.front()) <
               std::pair(b.second.size(), -b.second.front());
      });
  const auto odd =
      std::min_element(ranks_of.begin(), ranks_of.end(), [&](const auto& a, const auto& b) {
        return std::pair(a.first == majority->first, a.second.front()) <
               std::pair(b.first == majority->first, b.second.front());
      });
  const auto calls = [](const auto& one) {
    return fmt::format("{} {} {}", all_ranks_text(one.second),
                       one.second.size() == 1 ? "calls" : "call", one.first);
  };
  const std::string verdict =
      fmt::format("group '{}': {}, but {}", name(), calls(*odd), calls(*majority));
  do_abort(verdict);
  throw base::CommAborted(verdict);
}

}  // namespace trireme::comm
