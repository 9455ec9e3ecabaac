// SPDX-License-Identifier: Apache-2.0
#include "plan/import/megatron_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <iterator>

#include "base/error.h"
#include "base/text/count_text.h"
#include "config/spelling.h"

namespace trireme::plan {
namespace {

template <typename Number>
std::optional<Number> number_in(const std::string& text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return {};
  return value;
}

// Returns what a user can do about a value that only the shell can expand.
std::string shell_hint(const std::string& text) {
  return text.find('$') == std::string::npos
             ? ""
             : "; write the value, because the shell's variables are unknown";
}

constexpr std::array<std::string_view, 54> harmless_prefixes = {
    "--lr",           "--min-lr",
    "--adam-",        "--sgd-",
    "--weight-decay", "--start-weight-decay",
    "--end-weight",   "--clip-grad",
    "--seed",         "--init-method-",
    "--train-",       "--eval-",
    "--valid-",       "--test-",
    "--save",         "--load",
    "--log-",         "--no-log-",
    "--tensorboard-", "--wandb-",
    "--data-path",    "--data-cache-path",
    "--data-args-",   "--split",
    "--vocab-file",   "--merge-file",
    "--vocab-extra",  "--tokenizer-model",
    "--tiktoken-",    "--num-workers",
    "--dataloader-",  "--exit-",
    "--ckpt-",        "--dist-ckpt-",
    "--no-load-",     "--no-save-",
    "--use-dist-",    "--use-checkpoint-",
    "--override-opt", "--distributed-",
    "--timing-",      "--profile",
    "--master-",      "--node-rank",
    "--rdzv-",        "--local-rank",
    "--one-logger-",  "--reset-",
    "--loss-scale",   "--fp8-amax-",
    "--fp8-margin",   "--fp8-interval",
    "--decoupled-",   "--rotary-percent"};

constexpr std::array<std::string_view, 44> harmless_flags = {
    "--use-mcore-models",
    "--use-cpu-initialization",
    "--async-save",
    "--auto-detect-ckpt-format",
    "--mock-data",
    "--no-create-attention-mask-in-dataloader",
    "--mmap-bin-files",
    "--no-mmap-bin-files",
    "--initial-loss-scale",
    "--min-loss-scale",
    "--hysteresis",
    "--override-lr-scheduler",
    "--finetune",
    "--skip-train",
    "--no-initialization",
    "--perform-initialization",
    "--apply-layernorm-1p",
    "--attention-softmax-in-fp32",
    "--no-query-key-layer-scaling",
    "--apply-query-key-layer-scaling",
    "--no-bias-gelu-fusion",
    "--no-bias-swiglu-fusion",
    "--no-check-for-nan-in-loss-and-grad",
    "--check-for-nan-in-loss-and-grad",
    "--moe-aux-loss-coeff",
    "--moe-z-loss-coeff",
    "--moe-router-load-balancing-type",
    "--moe-router-pre-softmax",
    "--moe-router-dtype",
    "--moe-router-score-function",
    "--moe-router-topk-scaling-factor",
    "--moe-router-enable-expert-bias",
    "--moe-router-bias-update-rate",
    "--manual-gc",
    "--manual-gc-interval",
    "--empty-unused-memory-level",
    "--disable-straggler-on-startup",
    "--ddp-average-in-collective",
    "--nccl-communicator-config-path",
    "--rotary-interleaved",
    "--eod-mask-loss",
    "--calculate-per-token-loss",
    "--max-restarts",
    "--monitor-interval"};

}  // namespace

bool is_harmless_megatron_flag(std::string_view name) {
  return std::find(harmless_flags.begin(), harmless_flags.end(), name) != harmless_flags.end() ||
         std::any_of(harmless_prefixes.begin(), harmless_prefixes.end(),
                     [name](std::string_view prefix) { return name.starts_with(prefix); });
}

MegatronFlags::MegatronFlags(std::vector<Flag> flags) {
  for (Flag& flag : flags) {
    const std::string name = flag.name;
    const auto found = flags_.find(name);
    if (found == flags_.end()) {
      order_.push_back(name);
    } else if (found->second.values != flag.values && !is_harmless_megatron_flag(name)) {
      repeated_.push_back(
          fmt::format("{} {}, the last of several", name, fmt::join(flag.values, " ")));
    }
    flags_.insert_or_assign(name, std::move(flag));
  }
}

bool MegatronFlags::was_given(std::string_view name) {
  read_.emplace(name);
  return flags_.contains(name);
}

bool MegatronFlags::is_on(std::string_view name) {
  read_.emplace(name);
  const auto found = flags_.find(name);
  if (found == flags_.end()) return false;
  if (found->second.has_equals) {
    problem(name, fmt::format("takes no value, found {}", found->second.values.front()));
  }
  return true;
}

const std::string* MegatronFlags::value(std::string_view name) {
  read_.emplace(name);
  const auto found = flags_.find(name);
  if (found == flags_.end()) return nullptr;
  const std::vector<std::string>& values = found->second.values;
  if (values.empty()) {
    problem(name, "needs a value");
    return nullptr;
  }
  if (values.size() > 1 && number_in<double>(values[1])) {
    problem(name, fmt::format("takes one value, found {}", fmt::join(values, " ")));
    return nullptr;
  }
  return &values.front();
}

std::optional<int64_t> MegatronFlags::whole(std::string_view name, int64_t max, int64_t min) {
  const std::string* text = value(name);
  if (text == nullptr) return {};
  const auto number = number_in<int64_t>(*text);
  if (!number || *number < min || *number > max) {
    problem(name, fmt::format("found {}, expected a whole number from {} to {}{}", *text, min, max,
                              shell_hint(*text)));
    return {};
  }
  return number;
}

int64_t MegatronFlags::required(std::string_view name, int64_t max) {
  if (!was_given(name)) problem(name, "required, but not given");
  return whole(name, max).value_or(1);
}

int MegatronFlags::degree(std::string_view name) {
  return static_cast<int>(whole(name, 1 << 20).value_or(1));
}

std::optional<double> MegatronFlags::number(std::string_view name) {
  return number_from(name, false);
}

std::optional<double> MegatronFlags::at_least_zero(std::string_view name) {
  return number_from(name, true);
}

std::optional<double> MegatronFlags::number_from(std::string_view name, bool may_be_zero) {
  const std::string* text = value(name);
  if (text == nullptr) return {};
  const auto number = number_in<double>(*text);
  if (!number || !std::isfinite(*number) || *number < 0 || (*number == 0 && !may_be_zero)) {
    problem(name, fmt::format("found {}, expected a number {} 0{}", *text,
                              may_be_zero ? "of at least" : "above", shell_hint(*text)));
    return {};
  }
  return number;
}

std::string MegatronFlags::text(std::string_view name,
                                const std::vector<std::string_view>& allowed) {
  const std::string* text = value(name);
  if (text == nullptr) return {};
  if (!allowed.empty() && std::find(allowed.begin(), allowed.end(), *text) == allowed.end()) {
    problem(name, fmt::format("found {}, expected one of {}{}", *text, fmt::join(allowed, ", "),
                              shell_hint(*text)));
    return {};
  }
  return *text;
}

std::vector<std::string> MegatronFlags::list(std::string_view name) {
  read_.emplace(name);
  const auto found = flags_.find(name);
  if (found == flags_.end()) return {};
  if (found->second.values.empty()) problem(name, "needs a value");
  return found->second.values;
}

void MegatronFlags::problem(std::string_view name, const std::string& what) {
  std::string text = fmt::format("{}: {}", name, what);
  // A flag may be read more than once.
  if (std::find(problems_.begin(), problems_.end(), text) == problems_.end()) {
    problems_.push_back(std::move(text));
  }
}

void MegatronFlags::throw_if_any() const {
  if (problems_.empty()) return;
  throw base::ConfigError(fmt::format("Megatron flags: {}\n  {}",
                                      base::count_text(std::ssize(problems_), "problem"),
                                      fmt::join(problems_, "\n  ")));
}

std::vector<std::string> MegatronFlags::not_read() const {
  std::vector<std::string> names;
  for (const std::string& name : order_) {
    if (read_.contains(name) || is_harmless_megatron_flag(name)) continue;
    constexpr int max_edits = 2;
    const auto meant = std::find_if(read_.begin(), read_.end(), [&](const auto& known) {
      return config::edit_distance(name, known) <= max_edits;
    });
    names.push_back(meant == read_.end() ? name
                                         : fmt::format("{} (did you mean {}?)", name, *meant));
  }
  return names;
}

}  // namespace trireme::plan
