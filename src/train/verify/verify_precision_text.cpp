// SPDX-License-Identifier: Apache-2.0
// The report of verify_precision(), as tables and as JSON.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/text/json.h"
#include "obs/terminal/table.h"
#include "train/verify/verify_precision.h"

namespace trireme::train {
namespace {

using base::Json;

constexpr obs::Align to_left = obs::Align::left;

std::string checks_text(const PrecisionReport& report) {
  const std::array<obs::Column, 3> columns = {
      {{"", to_left}, {"check", to_left}, {"found", to_left}}};
  std::vector<std::vector<std::string>> rows;
  for (const VerifyCheck& check : report.checks) {
    rows.push_back({check.ok ? "OK" : "FAILED", check.name, check.detail});
  }
  return obs::table_text(columns, rows);
}

std::string layers_text(const PrecisionReport& report) {
  const std::array<obs::Column, 6> columns = {{{"gradients of", to_left},
                                               {"products", to_left},
                                               {"error", obs::Align::right},
                                               {"cosine", obs::Align::right},
                                               {"error of bf16", obs::Align::right},
                                               {"cosine of bf16", obs::Align::right}}};
  std::vector<std::vector<std::string>> rows;
  for (const PrecisionLayer& of : report.layers) {
    const auto worst = std::ranges::min_element(
        of.params, {}, [](const PrecisionParam& param) { return param.recipe.cosine; });
    rows.push_back(
        {of.name, of.is_fp8 ? report.recipe.name : "not in 8 bits",
         fmt::format("{:.2e}", of.recipe.relative), fmt::format("{:.6f}", of.recipe.cosine),
         fmt::format("{:.2e}", of.bf16.relative), fmt::format("{:.6f}", of.bf16.cosine)});
    if (!of.is_fp8) continue;
    rows.push_back(
        {"  worst: " + worst->name.substr(worst->name.find('.', of.name.size()) + 1), "",
         fmt::format("{:.2e}", worst->recipe.relative), fmt::format("{:.6f}", worst->recipe.cosine),
         fmt::format("{:.2e}", worst->bf16.relative), fmt::format("{:.6f}", worst->bf16.cosine)});
  }
  return obs::table_text(columns, rows);
}

// The worst block of each matrix.
std::string numerics_text(const PrecisionReport& report) {
  if (report.numerics.empty()) return "";
  const std::array<obs::Column, 6> columns = {{{"matrix in 8 bits", to_left},
                                               {"largest", obs::Align::right},
                                               {"lowest SNR, dB", obs::Align::right},
                                               {"flushed, %", obs::Align::right},
                                               {"saturated, %", obs::Align::right},
                                               {"headroom, bits", obs::Align::right}}};
  std::vector<std::vector<std::string>> rows;
  for (int q = 0; q < spec::quantized_count; ++q) {
    const auto role = static_cast<spec::Quantized>(q);
    RoleFigures worst;
    for (const LayerFigures& layer : report.numerics) {
      const RoleFigures& of = layer[role];
      if (!of.is_measured || of.amax == 0) continue;
      const bool is_first = !worst.is_measured;
      worst.is_measured = true;
      worst.amax = std::max(worst.amax, of.amax);
      worst.flushed = std::max(worst.flushed, of.flushed);
      worst.saturated = std::max(worst.saturated, of.saturated);
      worst.snr_db = is_first ? of.snr_db : std::min(worst.snr_db, of.snr_db);
      worst.headroom_bits =
          is_first ? of.headroom_bits : std::min(worst.headroom_bits, of.headroom_bits);
    }
    if (!worst.is_measured) continue;
    rows.push_back({std::string(spec::name_of(role)), fmt::format("{:.3g}", worst.amax),
                    fmt::format("{:.1f}", worst.snr_db), fmt::format("{:.2g}", 100 * worst.flushed),
                    fmt::format("{:.2g}", 100 * worst.saturated),
                    fmt::format("{:.1f}", worst.headroom_bits)});
  }
  return "\n" + obs::table_text(columns, rows);
}

Json finite_number(double value) { return std::isfinite(value) ? Json(value) : Json("not finite"); }

Json to_json(const GradientDistance& of) {
  return {{"relative", finite_number(of.relative)}, {"cosine", finite_number(of.cosine)}};
}

}  // namespace

std::string to_text(const PrecisionReport& report) {
  std::string text =
      fmt::format("{}: {} blocks, hidden {}, ffn {}, vocabulary {}; {} on a batch of {} tokens\n",
                  report.dims.name, report.dims.layers, report.dims.hidden, report.dims.ffn,
                  report.dims.vocab, report.recipe.name, report.tokens);
  for (const std::string& note : report.notes) text += note + "\n";
  text += fmt::format("loss: {:.6f}, in bf16 {:.6f}, in fp32 {:.6f}\n\n", report.loss,
                      report.loss_bf16, report.loss_fp32);
  text += layers_text(report) + numerics_text(report) + "\n" + checks_text(report);
  const auto failed =
      std::ranges::find_if(report.checks, [](const VerifyCheck& check) { return !check.ok; });
  if (failed != report.checks.end()) {
    text += fmt::format("look first at {}: {}\n", failed->name, failed->hint);
  }
  text += failed == report.checks.end() ? "all checks passed\n"
                                        : "the recipe differs by more than its bounds\n";
  return text;
}

base::Json to_json(const PrecisionReport& report) {
  Json layers = Json::array(), numerics = Json::array(), checks = Json::array();
  for (const PrecisionLayer& of : report.layers) {
    Json params = Json::object();
    for (const PrecisionParam& param : of.params) {
      params[param.name] = {{"recipe", to_json(param.recipe)}, {"bf16", to_json(param.bf16)}};
    }
    layers.push_back({{"layer", of.name},
                      {"is_fp8", of.is_fp8},
                      {"recipe", to_json(of.recipe)},
                      {"bf16", to_json(of.bf16)},
                      {"parameters", params}});
  }
  for (const LayerFigures& layer : report.numerics) {
    Json matrices = Json::object();
    for (int q = 0; q < spec::quantized_count; ++q) {
      const RoleFigures& of = layer.by[static_cast<size_t>(q)];
      if (!of.is_measured) continue;
      matrices[std::string(spec::name_of(static_cast<spec::Quantized>(q)))] = {
          {"amax", finite_number(of.amax)},
          {"snr_db", finite_number(of.snr_db)},
          {"flushed", of.flushed},
          {"saturated", of.saturated},
          {"headroom_bits", finite_number(of.headroom_bits)}};
    }
    numerics.push_back({{"block", layer.layer - 1}, {"matrices", matrices}});
  }
  for (const VerifyCheck& check : report.checks) {
    checks.push_back({{"name", check.name},
                      {"ok", check.ok},
                      {"value", finite_number(check.error)},
                      {"bound", check.bound},
                      {"detail", check.detail}});
  }
  return {{"ok", report.ok()},
          {"recipe", report.recipe.name},
          {"model",
           {{"name", report.dims.name},
            {"blocks", report.dims.layers},
            {"hidden", report.dims.hidden},
            {"ffn", report.dims.ffn},
            {"vocabulary", report.dims.vocab}}},
          {"notes", report.notes},
          {"tokens", report.tokens},
          {"loss", finite_number(report.loss)},
          {"loss_bf16", finite_number(report.loss_bf16)},
          {"loss_fp32", finite_number(report.loss_fp32)},
          {"checks", checks},
          {"layers", layers},
          {"numerics", numerics}};
}

}  // namespace trireme::train
