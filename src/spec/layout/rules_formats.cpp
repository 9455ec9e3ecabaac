// SPDX-License-Identifier: Apache-2.0
// Rules about number formats and about sizes that trade memory for time.
#include <fmt/format.h>

#include "spec/layout/rules_internal.h"

namespace trireme::spec {
namespace {

bool is_sum_type(base::DType type) { return type == base::DType::f32 || type == base::DType::bf16; }

template <LayoutKey key>
std::string sum_type_message(const RuleCase& c) {
  const base::DType type = key == LayoutKey::grad_dtype ? c.l.grad_dtype : c.l.reduce_dtype;
  return fmt::format("{} = {}: use f32 or bf16", c.name(key), base::name_of(type));
}

template <LayoutKey key, int64_t min>
std::string minimum_message(const RuleCase& c) {
  const int64_t value = key == LayoutKey::prefetch       ? c.l.prefetch
                        : key == LayoutKey::send_buffers ? c.l.send_buffers
                        : key == LayoutKey::ffn_rows     ? c.l.ffn_rows
                                                         : c.l.head_chunk_rows;
  return fmt::format("{} = {}: at least {}", c.name(key), value, min);
}

}  // namespace

std::vector<Rule> format_rules() {
  using enum LayoutKey;
  return {
      {.id = "grad_dtype.kind",
       .whose = Whose::any,
       .keys = {grad_dtype},
       .holds = [](const RuleCase& c) { return is_sum_type(c.l.grad_dtype); },
       .message = sum_type_message<grad_dtype>},
      {.id = "reduce_dtype.kind",
       .whose = Whose::any,
       .keys = {reduce_dtype},
       .holds = [](const RuleCase& c) { return is_sum_type(c.l.reduce_dtype); },
       .message = sum_type_message<reduce_dtype>},
      {.id = "prefetch.range",
       .whose = Whose::any,
       .keys = {prefetch},
       .holds = [](const RuleCase& c) { return c.l.prefetch >= 0; },
       .message = minimum_message<prefetch, 0>},
      {.id = "send_buffers.range",
       .whose = Whose::any,
       .keys = {send_buffers},
       .holds = [](const RuleCase& c) { return c.l.send_buffers >= 1; },
       .message = minimum_message<send_buffers, 1>},
      {.id = "head_chunk_rows.range",
       .whose = Whose::any,
       .keys = {head_chunk_rows},
       .holds = [](const RuleCase& c) { return c.l.head_chunk_rows >= 0; },
       .message = minimum_message<head_chunk_rows, 0>},
      {.id = "ffn_rows.range",
       .whose = Whose::any,
       .keys = {ffn_rows},
       .holds = [](const RuleCase& c) { return c.l.ffn_rows >= 0; },
       .message = minimum_message<ffn_rows, 0>},
  };
}

}  // namespace trireme::spec
