// SPDX-License-Identifier: Apache-2.0
#include "train/run/trainer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>

#include "base/check.h"
#include "base/error.h"
#include "base/text/json.h"
#include "ckpt/disk/posix_disk.h"
#include "ckpt/generation/folder.h"
#include "ckpt/hf/hf_weights.h"
#include "config/layout.h"
#include "device/accelerator.h"
#include "obs/clock.h"
#include "obs/run_owner.h"
#include "obs/terminal/console.h"
#include "obs/terminal/number_text.h"
#include "spec/parallel/data_parallel.h"
#include "train/checkpointing/run_checkpoints.h"
#include "train/checkpointing/saver.h"
#include "train/report/peaks.h"
#include "train/report/run_output.h"
#include "train/report/run_text.h"
#include "train/report/step_clock.h"
#include "train/report/step_picture.h"
#include "train/report/throughput.h"
#include "train/run/batches.h"
#include "train/run/control_signals.h"
#include "train/run/run_work.h"
#include "train/run/step_agenda.h"
#include "train/run/validation.h"
#include "train/setup/fit.h"
#include "train/setup/rank.h"
#include "train/setup/ranks.h"
#include "train/setup/run_identity.h"
#include "train/setup/setup.h"

namespace trireme::train {
namespace {

// A run whose steps are all skipped will not recover by itself.
constexpr int64_t max_skips_in_a_row = 100;

class Run {
 public:
  Run(const config::Config& c, obs::RunMode mode, const TrainHooks& hooks, const RankStart& start);
  TrainSummary go();

 private:
  void say(const std::string& text) const {
    if (rank_.is_first() && hooks_.line) hooks_.line(text);
  }
  void describe() const;
  void describe_plan();
  void queue_step(TrainBatches& batches, int64_t step);
  StepRequests exchanged_requests(const StepAgenda&, int64_t step);
  void act(int64_t step, const StepActions&);
  void finish_trace();
  void summarise();
  void log(int64_t step);
  void check_data();
  void log_skips(int64_t step, const engine::StepReport& report);
  void log_validation(int64_t step);
  void export_weights(const std::string& name);
  void finish();
  bool has_final_weights();
  [[noreturn]] void end_fenced();

  // From a checkpoint, if that is wanted and there is one. Until begin() no file changes.
  // Collective.
  void resume();
  void begin();

  const double start_seconds_ = obs::steady_seconds();
  const config::Config& config_;
  const TrainHooks& hooks_;
  const RankStart& start_;
  const std::unique_ptr<obs::RunOwner> owner_;  // on the first rank; null on others
  const obs::RunMode mode_;
  spec::ModelSpec model_;
  DataSets data_;
  const base::Json data_identity_;
  optim::LrSchedule lr_;
  Platform platform_;
  const FitJob job_;
  const spec::Plan& plan_;
  Rank rank_;
  RunPeaks peaks_;  // of the first rank
  engine::Engine engine_;
  bool weights_read_;
  std::optional<RunOutput> output_;  // of the first rank; opened after all that may be refused
  std::unique_ptr<Trace> trace_;     // of the first rank
  std::unique_ptr<StepPicture> picture_;
  RunCheckpoints checkpoints_;
  std::optional<Resumed> resumed_;
  int64_t first_step_ = 1;
  int64_t shift_ = 0;          // offset of sample positions; see TrainBatches
  int64_t tokens_before_ = 0;  // that earlier attempts trained on
  double data_seconds_ = 0, logged_data_seconds_ = 0;  // that steps waited for batches
  int64_t logged_step_ = 0;
  TrainSummary summary_;
  int64_t first_skipped_ = -1;  // before this attempt; -1: not known yet
  int64_t logged_skipped_ = 0, logged_row_ = 0, skipped_before_row_ = 0;
  bool is_row_open_ = false;
  std::string accepted_change_;  // a change of data files that left their content equal
  StepClock clock_;
  int64_t sent_bytes_ = 0;  // in steps
  ControlSignals signals_;
};

// Holds the run's folder, before anything else takes time or memory.
std::unique_ptr<obs::RunOwner> hold_folder(const config::Config& c, const TrainHooks& hooks,
                                           const RankStart& start) {
  if (start.number != 0) return nullptr;
  return obs::RunOwner::hold(c.job.dump_folder, {.takes_over = hooks.takes_over});
}

// Decides on the first rank; the others do not open the folder.
obs::RunMode checked_mode(const config::Config& c, obs::RunMode asked, const TrainHooks& hooks,
                          const RankStart& start) {
  if (start.number != 0) return asked;
  const bool resumes =
      hooks.resume.from != Resume::From::start && obs::holds_run(c.job.dump_folder);
  const obs::RunMode mode = resumes ? obs::RunMode::resume : asked;
  obs::RunDir::check(c.job.dump_folder, mode);
  check_own_folders(c);
  return mode;
}

std::unique_ptr<comm::Communicator> connect(const RankStart& start, device::Device& device,
                                            const config::Config& config, const base::Json& data) {
  return start.connect ? start.connect(device, run_identity(config, data)) : nullptr;
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

// Refuses what does not fit before any rank allocates, and measures on a device that is idle.
RunPeaks check_and_measure(const FitJob& job, Platform& platform, const RankStart& start,
                           Rank& rank, int64_t checkpoint_bytes) {
  check_fits(job, platform, start.device_sharers, train_fit_keys(), checkpoint_bytes);
  rank.barrier();
  RunPeaks peaks;
  if (rank.is_first()) peaks = find_peaks(platform, job.plan, start.system.peak_tflops);
  const int devices = (start.ranks + start.device_sharers - 1) / start.device_sharers;
  for (std::optional<Peak>* peak : {&peaks.flops, &peaks.gemm}) {
    if (devices == 1 || !*peak) continue;
    (*peak)->per_second *= devices;
    (*peak)->source += fmt::format(", times {} devices", devices);
  }
  rank.barrier();
  return peaks;
}

std::string saved_line(const SavedGeneration& saved) {
  return fmt::format(
      "saved     checkpoint of step {}: {} in {:.2f} s in the background, {:.2f} s waited",
      saved.step, obs::bytes_text(saved.bytes), saved.durable_seconds, saved.stall_seconds);
}

int64_t sent_in_steps(const spec::TrafficTable& traffic) { return traffic.total() - traffic.other; }

Run::Run(const config::Config& c, obs::RunMode mode, const TrainHooks& hooks,
         const RankStart& start)
    : config_(c),
      hooks_(hooks),
      start_(start),
      owner_(hold_folder(c, hooks, start)),
      mode_(checked_mode(c, mode, hooks, start)),
      model_(spec::make_model(c.dims)),
      data_(c, spec::vocab_of(model_)),
      data_identity_(data_.identity()),
      lr_(make_lr_schedule(c)),
      platform_(make_platform(start.system, hooks.cache_folder)),
      job_(make_fit_job(model_, platform_.backend, config::workload_of(c), config::layout_of(c))),
      plan_(job_.plan),
      rank_(connect(start, *platform_.device, c, data_identity_), plan_.mesh, *platform_.device),
      peaks_(check_and_measure(job_, platform_, start, rank_,
                               checkpoint_bytes(c, job_, start.number))),
      engine_(*platform_.device, model_, plan_, platform_.backend, make_engine_options(c),
              rank_.mesh()),
      weights_read_(read_init_weights(c, engine_)),
      checkpoints_(c, data_identity_, engine_, model_, rank_, *platform_.device, hooks.resume,
                   owner_ ? [this](const auto& write) { owner_->guarded(write); } : ckpt::Guard{},
                   {.say =
                        [this](const std::string& text) {
                          if (hooks_.line) hooks_.line(text);
                        },
                    .saved =
                        [this](const SavedGeneration& saved) {
                          summary_.saved_step = saved.step;
                          say(saved_line(saved));
                          if (output_) output_->add(saved);
                        },
                    .program = hooks.program}),
      signals_(hooks.stop, hooks.save) {
  summary_.hardware = platform_.hardware;
  summary_.parameters = spec::parameter_count(model_);
  if (hooks.trace.first > 0) picture_ = std::make_unique<StepPicture>(engine_, rank_);
}

void Run::describe() const {
  for (const std::string& line : start_.description) say(line);
  for (const std::string& line : describe_run(model_, engine_.plan(), platform_, peaks_)) say(line);
  say(fmt::format("data      {}; {} training samples of {} tokens",
                  data_.train_data().description(), data_.train().samples(), plan_.seq_len));
}

// Prints what the run is going to do. After resume(), before begin(). Collective.
void Run::describe_plan() {
  summary_.checkpoint_bytes = checkpoints_.checkpoint_bytes();
  if (first_step_ > config_.training.steps) return;
  RunWork work{.first_step = first_step_,
               .step_samples = step_tokens(plan_) / plan_.seq_len,
               .training_samples = data_.train().samples(),
               .samples_before = resumed_ ? resumed_->samples : 0,
               .tokens_before = tokens_before_,
               .held_out_samples = data_.validation() ? data_.validation()->samples() : 0,
               .checkpoint_bytes = summary_.checkpoint_bytes,
               .weights_bytes = exports_weights(config_) ? exported_bytes(config_) : 0};
  // A disk may be slow to answer.
  rank_.on_first([&] {
    const auto folder = std::filesystem::path(config_.job.dump_folder) / config_.checkpoint.folder;
    work.free_bytes = free_bytes(folder);
    if (!checkpoints_.saves() || mode_ != obs::RunMode::resume) return;
    work.checkpoints_before = std::ssize(ckpt::committed_steps(*ckpt::posix_disk(), folder));
  });
  for (const std::string& line : describe_work(config_, work)) say(line);
}

TrainSummary Run::go() {
  describe();
  resume();
  describe_plan();
  begin();
  if (first_step_ > config_.training.steps) {
    say(fmt::format("nothing to do: the run is at step {}, training.steps is {}", first_step_ - 1,
                    config_.training.steps));
    finish();
    return summary_;
  }
  TrainBatches batches(data_.train(), plan_, rank_.coord(), first_step_ - 1, shift_);
  if (rank_.is_first() && hooks_.begins) hooks_.begins(first_step_ - 1);
  const StepAgenda agenda(config_, first_step_, data_.validation() != nullptr);
  for (int64_t step = first_step_; step <= config_.training.steps; ++step) {
    queue_step(batches, step);
    summary_.steps = step;
    summary_.attempt_steps = step - first_step_ + 1;
    summary_.tokens += step_tokens(plan_);
    summary_.total_tokens = tokens_before_ + summary_.tokens;
    const StepActions actions = agenda.actions(step, exchanged_requests(agenda, step));
    act(step, actions);
    if (actions.is_last) break;
  }
  finish_trace();
  finish();
  return summary_;
}

// Returns what was requested of any rank, at steps after which ranks exchange requests; at others
// nothing. Collective at the former.
StepRequests Run::exchanged_requests(const StepAgenda& agenda, int64_t step) {
  if (!agenda.exchanges_requests(step) && !signals_.is_due(step)) return {};
  if (!rank_.is_alone()) clock_.wait(engine_.compute());
  const Request request = signals_.settle(rank_, step, owner_ && owner_->is_fenced());
  if (request.is_fenced) end_fenced();
  const bool is_save_time = checkpoints_.settle();
  return {.stop = request.stop, .save = request.save, .is_save_time = is_save_time};
}

void Run::act(int64_t step, const StepActions& actions) {
  summary_.was_stopped = actions.is_stopped;
  if (actions.waits()) clock_.wait(engine_.compute());
  if (step == first_step_) {
    summary_.startup_seconds = obs::steady_seconds() - start_seconds_;
    say(fmt::format("start-up  first step finished after {:.2f} s", summary_.startup_seconds));
  }
  if (actions.logs) {
    check_data();
    log(step);
  }
  if (rank_.is_first() && hooks_.progress) {
    hooks_.progress(step, fmt::format("loss {:.4f}", summary_.loss.value_or(0)));
  }
  if (actions.validates) log_validation(step);
  if (actions.saves) checkpoints_.save(step);
  if (actions.exports) {
    checkpoints_.finish();  // first the checkpoint that the run can be resumed from
    export_weights(ckpt::generation_name(step));
  }
  if (actions.is_stopped) say(fmt::format("asked to stop: step {} is finished", step));
}

void Run::finish() {
  checkpoints_.finish();
  summary_.checkpoints = checkpoints_.figures();
  summary_.saved_step = rank_.gather(summary_.saved_step).front();
  if (summary_.was_stopped && summary_.saved_step == summary_.steps) {
    say(fmt::format("stopped   step {} is saved; --resume auto continues", summary_.steps));
  } else if (summary_.was_stopped) {
    say(fmt::format("stopped   step {} is not saved", summary_.steps));
  }
  if (exports_weights(config_) && !(summary_.attempt_steps == 0 && has_final_weights())) {
    export_weights(summary_.was_stopped ? ckpt::generation_name(summary_.steps) : "final");
  }
  summarise();
  rank_.barrier();  // no rank leaves while another still reads
}

// On every rank what the first one finds.
bool Run::has_final_weights() {
  std::error_code ignored;
  const bool is_there =
      output_ && std::filesystem::exists(output_->saver().folder() / "final", ignored);
  return rank_.gather(static_cast<uint8_t>(is_there ? 1 : 0)).front() != 0;
}

void Run::end_fenced() {
  if (owner_) owner_->guarded([] {});  // throws, with the name of the one that took over
  throw base::Fenced(
      fmt::format("{}: another process has taken the run's folder over", config_.job.dump_folder));
}

void Run::resume() {
  resumed_ = checkpoints_.resume([this](int64_t first, int64_t last, int64_t shift) {
    TrainBatches batches(data_.train(), plan_, rank_.coord(), first - 1, shift);
    for (int64_t step = first; step <= last; ++step) {
      engine_.step(batches, optim::learning_rate(lr_, step - 1));
      if (rank_.is_first() && hooks_.progress) hooks_.progress(step, "replay");
    }
  });
  if (!resumed_) {
    say(weights_read_ ? "start     weights of " + config_.training.init_from
                      : fmt::format("start     weights drawn from seed {}", config_.debug.seed));
    return;
  }
  first_step_ = resumed_->step + 1;
  shift_ = resumed_->samples - resumed_->step * (step_tokens(plan_) / plan_.seq_len);
  summary_.total_tokens = tokens_before_ = resumed_->tokens;
  summary_.steps = summary_.resumed_from = resumed_->step;
  summary_.skipped_steps = engine_.step_state().skipped;
}

// All that may be refused was accepted: from here on the run writes.
void Run::begin() {
  Checkpointer::Begin begin{.step = resumed_ ? resumed_->step : -1};
  rank_.on_first([&] {
    const std::optional<obs::OwnerRecord>& previous = owner_->previous();
    if (previous) begin.previous_run = previous->run;
    // A checkpoint knows its run; a folder that is resumed before it has one belongs to its last.
    const bool continues = mode_ == obs::RunMode::resume;
    owner_->begin(resumed_ && !resumed_->writer.run.empty() ? resumed_->writer.run
                  : continues                               ? begin.previous_run
                                                            : "");
    begin.writer = {.run = owner_->run(), .epoch = owner_->epoch()};
    output_.emplace(config_, mode_, engine_.plan(), *owner_, hooks_.program, begin.step);
    summary_.run_folder = output_->folder();
    say(fmt::format("run       {} in {} ({}, attempt {})", config_.job.name,
                    config_.job.dump_folder, owner_->run(), owner_->attempt()));
  });
  if (start_.begins) start_.begins();
  if (rank_.is_first() && hooks_.trace.first > 0) {
    const auto named = [this](const char* kind, const char* ending) {
      return output_->folder() /
             fmt::format("{}_steps_{}-{}.{}", kind, hooks_.trace.first, hooks_.trace.last, ending);
    };
    summary_.trace = named("trace", "json");
    summary_.picture = named("pipeline", "svg");
    trace_ = std::make_unique<Trace>(summary_.trace, engine_.compute());
  }
  checkpoints_.begin(begin);
  if (owner_) owner_->begun();
}

void Run::summarise() {
  const spec::TrafficTable sent = spec::predict_traffic(model_, engine_.plan(), rank_.coord());
  const RankFigures own{.predicted = engine_.predicted_memory(),
                        .measured = engine_.measured(),
                        .ledger_bytes = platform_.device->ledger().live(),
                        .checkpoints = checkpoints_.memory(),
                        .predicted_traffic_bytes = summary_.attempt_steps * sent_in_steps(sent),
                        .counted_traffic_bytes = sent_bytes_};
  set_ranks(summary_, rank_.gather(own));
  summary_.ledger_bytes = own.ledger_bytes;
  summary_.driver_used_bytes = device::driver_used_bytes(*platform_.device);
  if (platform_.is_gpu() && rank_.is_alone()) {
    say(memory_line(summary_.ledger_bytes, summary_.driver_used_bytes));
  }
  summary_.seconds = clock_.seconds();
  if (clock_.median_lap() > 0) {
    summary_.tokens_per_second = static_cast<double>(step_tokens(plan_)) / clock_.median_lap();
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
  const bool is_traced = picture_ && hooks_.trace.contains(step);
  if (is_traced) {
    clock_.wait(engine_.compute());
    clock_.leave_out();  // slower than others
    picture_->begin_step(step);
    if (trace_) trace_->begin_step(step);
  }
  clock_.begin_step();
  const int64_t sent_before = sent_in_steps(engine_.traffic());
  engine_.step(batches, optim::learning_rate(lr_, step - 1));
  sent_bytes_ += sent_in_steps(engine_.traffic()) - sent_before;
  clock_.end_step();
  data_seconds_ = batches.waited_seconds();
  if (is_traced) {
    if (trace_) trace_->end_step();
    picture_->end_step();
    clock_.wait(engine_.compute());
    if (step == hooks_.trace.last) finish_trace();
  }
  if (!summary_.was_captured && engine_.is_captured()) {
    summary_.was_captured = true;
    say(fmt::format("graph     step {} was captured as a graph; later steps replay it", step));
  }
}

void Run::finish_trace() {
  const bool is_drawn = trace_ && picture_ && picture_->has_steps();
  if (is_drawn) picture_->write(summary_.picture);
  const double ratio = is_drawn ? picture_->ratio() : 0;
  picture_.reset();
  if (!trace_) return;
  trace_->finish();
  say(fmt::format("trace     {}: {} waits of the host inside steps", summary_.trace.string(),
                  trace_->waits()));
  trace_.reset();
  if (!is_drawn) {  // the run ended before
    summary_.picture.clear();
    return;
  }
  say(fmt::format("picture   {}: measured steps took {:.3f} of the simulated time",
                  summary_.picture.string(), ratio));
}

void Run::log(int64_t step) {
  const engine::StepReport report = engine_.report();
  check_samples(report, plan_, step - 1, shift_);
  if (step == first_step_) clock_.leave_out();  // it warms up
  const double seconds = clock_.lap();
  const double rate = static_cast<double>(step_tokens(plan_)) / seconds;
  summary_.loss = report.mean_loss;
  log_skips(step, report);
  summary_.loss_curve.push_back({static_cast<double>(step), report.mean_loss});

  const double tflops = formula_flops_per_token(model_, engine_.plan().seq_len) * rate / 1e12;
  const int64_t ledger_bytes = platform_.device->ledger().live();
  obs::StepLine line{.step = step,
                     .loss = report.mean_loss,
                     .grad_norm = static_cast<double>(report.grad_norm),
                     .learning_rate = static_cast<double>(report.learning_rate),
                     .tokens = summary_.total_tokens,
                     .tokens_per_second = rate,
                     .step_seconds = seconds,
                     .memory_bytes = ledger_bytes,
                     .skipped = report.skipped - logged_skipped_};
  logged_skipped_ = report.skipped;
  const int64_t samples = step * (step_tokens(plan_) / plan_.seq_len) + shift_;
  const int64_t steps = step - (step == first_step_ ? first_step_ - 1 : logged_step_);
  const double data_seconds = (data_seconds_ - logged_data_seconds_) / static_cast<double>(steps);
  logged_data_seconds_ = data_seconds_;
  logged_step_ = step;
  std::vector<obs::Metric> metrics = {
      {"loss_metrics/global_avg_loss", report.mean_loss},
      {"grad_norm", static_cast<double>(report.grad_norm)},
      {"lr", static_cast<double>(report.learning_rate)},
      {"throughput(tps)", rate},
      {"tflops", tflops},
      {"tokens", static_cast<double>(summary_.total_tokens)},
      {"epoch", static_cast<double>(samples) / static_cast<double>(data_.train().samples())},
      {"time_metrics/end_to_end(s)", seconds},
      {"time_metrics/data_loading(s)", data_seconds},
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
  if (output_) output_->add("train", step, metrics);
  if (report.skipped_in_a_row >= max_skips_in_a_row) {
    throw base::Error(fmt::format(
        "step {}: {} steps in a row were skipped because the gradient norm ({}) is not finite or "
        "above {} times its running mean; lower optimizer.lr, or set training.skip_norm_multiple",
        step, report.skipped_in_a_row, report.grad_norm, config_.training.skip_norm_multiple));
  }
}

void Run::log_validation(int64_t step) {
  const engine::EvalReport sum =
      validate(engine_, rank_, *data_.validation(), config::validation_samples(config_));
  const double loss = sum.loss_sum / static_cast<double>(std::max<int64_t>(1, sum.tokens));
  summary_.validation_loss = loss;
  summary_.validation_curve.push_back({static_cast<double>(step), loss});
  say(fmt::format("validate step: {}  loss: {:8.5f}  tokens: {}", step, loss, sum.tokens));
  const std::array<obs::Metric, 2> metrics = {
      {{"validation_metrics/loss", loss},
       {"validation_metrics/tokens", static_cast<double>(sum.tokens)}}};
  if (output_) output_->add("validation", step, metrics);
}

// A failing export is reported; what it would have exported is in the checkpoint.
void Run::export_weights(const std::string& name) {
  const SavedWeights saved =
      save_weights(engine_, rank_, output_ ? &output_->saver() : nullptr, name);
  summary_.weights = saved.path;
  summary_.export_problem = saved.problem;
  if (saved.problem.empty()) {
    say(fmt::format("weights   {} ({} in {:.2f} s)", saved.path.string(),
                    obs::bytes_text(saved.bytes), saved.seconds));
    if (output_) output_->add(summary_.steps, saved);
  } else {
    say(
        fmt::format("weights   not exported: {}; `trireme ckpt export {}` makes them from the "
                    "checkpoint",
                    saved.problem, config_.job.dump_folder));
  }
}

// Throws IoError if the data is no longer what the run started with. A file that was only touched,
// or replaced by an equal one, is as good as before.
void Run::check_data() {
  const std::string change = data_.changed();
  if (change.empty() || change == accepted_change_) return;
  if (data_.identity() != data_identity_) {
    throw base::IoError(fmt::format(
        "{}: steps since the last checkpoint may have used other data. Put the data back and "
        "resume, or continue with the new data (--resume auto --allow-data-change)",
        change));
  }
  accepted_change_ = change;
}

// Tells where a row of skipped steps began and ended, at the first log line after it.
void Run::log_skips(int64_t step, const engine::StepReport& report) {
  if (first_skipped_ < 0) {
    // What earlier attempts skipped, and what this one skipped in its first step.
    first_skipped_ = report.skipped - (report.was_skipped ? 1 : 0);
    logged_skipped_ = first_skipped_;
    logged_row_ = report.was_skipped ? 0 : report.row_first;
  }
  summary_.skipped_steps = report.skipped;
  summary_.attempt_skipped_steps = report.skipped - first_skipped_;
  if (report.row_first > logged_row_) {
    logged_row_ = report.row_first;
    is_row_open_ = true;
    skipped_before_row_ =
        report.skipped_in_a_row > 0 ? report.skipped - report.skipped_in_a_row : logged_skipped_;
    say(std::isfinite(report.row_norm)
            ? fmt::format("guard     step {} skipped: gradient norm {:.4g} is {:.3g} x its running "
                          "mean {:.4g}; training.skip_norm_multiple = {:g}",
                          report.row_first, report.row_norm, report.row_norm / report.row_mean,
                          report.row_mean, config_.training.skip_norm_multiple)
            : fmt::format("guard     step {} skipped: the gradient norm is not finite",
                          report.row_first));
  }
  if (is_row_open_ && report.skipped_in_a_row == 0) {
    is_row_open_ = false;
    const int64_t skipped = report.skipped - skipped_before_row_;
    say(fmt::format("guard     step{} skipped; step {} is taken",
                    skipped == 1 ? fmt::format(" {} was", report.row_first)
                                 : fmt::format("s {} to {} were", report.row_first,
                                               report.row_first + skipped - 1),
                    step));
  }
}

}  // namespace

TrainSummary train(const config::Config& asked, obs::RunMode mode, const TrainHooks& hooks,
                   const comm::RankInfo& info) {
  const config::Config config = settled(asked);
  TrainSummary summary;
  std::mutex mutex;  // ranks that are threads share the caller's hook
  TrainHooks shared = hooks;
  if (hooks.line) {
    shared.line = [&](std::string_view text) {
      const std::scoped_lock lock(mutex);
      hooks.line(text);
    };
  }
  if (hooks.progress) {
    shared.progress = [&](int64_t done, std::string_view note) {
      const std::scoped_lock lock(mutex);
      hooks.progress(done, note);
    };
  }
  run_ranks(config, info, [&](const RankStart& start) {
    TrainSummary own = Run(config, mode, shared, start).go();
    // As threads all ranks are here; their summaries differ in nothing but files.
    if (start.number == 0 || info.world > 1) summary = std::move(own);
  });
  return summary;
}

}  // namespace trireme::train
