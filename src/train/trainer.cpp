// SPDX-License-Identifier: Apache-2.0
#include "train/trainer.h"

#include <algorithm>
#include <memory>

#include "base/check.h"
#include "base/error.h"
#include "ckpt/hf_weights.h"
#include "device/accelerator.h"
#include "obs/clock.h"
#include "obs/console.h"
#include "obs/jsonl_sink.h"
#include "obs/tensorboard_sink.h"
#include "train/batches.h"
#include "train/fit.h"
#include "train/peaks.h"
#include "train/run_text.h"
#include "train/saver.h"
#include "train/setup.h"
#include "train/step_clock.h"
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
  void queue_step(TrainBatches& batches, int64_t step);
  void finish_trace();
  void summarise(int64_t step_tokens);
  void log(int64_t step);
  void validate(int64_t step);
  void save(const std::string& name);

  const double start_seconds_ = obs::steady_seconds();
  const config::Config& config_;
  const TrainHooks& hooks_;
  spec::ModelSpec model_;
  DataSets data_;
  optim::LrSchedule lr_;
  Platform platform_;
  spec::Plan plan_;
  RunPeaks peaks_;
  engine::Engine engine_;
  bool weights_read_;
  obs::RunDir folder_;  // opened after all that may be refused
  Saver saver_;
  std::vector<std::unique_ptr<obs::MetricSink>> sinks_;
  std::unique_ptr<Trace> trace_;
  TrainSummary summary_;
  StepClock clock_;
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

// Refused before anything is allocated.
spec::Plan fitting_plan(const config::Config& c, const spec::ModelSpec& model, Platform& platform) {
  spec::Plan plan = make_plan(c, model, platform.backend);
  check_fits(model, plan, platform);
  return plan;
}

Run::Run(const config::Config& c, obs::RunMode mode, const TrainHooks& hooks)
    : config_(c),
      hooks_(hooks),
      model_(spec::make_model(c.dims)),
      data_(c, vocab_of(model_)),
      lr_(make_lr_schedule(c)),
      platform_(make_platform(c.system, hooks.cache_folder)),
      plan_(fitting_plan(c, model_, platform_)),
      peaks_(find_peaks(platform_, plan_, c.system.peak_tflops)),
      engine_(*platform_.device, model_, plan_, platform_.backend, make_engine_options(c)),
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
  if (hooks.trace.first > 0) {
    summary_.trace =
        folder_.path() / fmt::format("trace_steps_{}-{}.json", hooks.trace.first, hooks.trace.last);
    trace_ = std::make_unique<Trace>(summary_.trace, engine_.compute());
  }
  summary_.run_folder = folder_.path();
  summary_.hardware = platform_.hardware;
  summary_.parameters = spec::parameter_count(model_);
  summary_.predicted = engine_.plan().predicted.memory.front();
}

void Run::describe() const {
  for (const std::string& line : describe_run(model_, engine_.plan(), platform_, peaks_)) say(line);
  say(fmt::format("data      {}; {} training samples of {} tokens",
                  data_.train_data().description(), data_.train().samples(), plan_.seq_len));
  say(weights_read_ ? "start     weights of " + config_.training.init_from
                    : fmt::format("start     weights drawn from seed {}", config_.debug.seed));
  say(fmt::format("run       {}", folder_.path().string()));
}

TrainSummary Run::go() {
  describe();
  TrainBatches batches(data_.train(), config_, 0);
  const int64_t step_tokens = plan_.schedule.microbatches * plan_.microbatch_tokens();
  for (int64_t step = 1; step <= config_.training.steps; ++step) {
    queue_step(batches, step);
    summary_.steps = step;
    summary_.tokens += step_tokens;
    summary_.was_stopped = hooks_.stop != nullptr && hooks_.stop->load();
    const bool is_last = step == config_.training.steps || summary_.was_stopped;
    const bool is_asked = hooks_.save != nullptr && hooks_.save->exchange(false);
    const bool logs = step == 1 || is_last || is_due(step, config_.metrics.log_freq);
    const bool validates =
        data_.validation() != nullptr && (is_last || is_due(step, config_.validation.freq));
    const bool is_time = config_.checkpoint.enable && is_due(step, config_.checkpoint.interval);
    const bool saves = !is_last && (is_asked || is_time);

    if (logs || validates || saves) clock_.wait(engine_.compute());
    if (step == 1) {
      summary_.startup_seconds = obs::steady_seconds() - start_seconds_;
      say(fmt::format("start-up  first step finished after {:.2f} s", summary_.startup_seconds));
    }
    if (logs) log(step);
    if (hooks_.progress) hooks_.progress(step, fmt::format("loss {:.4f}", summary_.loss));
    if (validates) validate(step);
    if (saves) save(fmt::format("step-{:08}", step));
    if (summary_.was_stopped) {
      say(fmt::format("asked to stop: step {} is finished", step));
      break;
    }
  }
  finish_trace();
  if (config_.checkpoint.enable) save("final");
  summarise(step_tokens);
  return summary_;
}

void Run::summarise(int64_t step_tokens) {
  summary_.measured = engine_.measured();
  summary_.ledger_bytes = platform_.device->ledger().live();
  summary_.driver_used_bytes = device::driver_used_bytes(*platform_.device);
  if (platform_.is_gpu()) say(memory_line(summary_.ledger_bytes, summary_.driver_used_bytes));
  summary_.seconds = clock_.seconds();
  if (clock_.median_lap() > 0) {
    summary_.tokens_per_second = static_cast<double>(step_tokens) / clock_.median_lap();
  }
  const auto against = [this](const Peak& peak) {
    return utilisation(model_, engine_.plan(), summary_.tokens_per_second, peak.per_second);
  };
  if (peaks_.flops) {
    summary_.mfu = against(*peaks_.flops).mfu;
    summary_.hfu = against(*peaks_.flops).hfu;
    summary_.peak_flops = peaks_.flops->per_second;
    summary_.peak_source = peaks_.flops->source;
  }
  if (peaks_.gemm) summary_.gemm_utilisation = against(*peaks_.gemm).mfu;
}

void Run::queue_step(TrainBatches& batches, int64_t step) {
  const bool is_traced = trace_ && hooks_.trace.contains(step);
  if (is_traced) {
    clock_.wait(engine_.compute());
    clock_.leave_out();  // slower than others
    trace_->begin_step(step);
  }
  clock_.begin_step();
  engine_.step(batches, optim::learning_rate(lr_, step - 1));
  clock_.end_step();
  if (is_traced) {
    trace_->end_step();
    clock_.wait(engine_.compute());
    if (step == hooks_.trace.last) finish_trace();
  }
  if (!summary_.was_captured && engine_.is_captured()) {
    summary_.was_captured = true;
    say(fmt::format("graph     step {} was captured as a graph; later steps replay it", step));
  }
}

void Run::finish_trace() {
  if (!trace_) return;
  trace_->finish();
  say(fmt::format("trace     {}: {} waits of the host inside steps", summary_.trace.string(),
                  trace_->waits()));
  trace_.reset();
}

void Run::log(int64_t step) {
  const engine::StepReport report = engine_.report();
  const int64_t step_tokens = plan_.schedule.microbatches * plan_.microbatch_tokens();
  if (step == 1) clock_.leave_out();  // it warms up
  const double seconds = clock_.lap();
  const double rate = static_cast<double>(step_tokens) / seconds;
  summary_.loss = report.mean_loss;
  summary_.skipped_steps = report.skipped;
  summary_.loss_curve.push_back({static_cast<double>(step), report.mean_loss});

  const double tflops = formula_flops_per_token(model_, engine_.plan().seq_len) * rate / 1e12;
  const int64_t ledger_bytes = platform_.device->ledger().live();
  obs::StepLine line{.step = step,
                     .loss = report.mean_loss,
                     .grad_norm = static_cast<double>(report.grad_norm),
                     .memory_bytes = ledger_bytes,
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
      {"memory/max_active(GiB)", static_cast<double>(ledger_bytes) / 0x1p30},
      {"skipped_steps", static_cast<double>(report.skipped)}};
  if (platform_.memory_bytes > 0) {
    line.memory_fraction =
        static_cast<double>(ledger_bytes) / static_cast<double>(platform_.memory_bytes);
  }
  if (peaks_.flops) {
    const Utilisation u = utilisation(model_, engine_.plan(), rate, peaks_.flops->per_second);
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
