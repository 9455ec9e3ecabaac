// SPDX-License-Identifier: Apache-2.0
#include "base/text/type_spelling.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>

namespace trireme::base {
namespace {

struct Spelling {
  std::string_view word, name;
};

constexpr auto spellings = std::to_array<Spelling>(
    {{"f32", "f32"},     {"fp32", "f32"},      {"float32", "f32"}, {"float", "f32"},
     {"bf16", "bf16"},   {"bfloat16", "bf16"}, {"f16", "f16"},     {"fp16", "f16"},
     {"float16", "f16"}, {"half", "f16"},      {"f64", "f64"},     {"fp64", "f64"},
     {"float64", "f64"}, {"double", "f64"},    {"u8", "u8"},       {"uint8", "u8"},
     {"i8", "i8"},       {"int8", "i8"},       {"u16", "u16"},     {"uint16", "u16"},
     {"i16", "i16"},     {"int16", "i16"},     {"u32", "u32"},     {"uint32", "u32"},
     {"i32", "i32"},     {"int32", "i32"},     {"u64", "u64"},     {"uint64", "u64"},
     {"i64", "i64"},     {"int64", "i64"}});

}  // namespace

std::optional<std::string_view> short_type_name(std::string_view word) {
  constexpr std::string_view torch = "torch.";
  std::string lower(word);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  std::string_view rest = lower;
  if (rest.starts_with(torch)) rest.remove_prefix(torch.size());
  for (const Spelling& one : spellings) {
    if (one.word == rest) return one.name;
  }
  return std::nullopt;
}

}  // namespace trireme::base
