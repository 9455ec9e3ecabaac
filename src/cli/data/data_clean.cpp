// SPDX-License-Identifier: Apache-2.0
// trireme data clean.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "base/error.h"
#include "base/text/count_text.h"
#include "base/text/json.h"
#include "cli/data/data_verbs.h"
#include "cli/shell/progress.h"
#include "cli/verbs.h"
#include "data/clean/clean.h"
#include "data/clean/near/minhash.h"
#include "data/corpus/counts.h"
#include "train/setup/setup.h"

namespace trireme::cli {
namespace {

// One progress line for each phase.
class CleanProgressLines {
 public:
  void update(const data::CleanProgress& p) {
    if (!line_ || p.phase != phase_) {
      finish();
      phase_ = p.phase;
      line_ = std::make_unique<Progress>(label(), unit(), std::max(int64_t{0}, p.total));
    }
    line_->update(p.done, base::count_text(p.documents, "document"));
  }
  void finish() {
    if (line_) line_->finish();
    line_.reset();
  }

 private:
  std::string label() const {
    switch (phase_) {
      case data::CleanProgress::Phase::reading:
        return "data clean: reading";
      case data::CleanProgress::Phase::comparing:
        return "data clean: comparing";
      case data::CleanProgress::Phase::writing:
        break;
    }
    return "data clean: writing";
  }
  std::string unit() const {
    switch (phase_) {
      case data::CleanProgress::Phase::reading:
        return "bytes";
      case data::CleanProgress::Phase::comparing:
        return "steps";
      case data::CleanProgress::Phase::writing:
        break;
    }
    return "documents";
  }

  data::CleanProgress::Phase phase_ = data::CleanProgress::Phase::reading;
  std::unique_ptr<Progress> line_;
};

data::NearOptions clean_near_options(const Args& args) {
  data::NearOptions near{.threshold = args.number("--threshold"),
                         .shingles = {.unit = data::shingle_unit_from_name(args.text("--shingle")),
                                      .size = args.small_integer("--ngram")},
                         .compares_texts = args.text("--verify") == "exact"};
  if (args.has("--bands") != args.has("--rows")) {
    throw base::ConfigError("--bands and --rows: give both, or none to choose them by --threshold");
  }
  if (args.has("--bands")) {
    near.bands = {.bands = args.small_integer("--bands"), .rows = args.small_integer("--rows")};
    const int64_t values = int64_t{near.bands->bands} * near.bands->rows;
    if (values >= 1 && values <= data::max_permutations)
      near.permutations = static_cast<int>(values);
  }
  if (args.has("--permutations")) near.permutations = args.small_integer("--permutations");
  return near;
}

data::CleanOptions clean_options(const Args& args) {
  data::CleanOptions o;
  o.inputs = args.list("inputs");
  o.kind = data::source_kind_from_name(args.text("--kind"));
  o.documents.text_field = args.text("--key");
  o.documents.prompt_field = args.text("--prompt-key");
  o.documents.completion_field = args.text("--completion-key");
  o.documents.split_lines = args.flag("--split-lines");
  o.documents.max_document_bytes = args.integer("--max-document-bytes");
  o.output = args.text("--output");
  o.replaces_output = args.flag("--overwrite");
  o.writes_documents = !args.flag("--report-only");
  o.part_bytes = args.integer("--part-bytes");
  o.normalized = args.flag("--normalize");
  o.removes_exact = !args.flag("--keep-exact");
  o.near.reset();
  if (!args.flag("--keep-near")) o.near = clean_near_options(args);
  if (args.flag("--repetition")) {
    o.repetition = data::repetition_limits_from_text(args.text("--limits"));
  } else if (args.has("--limits")) {
    throw base::ConfigError("--limits are those of --repetition, which is not given");
  }
  o.max_rejected = args.integer("--max-rejected");
  o.examples = args.integer("--examples");
  o.workers = train::thread_count(args.integer("--workers"));
  return o;
}

int clean(const Args& args) {
  data::CleanOptions o = clean_options(args);
  CleanProgressLines progress;
  o.progress = [&progress](const data::CleanProgress& p) { progress.update(p); };
  const auto start = std::chrono::steady_clock::now();
  const data::CleanReport report = data::clean_documents(o);
  progress.finish();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (args.wants_json()) {
    base::Json json = data::to_json(report);
    json["ok"] = true;
    json["seconds"] = seconds;
    json["files"] = base::Json::array();
    for (const auto& file : report.files) json["files"].push_back(data::json_name(file));
    fmt::print("{}\n", json.dump(-1, ' ', false, base::Json::error_handler_t::replace));
    return 0;
  }
  fmt::print("{}", data::to_text(report));
  fmt::print("{:.1f} s, {:.1f} MB of text per second\nwritten:", seconds,
             static_cast<double>(report.total.text_bytes) * 1e-6 / seconds);
  for (const auto& file : report.files) fmt::print(" {}", file.string());
  fmt::print("\n");
  return 0;
}

std::vector<Option> clean_input_options() {
  return {
      {.name = "inputs",
       .kind = Kind::list,
       .help = "Files, folders, patterns, @LIST, or - for stdin",
       .is_required = true},
      {.name = "--output",
       .help = "FILE.jsonl, FILE.jsonl.gz or FILE.jsonl.zst, or a folder for parts",
       .is_required = true},
      {.name = "--kind",
       .fallback = "auto",
       .help = "Kind of all inputs; auto: by their names",
       .choices = {"auto", "text", "jsonl", "tar", "mds"}},
      {.name = "--key", .fallback = "text", .help = "Field of the text: a path such as meta.text"},
      {.name = "--prompt-key", .help = "Field of the prompt, instead of a text"},
      {.name = "--completion-key", .help = "Field of the completion"},
      {.name = "--split-lines",
       .kind = Kind::flag,
       .help = "Treat every line of a .txt file as a document"},
      {.name = "--max-document-bytes",
       .kind = Kind::integer,
       .fallback = "268435456",
       .help = "Longer documents are rejected"},
      {.name = "--max-rejected",
       .kind = Kind::integer,
       .fallback = "-1",
       .help = "More rejected documents end the call with an error; -1: any number"}};
}

std::vector<Option> clean_rule_options() {
  return {
      {.name = "--keep-exact", .kind = Kind::flag, .help = "Do not remove exact duplicates"},
      {.name = "--keep-near", .kind = Kind::flag, .help = "Do not remove near-duplicates"},
      {.name = "--normalize",
       .kind = Kind::flag,
       .help = "Ignore case and white space in comparisons; documents are written unchanged"},
      {.name = "--threshold",
       .kind = Kind::number,
       .fallback = "0.8",
       .help = "Jaccard similarity from which on a document is a near-duplicate"},
      {.name = "--shingle",
       .fallback = "words",
       .help = "What is compared: n-grams of words, or of characters. Characters of scripts "
               "without spaces (Chinese, Japanese, Thai and others) count as words",
       .choices = {"words", "chars"}},
      {.name = "--ngram",
       .kind = Kind::integer,
       .fallback = "5",
       .help = "Words or characters of a shingle"},
      {.name = "--permutations",
       .kind = Kind::integer,
       .help = "Values of a MinHash signature; 128, or bands times rows"},
      {.name = "--bands",
       .kind = Kind::integer,
       .help = "Bands of a signature; by default chosen by the threshold"},
      {.name = "--rows",
       .kind = Kind::integer,
       .help = "Values of a band; by default chosen by the threshold"},
      {.name = "--verify",
       .fallback = "exact",
       .help = "How candidates are compared: exact by their texts, estimate by signatures",
       .choices = {"exact", "estimate"}},
      {.name = "--repetition",
       .kind = Kind::flag,
       .help = "Remove texts that repeat themselves, by the rules of Gopher"},
      {.name = "--limits",
       .help = "Other limits of repetition: NAME=VALUE,... from 0 to 1 (docs/data.md); 1: off"}};
}

}  // namespace

Verb data_clean_verb() {
  Verb verb{.name = "data clean",
            .summary = "Remove duplicates, near-duplicates and repetition from documents",
            .details =
                "Writes the documents that are left as JSON lines, which data build reads, "
                "OUTPUT.removed.jsonl with the place and the reason of every removed one, "
                "and OUTPUT.report.json. Of similar documents the first stays. The result "
                "does not depend on --workers.\n\n"
                "Examples:\n"
                "  trireme data clean a.jsonl b.jsonl --output runs/clean.jsonl\n"
                "  trireme data clean a.jsonl --output runs/strict.jsonl --threshold 0.7 "
                "--normalize --repetition\n"
                "  trireme data clean a.jsonl b.jsonl --output runs/look --report-only --json",
            .options = clean_input_options(),
            .run = clean};
  for (Option& option : clean_rule_options()) verb.options.push_back(std::move(option));
  const std::vector<Option> others = {
      {.name = "--report-only",
       .kind = Kind::flag,
       .help = "Write the report and the list of removed documents only"},
      {.name = "--examples",
       .kind = Kind::integer,
       .fallback = "5",
       .help = "Examples in the report for every reason"},
      {.name = "--part-bytes",
       .kind = Kind::integer,
       .fallback = "1073741824",
       .help = "Size of the files of an output folder"},
      {.name = "--overwrite",
       .kind = Kind::flag,
       .help = "Replace the output if it already exists"},
      {.name = "--workers",
       .kind = Kind::integer,
       .fallback = "0",
       .help = "Number of threads; 0: all cores"}};
  verb.options.insert(verb.options.end(), others.begin(), others.end());
  return verb;
}

}  // namespace trireme::cli
