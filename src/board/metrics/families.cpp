// SPDX-License-Identifier: Apache-2.0
// The families of /metrics and what they are computed from.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <span>

#include "base/text/json.h"
#include "base/text/printable.h"
#include "board/board.h"
#include "board/metrics/exposition.h"

namespace trireme::board {
namespace {

using Labels = std::vector<std::pair<std::string, std::string>>;
using analysis::RunState;

// Records of ranks that are older than this say nothing about now.
constexpr double max_record_age_seconds = 300;

struct Description {
  const char* name;
  const char* unit;
  MetricType type;
  const char* help;
};

// In the order of the text.
constexpr Description descriptions[] = {
    {"trireme_runs", "", MetricType::gauge, "Runs that this board shows"},
    {"trireme_runs_left_out", "", MetricType::gauge,
     "Runs without series here, and runs that are going on without all of theirs, because there "
     "would "
     "be too many"},
    {"trireme_run_info", "", MetricType::gauge,
     "Name, group, state and outcome of a run; the value is 1"},
    {"trireme_up", "", MetricType::gauge, "1 if the run is going on, otherwise 0"},
    {"trireme_step", "", MetricType::gauge, "Last step that the run has written"},
    {"trireme_planned_steps", "", MetricType::gauge, "Steps of the configuration"},
    {"trireme_tokens", "", MetricType::counter, "Tokens that the run has trained on"},
    {"trireme_loss", "", MetricType::gauge, "Loss of the last step, nats per token"},
    {"trireme_validation_loss", "", MetricType::gauge, "Loss of the last validation"},
    {"trireme_grad_norm", "", MetricType::gauge, "Norm of the gradients of the last step"},
    {"trireme_update_norm", "", MetricType::gauge, "Norm of the last update"},
    {"trireme_learning_rate", "", MetricType::gauge, "Learning rate of the last step"},
    {"trireme_step_seconds", "seconds", MetricType::gauge,
     "Seconds of a step by rank: minimum, median and maximum"},
    {"trireme_predicted_step_seconds", "seconds", MetricType::gauge,
     "Seconds of a step that the planner predicted"},
    {"trireme_tokens_per_second", "", MetricType::gauge, "Tokens per second, all ranks"},
    {"trireme_mfu_ratio", "ratio", MetricType::gauge, "Model FLOPs over peak"},
    {"trireme_hfu_ratio", "ratio", MetricType::gauge, "Hardware FLOPs over peak"},
    {"trireme_skipped_steps", "", MetricType::counter, "Steps whose update was not applied"},
    {"trireme_epoch", "", MetricType::gauge, "How often the folder changed its owner"},
    {"trireme_attempt", "", MetricType::gauge, "Starts of the run"},
    {"trireme_members", "", MetricType::gauge, "Ranks of the last record"},
    {"trireme_last_commit_timestamp_seconds", "seconds", MetricType::gauge,
     "When the newest complete checkpoint was committed"},
    {"trireme_last_commit_step", "", MetricType::gauge, "Step of the newest complete checkpoint"},
    {"trireme_last_record_timestamp_seconds", "seconds", MetricType::gauge,
     "When the run last wrote anything"},
    {"trireme_phase_seconds", "seconds", MetricType::counter, "Wall time by class, all attempts"},
    {"trireme_lost_tokens", "", MetricType::counter, "Tokens that are in no update, by cause"},
    {"trireme_failures", "", MetricType::counter, "Attempts that failed or died"},
    {"trireme_events", "", MetricType::counter, "Events by kind"},
    {"trireme_finding_ratio", "ratio", MetricType::gauge,
     "Share of a step that a cause costs, by the diagnosis"},
    {"trireme_memory_bytes", "bytes", MetricType::gauge, "Device memory of the rank with most"},
    {"trireme_memory_limit_bytes", "bytes", MetricType::gauge, "Device memory that there is"},
    {"trireme_rank_late_seconds", "seconds", MetricType::gauge,
     "How much later than the first of its groups a rank arrives, per step; the latest ranks"},
    {"trireme_rank_compute_seconds", "seconds", MetricType::gauge,
     "Seconds of compute per step of the latest ranks"}};

class Families {
 public:
  explicit Families(size_t limit) : limit_(limit) {
    for (const Description& one : descriptions) {
      index_[one.name] = families_.size();
      families_.push_back({.name = one.name, .help = one.help, .unit = one.unit, .type = one.type});
    }
  }
  // Drops the sample if there are too many already.
  void add(const char* name, Labels labels, double value) {
    if (count_ == limit_) return;
    ++count_;
    families_[index_.at(name)].samples.push_back({.labels = std::move(labels), .value = value});
  }
  void add(const char* name, const Labels& labels, std::optional<double> value) {
    if (value) add(name, labels, *value);
  }
  size_t room() const { return limit_ - count_; }
  std::vector<MetricFamily> take() { return std::move(families_); }

 private:
  std::vector<MetricFamily> families_;
  std::map<std::string, size_t> index_;
  size_t limit_;
  size_t count_ = 0;
};

Labels with(Labels labels, const char* name, std::string value) {
  labels.emplace_back(name, std::move(value));
  return labels;
}

const std::vector<double>* column_of(const RunFacts& facts, const char* name) {
  const auto found = facts.last_ranks.find(name);
  return found == facts.last_ranks.end() || found->second.empty() ? nullptr : &found->second;
}

void add_ranks(Families& out, const RunFacts& facts, const Labels& run) {
  if (const std::vector<double>* seconds = column_of(facts, "step_seconds")) {
    std::vector<double> sorted = *seconds;
    std::sort(sorted.begin(), sorted.end());
    out.add("trireme_step_seconds", with(run, "over_ranks", "min"), sorted.front());
    out.add("trireme_step_seconds", with(run, "over_ranks", "median"), sorted[sorted.size() / 2]);
    out.add("trireme_step_seconds", with(run, "over_ranks", "max"), sorted.back());
    out.add("trireme_members", run, static_cast<double>(sorted.size()));
  }
  for (const char* name : {"memory_bytes", "memory_limit_bytes"}) {
    const std::vector<double>* bytes = column_of(facts, name);
    if (bytes == nullptr) continue;
    const double most = *std::max_element(bytes->begin(), bytes->end());
    out.add(
        std::string(name) == "memory_bytes" ? "trireme_memory_bytes" : "trireme_memory_limit_bytes",
        run, most);
  }
  const std::vector<double>* compute = column_of(facts, "compute_seconds");
  if (compute == nullptr) return;
  std::vector<double> late(compute->size(), 0);
  for (const auto& [name, values] : facts.last_ranks) {
    if (!name.starts_with("late_") || values.size() != late.size()) continue;
    for (size_t rank = 0; rank < late.size(); ++rank) {
      if (values[rank] > late[rank]) late[rank] = values[rank];
    }
  }
  std::vector<size_t> order(late.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return late[a] > late[b]; });
  if (order.size() > max_ranks_shown) order.resize(max_ranks_shown);
  for (const size_t rank : order) {
    const Labels labels = with(run, "rank", std::to_string(rank));
    out.add("trireme_rank_late_seconds", labels, late[rank]);
    out.add("trireme_rank_compute_seconds", labels, (*compute)[rank]);
  }
}

double last_record(const RunView::Glance& reading) { return reading.last_time(); }

// What every run has, however many there are: whether it goes on, and how far it is.
constexpr size_t series_of_every_run = 4;
void add_progress(Families& out, const RunView::Glance& reading, const Labels& run) {
  const RunFacts& facts = reading.facts();
  out.add("trireme_up", run, facts.state == RunState::running ? 1.0 : 0.0);
  out.add("trireme_planned_steps", run, static_cast<double>(facts.total_steps));
  out.add("trireme_step", run, static_cast<double>(reading.last_step()));
  const double time = last_record(reading);
  if (time > 0) out.add("trireme_last_record_timestamp_seconds", run, time);
}

// What else holds also when the run has ended.
void add_totals(Families& out, const RunView::Glance& reading, const Labels& run) {
  const RunFacts& facts = reading.facts();
  out.add("trireme_tokens", run, reading.last_value("tokens"));
  out.add("trireme_skipped_steps", run, reading.last_value("skipped_steps"));
  if (facts.epoch > 0) out.add("trireme_epoch", run, static_cast<double>(facts.epoch));
  out.add("trireme_attempt", run, static_cast<double>(reading.last_attempt()));
  if (const CheckpointEntry* newest = facts.checkpoints.rollback_target()) {
    out.add("trireme_last_commit_timestamp_seconds", run, newest->time);
    out.add("trireme_last_commit_step", run, static_cast<double>(newest->step));
  }
  for (size_t phase = 0; phase < facts.ledger.seconds.size(); ++phase) {
    if (facts.ledger.seconds[phase] <= 0) continue;
    out.add("trireme_phase_seconds",
            with(run, "phase", std::string(obs::name_of(static_cast<obs::Phase>(phase)))),
            facts.ledger.seconds[phase]);
  }
  const base::Json ledger = analysis::to_json(facts.ledger);
  if (ledger.contains("tokens") && ledger["tokens"].is_object()) {
    for (const char* cause : {"skipped", "repeated", "masked", "padding"}) {
      const base::Json& tokens = ledger["tokens"];
      if (tokens.contains(cause) && tokens[cause].is_number()) {
        out.add("trireme_lost_tokens", with(run, "cause", cause), tokens[cause].get<double>());
      }
    }
  }
  out.add("trireme_failures", run, static_cast<double>(facts.ledger.failures.size()));
  for (const auto& [kind, count] : facts.events) {
    out.add("trireme_events", with(run, "kind", kind), static_cast<double>(count));
  }
}

// What is true only while the run is going on.
void add_current(Families& out, const RunView::Glance& reading, const Labels& run, double now) {
  const RunFacts& facts = reading.facts();
  out.add("trireme_loss", run, reading.last_value(RunView::loss_tag));
  out.add("trireme_validation_loss", run, reading.last_value("validation_metrics/loss"));
  out.add("trireme_grad_norm", run, reading.last_value("grad_norm"));
  out.add("trireme_update_norm", run, reading.last_value("update_norm"));
  out.add("trireme_learning_rate", run, reading.last_value("lr"));
  out.add("trireme_tokens_per_second", run, reading.last_value("throughput(tps)"));
  for (const auto& [name, tag] :
       {std::pair{"trireme_mfu_ratio", "mfu(%)"}, std::pair{"trireme_hfu_ratio", "hfu(%)"}}) {
    const std::optional<double> percent = reading.last_value(tag);
    if (percent) out.add(name, run, *percent / 100);
  }
  if (facts.prediction.is_object() && facts.prediction.contains("seconds") &&
      facts.prediction["seconds"].is_number()) {
    out.add("trireme_predicted_step_seconds", run, facts.prediction["seconds"].get<double>());
  }
  std::map<std::string, double> shares;
  for (const analysis::Finding& finding : facts.diagnosis.findings) {
    shares[std::string(analysis::name_of(finding.cause))] += finding.share;
  }
  for (const auto& [cause, share] : shares) {
    out.add("trireme_finding_ratio", with(run, "cause", cause), share);
  }
  if (now - facts.last_ranks_time <= max_record_age_seconds) add_ranks(out, facts, run);
}

// A run with the labels of its series.
struct LabelledRun {
  const RunView* view;
  Labels labels;
  bool is_running;
  double last_record;
};

// Those that are going on first, then those that ended last: what is left out is the oldest.
std::vector<LabelledRun> labelled_runs(const std::vector<RunView*>& views) {
  std::vector<LabelledRun> runs;
  std::map<std::string, int> names;
  for (const RunView* view : views) {
    const RunView::Glance reading(*view);
    const RunFacts& facts = reading.facts();
    // The second run of a name is labelled with its folder.
    const bool is_repeated = names[facts.name]++ > 0;
    runs.push_back(
        {.view = view,
         .labels = {{"run", base::printable(is_repeated ? view->shown_folder() : facts.name)}},
         .is_running = facts.state == RunState::running,
         .last_record = last_record(reading)});
  }
  std::stable_sort(runs.begin(), runs.end(), [](const LabelledRun& a, const LabelledRun& b) {
    if (a.is_running != b.is_running) return a.is_running;
    return a.last_record > b.last_record;
  });
  return runs;
}

}  // namespace

std::vector<MetricFamily> metric_families(const Board& board, size_t limit) {
  constexpr size_t max_series_of_run = 100;
  Families out(limit);
  const std::vector<LabelledRun> runs = labelled_runs(board.runs());
  size_t left_out = board.unshown_runs();
  out.add("trireme_runs", {}, static_cast<double>(runs.size() + left_out));
  size_t counted = 0;  // runs that have the series of every run
  for (; counted < runs.size() && out.room() > series_of_every_run; ++counted) {
    add_progress(out, RunView::Glance(*runs[counted].view), runs[counted].labels);
  }
  left_out += runs.size() - counted;
  for (const LabelledRun& run : std::span(runs).first(counted)) {
    if (out.room() < max_series_of_run + 1) {
      if (run.is_running) ++left_out;
      continue;
    }
    const RunView::Glance reading(*run.view);
    const RunFacts& facts = reading.facts();
    Labels info = with(run.labels, "group", base::printable(facts.group));
    const analysis::Outcome& outcome = facts.diagnosis.outcome;
    info.emplace_back("state", std::string(analysis::name_of(facts.state)));
    info.emplace_back("outcome", std::string(name_of(outcome.kind)));
    info.emplace_back("lamp", std::string(name_of(outcome.severity)));
    out.add("trireme_run_info", info, 1);
    add_totals(out, reading, run.labels);
    if (run.is_running) add_current(out, reading, run.labels, board.now());
  }
  out.add("trireme_runs_left_out", {}, static_cast<double>(left_out));
  return out.take();
}

}  // namespace trireme::board
