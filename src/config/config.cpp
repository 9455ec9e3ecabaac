// SPDX-License-Identifier: Apache-2.0
#include "config/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "base/error.h"
#include "base/text/json.h"
#include "config/apply.h"
#include "config/document.h"
#include "config/files/hf_config.h"
#include "config/files/model_file.h"
#include "config/layout.h"
#include "config/lists/phases.h"
#include "config/schema.h"

namespace trireme::config {
namespace {

namespace fs = std::filesystem;
using base::Json;

constexpr int format_version = 1;
constexpr size_t max_name_bytes = 128;

struct Source {
  std::vector<Entry> entries;
  // The sizes of the model, of a resolved configuration or the section [model.dims].
  std::optional<std::vector<Entry>> dims;
};
Source read_source(const ConfigText& given, Report& report);
// Throws ConfigError if the keys are those of TorchTitan, of which a dozen would be unknown.
void reject_torchtitan(const std::vector<Entry>& entries, const std::string& file);
void find_model(const Source& source, const ConfigText& given, const LoadOptions& options,
                bool is_name_overridden, Config& config, Report& report);
// Sizes the lists of the configuration for the elements that the entries name.
void make_lists(const std::vector<Entry>& entries, Config& config, Report& report);
// Fills in names of the run and its lists, and reads the schedule file.
void complete(Config& config, const fs::path& folder, Report& report);
// Fills in all other open keys and reports broken rules.
void solve(Config& config, int world, const std::optional<SavedSums>& saved, Report& report);
void check_rules(const Config& config, Report& report);

}  // namespace

bool operator==(const Config& a, const Config& b) { return to_json(a) == to_json(b); }

Config load(const fs::path& file, const LoadOptions& options) {
  return load(file.empty() ? ConfigText{} : read_config_text(file), options);
}

Config load(const ConfigText& given, const LoadOptions& options) {
  Config config;
  Report report;
  Source source;
  if (!given.name.empty()) {
    config.origin.title = given.name;
    source = read_source(given, report);
    reject_torchtitan(source.entries, given.name);
  }
  const std::string& title = config.origin.title;
  make_lists(source.entries, config, report);
  const std::vector<Key> keys = keys_of(config);
  const std::vector<Entry> overrides = entries_of_overrides(options.overrides, keys, report);
  const bool is_name_overridden = std::any_of(
      overrides.begin(), overrides.end(),
      [](const Entry& entry) { return entry.section == "model" && entry.key == "name"; });
  apply(source.entries, keys, title, report);
  check_recipe_alias(source.entries, keys, report);
  apply(overrides, keys, title, report);
  check_recipe_alias(overrides, keys, report);
  find_model(source, given, options, is_name_overridden, config, report);
  complete(config, given.folder, report);
  Config trial = config;
  solve(trial, options.world, {}, report);
  report.throw_if_any(title);
  config.origin.places = report.places();
  return config;
}

Config solved(const Config& asked, int world, const std::optional<SavedSums>& saved) {
  Config config = asked;
  Report report(asked.origin.places);
  solve(config, world, saved, report);
  report.throw_if_any(asked.origin.title);
  return config;
}

Json to_json(const Config& config) {
  Config copy = config;
  Json json = {{"version", format_version}};
  const auto section_of = [&json](const std::string& name) -> Json& {
    if (!name.ends_with(']')) return json[name];
    // "training.dataset[2]": the third object of the array "dataset" of "training"
    const size_t dot = name.find('.'), bracket = name.rfind('[');
    Json& outer = dot == std::string::npos ? json : json[name.substr(0, dot)];
    const size_t begin = dot == std::string::npos ? 0 : dot + 1;
    Json& list = outer[name.substr(begin, bracket - begin)];
    return list[static_cast<size_t>(std::stoul(name.substr(bracket + 1)))];
  };
  for (const Key& key : keys_of(copy)) {
    section_of(key.section)[std::string(key.name)] = value_json(key);
  }
  json["model"]["dims"] = to_json(config.dims);
  return json;
}

namespace {

constexpr std::string_view dims_section = "model.dims";

Source read_toml(const std::string& text, const std::string& name) {
  const std::string inside = std::string(dims_section) + ".";
  const auto is_of_dims = [&](std::string_view path) {
    return path == dims_section || path.starts_with(inside);
  };
  Source source;
  for (Entry& entry : entries_of_toml(text, name, is_of_dims)) {
    if (!is_of_dims(entry.section)) {
      source.entries.push_back(std::move(entry));
      continue;
    }
    if (!source.dims) source.dims.emplace();
    const bool is_start_of_dims = entry.section == dims_section && entry.is_section_start;
    entry.section.erase(0, std::min(entry.section.size(), inside.size()));
    if (!is_start_of_dims) source.dims->push_back(std::move(entry));
  }
  return source;
}

Source read_source(const ConfigText& given, Report& report) {
  const auto& [name, folder, text] = given;
  if (!looks_like_json(text)) return read_toml(text, name);

  Json json = parse_json(text, name);
  if (json.contains("model_type")) {
    report.add(name, "this is a Hugging Face config.json; give its path as model.name");
    return {};
  }
  if (const auto version = json.find("version"); version != json.end()) {
    if (*version != format_version) {
      report.add(name, fmt::format("version: this program reads version {}", format_version));
    }
    json.erase("version");
  }
  json.erase("program");  // the version that wrote it
  Source source;
  if (const auto model = json.find("model"); model != json.end() && model->is_object()) {
    if (const auto dims = model->find("dims"); dims != model->end()) {
      const std::string where = name + ": model.dims";
      if (!dims->is_object()) throw base::ConfigError(where + ": expected an object");
      source.dims = entries_of_json(*dims, where);
      model->erase("dims");
    }
  }
  source.entries = entries_of_json(json, name);
  return source;
}

void reject_torchtitan(const std::vector<Entry>& entries, const std::string& file) {
  // Files of TorchTitan have at least one of them, and Trireme has none.
  constexpr std::array<std::string_view, 6> signs = {
      "model.flavor",     "model.hf_assets_path",           "model.tokenizer_path",
      "model.converters", "training.mixed_precision_param", "profiling.enable_profiling"};
  for (const Entry& entry : entries) {
    const std::string path = fmt::format("{}.{}", entry.section, entry.key);
    if (entry.is_section_start || std::ranges::find(signs, path) == signs.end()) continue;
    throw base::ConfigError(fmt::format(
        "{}: {} is a key of TorchTitan. Train with its file by --from-torchtitan {} instead of {}, "
        "or convert it: trireme convert-config --from-torchtitan {} --output run.toml",
        entry.where, path, file, file, file));
  }
}

void make_lists(const std::vector<Entry>& entries, Config& config, Report& report) {
  for (const List& list : lists()) {
    size_t count = 0;
    for (const Entry& entry : entries) {
      if (!entry.is_section_start || entry.section != element_section(list.name, count)) continue;
      if (++count <= list.max_elements) continue;
      report.add(entry.where,
                 fmt::format("[[{}]]: at most {} are allowed", list.name, list.max_elements));
      return;
    }
    list.resize(config, count);
  }
}

// Indents problems of several lines below the first line.
std::string indented(std::string text) {
  for (size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at + 1)) {
    text.replace(at, 1, "\n  ");
  }
  return text;
}

// Replaces the terms that balance the model's experts by those of the section [moe].
void override_balance(Config& config, Report& report) {
  const Moe& moe = config.moe;
  const auto demand_experts = [&](const char* key, bool is_given) {
    report.demand(!is_given || config.dims.moe.has_value(), {key, "model.dims"},
                  fmt::format("{}: model '{}' has no experts; remove the key, or choose a model "
                              "file with a section [moe]",
                              key, config.dims.name));
  };
  demand_experts("moe.aux_loss", moe.aux_loss >= 0);
  demand_experts("moe.aux_scope", moe.aux_scope != Moe{}.aux_scope);
  demand_experts("moe.z_loss", moe.z_loss >= 0);
  demand_experts("moe.bias_rate", moe.bias_rate >= 0);
  if (!config.dims.moe) return;
  spec::BalanceSpec& balance = config.dims.moe->balance;
  if (moe.aux_loss >= 0) balance.aux = static_cast<float>(moe.aux_loss);
  balance.scope = spec::aux_scope_from_name(moe.aux_scope).value_or(balance.scope);
  if (moe.z_loss >= 0) balance.z = static_cast<float>(moe.z_loss);
  const bool has_bias = config.dims.moe->router.has_bias;
  report.demand(moe.bias_rate <= 0 || has_bias, {"moe.bias_rate", "model.dims"},
                fmt::format("moe.bias_rate = {}: the router of model '{}' has no bias; use 0, or "
                            "set router_bias in the model file",
                            moe.bias_rate, config.dims.name));
  if (moe.bias_rate >= 0 && has_bias) balance.bias_rate = static_cast<float>(moe.bias_rate);
}

void find_model(const Source& source, const ConfigText& given, const LoadOptions& options,
                bool is_name_overridden, Config& config, Report& report) {
  std::vector<fs::path> folders;
  if (!given.name.empty()) folders.push_back(given.folder / "models");
  folders.insert(folders.end(), options.model_folders.begin(), options.model_folders.end());
  if (report.is_bad("model.name")) {
    report.mark_bad("model.dims");
    return;
  }
  const auto fail = [&](const std::string& problem) {
    report.add_bad_key(
        "model.dims",
        report.was_given("model.name") ? report.where("model.name") : config.origin.title,
        indented("model.name: " + problem));
  };
  try {
    if (source.dims && !is_name_overridden) {
      config.dims = dims_from_entries(*source.dims, given.name + ": model.dims",
                                      config.model.name.empty() ? "model" : config.model.name);
      if (config.model.name.empty()) config.model.name = config.dims.name;
    } else {
      if (config.model.name.empty()) config.model.name = config.training.init_from;
      if (config.model.name.empty()) {
        return fail(fmt::format("required, but not given; models are {}",
                                fmt::join(model_names(folders), ", ")));
      }
      std::string name = config.model.name;
      if (name.find('/') != std::string::npos) name = found_from(name, given.folder).string();
      config.dims = model_from_file(name, folders);
    }
  } catch (const base::Error& error) {
    return fail(error.what());
  }
  if (config.model.vocab_size != 0) config.dims.vocab = config.model.vocab_size;
  if (config.model.max_seq != 0) config.dims.max_seq = config.model.max_seq;
  override_balance(config, report);
}

// Returns the text as the name of a folder or a run: without slashes and control characters.
std::string as_name(std::string text) {
  for (char& c : text) {
    if (c == '/' || static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '-';
  }
  if (text.size() > max_name_bytes) {
    size_t end = max_name_bytes;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0U) == 0x80U) --end;  // UTF-8
    text.resize(end);
  }
  return text.empty() || text == "." || text == ".." ? "run" : text;
}

// Returns the last part of a path that is a name: "a" for "runs/a/.".
std::string last_part(const fs::path& path) {
  std::error_code unknown;
  const fs::path whole = fs::absolute(path, unknown).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

void solve_job(Config& c) {
  if (c.job.dump_folder.empty()) {
    if (c.job.name.empty()) c.job.name = as_name(c.dims.name);
    c.job.dump_folder = (fs::path("runs") / as_name(c.job.name)).string();
  }
  if (c.job.name.empty()) c.job.name = as_name(last_part(c.job.dump_folder));
}

// Shortens the warm-up to the run, for short trials of a long run's configuration.
void cut_warmup(Config& c, const Report& report) {
  for (const char* key :
       {"lr_scheduler.warmup_steps", "training.steps", "lr_scheduler.total_steps"}) {
    if (report.is_bad(key)) return;
  }
  int64_t& warmup = c.lr_scheduler.warmup_steps;
  // A run that ends before its explicit total_steps keeps that schedule, and so the bits of a
  // longer run.
  const bool has_schedule = c.lr_scheduler.total_steps > warmup;
  if (warmup < c.training.steps || has_schedule) return;
  c.notes.push_back(
      fmt::format("lr_scheduler.warmup_steps is shortened from {} to {}, because "
                  "training.steps is {}",
                  warmup, c.training.steps - 1, c.training.steps));
  warmup = c.training.steps - 1;
}

void complete(Config& c, const fs::path& folder, Report& report) {
  if (c.system.device == "gpu") c.system.device = "cuda";
  solve_job(c);
  solve_lists(c);
  read_schedule(c, folder, report);
}

void solve(Config& c, int world, const std::optional<SavedSums>& saved, Report& report) {
  constexpr int64_t default_seq_len = 2048;
  if (c.training.seq_len == -1) {
    c.training.seq_len = std::clamp<int64_t>(c.dims.max_seq, 1, default_seq_len);
  }
  if (c.lr_scheduler.total_steps == -1) c.lr_scheduler.total_steps = c.training.steps;
  cut_warmup(c, report);
  solve_layout(c, world, saved, report);
  check_rules(c, report);
}

// REQUIRES: the model's sizes are legal.
void check_activations(const Config& c, const spec::ModelSpec& model, Report& report) {
  const auto& t = c.training;
  const auto limit = static_cast<double>(spec::max_step_activations);
  const int64_t sequences = std::max(t.global_batch_size, t.local_batch_size);
  const double of_sequence = spec::activation_elements(model, static_cast<double>(t.seq_len));
  const bool is_global = t.global_batch_size >= t.local_batch_size;
  report.demand(
      of_sequence * static_cast<double>(sequences) <= limit,
      {is_global ? "training.global_batch_size" : "training.local_batch_size", "training.seq_len",
       "model.dims"},
      fmt::format("training.{} = {}: with training.seq_len = {} model '{}' would have "
                  "{:.3g} activations in a step; at most {:.3g}, nearest: {}",
                  is_global ? "global_batch_size" : "local_batch_size", sequences, t.seq_len,
                  model.name, of_sequence * static_cast<double>(sequences), limit,
                  std::max<int64_t>(1, static_cast<int64_t>(limit / of_sequence))));
}

void check_schedule(const Config& c, Report& report) {
  const auto& s = c.lr_scheduler;
  const bool decays = s.decay_type != "constant";
  report.demand(!decays || s.warmup_steps < s.total_steps,
                {"lr_scheduler.total_steps", "lr_scheduler.warmup_steps", "lr_scheduler.decay_type",
                 "training.steps"},
                fmt::format("lr_scheduler.total_steps = {}: must be above "
                            "lr_scheduler.warmup_steps = {}; nearest: {}",
                            s.total_steps, s.warmup_steps, s.warmup_steps + 1));
}

// Returns the normalised path of a folder of the run: "./checkpoint/" is "checkpoint".
fs::path place_of(const Config& c, const std::string& folder) {
  const fs::path path = (fs::path(c.job.dump_folder) / folder).lexically_normal();
  return path.has_filename() ? path : path.parent_path();
}

// Is `inner` the folder `outer`, or below it? Both are from place_of().
bool holds(const fs::path& outer, const fs::path& inner) {
  if (outer == outer.root_path()) return true;
  if (outer.is_absolute() != inner.is_absolute()) return false;
  // Empty: `outer` is above the folder that both are relative to.
  const fs::path relative = inner.lexically_relative(outer);
  return relative.empty() || *relative.begin() != "..";
}

void check_webhook(const Config& c, Report& report) {
  const std::string& address = c.alerts.webhook;
  report.demand(
      address.empty() || address.starts_with("http://") || address.starts_with("https://"),
      {"alerts.webhook"},
      fmt::format("alerts.webhook = \"{}\": must begin with http:// or https://", address));
}

void check_name(const Config& c, Report& report) {
  const std::string& name = c.job.name;
  report.demand(name == as_name(name), {"job.name"},
                fmt::format("job.name: must have at most {} bytes, no slash and no control "
                            "character, and not be . or .., because folders are named after it",
                            max_name_bytes));
}

void check_folders(const Config& c, Report& report) {
  report.demand(!c.checkpoint.enable || !c.checkpoint.folder.empty(),
                {"checkpoint.folder", "checkpoint.enable"},
                "checkpoint.folder = \"\": must name a folder if checkpoint.enable = true");
  const fs::path checkpoints = place_of(c, c.checkpoint.folder);
  const fs::path weights = place_of(c, c.checkpoint.export_folder);
  const fs::path events = place_of(c, c.metrics.save_tb_folder);
  report.demand(
      !c.checkpoint.enable || c.checkpoint.export_folder.empty() || weights != checkpoints,
      {"checkpoint.export_folder", "checkpoint.folder"},
      fmt::format("checkpoint.export_folder = \"{}\": must not be the folder of checkpoints; "
                  "choose another one",
                  c.checkpoint.export_folder));
  const fs::path run = place_of(c, "");
  report.demand(!c.checkpoint.enable || c.checkpoint.export_folder.empty() || !holds(weights, run),
                {"checkpoint.export_folder"},
                fmt::format("checkpoint.export_folder = \"{}\": must not be the run's folder or "
                            "one that contains it; name a folder in it, such as \"weights\"",
                            c.checkpoint.export_folder));
  report.demand(
      !c.metrics.enable_tensorboard || !c.metrics.save_tb_folder.empty(),
      {"metrics.save_tb_folder", "metrics.enable_tensorboard"},
      "metrics.save_tb_folder = \"\": must name a folder if metrics.enable_tensorboard = true");
  report.demand(!c.metrics.enable_tensorboard || !c.checkpoint.enable ||
                    (events != checkpoints && events != weights),
                {"metrics.save_tb_folder", "checkpoint.folder", "checkpoint.export_folder"},
                fmt::format("metrics.save_tb_folder = \"{}\": must not be the folder of "
                            "checkpoints or weights; choose another one",
                            c.metrics.save_tb_folder));
  report.demand(!c.validation.enable || !validation_list(c).empty() || c.validation.split > 0,
                {"validation.split", "validation.enable", "validation.dataset_path"},
                "validation.split = 0: must be above 0 if validation.enable = true and "
                "validation.dataset_path is empty");
  report.demand(c.validation.steps == 0 || c.validation.samples == Validation{}.samples,
                {"validation.steps", "validation.samples"},
                fmt::format("validation.steps = {} and validation.samples = {}: give one of them; "
                            "for samples set validation.steps = 0, for steps set "
                            "validation.samples = {}",
                            c.validation.steps, c.validation.samples, Validation{}.samples));
}

void check_recompute(const Config& c, Report& report) {
  const int64_t blocks = c.activation_checkpoint.blocks;
  report.demand(blocks <= c.dims.layers, {"activation_checkpoint.blocks", "model.dims"},
                fmt::format("activation_checkpoint.blocks = {}: the model has {}; nearest: {}",
                            blocks, c.dims.layers, c.dims.layers));
}

void check_model(const Config& c, Report& report) {
  if (report.is_bad("model.dims")) return;
  try {
    check_activations(c, spec::make_model(c.dims), report);
  } catch (const base::ConfigError& error) {
    report.add(report.where("model.name"), indented(error.what()));
    return;
  }
  // A run ends with an export: a model that cannot be exported is refused before the run starts.
  if (!c.checkpoint.enable || c.checkpoint.export_folder.empty()) return;
  try {
    (void)hf_config_of(c.dims, base::DType::f32);
  } catch (const base::ConfigError& error) {
    report.add(report.where("model.name"),
               indented(fmt::format("{}; such a model has no Hugging Face form: change it, or set "
                                    "checkpoint.export_folder = \"\" to keep checkpoints only",
                                    error.what())));
  }
}

void check_rules(const Config& config, Report& report) {
  check_schedule(config, report);
  check_recompute(config, report);
  check_name(config, report);
  check_webhook(config, report);
  check_folders(config, report);
  check_model(config, report);
  check_lists(config, report);
}

}  // namespace

int64_t validation_samples(const Config& c) {
  if (c.validation.steps == 0) return c.validation.samples;
  return c.validation.steps < 0 ? -1 : c.validation.steps * c.training.global_batch_size;
}

Config settle_dtype(Config c, bool on_gpu) {
  if (c.precision.recipe != "auto") return c;
  c.precision.recipe = on_gpu ? "bf16" : "fp32";
  const spec::Settled settled = spec::settle(spec::sizes_of(c.dims), workload_of(c), 0,
                                             layout_of(c), spec::Whose::engine, layout_paths());
  for (const spec::Broken& broken : settled.broken) {
    // solved() has checked the other rules.
    if (std::ranges::find(broken.rule->keys, spec::LayoutKey::precision) ==
        broken.rule->keys.end()) {
      continue;
    }
    throw base::ConfigError(fmt::format("{} (precision.recipe is auto, and the run is on {})",
                                        spec::to_text(broken), on_gpu ? "a GPU" : "the CPU"));
  }
  return c;
}

}  // namespace trireme::config
