// SPDX-License-Identifier: Apache-2.0
#include "plan/convert/convert_megatron.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "plan/convert/megatron_data.h"
#include "plan/convert/megatron_origins.h"
#include "plan/import/from_megatron.h"
#include "plan/import/megatron_flags.h"

namespace trireme::plan {
namespace {

constexpr int64_t max_samples = int64_t{1} << 50;

// Returns the steps that a flag states, or another one states in samples.
std::optional<int64_t> steps_of(MegatronFlags& flags, const char* by_steps, const char* by_samples,
                                int64_t batch, int64_t min) {
  const auto steps = flags.whole(by_steps, int64_t{1} << 40, min);
  const auto samples = flags.whole(by_samples, max_samples, min);
  if (steps && samples) flags.problem(by_samples, fmt::format("contradicts {}", by_steps));
  if (steps) return steps;
  if (samples) return (*samples + batch - 1) / batch;
  return {};
}

void convert_rate(MegatronFlags& flags, int64_t batch, Conversion& conversion) {
  config::LrScheduler& s = conversion.config.lr_scheduler;
  const double peak = conversion.config.optimizer.lr;
  const double lowest = flags.at_least_zero("--min-lr").value_or(0);
  if (lowest > peak) flags.problem("--min-lr", fmt::format("{} is above --lr {}", lowest, peak));
  s.min_lr_factor = lowest / peak;
  const auto decay = steps_of(flags, "--lr-decay-iters", "--lr-decay-samples", batch, 1);
  s.total_steps = decay.value_or(-1);
  const int64_t total = decay.value_or(conversion.config.training.steps);
  const auto share = flags.at_least_zero("--lr-warmup-fraction");
  const auto warmup = steps_of(flags, "--lr-warmup-iters", "--lr-warmup-samples", batch, 0);
  if (share && warmup.value_or(0) > 0) {
    flags.problem("--lr-warmup-fraction", "contradicts the other flags of the warm-up");
  }
  s.warmup_steps =
      share ? static_cast<int64_t>(*share * static_cast<double>(total)) : warmup.value_or(0);
  const std::string style = flags.text("--lr-decay-style", {"constant", "linear", "cosine", "WSD"});
  s.decay_type = style.empty() ? "linear" : style == "WSD" ? "wsd" : style;
  const auto last = steps_of(flags, "--lr-wsd-decay-iters", "--lr-wsd-decay-samples", batch, 1);
  std::string of_wsd = flags.text("--lr-wsd-decay-style");
  if (style != "WSD") return;
  if (!last) flags.problem("--lr-wsd-decay-iters", "required with --lr-decay-style WSD");
  s.decay_ratio = std::min(1.0, static_cast<double>(last.value_or(1)) / static_cast<double>(total));
  if (of_wsd.empty()) of_wsd = "exponential";
  if (of_wsd != "linear") {
    conversion.changed.push_back(
        fmt::format("a linear decay instead of --lr-wsd-decay-style {}", of_wsd));
  }
}

void convert_optimizer(MegatronFlags& flags, Conversion& conversion) {
  config::Optimizer& o = conversion.config.optimizer;
  const std::string name = flags.text("--optimizer");
  if (!name.empty() && name != "adam") {
    flags.problem("--optimizer", fmt::format("found {}; adam can be converted. Trireme's other "
                                             "optimizer is Muon: set optimizer.name after the "
                                             "conversion",
                                             name));
  }
  const auto rate = flags.number("--lr");
  if (!flags.has("--lr")) flags.problem("--lr", "required, but not given");
  o.lr = rate.value_or(o.lr);
  o.beta1 = flags.at_least_zero("--adam-beta1").value_or(0.9);
  o.beta2 = flags.at_least_zero("--adam-beta2").value_or(0.999);
  o.eps = flags.number("--adam-eps").value_or(1e-8);
  o.weight_decay = flags.at_least_zero("--weight-decay").value_or(0.01);
  config::Training& t = conversion.config.training;
  const double norm = flags.at_least_zero("--clip-grad").value_or(1);
  if (norm == 0) {
    t.clip = "none";
  } else {
    t.max_norm = norm;
  }
  if (flags.is_on("--grad-reduce-in-bf16")) {
    conversion.config.parallelism.reduce_dtype = "bf16";
    t.grad_dtype = "bf16";
  }
}

void convert_loss_scale(MegatronFlags& flags, Conversion& conversion) {
  config::Precision& p = conversion.config.precision;
  const auto fixed = flags.at_least_zero("--loss-scale");
  const auto first = flags.number("--initial-loss-scale");
  const auto lowest = flags.number("--min-loss-scale");
  const auto window = flags.whole("--loss-scale-window");
  const auto hysteresis = flags.whole("--hysteresis");
  if (p.recipe != "fp16") return;
  constexpr double default_scale = 0x1p32;
  p.loss_scale = fixed.value_or(0);
  p.loss_scale_initial = first.value_or(default_scale);
  p.loss_scale_min = lowest.value_or(1);
  p.loss_scale_growth_interval = window.value_or(1000);
  p.loss_scale_hysteresis = hysteresis.value_or(2);
}

// Sets how the router weighs and balances experts.
void convert_router(MegatronFlags& flags, Conversion& conversion) {
  const std::string score = flags.text("--moe-router-score-function", {"softmax", "sigmoid"});
  const bool is_before = flags.is_on("--moe-router-pre-softmax");
  const auto scale = flags.number("--moe-router-topk-scaling-factor");
  const bool has_bias = flags.is_on("--moe-router-enable-expert-bias");
  const auto bias_rate = flags.at_least_zero("--moe-router-bias-update-rate");
  const std::vector<std::string> kinds = flags.list("--moe-router-load-balancing-type");
  const auto aux = flags.at_least_zero("--moe-aux-loss-coeff");
  const auto z = flags.at_least_zero("--moe-z-loss-coeff");
  if (!conversion.config.dims.moe) return;
  spec::MoeSpec& moe = *conversion.config.dims.moe;
  const bool is_sigmoid = score == "sigmoid";
  moe.router.score = is_sigmoid ? spec::RouterScore::sigmoid : spec::RouterScore::softmax;
  moe.router.renormalizes = is_sigmoid || !is_before;
  moe.router.scale = static_cast<float>(scale.value_or(1));
  moe.router.has_bias = has_bias;
  constexpr double default_bias_rate = 1e-3;
  moe.balance.bias_rate = has_bias ? static_cast<float>(bias_rate.value_or(default_bias_rate)) : 0;
  moe.balance.aux = static_cast<float>(aux.value_or(0));
  moe.balance.z = static_cast<float>(z.value_or(0));
  const std::string kind = kinds.empty() ? "aux_loss" : kinds.front();
  if (kinds.size() > 1) {
    flags.problem("--moe-router-load-balancing-type", "one type can be converted");
  } else if (kind == "none") {
    moe.balance.aux = 0;
  } else if (kind == "aux_loss") {
    moe.balance.scope = spec::AuxScope::micro_batch;
  } else if (kind == "seq_aux_loss") {
    moe.balance.scope = spec::AuxScope::sequence;
  } else if (kind == "global_aux_loss") {
    moe.balance.scope = spec::AuxScope::global;
  } else {
    flags.problem("--moe-router-load-balancing-type",
                  fmt::format("found {}, expected one of none, aux_loss, seq_aux_loss, "
                              "global_aux_loss",
                              kind));
  }
}

// Refuses parts of models that Trireme does not have.
void reject_model(MegatronFlags& flags) {
  if (flags.number("--rotary-percent").value_or(1) != 1) {
    flags.problem("--rotary-percent", "found a part; Trireme rotates whole heads");
  }
}

void reject_weights(MegatronFlags& flags) {
  const std::string from = flags.text("--load"), to = flags.text("--save");
  constexpr const char* remedy =
      "a checkpoint of Megatron cannot be read; remove the flag, convert the checkpoint to Hugging "
      "Face form and give it as --init-from";
  if (!from.empty() && from != to) flags.problem("--load", remedy);
  if (flags.was_given("--pretrained-checkpoint")) flags.problem("--pretrained-checkpoint", remedy);
}

// Refuses flags that are probably misspelled.
void reject_typos(const Described& described, MegatronFlags& flags) {
  for (const std::string& ignored : described.ignored) {
    const size_t hint = ignored.find(" (did you mean ");
    if (hint == std::string::npos) continue;
    flags.problem(ignored.substr(0, hint), "unknown flag" + ignored.substr(hint));
  }
}

}  // namespace

Conversion convert_megatron(std::string_view text, const std::string& source,
                            const ConvertOptions& options, const FindStack& find) {
  const Described described = from_megatron(text, options.gpus, find);
  MegatronFlags flags(flags_of(text));
  Conversion conversion{.source = source};
  take_job(described, described.gpus == 0, conversion);
  reject_typos(described, flags);
  reject_weights(flags);
  reject_model(flags);
  config::Config& c = conversion.config;
  const int64_t batch = described.job.global_batch;
  const auto steps = steps_of(flags, "--train-iters", "--train-samples", batch, 1);
  if (!steps) flags.problem("--train-iters", "required, or --train-samples, but neither is given");
  c.training.steps = steps.value_or(1);
  convert_optimizer(flags, conversion);
  convert_rate(flags, batch, conversion);
  convert_loss_scale(flags, conversion);
  convert_router(flags, conversion);
  convert_megatron_data(flags, options.data, conversion);
  c.training.document_mask = flags.is_on("--reset-attention-mask");
  c.dims.init_std = static_cast<float>(flags.number("--init-method-std").value_or(0.02));
  c.checkpoint.interval = flags.whole("--save-interval").value_or(-1);
  c.metrics.log_freq = flags.whole("--log-interval").value_or(100);
  c.debug.seed = flags.whole("--seed", int64_t{1} << 40, 0).value_or(1234);
  flags.throw_if_any();
  set_origins(
      megatron_origins(), "Megatron", [&flags](std::string_view name) { return flags.has(name); },
      conversion);
  drop_others(flags.given(), megatron_origins(), megatron_drop_reasons(), conversion);
  return conversion;
}

}  // namespace trireme::plan
