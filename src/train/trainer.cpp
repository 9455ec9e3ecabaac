// SPDX-License-Identifier: Apache-2.0
#include "train/trainer.h"

#include <algorithm>
#include <memory>

#include "base/check.h"
#include "base/error.h"
#include "ckpt/hf_weights.h"
#include "obs/clock.h"
#include "obs/console.h"
#include "obs/jsonl_sink.h"
#include "obs/tensorboard_sink.h"
#include "train/batches.h"
#include "train/saver.h"
#include "train/setup.h"
#include "train/throughput.h"

namespace trireme::train {
namespace {

// A run whose steps are all skipped will not recover by itself.
constexpr int64_t most_skips_in_a_row = 100;

class Run {
 public:
  Run(const config::Config& c, obs::RunMode mode, const TrainHooks& hooks);
  TrainSummary go();

 private:
  void say(const std::string& text) const {
    if (hooks_.line) hooks_.line(text);
  }
  void describe() const;
  bool is_due(int64_t step, int64_t every) const { return every > 0 && step % every == 0; }
  void log(int64_t step);
  void validate(int64_t step);
  void save(const std::string& name);

  const config::Config& config_;
  const TrainHooks& hooks_;
  spec::ModelSpec model_;
  DataSets data_;
  optim::LrSchedule lr_;
  std::unique_ptr<device::Device> device_;
  engine::Engine engine_;
  bool weights_read_;
  obs::RunDir folder_;  // opened after all that may be refused
  Saver saver_;
  std::vector<std::unique_ptr<obs::MetricSink>> sinks_;
  TrainSummary summary_;
  // Since the last logged step.
  double stretch_seconds_ = 0;
  int64_t stretch_steps_ = 0;
  std::vector<double> rates_;
};

int64_t vocab_of(const spec::ModelSpec& model) {
  return std::get<spec::HeadSpec>(model.layers.back()).vocab;
}

// True if training starts from given weights.
bool read_init_weights(const config::Config& c, engine::Engine& engine) {
  if (c.training.init_from.empty()) return false;
  ckpt::import_hf(c.training.init_from, c.dims,
                  [&engine](const std::string& name, std::span<const float> values) {
                    engine.write_weights(name, values);
                  });
  return true;
}

Run::Run(const config::Config& c, obs::RunMode mode, const TrainHooks& hooks)
    : config_(c),
      hooks_(hooks),
      model_(spec::make_model(c.dims)),
      data_(c, vocab_of(model_)),
      lr_(make_lr_schedule(c)),
      device_(make_device(c.system)),
      engine_(*device_, model_, make_plan(c, model_), spec::Backend{}, make_engine_options(c)),
      weights_read_(read_init_weights(c, engine_)),
      folder_(obs::RunDir::open(c.job.dump_folder, mode)),
      saver_(folder_.path() / c.checkpoint.folder, c) {
  obs::write_file(folder_.config(), config::to_json(c).dump(2) + "\n");
  obs::write_file(folder_.path() / "plan.json", spec::to_json(engine_.plan()).dump(2) + "\n");
  sinks_.push_back(std::make_unique<obs::JsonlSink>(folder_.metrics()));
  if (c.metrics.enable_tensorboard) {
    sinks_.push_back(
        std::make_unique<obs::TensorboardSink>(folder_.path() / c.metrics.save_tb_folder));
  }
  summary_.run_folder = folder_.path();
  summary_.parameters = spec::parameter_count(model_);
  summary_.predicted = engine_.plan().predicted.memory.front();
}

void Run::describe() const {
  const spec::Plan& plan = engine_.plan();
  say(fmt::format("model     {}: {:.2f} M parameters, {} blocks", model_.name,
                  static_cast<double>(summary_.parameters) / 1e6, model_.blocks()));
  say(fmt::format("data      {}; {} training samples of {} tokens",
                  data_.train_data().description(), data_.train().samples(), plan.seq_len));
  say(fmt::format("batch     {} x {} sequences x {} tokens = {} tokens a step",
                  plan.schedule.microbatches, plan.microbatch_sequences, plan.seq_len,
                  plan.schedule.microbatches * plan.microbatch_tokens()));
  say(fmt::format("plan      {}, recompute {}, {} threads, {:.1f} MiB predicted", plan.recipe.name,
                  config_.activation_checkpoint.mode, thread_count(config_.system.threads),
                  static_cast<double>(summary_.predicted.total()) / 0x1p20));
  say(weights_read_ ? "start     weights of " + config_.training.init_from
                    : fmt::format("start     weights drawn from seed {}", config_.debug.seed));
  say(fmt::format("run       {}", folder_.path().string()));
  if (config_.system.peak_tflops > 0) {
    say(fmt::format("mfu       (6 N + 12 L h T) x tokens/s / {:g} TFLOP/s (given)",
                    config_.system.peak_tflops));
  }
}

TrainSummary Run::go() {
  describe();
  TrainBatches batches(data_.train(), config_, 0);
  const int64_t step_tokens =
      engine_.plan().schedule.microbatches * engine_.plan().microbatch_tokens();
  for (int64_t step = 1; step <= config_.training.steps; ++step) {
    const double begin = obs::steady_seconds();
    engine_.step(batches, optim::learning_rate(lr_, step - 1));
    engine_.compute().synchronize();
    const double taken = obs::steady_seconds() - begin;
    stretch_seconds_ += taken;
    ++stretch_steps_;
    summary_.seconds += taken;
    summary_.steps = step;
    summary_.tokens += step_tokens;
    summary_.was_stopped = hooks_.stop != nullptr && hooks_.stop->load();
    const bool is_last = step == config_.training.steps || summary_.was_stopped;

    if (step == 1 || is_last || is_due(step, config_.metrics.log_freq)) log(step);
    if (hooks_.progress) hooks_.progress(step, fmt::format("loss {:.4f}", summary_.loss));
    const bool is_asked = hooks_.save != nullptr && hooks_.save->exchange(false);
    if (data_.validation() != nullptr && (is_last || is_due(step, config_.validation.freq))) {
      validate(step);
    }
    const bool is_time = config_.checkpoint.enable && is_due(step, config_.checkpoint.interval);
    if (!is_last && (is_asked || is_time)) {
      save(fmt::format("step-{:08}", step));
    }
    if (summary_.was_stopped) {
      say(fmt::format("asked to stop: step {} is finished", step));
      break;
    }
  }
  if (config_.checkpoint.enable) save("final");
  summary_.measured = engine_.measured();
  if (!rates_.empty()) {
    std::nth_element(rates_.begin(), rates_.begin() + static_cast<ptrdiff_t>(rates_.size() / 2),
                     rates_.end());
    summary_.tokens_per_second = rates_[rates_.size() / 2];
  }
  if (config_.system.peak_tflops > 0) {
    const Utilisation u = utilisation(model_, engine_.plan(), summary_.tokens_per_second,
                                      config_.system.peak_tflops * 1e12);
    summary_.mfu = u.mfu;
    summary_.hfu = u.hfu;
  }
  return summary_;
}

void Run::log(int64_t step) {
  const engine::StepReport report = engine_.report();
  const int64_t step_tokens =
      engine_.plan().schedule.microbatches * engine_.plan().microbatch_tokens();
  const double seconds = stretch_seconds_ / static_cast<double>(stretch_steps_);
  const double rate = static_cast<double>(step_tokens) / seconds;
  stretch_seconds_ = 0;
  stretch_steps_ = 0;
  if (step > 1) rates_.push_back(rate);
  summary_.loss = report.mean_loss;
  summary_.skipped_steps = report.skipped;
  summary_.loss_curve.push_back({static_cast<double>(step), report.mean_loss});

  const double tflops = formula_flops_per_token(model_, engine_.plan().seq_len) * rate / 1e12;
  obs::StepLine line{.step = step,
                     .loss = report.mean_loss,
                     .grad_norm = static_cast<double>(report.grad_norm),
                     .memory_bytes = device_->ledger().peak(),
                     .tokens_per_second = rate,
                     .tflops = tflops};
  std::vector<obs::Metric> metrics = {
      {"loss_metrics/global_avg_loss", report.mean_loss},
      {"loss_metrics/global_max_loss", report.mean_loss},
      {"grad_norm", static_cast<double>(report.grad_norm)},
      {"lr", static_cast<double>(report.learning_rate)},
      {"throughput(tps)", rate},
      {"tflops", tflops},
      {"time_metrics/end_to_end(s)", seconds},
      {"memory/max_active(GiB)", static_cast<double>(device_->ledger().peak()) / 0x1p30},
      {"skipped_steps", static_cast<double>(report.skipped)}};
  if (config_.system.peak_tflops > 0) {
    const Utilisation u =
        utilisation(model_, engine_.plan(), rate, config_.system.peak_tflops * 1e12);
    line.mfu = u.mfu;
    metrics.push_back({"mfu(%)", 100 * u.mfu});
    metrics.push_back({"hfu(%)", 100 * u.hfu});
  }
  say(obs::step_line(line));
  for (const auto& sink : sinks_) sink->step(step, metrics);
  if (report.skipped_in_a_row >= most_skips_in_a_row) {
    throw base::Error(fmt::format(
        "step {}: {} steps in a row were skipped because the gradient norm ({}) is not finite or "
        "above {} times its running mean; lower optimizer.lr, or set training.skip_norm_multiple",
        step, report.skipped_in_a_row, report.grad_norm, config_.training.skip_norm_multiple));
  }
}

void Run::validate(int64_t step) {
  const data::Sampler& sampler = *data_.validation();
  const int64_t sequences = engine_.plan().microbatch_sequences;
  // -1: all samples; the last micro-batch may have sequences without labels.
  const int64_t whole = (sampler.samples() + sequences - 1) / sequences;
  const int64_t count =
      config_.validation.steps < 0 ? whole : std::min(whole, config_.validation.steps);
  SequentialBatches batches(sampler, sequences);
  engine::EvalReport sum;
  for (int64_t i = 0; i < count; ++i) {
    const engine::EvalReport part = engine_.evaluate(batches);
    sum.loss_sum += part.loss_sum;
    sum.tokens += part.tokens;
  }
  const double loss = sum.loss_sum / static_cast<double>(std::max<int64_t>(1, sum.tokens));
  summary_.validation_loss = loss;
  summary_.validation_curve.push_back({static_cast<double>(step), loss});
  say(fmt::format("validate step: {}  loss: {:8.5f}  tokens: {}", step, loss, sum.tokens));
  const obs::Metric metric{"validation_metrics/loss", loss};
  for (const auto& sink : sinks_) sink->step(step, {&metric, 1});
}

void Run::save(const std::string& name) {
  summary_.weights =
      saver_.save(name, [this](const std::string& param) { return engine_.read_weights(param); });
  say(fmt::format("weights   {}", summary_.weights.string()));
}

}  // namespace

TrainSummary train(const config::Config& config, obs::RunMode mode, const TrainHooks& hooks) {
  return Run(config, mode, hooks).go();
}

}  // namespace trireme::train
