// SPDX-License-Identifier: Apache-2.0
#include "tests/golden/golden_run.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <utility>

#include "tests/engine/rig.h"

namespace trireme::tests {
namespace {

using base::Json;

constexpr double max_spreads = 8, max_rms_spreads = 2;

template <typename T>
std::vector<T> values_of(const ckpt::SafetensorsFile& file, const std::string& name) {
  const ckpt::SafetensorsView& view = file.tensor(name);
  std::vector<T> values(view.bytes.size() / sizeof(T));
  std::memcpy(values.data(), view.bytes.data(), view.bytes.size());
  return values;
}

spec::ModelDims dims_of(const std::string& name, const Json& c) {
  spec::ModelDims d;
  d.name = name;
  d.family = c.at("family") == "gpt2" ? spec::Family::gpt2 : spec::Family::llama;
  d.layers = c.at("layers");
  d.hidden = c.at("hidden");
  d.heads = c.at("heads");
  d.kv_heads = c.at("kv_heads");
  d.head_dim = c.at("head_dim");
  d.ffn = c.at("ffn");
  d.vocab = c.at("vocab");
  d.max_seq = c.at("max_seq");
  d.norm_eps = c.at("norm_eps");
  d.tied_head = c.at("tied_head");
  if (d.family == spec::Family::gpt2) return d;
  d.qkv_bias = c.at("qkv_bias");
  d.qk_norm = c.at("qk_norm");
  if (d.qk_norm) d.qk_norm_eps = c.at("qk_norm_eps");
  d.rope.theta = c.at("rope_theta");
  const Json& scaling = c.at("rope_scaling");
  if (!scaling.is_null()) {
    d.rope.scaling =
        spec::RopeScaling{scaling.at("factor"), scaling.at("low_freq_factor"),
                          scaling.at("high_freq_factor"), scaling.at("original_max_position")};
  }
  return d;
}

class GoldenBatches final : public engine::MicrobatchSource {
 public:
  explicit GoldenBatches(const Golden& golden) : golden_(golden) {}

  void fill(int /*index*/, const engine::HostMicrobatch& out) override {
    engine::set_equal_sequences(out, 2, static_cast<int64_t>(out.tokens.size()) / 2);
    const size_t first = step_ * out.tokens.size();
    for (size_t t = 0; t < out.tokens.size(); ++t) {
      out.tokens[t] = golden_.tokens[first + t];
      out.labels[t] = golden_.labels[first + t];
    }
  }
  void next_step() { ++step_; }

 private:
  const Golden& golden_;
  size_t step_ = 0;
};

// Collects differences of one kind in units of the spread.
class Differences {
 public:
  Differences(std::string kind, std::vector<std::string>& problems)
      : kind_(std::move(kind)), problems_(problems) {}

  template <typename T>
  void add(const std::string& name, std::span<const T> found, std::span<const double> golden,
           std::span<const float> spread) {
    if (found.size() != golden.size()) {
      problems_.push_back(fmt::format("{} {}: {} elements, the golden has {}", kind_, name,
                                      found.size(), golden.size()));
      return;
    }
    size_t worst = 0;
    double worst_spreads = -1;
    for (size_t i = 0; i < found.size(); ++i) {
      const double difference = std::abs(static_cast<double>(found[i]) - golden[i]);
      double spreads = difference / static_cast<double>(spread[i]);
      if (difference == 0) spreads = 0;             // also where the spread is zero
      if (std::isnan(spreads)) spreads = INFINITY;  // a NaN is never within the bound
      if (spreads > worst_spreads) {
        worst = i;
        worst_spreads = spreads;
      }
      squares_ += spreads * spreads;
    }
    elements_ += found.size();
    largest_ = std::max(largest_, worst_spreads);
    if (worst_spreads > max_spreads) {
      problems_.push_back(
          fmt::format("{} {}[{}]: {:.9g}, golden {:.9g}: {:.1f} times what roundings to fp32 do "
                      "(root mean square), allowed {}",
                      kind_, name, worst, found[worst], golden[worst], worst_spreads, max_spreads));
    }
  }

  double largest() const { return largest_; }
  // Adds a problem if rounding alone does not explain the difference.
  double check_rms() {
    const double rms = std::sqrt(squares_ / static_cast<double>(elements_));
    if (!(rms <= max_rms_spreads)) {
      problems_.push_back(
          fmt::format("{}: the root mean square over all elements is {:.2f} times "
                      "what roundings to fp32 do, allowed {}",
                      kind_, rms, max_rms_spreads));
    }
    return rms;
  }

 private:
  std::string kind_;
  std::vector<std::string>& problems_;
  double largest_ = 0, squares_ = 0;
  size_t elements_ = 0;
};

}  // namespace

Golden read_golden(const std::string& name) {
  const auto file = ckpt::SafetensorsFile::open(std::string(TRIREME_SOURCE_DIR) + "/tests/golden/" +
                                                name + ".safetensors");
  const auto meta = [&file](const char* key) { return Json::parse(file.metadata().at(key)); };
  Golden golden{.name = name,
                .dims = dims_of(name, meta("config")),
                .training = meta("training"),
                .pytorch = meta("pytorch"),
                .tokens = values_of<int32_t>(file, "tokens"),
                .labels = values_of<int32_t>(file, "labels")};
  for (const auto& [key, view] : file.tensors()) {
    if (!key.starts_with("init.")) continue;
    const std::string param = key.substr(5);
    golden.init[param] = values_of<float>(file, key);
    golden.grads[param] = values_of<double>(file, "grad." + param);
    golden.finals[param] = values_of<double>(file, "final." + param);
    golden.grads_spread[param] = values_of<float>(file, "grad_spread." + param);
    golden.finals_spread[param] = values_of<float>(file, "final_spread." + param);
  }
  return golden;
}

GoldenRun run_golden(const Golden& golden) {
  const Json& training = golden.training;
  RigOptions o{.dims = golden.dims, .threads = 2};
  o.engine.adamw = {.beta1 = training.at("beta1"),
                    .beta2 = training.at("beta2"),
                    .eps = training.at("eps"),
                    .weight_decay = training.at("weight_decay")};
  o.engine.clip.norm = training.at("clip_norm");
  Rig rig(o);
  for (const auto& [name, values] : golden.init) rig.engine.write_weights(name, values);
  GoldenRun run;
  GoldenBatches batches(golden);
  for (int step = 0; step < training.at("steps").get<int>(); ++step) {
    rig.engine.accumulate(batches);
    if (step == 0) {
      const double valid = training.at("golden")[0].at("valid_tokens");
      for (const auto& param : rig.engine.parameters()) {
        for (const float value : rig.engine.read_grads(param.name)) {
          run.grads[param.name].push_back(static_cast<double>(value) / valid);
        }
      }
    }
    rig.engine.apply(training.at("lr"));
    const engine::StepReport report = rig.engine.report();
    run.losses.push_back(report.mean_loss);
    run.tokens.push_back(report.tokens);
    batches.next_step();
  }
  for (const auto& param : rig.engine.parameters()) {
    run.finals[param.name] = rig.engine.read_weights(param.name);
  }
  return run;
}

Comparison compare(const Golden& golden, const GoldenRun& run) {
  Comparison c;
  Differences grads("gradient", c.problems), finals("trained weight", c.problems),
      losses("loss", c.problems);
  for (const auto& [name, values] : golden.grads) {
    const auto found = run.grads.find(name);
    if (found == run.grads.end()) {
      c.problems.push_back("gradient " + name + ": is missing");
      continue;
    }
    grads.add<double>(name, found->second, values, golden.grads_spread.at(name));
    finals.add<float>(name, run.finals.at(name), golden.finals.at(name),
                      golden.finals_spread.at(name));
  }
  if (run.grads.size() != golden.grads.size()) {
    c.problems.push_back(
        fmt::format("{} parameters, the golden has {}", run.grads.size(), golden.grads.size()));
  }
  std::vector<double> means;
  std::vector<float> spreads;
  for (const Json& record : golden.training.at("golden")) {
    means.push_back(record.at("loss_mean"));
    spreads.push_back(record.at("loss_mean_spread"));
    const size_t step = means.size() - 1;
    const int64_t valid = record.at("valid_tokens");
    if (step < run.tokens.size() && run.tokens[step] != valid) {
      c.problems.push_back(fmt::format("step {}: {} valid tokens, the golden has {}", step,
                                       run.tokens[step], valid));
    }
  }
  losses.add<double>("by step", run.losses, means, spreads);
  c.grad_largest = grads.largest();
  c.grad_rms = grads.check_rms();
  c.final_largest = finals.largest();
  c.final_rms = finals.check_rms();
  c.loss_largest = losses.largest();
  return c;
}

}  // namespace trireme::tests
