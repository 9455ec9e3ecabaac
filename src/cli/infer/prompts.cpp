// SPDX-License-Identifier: Apache-2.0
#include "cli/infer/prompts.h"

#include <fmt/format.h>

#include <charconv>
#include <sstream>

#include "base/error.h"
#include "base/text/json.h"
#include "cli/infer/text_lines.h"

namespace trireme::cli {
namespace {

std::vector<int32_t> ids_of(const std::string& words) {
  std::vector<int32_t> ids;
  std::stringstream list(words);
  for (std::string word; std::getline(list, word, ',');) {
    int32_t token = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), token);
    if (error != std::errc() || end != word.data() + word.size()) {
      throw base::ConfigError(
          fmt::format("--prompt-ids: '{}' is not a token id; give ids like 17,4,99", word));
    }
    ids.push_back(token);
  }
  return ids;
}

Prompt prompt_of_json(std::string_view line, const std::string& origin) {
  const auto refuse = [&origin](const std::string& found) -> void {
    throw base::ConfigError(fmt::format(
        "{}: {}; each line is an object with \"prompt\" (a text) or \"prompt_ids\" (token ids)",
        origin, found));
  };
  const base::Json json = base::Json::parse(line, nullptr, false);
  if (json.is_discarded()) refuse("not valid JSON");
  if (!json.is_object()) refuse("not an object");
  Prompt prompt{.text = {}, .ids = {}, .origin = origin};
  if (json.contains("prompt_ids")) {
    const base::Json& ids = json.at("prompt_ids");
    if (!ids.is_array()) refuse("\"prompt_ids\" is not a list");
    prompt.ids.emplace();
    for (const base::Json& id : ids) {
      if (!id.is_number_integer() || id < 0 || id > INT32_MAX) {
        refuse(fmt::format("{} is not a token id", id.dump()));
      }
      prompt.ids->push_back(id.get<int32_t>());
    }
    return prompt;
  }
  if (!json.contains("prompt")) refuse("\"prompt\" is missing");
  if (!json.at("prompt").is_string()) refuse("\"prompt\" is not a text");
  prompt.text = json.at("prompt").get<std::string>();
  return prompt;
}

void read_file(const std::string& path, std::vector<Prompt>& prompts) {
  std::optional<bool> is_json;
  for_each_line(path, [&](int64_t number, std::string_view line) {
    if (!is_json) is_json = line.starts_with('{');
    const std::string origin = fmt::format("{}:{}", path == "-" ? "<stdin>" : path, number);
    if (*is_json) {
      prompts.push_back(prompt_of_json(line, origin));
    } else {
      prompts.push_back({.text = std::string(line), .ids = {}, .origin = origin});
    }
  });
  if (!is_json) throw base::ConfigError(fmt::format("--prompts {}: the file has no prompt", path));
}

}  // namespace

std::vector<Option> prompt_options() {
  return {{.name = "--prompt",
           .kind = Kind::texts,
           .help = "Text to continue; may be given several times"},
          {.name = "--prompts",
           .help = "File of prompts, one per line, or JSON lines with {\"prompt\": ...}; -: "
                   "standard input"},
          {.name = "--prompt-ids",
           .kind = Kind::texts,
           .help = "Token ids to continue, as 17,4,99, instead of text; may be given several "
                   "times"}};
}

std::vector<Prompt> read_prompts(const Args& args) {
  std::vector<Prompt> prompts;
  for (const std::string& text : args.list("--prompt")) {
    prompts.push_back({.text = text, .ids = {}, .origin = "--prompt"});
  }
  for (const std::string& ids : args.list("--prompt-ids")) {
    prompts.push_back({.text = {}, .ids = ids_of(ids), .origin = "--prompt-ids"});
  }
  if (args.has("--prompts")) read_file(args.text("--prompts"), prompts);
  return prompts;
}

}  // namespace trireme::cli
