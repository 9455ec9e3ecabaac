// SPDX-License-Identifier: Apache-2.0
#include "cli/run/imported_config.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "cli/plan/plan_source.h"
#include "config/document.h"
#include "plan/convert/convert_megatron.h"
#include "plan/convert/convert_torchtitan.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* titan_option = "--from-torchtitan";
constexpr const char* megatron_option = "--from-megatron";

bool names_file(const std::string& value) {
  std::error_code unknown;  // also for a name that is too long
  return fs::is_regular_file(value, unknown);
}

}  // namespace

std::vector<Option> import_options() {
  return {{.name = titan_option, .help = "TOML file of a TorchTitan job to convert"},
          {.name = megatron_option,
           .help = "Flags of a Megatron-LM job to convert, as one text, or a file with them"}};
}

std::string import_option(const Args& args) {
  const bool is_titan = args.accepts(titan_option) && args.has(titan_option);
  const bool is_megatron = args.accepts(megatron_option) && args.has(megatron_option);
  if (is_titan && is_megatron) {
    throw base::ConfigError(fmt::format("{} and {} each name the job: give one of them",
                                        titan_option, megatron_option));
  }
  if (is_titan) return titan_option;
  return is_megatron ? megatron_option : "";
}

std::string megatron_text(const std::string& value) {
  if (names_file(value)) return config::read_text(value);
  if (value.find("--") == std::string::npos) {
    throw base::ConfigError(
        fmt::format("{} {}: neither a file nor flags as one text (--num-layers 32 ...)",
                    megatron_option, value));
  }
  return value;
}

plan::Conversion imported_config(const Args& args, const plan::ConvertOptions& options) {
  const std::string option = import_option(args), value = args.text(option);
  if (option == titan_option) {
    return plan::convert_torchtitan(config::read_text(value), value, options, shipped_stack);
  }
  const std::string source = names_file(value) ? "Megatron's " + value : "Megatron's flags";
  return plan::convert_megatron(megatron_text(value), source, options, shipped_stack);
}

std::vector<std::string> import_notes(const plan::Conversion& conversion) {
  std::vector<std::string> lines;
  for (const std::string& text : conversion.changed) lines.push_back("changed   " + text);
  for (const plan::Dropped& one : conversion.dropped) {
    lines.push_back(fmt::format("dropped   {}: {}", one.setting, one.reason));
  }
  return lines;
}

}  // namespace trireme::cli
