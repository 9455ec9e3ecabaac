// SPDX-License-Identifier: Apache-2.0
// Rules about the sizes that tensor and sequence parallelism cut.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "spec/layout/rules_internal.h"

namespace trireme::spec {
namespace {

bool divides(const ModelSizes& model, int64_t tp) {
  const auto is_cut = [tp](const auto& cut) { return cut.second % tp == 0; };
  // If there are fewer key and value heads than ranks, ranks have copies of them.
  const auto is_shared = [tp](int64_t heads) { return heads % tp == 0 || tp % heads == 0; };
  return std::ranges::all_of(model.tp_cuts, is_cut) &&
         std::ranges::all_of(model.kv_heads, is_shared);
}

bool divides_kv_heads(const ModelSizes& model, int64_t tp) {
  return std::ranges::all_of(model.kv_heads, [tp](int64_t heads) { return heads % tp == 0; });
}

// Every rank has rows of the vocabulary, which is padded if it does not divide.
bool has_rows(const ModelSizes& model, int64_t tp) {
  const int64_t vocab = model.vocab;
  return tp == 1 || vocab == 0 || (tp - 1) * ((vocab + tp - 1) / tp) < vocab;
}

std::string nearest_tp(const RuleCase& c) {
  int64_t common = c.ranks;
  for (const auto& [what, size] : c.model.tp_cuts) common = std::gcd(common, size);
  for (const int64_t heads : c.model.kv_heads) common = std::gcd(common, heads);
  int64_t below = 1, above = 0;
  for (int64_t d = 1; d * d <= common; ++d) {
    if (common % d != 0) continue;
    for (const int64_t divisor : {d, common / d}) {
      if (!tp_is_legal(c.model, divisor)) continue;
      if (divisor < c.l.tp) below = std::max(below, divisor);
      if (divisor > c.l.tp && (above == 0 || divisor < above)) above = divisor;
    }
  }
  return above == 0 ? fmt::format("{}", below) : fmt::format("{} or {}", below, above);
}

std::string divides_message(const RuleCase& c) {
  std::vector<std::string> broken;
  const auto look_at = [&](const std::string& what, int64_t size) {
    if (size % c.l.tp != 0) broken.push_back(fmt::format("{} = {}", what, size));
  };
  for (const auto& [what, size] : c.model.tp_cuts) {
    look_at(what, size);
    if (what != "heads") continue;
    for (const int64_t heads : c.model.kv_heads) look_at("kv_heads", heads);
  }
  return fmt::format("{} = {}: {} {} not divide by it; nearest: {}", c.name(LayoutKey::tp), c.l.tp,
                     joined(broken, "and"), broken.size() == 1 ? "does" : "do", nearest_tp(c));
}

int64_t tokens_of(const RuleCase& c) { return c.l.micro_batch * c.work.seq_len / c.l.cp; }

}  // namespace

bool tp_is_legal(const ModelSizes& model, int64_t tp) {
  return divides(model, tp) && divides_kv_heads(model, tp) && has_rows(model, tp);
}

std::vector<Rule> tensor_rules() {
  using enum LayoutKey;
  return {
      {.id = "tp.divides",
       .whose = Whose::any,
       .keys = {tp, model},
       .needs = Known::degrees,
       .holds = [](const RuleCase& c) { return divides(c.model, c.l.tp); },
       .message = divides_message},
      {.id = "tp.kv_heads",
       .whose = Whose::engine,
       .keys = {tp, model},
       .needs = Known::degrees,
       .holds =
           [](const RuleCase& c) {
             return !divides(c.model, c.l.tp) || divides_kv_heads(c.model, c.l.tp);
           },
       .message = divides_message},
      {.id = "tp.vocab",
       .whose = Whose::engine,
       .keys = {tp, model},
       .needs = Known::degrees,
       .holds =
           [](const RuleCase& c) {
             const bool is_cut = divides(c.model, c.l.tp) && divides_kv_heads(c.model, c.l.tp);
             return !is_cut || has_rows(c.model, c.l.tp);
           },
       .message =
           [](const RuleCase& c) {
             return fmt::format(
                 "{} = {}: with a vocabulary of {} a rank would have no rows; nearest: {}",
                 c.name(tp), c.l.tp, c.model.vocab, nearest_tp(c));
           }},
      {.id = "tp.qk_norm",
       .whose = Whose::engine,
       .keys = {tp, model},
       .needs = Known::degrees,
       .holds = [](const RuleCase& c) { return c.l.tp == 1 || !c.model.has_whole_qk_norm; },
       .message =
           [](const RuleCase& c) {
             return fmt::format(
                 "{} = {}: the model has one norm of all q heads (qk_norm_whole), of which a rank "
                 "would have a part; nearest: 1",
                 c.name(tp), c.l.tp);
           }},
      {.id = "sp.tokens",
       .whose = Whose::any,
       .keys = {seq_len, micro_batch, tp, sequence_parallel},
       .needs = Known::degrees | Known::batch,
       .holds =
           [](const RuleCase& c) { return !c.l.sequence_parallel || tokens_of(c) % c.l.tp == 0; },
       .message =
           [](const RuleCase& c) {
             const int64_t unit = c.l.cp * c.l.tp / std::gcd<int64_t>(c.l.tp, c.l.micro_batch);
             return fmt::format(
                 "{} = {}: with {} the {} tokens of a micro-batch must divide by {} = {}; nearest: "
                 "{}",
                 c.name(seq_len), c.work.seq_len, c.name(sequence_parallel), tokens_of(c),
                 c.name(tp), c.l.tp, nearest_multiples(c.work.seq_len, unit));
           }},
      {.id = "sp.ffn_rows",
       .whose = Whose::engine,
       .keys = {ffn_rows, tp, sequence_parallel},
       .needs = Known::degrees,
       .holds =
           [](const RuleCase& c) {
             return !c.l.sequence_parallel || c.l.ffn_rows <= 0 || c.l.ffn_rows >= c.l.tp;
           },
       .message =
           [](const RuleCase& c) {
             return fmt::format(
                 "{} = {}: with {} a tile has rows of all {} = {} ranks; nearest: {}, or 0 for no "
                 "tiles",
                 c.name(ffn_rows), c.l.ffn_rows, c.name(sequence_parallel), c.name(tp), c.l.tp,
                 c.l.tp);
           }},
  };
}

}  // namespace trireme::spec
