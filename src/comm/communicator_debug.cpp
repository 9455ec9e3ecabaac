// SPDX-License-Identifier: Apache-2.0
// Debug mode: what a collective is, in words that are the same on all ranks, and who differs.
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
  // It has come to the call, whoever asks; streams mark it again when they do.
  recorder_.started(call_.record_id);
  // The result: of what goes in ranks may bring different numbers of parts.
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

  std::map<std::string, std::vector<int>> ranks_of;  // of the world, by what they call
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    ranks_of[texts[rank]].push_back(world_ranks_[rank]);
  }
  if (ranks_of.size() == 1) return;
  // Most are taken to be right; of two halves the one with the lowest rank.
  const auto usual =
      std::max_element(ranks_of.begin(), ranks_of.end(), [](const auto& a, const auto& b) {
        return std::pair(a.second.size(), -a.second.front()) <
               std::pair(b.second.size(), -b.second.front());
      });
  const auto odd =
      std::min_element(ranks_of.begin(), ranks_of.end(), [&](const auto& a, const auto& b) {
        return std::pair(a.first == usual->first, a.second.front()) <
               std::pair(b.first == usual->first, b.second.front());
      });
  const auto calls = [](const auto& one) {
    return fmt::format("{} {} {}", all_ranks_text(one.second),
                       one.second.size() == 1 ? "calls" : "call", one.first);
  };
  const std::string verdict =
      fmt::format("group '{}': {} where {}", name(), calls(*odd), calls(*usual));
  do_abort(verdict);
  throw base::CommAborted(verdict);
}

}  // namespace trireme::comm
