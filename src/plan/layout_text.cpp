// SPDX-License-Identifier: Apache-2.0
#include "plan/layout_text.h"

#include <fmt/format.h>

#include <charconv>

#include "base/error.h"

namespace trireme::plan {
namespace {

constexpr std::string_view known_words =
    "tp=N, cp=N, pp=N, dp=N, ep=N, zero=0..3, micro=N, sp, a schedule (gpipe, 1f1b, interleaved=N, "
    "zb-h1, zb-h2, zb-v, dualpipev), selective, full, fp32, bf16, fp8, fp4, pp-inside";

int64_t number_of(std::string_view word, std::string_view text, int64_t low, int64_t high) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < low || value > high) {
    throw base::ConfigError(
        fmt::format("layout: '{}': expected a number from {} to {}", word, low, high));
  }
  return value;
}

bool set_flag(std::string_view word, Layout& l) {
  if (word == "sp") {
    l.sequence_parallel = true;
  } else if (const auto recompute = recompute_from(word)) {
    l.recompute = *recompute;
  } else if (word == "pp-inside") {
    l.placement = Placement::pp_inside;
  } else if (word == "dp-inside") {
    l.placement = Placement::dp_inside;
  } else if (const auto pipe = pipe_from(word)) {
    l.pipe = *pipe;
    l.chunks = fixed_chunks(*pipe) == 0 ? 2 : fixed_chunks(*pipe);
  } else {
    const auto precision = precision_from(word);
    if (!precision) return false;
    l.precision = *precision;
  }
  return true;
}

bool set_number(std::string_view word, std::string_view key, std::string_view text, Layout& l) {
  const auto degree = [&] { return static_cast<int>(number_of(word, text, 1, 1 << 20)); };
  if (key == "tp") {
    l.tp = degree();
  } else if (key == "cp") {
    l.cp = degree();
  } else if (key == "pp") {
    l.pp = degree();
  } else if (key == "dp") {
    l.dp = degree();
  } else if (key == "ep") {
    l.ep = degree();
  } else if (key == "zero") {
    l.zero = static_cast<int>(number_of(word, text, 0, 3));
  } else if (key == "micro") {
    l.micro_batch = number_of(word, text, 1, 1 << 20);
  } else if (key == "interleaved") {
    l.pipe = Pipe::interleaved;
    l.chunks = static_cast<int>(number_of(word, text, 2, 4096));
  } else {
    return false;
  }
  return true;
}

}  // namespace

Layout layout_from_text(std::string_view text, int64_t processors) {
  Layout l;
  l.dp = 0;
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
            : set_number(word, word.substr(0, equals), word.substr(equals + 1), l);
    if (!is_known)
      throw base::ConfigError(fmt::format("layout: '{}' is none of {}", word, known_words));
  }
  const int64_t rest = int64_t{l.tp} * l.cp * l.pp;
  if (l.dp == 0) {
    if (processors < rest || processors % rest != 0) {
      throw base::ConfigError(fmt::format("layout '{}': {} GPUs do not divide by tp x cp x pp = {}",
                                          text, processors, rest));
    }
    l.dp = static_cast<int>(processors / rest);
  }
  // Products of large degrees do not fit their type.
  if (rest > processors || processors % rest != 0 || processors / rest != l.dp) {
    throw base::ConfigError(
        fmt::format("layout '{}': tp x cp x pp x dp = {} x {} x {} x {} are not the {} GPUs", text,
                    l.tp, l.cp, l.pp, l.dp, processors));
  }
  return l;
}

std::string to_text(const Layout& l) {
  std::string text = fmt::format("tp={}", l.tp);
  if (l.sequence_parallel && l.tp > 1) text += " sp";
  if (l.cp > 1) text += fmt::format(" cp={}", l.cp);
  text += fmt::format(" pp={}", l.pp);
  if (l.pp > 1) {
    text += l.pipe == Pipe::interleaved ? fmt::format(" interleaved={}", l.chunks)
                                        : fmt::format(" {}", name_of(l.pipe));
    if (l.placement == Placement::pp_inside) text += " pp-inside";
  }
  text += fmt::format(" dp={}", l.dp);
  if (l.ep > 1) text += fmt::format(" ep={}", l.ep);
  text += fmt::format(" zero={} micro={}", l.zero, l.micro_batch);
  if (l.recompute != spec::Recompute::none) text += fmt::format(" {}", spec::name_of(l.recompute));
  if (l.precision != Precision::bf16) text += fmt::format(" {}", name_of(l.precision));
  return text;
}

}  // namespace trireme::plan
