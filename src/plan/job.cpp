// SPDX-License-Identifier: Apache-2.0
#include "plan/job.h"

#include <fmt/format.h>

#include "base/type_spelling.h"

namespace trireme::plan {
namespace {

constexpr std::array<std::string_view, static_cast<size_t>(Pipe::count)> pipe_names = {
    "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "dualpipev"};
constexpr std::array<std::string_view, static_cast<size_t>(Precision::count)> precision_names = {
    "fp32", "bf16", "fp8", "fp4"};

}  // namespace

spec::Backend backend_for(const spec::Machine& machine, bool deterministic) {
  const bool is_gpu = machine.processor.bf16_flops > machine.processor.fp32_flops;
  return is_gpu ? spec::cuda_backend(deterministic) : spec::cpu_backend();
}

std::string_view name_of(Pipe pipe) { return pipe_names[static_cast<size_t>(pipe)]; }

std::optional<Pipe> pipe_from(std::string_view name) {
  for (size_t i = 0; i < pipe_names.size(); ++i) {
    if (pipe_names[i] == name) return static_cast<Pipe>(i);
  }
  return {};
}

int fixed_chunks(Pipe pipe) {
  if (pipe == Pipe::interleaved) return 0;
  return pipe == Pipe::zb_v || pipe == Pipe::dualpipe_v ? 2 : 1;
}

std::string_view name_of(Precision precision) {
  return precision_names[static_cast<size_t>(precision)];
}

std::optional<Precision> precision_from(std::string_view word) {
  const auto type = base::short_type_name(word);
  const std::string_view name = type == "f32" ? "fp32" : type.value_or(word);
  for (size_t i = 0; i < precision_names.size(); ++i) {
    if (precision_names[i] == name) return static_cast<Precision>(i);
  }
  return {};
}

std::optional<spec::Recompute> recompute_from(std::string_view name) {
  for (const auto policy :
       {spec::Recompute::none, spec::Recompute::selective, spec::Recompute::full}) {
    if (spec::name_of(policy) == name) return policy;
  }
  return {};
}

std::string_view name_of(Placement placement) {
  return placement == Placement::dp_inside ? "dp-inside" : "pp-inside";
}

std::string words(const Layout& l) {
  std::string text;
  const auto add = [&text](const std::string& part) {
    text += fmt::format("{}{}", text.empty() ? "" : ", ", part);
  };
  if (l.tp > 1) add(fmt::format("tp {}{}", l.tp, l.sequence_parallel ? " sp" : ""));
  if (l.cp > 1) add(fmt::format("cp {}", l.cp));
  if (l.pp > 1) {
    add(fmt::format("pp {} {}{}", l.pp, name_of(l.pipe),
                    l.pipe == Pipe::interleaved ? fmt::format(" x {}", l.chunks) : ""));
  }
  add(fmt::format("dp {}{}", l.dp, l.zero > 0 ? fmt::format(" ZeRO-{}", l.zero) : ""));
  if (l.ep > 1) add(fmt::format("ep {}", l.ep));
  add(fmt::format("micro-batch {}", l.micro_batch));
  if (l.recompute != spec::Recompute::none) {
    add(fmt::format("{} recompute", spec::name_of(l.recompute)));
  }
  add(std::string(name_of(l.precision)));
  if (l.pp > 1 && l.dp > 1 && l.placement == Placement::pp_inside) add("stages side by side");
  return text;
}

}  // namespace trireme::plan
