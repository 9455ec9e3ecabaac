// SPDX-License-Identifier: Apache-2.0
#include "cli/infer/eval_tasks.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "base/text/json.h"
#include "cli/infer/json_lines_file.h"
#include "cli/infer/text_lines.h"
#include "cli/shell/progress.h"
#include "spec/model.h"
#include "train/generate/text_codec.h"
#include "train/tasks/task_scores.h"

namespace trireme::cli {
namespace {

struct Tasks {
  std::vector<train::TaskItem> items;
  std::vector<train::TaskTokens> requests;  // the choices of all items, one after the other
};

Tasks read_tasks(const std::string& path, const train::TextCodec& codec, std::string_view delimiter,
                 int64_t limit) {
  Tasks tasks;
  for_each_line(path, [&](int64_t number, std::string_view line) {
    if (limit > 0 && std::ssize(tasks.items) == limit) return;
    const std::string origin = fmt::format("{}:{}", path == "-" ? "<stdin>" : path, number);
    tasks.items.push_back(train::task_from_json(line, origin));
    const train::TaskItem& item = tasks.items.back();
    for (const std::string& choice : item.choices) {
      tasks.requests.push_back(train::task_tokens(codec, item.context, choice, delimiter, origin));
    }
  });
  if (tasks.items.empty()) {
    throw base::ConfigError(fmt::format("--tasks {}: the file has no question", path));
  }
  return tasks;
}

// Returns the tokens that the model reads of the longest request, at most `max_seq`.
int64_t window_length(const Tasks& tasks, int64_t max_seq) {
  size_t longest = 0;
  for (const train::TaskTokens& request : tasks.requests) {
    longest = std::max(longest, request.tokens.size() - 1);
  }
  return std::min<int64_t>(static_cast<int64_t>(longest), max_seq);
}

std::vector<train::ItemScore> score(const Tasks& tasks, train::Inference& model) {
  Progress progress("eval", "choices", std::ssize(tasks.requests));
  const std::vector<double> likelihoods = train::ending_likelihoods(
      model, tasks.requests, [&progress](int64_t done) { progress.update(done); });
  progress.finish();
  std::vector<train::ItemScore> scores;
  auto next = likelihoods.begin();
  for (const train::TaskItem& item : tasks.items) {
    const auto end = next + std::ssize(item.choices);
    scores.push_back(train::score_item(item, {next, end}));
    next = end;
  }
  return scores;
}

base::Json json_of(const train::TaskItem& item, const train::ItemScore& score) {
  return {{"context", item.context},    {"choices", item.choices},
          {"label", item.label},        {"log_likelihoods", score.likelihoods},
          {"answer", score.by_sum},     {"answer_norm", score.by_byte},
          {"is_right", score.is_right}, {"is_right_norm", score.is_right_by_byte}};
}

}  // namespace

int run_tasks(const Args& args, FoundWeights& weights, train::InferenceOptions options) {
  if (args.has("--data")) {
    throw base::ConfigError("--tasks and --data are given; use one of them");
  }
  const int64_t limit = args.has("--limit") ? args.integer("--limit") : 0;
  if (limit < 0) throw base::ConfigError(fmt::format("--limit {}: 0 (all) or above", limit));
  const int64_t max_seq = spec::make_model(weights.dims()).max_seq;
  if (options.seq_len < 0 || options.seq_len > max_seq) {
    throw base::ConfigError(fmt::format("--seq {}: from 1 to the model's max_seq of {}; 0: {}",
                                        options.seq_len, max_seq, max_seq));
  }
  std::optional<JsonLinesFile> per_item;
  if (args.has("--per-item")) per_item.emplace(args.text("--per-item"));
  const train::TextCodec codec(tokenizer_of(args, weights), weights.dims().vocab);
  const std::string delimiter = args.has("--delimiter") ? args.text("--delimiter") : " ";
  const Tasks tasks = read_tasks(args.text("--tasks"), codec, delimiter, limit);

  const int64_t longest = options.seq_len == 0 ? max_seq : options.seq_len;
  options.seq_len = window_length(tasks, longest);
  options.document_mask = true;
  const auto is_cut = [&](const train::TaskTokens& r) {
    return std::ssize(r.tokens) - 1 > options.seq_len;
  };
  const auto cut = std::ranges::count_if(tasks.requests, is_cut);
  train::Inference model(weights, options);
  base::log_info("{}", weights.description());
  if (cut > 0) {
    base::log_warning(
        "{} of {} choices with their context are longer than {} tokens; their first "
        "tokens are left out",
        cut, tasks.requests.size(), options.seq_len);
  }
  const std::vector<train::ItemScore> scores = score(tasks, model);
  const train::TaskScore task = train::score_task(tasks.items, scores);
  if (per_item) {
    for (size_t i = 0; i < scores.size(); ++i) {
      per_item->add(json_of(tasks.items[i], scores[i]).dump());
    }
    per_item->commit();
  }
  if (args.wants_json()) {
    fmt::print("{}\n", base::Json{{"ok", true},
                                  {"weights", weights.json()},
                                  {"items", task.items},
                                  {"acc", task.accuracy},
                                  {"acc_stderr", task.accuracy_error},
                                  {"acc_norm", task.accuracy_by_byte},
                                  {"acc_norm_stderr", task.accuracy_by_byte_error},
                                  {"bits_per_byte", task.bits_per_byte},
                                  {"cut_requests", cut}}
                           .dump());
    return 0;
  }
  fmt::print("items {}  acc {:.4f} ± {:.4f}  acc_norm {:.4f} ± {:.4f}  bits per byte {:.4f}\n",
             task.items, task.accuracy, task.accuracy_error, task.accuracy_by_byte,
             task.accuracy_by_byte_error, task.bits_per_byte);
  return 0;
}

}  // namespace trireme::cli
