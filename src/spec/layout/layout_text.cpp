// SPDX-License-Identifier: Apache-2.0
#include "spec/layout/layout_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/error.h"
#include "spec/json_reader.h"

namespace trireme::spec {
namespace {

int64_t number_of(std::string_view word, std::string_view text, int64_t low, int64_t high) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < low || value > high) {
    throw base::ConfigError(
        fmt::format("layout: '{}': expected a number from {} to {}", word, low, high));
  }
  return value;
}

template <typename FromName>
auto named_value(std::string_view word, std::string_view text, FromName from_name,
                 const std::string& allowed) {
  const auto value = from_name(text);
  if (!value) throw base::ConfigError(fmt::format("layout: '{}': expected {}", word, allowed));
  return *value;
}

// Words that consist of a field and its number.
struct NumberWord {
  std::string_view word;
  int Layout::*field;
  int low, high;
};
constexpr int max_number = 1 << 20;
constexpr std::array<NumberWord, 15> number_words = {{
    {"tp", &Layout::tp, 1, max_number},
    {"cp", &Layout::cp, 1, max_number},
    {"ulysses", &Layout::ulysses, 1, max_number},
    {"pp", &Layout::pp, 1, max_number},
    {"ep", &Layout::ep, 1, max_number},
    {"etp", &Layout::etp, 1, max_number},
    {"zero", &Layout::zero_stage, 0, 3},
    {"chunks", &Layout::chunks, 1, 4096},
    {"accumulate", &Layout::accumulation, 1, max_number},
    {"logical-dp", &Layout::logical_dp, 1, max_number},
    {"blocks", &Layout::recompute_blocks, 0, max_number},
    {"prefetch", &Layout::prefetch, 0, 1024},
    {"send-buffers", &Layout::send_buffers, 1, 1024},
    {"bf16-first", &Layout::bf16_first, 0, max_number},
    {"bf16-last", &Layout::bf16_last, 0, max_number},
}};

// Words that consist of a field and a factor, which may have a fraction.
struct FactorWord {
  std::string_view word;
  double Layout::*field;
  double low;
};
constexpr std::array<FactorWord, 2> factor_words = {{
    {"row-budget", &Layout::row_budget, 1},
    {"capacity", &Layout::expert_capacity, 0},
}};

double factor_of(std::string_view word, std::string_view text, double low) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_read = error == std::errc() && end == text.data() + text.size();
  if (!is_read || !(value >= low && value <= max_row_budget)) {
    throw base::ConfigError(
        fmt::format("layout: '{}': expected a number from {} to {}", word, low, max_row_budget));
  }
  return value;
}

struct TypeWord {
  std::string_view word;
  base::DType Layout::*field;
  base::DType other;  // than f32
};
constexpr std::array<TypeWord, 3> type_words = {{
    {"grads", &Layout::grad_dtype, base::DType::bf16},
    {"masters", &Layout::master_dtype, base::DType::u16},
    {"sums", &Layout::reduce_dtype, base::DType::bf16},
}};

// The values of words about data ranks; 0: not given.
struct DataRanks {
  int64_t all = 0, shard = 0;
};

bool set_flag(std::string_view word, Layout& l) {
  if (word == "sp") {
    l.sequence_parallel = true;
  } else if (word == "prefetch-after") {
    l.prefetch_after = true;
  } else if (word == "fast" || word == "l1") {
    l.deterministic = word == "l1";
  } else if (const auto recompute = recompute_from_name(word)) {
    l.recompute = *recompute;
  } else if (const auto placement = placement_from_name(word)) {
    l.placement = *placement;
  } else if (const auto kind = schedule::kind_from_name(word)) {
    l.schedule = *kind;
    l.chunks = 0;
  } else if (const auto optimizer = optimizer_from_name(word)) {
    l.optimizer = *optimizer;
  } else if (const auto precision = precision_from_name(word)) {
    l.precision = *precision;
  } else {
    return false;
  }
  return true;
}

bool set_type(std::string_view word, std::string_view key, std::string_view value, Layout& l) {
  const auto found = std::ranges::find(type_words, key, &TypeWord::word);
  if (found == type_words.end()) return false;
  if (value != "f32" && value != base::name_of(found->other)) {
    throw base::ConfigError(
        fmt::format("layout: '{}': expected f32 or {}", word, base::name_of(found->other)));
  }
  l.*found->field = value == "f32" ? base::DType::f32 : found->other;
  return true;
}

// Reads numbers with `between` them: "0/3/5".
std::vector<int> numbers_of(std::string_view word, std::string_view text, char between) {
  std::vector<int> all;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(between, at), text.size());
    all.push_back(static_cast<int>(number_of(word, text.substr(at, end - at), 0, max_number)));
    at = end + 1;
  }
  return all;
}

bool set_value(std::string_view word, std::string_view key, std::string_view value, Layout& l,
               DataRanks& data) {
  const auto found = std::ranges::find(number_words, key, &NumberWord::word);
  if (found != number_words.end()) {
    l.*found->field = static_cast<int>(number_of(word, value, found->low, found->high));
  } else if (const auto factor = std::ranges::find(factor_words, key, &FactorWord::word);
             factor != factor_words.end()) {
    l.*factor->field = factor_of(word, value, factor->low);
  } else if (key == "overflow") {
    l.overflow = named_value(word, value, overflow_from_name, all_names<Overflow>());
  } else if (key == "dp") {
    data.all = number_of(word, value, 1, max_number);
  } else if (key == "shard") {
    data.shard = number_of(word, value, 1, max_number);
  } else if (key == "micro") {
    l.micro_batch = number_of(word, value, 1, max_number);
  } else if (key == "head-chunk") {
    l.head_chunk_rows = number_of(word, value, 1, 1 << 30);
  } else if (key == "ffn-rows") {
    l.ffn_rows = number_of(word, value, 1, 1 << 30);
  } else if (key == "first-layers") {
    l.first_layers = numbers_of(word, value, '/');
  } else if (key == "bf16-blocks") {
    l.bf16_blocks = numbers_of(word, value, '+');
  } else if (key == "interleaved") {
    l.schedule = schedule::Kind::interleaved;
    l.chunks = static_cast<int>(number_of(word, value, 2, 4096));
  } else if (key == "reduce") {
    const auto reduce = reduce_from_name(value);
    if (!reduce) throw base::ConfigError(fmt::format("layout: '{}': once or each", word));
    l.reduce = *reduce;
  } else if (key == "reshard") {
    const auto reshard = reshard_from_name(value);
    if (!reshard) throw base::ConfigError(fmt::format("layout: '{}': always or never", word));
    l.reshard = *reshard;
  } else if (key == "kind") {
    l.context_kind = named_value(word, value, context_kind_from_name, all_names<ContextKind>());
  } else if (key == "slices") {
    l.context_slices =
        named_value(word, value, context_slices_from_name, all_names<ContextSlices>());
  } else {
    return set_type(word, key, value, l);
  }
  return true;
}

void spread_data(std::string_view text, int64_t ranks, const DataRanks& data, Layout& l) {
  // Each is at most 2^20: the product stays inside its type.
  const int64_t rest = int64_t{l.tp} * l.cp * l.pp;
  if (ranks > 0 && data.all == 0 && (ranks < rest || ranks % rest != 0)) {
    throw base::ConfigError(
        fmt::format("layout '{}': {} ranks do not divide by tp x cp x pp = {}", text, ranks, rest));
  }
  const int64_t all = data.all > 0 ? data.all : ranks == 0 ? 1 : ranks / rest;
  if (ranks > 0 && (rest > ranks || ranks % rest != 0 || ranks / rest != all)) {
    throw base::ConfigError(
        fmt::format("layout '{}': tp x cp x pp x dp = {} x {} x {} x {} is not the {} ranks", text,
                    l.tp, l.cp, l.pp, all, ranks));
  }
  set_data_ranks(l, static_cast<int>(all), l.zero_stage);
  if (data.shard == 0) return;
  if (all % data.shard != 0) {
    throw base::ConfigError(
        fmt::format("layout '{}': dp = {} does not divide by shard = {}", text, all, data.shard));
  }
  l.dp_shard = static_cast<int>(data.shard);
  l.dp_replicate = static_cast<int>(all / data.shard);
}

}  // namespace

std::string layout_words() {
  std::vector<std::string> words;
  for (const NumberWord& number : number_words) words.push_back(fmt::format("{}=N", number.word));
  for (const TypeWord& type : type_words) {
    words.push_back(fmt::format("{}={}", type.word, base::name_of(type.other)));
  }
  return fmt::format(
      "{}, row-budget=X, capacity=X, overflow={}, kind={}, slices={}, dp=N, shard=N, micro=N, sp, "
      "a schedule ({}, interleaved=N), "
      "selective, full, {}, fp8, bf16-blocks=3+7, reduce=once|each, reshard=always|never, "
      "prefetch-after, head-chunk=N, ffn-rows=N, "
      "first-layers=0/3/5, fast, l1, pp-inside",
      fmt::join(words, ", "), all_names<Overflow>("|"), all_names<ContextKind>("|"),
      all_names<ContextSlices>("|"), schedule::listed_names(""), all_names<Precision>());
}

Layout layout_from_text(std::string_view text, int64_t ranks, const Layout& others) {
  Layout l = others;
  DataRanks data;
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = std::min(text.find_first_of(" ,\t", at), text.size());
    const std::string_view word = text.substr(at, end - at);
    at = end + 1;
    if (word.empty()) continue;
    const size_t equals = word.find('=');
    const bool is_known =
        equals == std::string_view::npos
            ? set_flag(word, l)
            : set_value(word, word.substr(0, equals), word.substr(equals + 1), l, data);
    if (!is_known) {
      throw base::ConfigError(fmt::format("layout: '{}' is not one of {}", word, layout_words()));
    }
  }
  spread_data(text, ranks, data, l);
  return l;
}

std::string to_text(const Layout& layout) {
  const Layout l = opened(layout), fresh;
  std::string text = fmt::format("tp={}", l.tp);
  const auto add = [&text](bool is_needed, const std::string& word) {
    if (is_needed) text += " " + word;
  };
  add(l.sequence_parallel && l.tp > 1, "sp");
  add(l.cp > 1, fmt::format("cp={}", l.cp));
  if (l.cp > 1) {
    add(l.ulysses != 0, fmt::format("ulysses={}", l.ulysses));
    add(l.context_kind != fresh.context_kind, fmt::format("kind={}", name_of(l.context_kind)));
    add(l.context_slices != fresh.context_slices,
        fmt::format("slices={}", name_of(l.context_slices)));
  }
  add(true, fmt::format("pp={}", l.pp));
  if (l.custom_schedule) {
    add(true, "custom");
  } else if (!layout.has_one_stage()) {
    const bool is_interleaved = l.schedule == schedule::Kind::interleaved;
    const int chunks = layout.chunks > 0 ? layout.chunks : schedule::chunks_of(l.schedule);
    add(is_interleaved && chunks > 1, fmt::format("interleaved={}", chunks));
    add(!is_interleaved || chunks == 1, std::string(schedule::name_of(l.schedule)));
    add(l.chunks > 0 && !(is_interleaved && chunks > 1), fmt::format("chunks={}", l.chunks));
  }
  add(l.placement == Placement::pp_inside, std::string(name_of(l.placement)));
  add(true, fmt::format("dp={}", l.data_ranks()));
  add(l.ep > 1, fmt::format("ep={}", l.ep));
  add(l.etp > 1, fmt::format("etp={}", l.etp));
  for (const FactorWord& factor : factor_words) {
    add(l.*factor.field != fresh.*factor.field, fmt::format("{}={}", factor.word, l.*factor.field));
  }
  add(l.overflow != fresh.overflow, fmt::format("overflow={}", name_of(l.overflow)));
  add(true, fmt::format("zero={}", l.zero_stage));
  // State that is sharded along cp alone has dp_shard = 1.
  add(l.zero_stage > 0 && l.dp_replicate > 1, fmt::format("shard={}", l.dp_shard));
  add(true, fmt::format("micro={}", l.micro_batch));
  add(l.logical_dp != 0, fmt::format("logical-dp={}", l.logical_dp));
  add(l.reduce != ReduceWhen::automatic, fmt::format("reduce={}", name_of(l.reduce)));
  add(l.recompute != Recompute::none, std::string(name_of(l.recompute)));
  add(l.recompute_blocks >= 0, fmt::format("blocks={}", l.recompute_blocks));
  add(l.ffn_rows != 0, fmt::format("ffn-rows={}", l.ffn_rows));
  add(l.precision != fresh.precision, std::string(name_of(l.precision)));
  if (is_fp8(l.precision)) {
    add(l.bf16_first != fresh.bf16_first, fmt::format("bf16-first={}", l.bf16_first));
    add(l.bf16_last != fresh.bf16_last, fmt::format("bf16-last={}", l.bf16_last));
    add(!l.bf16_blocks.empty(), fmt::format("bf16-blocks={}", fmt::join(l.bf16_blocks, "+")));
  }
  add(l.optimizer != fresh.optimizer, std::string(name_of(l.optimizer)));
  for (const TypeWord& type : type_words) {
    add(l.*type.field != base::DType::f32,
        fmt::format("{}={}", type.word, base::name_of(l.*type.field)));
  }
  add(l.reshard != Reshard::automatic, fmt::format("reshard={}", name_of(l.reshard)));
  add(l.prefetch != fresh.prefetch, fmt::format("prefetch={}", l.prefetch));
  add(l.prefetch_after, "prefetch-after");
  add(l.send_buffers != fresh.send_buffers, fmt::format("send-buffers={}", l.send_buffers));
  add(l.head_chunk_rows != 0, fmt::format("head-chunk={}", l.head_chunk_rows));
  add(!l.first_layers.empty(), fmt::format("first-layers={}", fmt::join(l.first_layers, "/")));
  add(!l.deterministic, "fast");
  return text;
}

}  // namespace trireme::spec
