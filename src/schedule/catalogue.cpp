// SPDX-License-Identifier: Apache-2.0
#include "schedule/catalogue.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>

namespace trireme::schedule {
namespace {

using base::Result;

constexpr int any = 0;
constexpr int most_ranks = 4096;
constexpr int64_t most_actions = 20'000'000;

const std::array<Named, 8> all = {{
    {"gpipe", "all forwards, then all backwards", 1, [](int p, int m, int) { return gpipe(p, m); }},
    {"1f1b", "one forward, one backward", 1, [](int p, int m, int) { return one_f_one_b(p, m); }},
    {"interleaved", "1F1B with several chunks a rank", any, interleaved},
    {"zb-h1", "zero bubble with the memory of 1F1B", 1,
     [](int p, int m, int) { return zb_h1(p, m); }},
    {"zb-h2", "zero bubble with twice that memory", 1,
     [](int p, int m, int) { return zb_h2(p, m); }},
    {"zb-v", "zero bubble on a V of two chunks a rank", 2,
     [](int p, int m, int) { return zb_v(p, m); }},
    {"dualpipe", "two directions, forward and backward overlapped", 1,
     [](int p, int m, int) { return dualpipe(p, m); }},
    {"dualpipe-v", "half of DualPipe, on a V of two chunks a rank", 2,
     [](int p, int m, int) { return dualpipe_v(p, m); }},
}};

std::string plain(std::string_view name);
std::optional<std::string> refusal(const Named& named, const Shape& shape);

}  // namespace

std::span<const Named> catalogue() { return all; }

Result<Named> find_named(std::string_view name) {
  const auto found = std::ranges::find_if(
      all, [&](const Named& named) { return plain(named.name) == plain(name); });
  if (found != all.end()) return *found;
  std::string names;
  for (const Named& named : all)
    names += fmt::format("{}{}", names.empty() ? "" : ", ", named.name);
  return Result<Named>::no(fmt::format("no schedule '{}'; there are {} and capped", name, names));
}

Result<Schedule> generate(std::string_view name, const Shape& shape) {
  const Result<Named> named = find_named(name);
  if (!named) return Result<Schedule>::no(named.reason());
  if (const auto reason = refusal(named.value(), shape)) return Result<Schedule>::no(*reason);
  const int own = named.value().chunks == any ? usual_chunks : named.value().chunks;
  return named.value().make(shape.ranks, shape.microbatches,
                            shape.chunks == 0 ? own : shape.chunks);
}

namespace {

std::string plain(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c != '-' && c != '_') out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return out;
}

std::optional<std::string> refusal(const Named& named, const Shape& shape) {
  const auto& [p, m, v] = shape;
  if (p < 1 || p > most_ranks) {
    return fmt::format("{} pipeline ranks: 1 to {} are possible", p, most_ranks);
  }
  if (m < 1) return fmt::format("{} micro-batches: at least 1 is needed", m);
  if (v < 0) return fmt::format("{} chunks a rank: at least 1 is needed", v);
  if (v != 0 && named.chunks != any && v != named.chunks) {
    return fmt::format("{} has {} chunk{} a rank, found {}; interleaved takes any number",
                       named.name, named.chunks, named.chunks == 1 ? "" : "s", v);
  }
  const int64_t forwards = int64_t{p} * m * std::max(v, 2);
  if (forwards > most_actions / 3) {
    return fmt::format(
        "{} ranks with {} micro-batches and {} chunks: above {} actions; at most {} "
        "micro-batches",
        p, m, std::max(v, 1), most_actions, most_actions / 3 / (int64_t{p} * std::max(v, 2)));
  }
  const bool is_dual = named.name == "dualpipe";
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
  if ((is_dual || named.name == "dualpipe-v") && m < 2 * p) {
    return fmt::format(
        "{} on {} ranks needs at least {} micro-batches, found {}: the nearest are "
        "{} micro-batches{}",
        named.name, p, 2 * p, m, 2 * p,
        m / 2 < (is_dual ? 2 : 1) ? std::string()
                                  : fmt::format(", or {} ranks", is_dual ? m / 2 / 2 * 2 : m / 2));
  }
  return {};
}

}  // namespace
}  // namespace trireme::schedule
