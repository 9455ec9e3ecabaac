// SPDX-License-Identifier: Apache-2.0
// Rules about recipes of number formats (spec/recipe.h): which ones the engine has, the sizes of
// their 8-bit products, and what they cannot be combined with.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "spec/layout/rules_internal.h"

namespace trireme::spec {
namespace {

bool has_fp8(const RuleCase& c) { return is_fp8(c.l.precision); }

int64_t grain_of(const RuleCase& c) { return recipe_of(c.l.precision).fp8->grain(); }

std::string recipe_text(const RuleCase& c) {
  return fmt::format("{} = {}", c.name(LayoutKey::precision), name_of(c.l.precision));
}

// ---- sizes of products

int64_t rank_tokens(const RuleCase& c) { return c.l.micro_batch * c.work.seq_len / c.l.cp; }

int degree_of(const RuleCase& c, const ProductWidth& width) {
  return width.cut == ProductWidth::Cut::tp    ? c.l.tp
         : width.cut == ProductWidth::Cut::etp ? c.l.etp
                                               : 1;
}

// Is a rank's part of the width a multiple of the grain? Widths that do not divide by the degree
// are the concern of other rules.
bool is_grained(const RuleCase& c, const ProductWidth& width) {
  const int degree = degree_of(c, width);
  return width.size % degree != 0 || width.size / degree % grain_of(c) == 0;
}

bool tokens_are_grained(const RuleCase& c) { return rank_tokens(c) % grain_of(c) == 0; }

std::string tokens_problem(const RuleCase& c) {
  const int64_t unit = grain_of(c) * c.l.cp;
  const int64_t seq_unit = unit / std::gcd(unit, c.l.micro_batch);
  const int64_t batch_unit = unit / std::gcd(unit, c.work.seq_len);
  return fmt::format(
      "{} = {} x {} = {}{} is {} tokens on a rank (nearest: {} = {}, or {} = {})",
      c.name(LayoutKey::micro_batch), c.l.micro_batch, c.name(LayoutKey::seq_len), c.work.seq_len,
      c.l.cp > 1 ? fmt::format(" / {} = {}", c.name(LayoutKey::cp), c.l.cp) : "", rank_tokens(c),
      c.name(LayoutKey::seq_len), nearest_multiples(c.work.seq_len, seq_unit),
      c.name(LayoutKey::micro_batch), nearest_multiples(c.l.micro_batch, batch_unit));
}

std::string width_problem(const RuleCase& c, const ProductWidth& width) {
  const int degree = degree_of(c, width);
  const LayoutKey key = width.cut == ProductWidth::Cut::etp ? LayoutKey::etp : LayoutKey::tp;
  const std::string part =
      degree == 1 ? "" : fmt::format(" / {} = {} is {}", c.name(key), degree, width.size / degree);
  return fmt::format("{} = {}{} (nearest: {})", width.name, width.size, part,
                     nearest_multiples(width.size, grain_of(c) * degree));
}

std::string grain_message(const RuleCase& c) {
  std::vector<std::string> problems;
  if (!tokens_are_grained(c)) problems.push_back(tokens_problem(c));
  for (const ProductWidth& width : c.model.widths) {
    if (!is_grained(c, width)) problems.push_back(width_problem(c, width));
  }
  const bool is_block = grain_of(c) == scale_block;
  return fmt::format("{}: sizes of its products must be multiples of {}: {}; or use {}",
                     recipe_text(c), grain_of(c), fmt::join(problems, "; "),
                     is_block ? "fp8-tensor, whose unit is 16, or bf16" : "bf16");
}

// ---- blocks that stay in bf16

bool blocks_are_legal(const RuleCase& c) {
  const std::vector<int>& blocks = c.l.bf16_blocks;
  if (c.l.bf16_first < 0 || c.l.bf16_last < 0) return false;
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i] < 0 || (i > 0 && blocks[i] <= blocks[i - 1])) return false;
    if (c.model.layers > 0 && blocks[i] >= c.model.layers - 2) return false;
  }
  return true;
}

std::string blocks_message(const RuleCase& c) {
  if (c.l.bf16_first < 0)
    return fmt::format("{} = {}: at least 0", c.name(LayoutKey::bf16_first), c.l.bf16_first);
  if (c.l.bf16_last < 0)
    return fmt::format("{} = {}: at least 0", c.name(LayoutKey::bf16_last), c.l.bf16_last);
  return fmt::format("{} = [{}]: must be blocks of the model in ascending order{}",
                     c.name(LayoutKey::bf16_blocks), fmt::join(c.l.bf16_blocks, ", "),
                     c.model.layers > 0 ? fmt::format(", from 0 to {}", c.model.layers - 3) : "");
}

// ---- master weights

bool masters_are_legal(const RuleCase& c) {
  if (c.l.master_dtype == base::DType::f32) return true;
  const bool has_bf16_weights =
      c.l.precision != Precision::fp32 && c.l.precision != Precision::fp16;
  return c.l.master_dtype == base::DType::u16 && has_bf16_weights;
}

std::string masters_message(const RuleCase& c) {
  if (c.l.master_dtype == base::DType::u16) {
    return fmt::format("{} = u16: must be f32 if {}; u16 is the low part that bf16 weights lack",
                       c.name(LayoutKey::master_dtype), recipe_text(c));
  }
  return fmt::format("{} = {}: use f32 or u16", c.name(LayoutKey::master_dtype),
                     base::name_of(c.l.master_dtype));
}

}  // namespace

std::vector<Rule> precision_rules() {
  using enum LayoutKey;
  return {
      {.id = "precision.engine",
       .whose = Whose::engine,
       .keys = {precision},
       .holds = [](const RuleCase& c) { return c.l.precision != Precision::fp4; },
       .message =
           [](const RuleCase& c) {
             return fmt::format("{}: not in the engine; nearest: fp8-block", recipe_text(c));
           }},
      {.id = "precision.grain",
       .whose = Whose::engine,
       .keys = {precision, seq_len, micro_batch, cp, tp, etp, model},
       .needs = Known::degrees | Known::batch | Known::context,
       .holds =
           [](const RuleCase& c) {
             return !has_fp8(c) || (tokens_are_grained(c) &&
                                    std::ranges::all_of(c.model.widths, [&c](const auto& width) {
                                      return is_grained(c, width);
                                    }));
           },
       .message = grain_message},
      {.id = "precision.tiles",
       .whose = Whose::engine,
       .keys = {ffn_rows, precision},
       .holds = [](const RuleCase& c) { return !has_fp8(c) || c.l.ffn_rows == 0; },
       .message =
           [](const RuleCase& c) {
             return fmt::format(
                 "{} = {}: with {} a feed-forward is not computed in tiles; nearest: 0, or {} = "
                 "bf16",
                 c.name(ffn_rows), c.l.ffn_rows, recipe_text(c), c.name(precision));
           }},
      {.id = "precision.muon",
       .whose = Whose::engine,
       .keys = {precision, optimizer},
       .holds =
           [](const RuleCase& c) { return !has_fp8(c) || c.l.optimizer != OptimizerKind::muon; },
       .message =
           [](const RuleCase& c) {
             return fmt::format("{}: not with {} = {}; nearest: {} = adamw, or {} = bf16",
                                recipe_text(c), c.name(optimizer), name_of(c.l.optimizer),
                                c.name(optimizer), c.name(precision));
           }},
      {.id = "precision.blocks",
       .whose = Whose::any,
       .keys = {bf16_blocks, bf16_first, bf16_last, precision, model},
       .holds = [](const RuleCase& c) { return !has_fp8(c) || blocks_are_legal(c); },
       .message = blocks_message},
      {.id = "precision.gradients",
       .whose = Whose::engine,
       .keys = {grad_dtype, precision},
       .holds =
           [](const RuleCase& c) {
             return c.l.precision != Precision::fp16 || c.l.grad_dtype != base::DType::bf16;
           },
       .message =
           [](const RuleCase& c) {
             return fmt::format("{} = {}: must be f32 if {}", c.name(grad_dtype),
                                base::name_of(c.l.grad_dtype), recipe_text(c));
           }},
      {.id = "master_dtype.kind",
       .whose = Whose::any,
       .keys = {master_dtype, precision},
       .holds = masters_are_legal,
       .message = masters_message},
  };
}

}  // namespace trireme::spec
