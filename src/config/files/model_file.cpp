// SPDX-License-Identifier: Apache-2.0
#include "config/files/model_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <sstream>

#include "base/error.h"
#include "base/text/json.h"
#include "config/apply.h"
#include "config/document.h"
#include "config/files/hf_config.h"
#include "config/key_list.h"
#include "config/numbers/decimal.h"
#include "config/spelling.h"

namespace trireme::config {
namespace {

namespace fs = std::filesystem;
using base::Json;

spec::ModelDims read_path(const fs::path& path);
std::optional<spec::ModelDims> model_of_earlier_name(const std::string& name,
                                                     const std::vector<fs::path>& folders);
std::string no_model(const std::string& name, const std::vector<fs::path>& folders);

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}
bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

}  // namespace

std::vector<Key> keys_of(ModelKeys& m) {
  const Range positive{.low = 0, .high = count_limit, .low_excluded = true};
  const Range eps{.low = 1e-12, .high = 1};
  const Range size{.low = 1, .high = 1 << 30};
  const Range size_or_zero{.low = 0, .high = 1 << 30};
  KeyList k;
  k.text("name", m.name, "empty: the name of the file");
  k.choice("family", m.family, {"gpt2", "llama"}, "kind of norms, positions and feed-forward");
  k.require();
  k.number("layers", m.layers, {.low = 1, .high = 100000}, "number of blocks");
  k.require();
  k.number("hidden", m.hidden, size, "width of the residual stream");
  k.require();
  k.number("heads", m.heads, size, "query heads");
  k.require();
  k.number("kv_heads", m.kv_heads, size_or_zero, "key and value heads; 0: as many as heads");
  k.number("head_dim", m.head_dim, size_or_zero, "width of a head; 0: hidden / heads");
  k.number("ffn", m.ffn, size_or_zero,
           "width inside the feed-forward; required, unless every block has experts");
  k.number("vocab", m.vocab, {.low = 2, .high = 1 << 30}, "number of token ids");
  k.require();
  k.number("max_seq", m.max_seq, size, "longest sequence");
  k.require();
  k.number("norm_eps", m.norm_eps, eps, "added to the variance in norms");
  k.boolean("tied_head", m.tied_head, "the head uses the embedding table; gpt2: always");
  k.boolean("qkv_bias", m.qkv_bias, "biases on q, k and v, as Qwen2 has; llama only");
  k.boolean("qk_norm", m.qk_norm, "RMS norm of q and k heads, as Qwen3 has; llama only");
  Range eps_or_zero = eps;
  eps_or_zero.or_value = 0;
  k.number("qk_norm_eps", m.qk_norm_eps, eps_or_zero,
           "added to the variance in q and k norms; 0: norm_eps");
  k.boolean("qk_norm_whole", m.qk_norm_whole,
            "with qk_norm: one norm of all q heads together and one of all k heads, as OLMoE has");
  k.number("clip_qkv", m.clip_qkv, {.low = 0, .high = 1e6},
           "q, k and v are limited to this absolute value, as in OLMo; 0: no limit; llama only");
  k.number("init_std", m.init_std, eps, "standard deviation of initial weights");
  k.number("rope_theta", m.rope_theta, {.low = 1, .high = count_limit, .low_excluded = true},
           "base of the rotary wavelengths; llama only");

  k.section("rope_scaling");
  k.number("factor", m.rope_scaling.factor, {.low = 1, .high = count_limit},
           "factor on long wavelengths");
  k.number("low_freq_factor", m.rope_scaling.low_freq_factor, positive,
           "wavelengths above original_max_position / this are multiplied by factor");
  k.number("high_freq_factor", m.rope_scaling.high_freq_factor, positive,
           "wavelengths below original_max_position / this are kept");
  k.number("original_max_position", m.rope_scaling.original_max_position, size,
           "sequence length before the scaling");
  add_moe_keys(k, m.moe);
  return k.take();
}

spec::ModelDims model_from_file(const std::string& path_or_name,
                                const std::vector<fs::path>& folders) {
  const fs::path path(path_or_name);
  const std::string extension = path.extension().string();
  const bool is_path =
      path_or_name.find('/') != std::string::npos || extension == ".toml" || extension == ".json";
  if (!is_path) {
    for (const fs::path& folder : folders) {
      const fs::path file = folder / (path_or_name + ".toml");
      if (is_file(file)) return read_path(file);
    }
    if (auto dims = model_of_earlier_name(path_or_name, folders)) return *dims;
    if (!is_folder(path)) {
      const std::vector<std::string> names = model_names(folders);
      const auto same = in_any_case(path_or_name, {names.begin(), names.end()});
      if (!same || *same == path_or_name) throw base::ConfigError(no_model(path_or_name, folders));
      return model_from_file(std::string(*same), folders);
    }
  }
  if (is_folder(path)) {
    const fs::path file = path / "config.json";
    if (!is_file(file)) {
      throw base::IoError(fmt::format("{}: a folder without config.json", path_or_name));
    }
    return read_path(file);
  }
  return read_path(path);
}

std::vector<std::string> model_names(const std::vector<fs::path>& folders) {
  return toml_names(folders);
}

const std::vector<EarlierName>& earlier_model_names() {
  static const std::vector<EarlierName> names = {
      {"gpt2-350m", "gpt2-355m"},        {"llama-15m", "llama-11m"},
      {"llama-1b", "llama3.2-1b"},       {"llama-1b-32k", "llama3.2-1b-32k"},
      {"llama-3b", "llama3.2-3b"},       {"llama-8b", "llama3.1-8b"},
      {"llama-8b-4l", "llama3.1-8b-4l"}, {"llama3-405b", "llama3.1-405b"},
  };
  return names;
}

Json to_json(const spec::ModelDims& d) {
  Json json = {
      {"name", d.name},
      {"family", std::string(spec::name_of(d.family))},
      {"layers", d.layers},
      {"hidden", d.hidden},
      {"heads", d.heads},
      {"kv_heads", d.kv_heads},
      {"head_dim", d.head_dim},
      {"ffn", d.ffn},
      {"vocab", d.vocab},
      {"max_seq", d.max_seq},
      {"norm_eps", decimal(d.norm_eps)},
      {"tied_head", d.tied_head},
      {"init_std", decimal(d.init_std)},
  };
  if (d.family != spec::Family::llama) return json;
  json["qkv_bias"] = d.qkv_bias;
  json["qk_norm"] = d.qk_norm;
  json["qk_norm_eps"] = decimal(d.qk_norm_eps);
  if (d.qk_norm_whole) json["qk_norm_whole"] = true;
  if (d.clip_qkv > 0) json["clip_qkv"] = decimal(d.clip_qkv);
  if (d.moe) json["moe"] = moe_to_json(d);
  json["rope_theta"] = d.rope.theta;
  if (d.rope.scaling) {
    json["rope_scaling"] = {{"factor", d.rope.scaling->factor},
                            {"low_freq_factor", d.rope.scaling->low_freq_factor},
                            {"high_freq_factor", d.rope.scaling->high_freq_factor},
                            {"original_max_position", d.rope.scaling->original_max_position}};
  }
  return json;
}

spec::ModelDims dims_from_json(const Json& json, const std::string& where) {
  if (!json.is_object()) throw base::ConfigError(where + ": expected an object");
  return dims_from_entries(entries_of_json(json, where), where, "model");
}

namespace {

spec::ModelDims read_path(const fs::path& path) {
  const std::string text = read_text(path);
  const std::string file = path.string();
  if (!looks_like_json(text)) {
    return dims_from_entries(entries_of_toml(text, file), file, path.stem().string());
  }
  const Json json = parse_json(text, file);
  if (!json.contains("model_type")) return dims_from_json(json, file);
  // config.json does not contain the model's name; its folder has it.
  std::error_code ignored;
  const std::string folder = fs::absolute(path, ignored).parent_path().filename().string();
  const bool is_usual = path.filename() == "config.json" && !folder.empty();
  try {
    return dims_from_hf(json, is_usual ? folder : path.stem().string());
  } catch (const base::ConfigError& error) {
    throw base::ConfigError(fmt::format("{}: {}", file, error.what()));
  }
}

// Returns the key with which a message of spec::make_model begins.
std::string path_of_rule(const std::string& rule) {
  const std::string subject = rule.substr(0, rule.find(" = "));
  if (subject == "rope theta") return "rope_theta";
  if (subject.starts_with("rope ")) return "rope_scaling." + subject.substr(5);
  if (is_moe_key(subject)) return "moe." + subject;
  return subject;
}

void check_rules(const spec::ModelDims& dims, const std::string& file, Report& report) {
  try {
    (void)spec::make_model(dims);
  } catch (const base::ConfigError& error) {
    std::istringstream lines{std::string(error.what())};
    std::string line;
    std::getline(lines, line);  // the title
    while (std::getline(lines, line)) {
      const std::string rule = line.substr(std::min(line.size(), line.find_first_not_of(' ')));
      const std::string path = path_of_rule(rule);
      report.add(report.was_given(path) ? report.where(path) : file, rule);
    }
  }
}

void check_sizes(const MoeKeys& moe, const std::string& file, Report& report) {
  const std::string missing = first_missing(moe);
  if (missing.empty()) return;
  const std::string path = "moe." + missing;
  if (report.is_bad(path)) return;
  if (report.was_given(path)) {
    report.add(report.where(path), path + " = 0: at least 1");
  } else {
    report.add(file, path + ": required, but not given");
  }
}

}  // namespace

spec::ModelDims dims_from_entries(const std::vector<Entry>& entries, const std::string& file,
                                  const std::string& default_name) {
  ModelKeys m;
  Report report;
  apply(entries, keys_of(m), file, report);
  const bool is_gpt2 = m.family == "gpt2";
  bool has_scaling = false, has_moe = false;
  for (const Entry& entry : entries) {
    const bool is_rope = entry.section == "rope_scaling" || entry.key == "rope_theta";
    has_scaling = has_scaling || entry.section == "rope_scaling";
    has_moe = has_moe || entry.section == "moe";
    if (is_gpt2 && is_rope && (entry.is_section_start || entry.section.empty())) {
      report.add(entry.where, fmt::format("{}: gpt2 has learned positions; this key is for llama",
                                          entry.is_section_start ? entry.section : entry.key));
    }
  }
  spec::ModelDims dims{
      .name = m.name.empty() ? default_name : m.name,
      .family = is_gpt2 ? spec::Family::gpt2 : spec::Family::llama,
      .layers = static_cast<int>(m.layers),
      .hidden = m.hidden,
      .heads = m.heads,
      .kv_heads = m.kv_heads,
      .head_dim = m.head_dim,
      .ffn = m.ffn,
      .vocab = m.vocab,
      .max_seq = m.max_seq,
      .norm_eps = static_cast<float>(m.norm_eps),
      .qk_norm_eps = static_cast<float>(m.qk_norm_eps > 0 ? m.qk_norm_eps : m.norm_eps),
      .tied_head = m.tied_head,
      .qkv_bias = m.qkv_bias,
      .qk_norm = m.qk_norm,
      .qk_norm_whole = m.qk_norm_whole,
      .clip_qkv = static_cast<float>(m.clip_qkv),
      .rope = {.theta = m.rope_theta,
               .scaling = has_scaling ? std::optional(m.rope_scaling) : std::nullopt},
      .init_std = static_cast<float>(m.init_std),
  };
  if (has_moe) check_sizes(m.moe, file, report);
  // Rules between sizes are checked only if each size is legal.
  if (report.empty() && has_moe) set_moe(m.moe, dims);
  const bool has_dense = !has_moe || spec::expert_blocks(dims) < dims.layers;
  if (report.empty() && has_dense && !report.was_given("ffn")) {
    report.add(file, "ffn: required, but not given (width inside the feed-forward)");
  }
  if (report.empty()) check_rules(dims, file, report);
  report.throw_if_any(file);
  return dims;
}

namespace {

std::optional<spec::ModelDims> model_of_earlier_name(const std::string& name,
                                                     const std::vector<fs::path>& folders) {
  for (const EarlierName& earlier : earlier_model_names()) {
    if (earlier.name != name) continue;
    for (const fs::path& folder : folders) {
      const fs::path file = folder / (std::string(earlier.now) + ".toml");
      if (!is_file(file)) continue;
      spec::ModelDims dims = read_path(file);
      dims.name = name;  // reports and run.json use the name that the user gave
      return dims;
    }
  }
  return std::nullopt;
}

// Returns the name of today that is nearest: by its letters, as a longer name, or by an earlier
// name.
std::optional<std::string> nearest_model(const std::string& name,
                                         const std::vector<std::string>& names) {
  if (const auto near = nearest(name, {names.begin(), names.end()})) return std::string(*near);
  const auto longer = std::ranges::find_if(
      names, [&](const std::string& one) { return !name.empty() && one.starts_with(name); });
  if (longer != names.end()) return *longer;
  std::vector<std::string_view> earlier;
  for (const EarlierName& one : earlier_model_names()) earlier.emplace_back(one.name);
  const auto near = nearest(name, earlier);
  for (const EarlierName& one : earlier_model_names()) {
    if (one.name == near && std::ranges::find(names, one.now) != names.end()) {
      return std::string(one.now);
    }
  }
  return std::nullopt;
}

std::string no_model(const std::string& name, const std::vector<fs::path>& folders) {
  const std::vector<std::string> names = model_names(folders);
  std::string text = fmt::format("no model '{}'", name);
  const auto best = nearest_model(name, names);
  if (best) text += fmt::format("; did you mean '{}'?", *best);
  if (names.empty()) {
    std::vector<std::string> searched;
    for (const fs::path& folder : folders) searched.push_back(folder.string());
    return text +
           fmt::format("; no model files in {}",
                       searched.empty() ? "any folder" : fmt::to_string(fmt::join(searched, ", ")));
  }
  return text + fmt::format("{} Models are {}; or give a path to a .toml or config.json",
                            best ? "" : ".", fmt::join(names, ", "));
}

}  // namespace
}  // namespace trireme::config
