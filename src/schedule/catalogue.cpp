// SPDX-License-Identifier: Apache-2.0
#include "schedule/catalogue.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <vector>

namespace trireme::schedule {
namespace {

using base::Result;

constexpr int any = 0;
constexpr int max_ranks = 4096;
constexpr int64_t max_actions = 20'000'000;

// In the order of Kind.
const std::array<Named, static_cast<size_t>(Kind::count)> all = {{
    {Kind::gpipe, "gpipe", "all forwards, then all backwards", 1, false, false,
     [](int p, int m, int) { return gpipe(p, m); }},
    {Kind::one_f_one_b, "1f1b", "one forward, one backward", 1, false, false,
     [](int p, int m, int) { return one_f_one_b(p, m); }},
    {Kind::interleaved, "interleaved", "1F1B with several chunks per rank", any, false, false,
     interleaved},
    {Kind::zb_h1, "zb-h1", "zero bubble with the memory of 1F1B", 1, false, true,
     [](int p, int m, int) { return zb_h1(p, m); }},
    {Kind::zb_h2, "zb-h2", "zero bubble with twice the memory of 1F1B", 1, false, true,
     [](int p, int m, int) { return zb_h2(p, m); }},
    {Kind::zb_v, "zb-v", "zero bubble on a V of two chunks per rank", 2, true, true,
     [](int p, int m, int) { return zb_v(p, m); }},
    {Kind::dualpipe, "dualpipe", "two directions, forward and backward overlapped", 1, false, true,
     [](int p, int m, int) { return dualpipe(p, m); }},
    {Kind::dualpipe_v, "dualpipe-v", "half of DualPipe, on a V of two chunks per rank", 2, true,
     true, [](int p, int m, int) { return dualpipe_v(p, m); }},
}};

constexpr std::array<PytorchName, 6> names_of_pytorch = {{
    {"GPipe", Kind::gpipe},
    {"1F1B", Kind::one_f_one_b},
    {"Interleaved1F1B", Kind::interleaved},
    {"InterleavedZeroBubble", Kind::interleaved, false},
    {"ZBVZeroBubble", Kind::zb_v},
    {"DualPipeV", Kind::dualpipe_v},
}};

std::string plain(std::string_view name);
}  // namespace

std::span<const Named> catalogue() { return all; }

std::span<const PytorchName> pytorch_names() { return names_of_pytorch; }

std::optional<PytorchName> find_pytorch_name(std::string_view name) {
  const auto found = std::ranges::find_if(
      names_of_pytorch, [&](const PytorchName& one) { return plain(one.name) == plain(name); });
  return found == names_of_pytorch.end() ? std::nullopt : std::optional(*found);
}

Result<Named> find_named(std::string_view name) {
  const auto found = std::ranges::find_if(
      all, [&](const Named& named) { return plain(named.name) == plain(name); });
  if (found != all.end()) return *found;
  if (const auto other = find_pytorch_name(name)) return named(other->kind);
  std::string names;
  for (const Named& named : all)
    names += fmt::format("{}{}", names.empty() ? "" : ", ", named.name);
  return Result<Named>::no(
      fmt::format("unknown schedule '{}'; allowed are {} and capped", name, names));
}

std::string listed_names(std::string_view last, bool with_two_lanes) {
  std::vector<std::string_view> names;
  for (const Named& one : all) {
    if (with_two_lanes || one.kind != Kind::dualpipe) names.push_back(one.name);
  }
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    const bool is_last = i + 1 == names.size() && !last.empty();
    text += fmt::format("{}{}", i == 0 ? "" : is_last ? fmt::format(" {} ", last) : ", ", names[i]);
  }
  return text;
}

const Named& named(Kind kind) { return all[static_cast<size_t>(kind)]; }

std::string_view name_of(Kind kind) { return named(kind).name; }

std::optional<Kind> kind_from_name(std::string_view name) {
  const Result<Named> found = find_named(name);
  return found ? std::optional(found.value().kind) : std::nullopt;
}

int chunks_of(Kind kind) { return named(kind).chunks == any ? default_chunks : named(kind).chunks; }

Result<Schedule> generate(std::string_view name, const Shape& shape) {
  const Result<Named> found = find_named(name);
  return found ? generate(found.value().kind, shape) : Result<Schedule>::no(found.reason());
}

Result<Schedule> generate(Kind kind, const Shape& shape) {
  if (const auto reason = refusal(kind, shape)) return Result<Schedule>::no(*reason);
  return named(kind).make(shape.ranks, shape.microbatches,
                          shape.chunks == 0 ? chunks_of(kind) : shape.chunks);
}

namespace {

std::string plain(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c != '-' && c != '_') out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return out;
}

}  // namespace

std::optional<std::string> refusal(Kind kind, const Shape& shape) {
  const Named& named = all[static_cast<size_t>(kind)];
  const auto& [p, m, v] = shape;
  if (p < 1 || p > max_ranks) {
    return fmt::format("{} pipeline ranks: allowed are 1 to {}", p, max_ranks);
  }
  if (m < 1) return fmt::format("{} micro-batches: at least 1 is needed", m);
  if (v < 0) return fmt::format("{} chunks per rank: at least 1 is needed", v);
  if (v != 0 && named.chunks != any && v != named.chunks) {
    return fmt::format("{} has {} chunk{} per rank, found {}; interleaved allows any number",
                       named.name, named.chunks, named.chunks == 1 ? "" : "s", v);
  }
  const int64_t forwards = int64_t{p} * m * std::max(v, 2);
  if (forwards > max_actions / 3) {
    return fmt::format(
        "{} ranks with {} micro-batches and {} chunks: above {} actions; at most {} "
        "micro-batches",
        p, m, std::max(v, 1), max_actions, max_actions / 3 / (int64_t{p} * std::max(v, 2)));
  }
  const bool is_dual = kind == Kind::dualpipe;
  if (is_dual && p % 2 != 0) {
    return fmt::format("dualpipe needs an even number of ranks, found {}; the nearest {} {}", p,
                       p == 1 ? "is" : "are",
                       p == 1 ? "2" : fmt::format("{} and {}", p - 1, p + 1));
  }
  if (is_dual && m >= 2 * p && m % 2 != 0) {
    return fmt::format(
        "dualpipe needs an even number of micro-batches, found {}; the nearest are "
        "{} and {}",
        m, std::max(m - 1, 2 * p), m + 1);
  }
  if ((is_dual || kind == Kind::dualpipe_v) && m < 2 * p) {
    return fmt::format(
        "{} on {} ranks needs at least {} micro-batches, found {}: the nearest are "
        "{} micro-batches{}",
        named.name, p, 2 * p, m, 2 * p,
        m / 2 < (is_dual ? 2 : 1) ? std::string()
                                  : fmt::format(", or {} ranks", is_dual ? m / 2 / 2 * 2 : m / 2));
  }
  return {};
}

}  // namespace trireme::schedule
