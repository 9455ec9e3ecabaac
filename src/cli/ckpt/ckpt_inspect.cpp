// SPDX-License-Identifier: Apache-2.0
// trireme ckpt inspect: prints the contents of a checkpoint.
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/text/json.h"
#include "ckpt/disk/posix_disk.h"
#include "ckpt/generation/figures.h"
#include "ckpt/generation/windows.h"
#include "cli/ckpt/ckpt_place.h"
#include "cli/ckpt/ckpt_verbs.h"
#include "config/spelling.h"
#include "obs/terminal/number_text.h"

namespace trireme::cli {
namespace {

using ckpt::Manifest;
using ckpt::TensorInfo;

std::string shape_text(const TensorInfo& tensor) {
  return fmt::format("{} [{}]", base::name_of(tensor.dtype), fmt::join(tensor.shape, ", "));
}

base::Json tensor_json(const TensorInfo& tensor) {
  return {{"name", tensor.name},
          {"dtype", base::name_of(tensor.dtype)},
          {"shape", tensor.shape},
          {"bytes", ckpt::bytes_of(tensor)}};
}

const TensorInfo& find(const Manifest& manifest, const std::string& name) {
  std::vector<std::string_view> names;
  for (const TensorInfo& tensor : manifest.tensors) {
    if (tensor.name == name) return tensor;
    names.push_back(tensor.name);
  }
  const auto near = config::nearest(name, names);
  throw base::IoError(fmt::format(
      "--tensor {}: the checkpoint has no such tensor{}; leave --tensor out to list all", name,
      near ? fmt::format(" (did you mean '{}'?)", *near) : ""));
}

int inspect_tensor(const Args& args, const ckpt::Generation& generation) {
  const std::string name = args.text("--tensor");
  const TensorInfo& tensor = find(generation.manifest(), name);
  const ckpt::TensorFigures figures = ckpt::figures_of(generation, tensor);
  if (args.wants_json()) {
    base::Json out = {{"ok", true}, {"step", generation.manifest().step}};
    out.update(tensor_json(tensor));
    out["elements"] = figures.elements;
    out["not_finite"] = figures.not_finite;
    out["min"] = figures.min;
    out["max"] = figures.max;
    out["mean"] = figures.mean;
    out["rms"] = figures.rms;
    out["hash"] = ckpt::to_hex(figures.hash);
    fmt::print("{}\n", out.dump());
    return 0;
  }
  fmt::print("{}  {}, {} elements, step {}\n", tensor.name, shape_text(tensor),
             obs::grouped(figures.elements), generation.manifest().step);
  fmt::print("min {:.6g}  max {:.6g}  mean {:.6g}  rms {:.6g}  not finite {}\n", figures.min,
             figures.max, figures.mean, figures.rms, figures.not_finite);
  fmt::print("hash {}\n", ckpt::to_hex(figures.hash));
  return 0;
}

void print(const ckpt::Generation& generation) {
  const Manifest& manifest = generation.manifest();
  fmt::print("checkpoint {}\nstep       {}\nlayout     {}\nstate\n", generation.folder().string(),
             manifest.step, layout_words(manifest));
  for (const auto& [key, value] : manifest.state.items()) {
    fmt::print("  {} = {}\n", key, value.dump());
  }
  fmt::print("files\n");
  for (const ckpt::FileInfo& file : manifest.files) {
    fmt::print("  {}  {:>11}    {}  {:>11}\n", ckpt::data_name(file.rank),
               obs::bytes_text(file.data_bytes), ckpt::index_name(file.rank),
               obs::bytes_text(file.index_bytes));
  }
  size_t width = 0;
  for (const TensorInfo& tensor : manifest.tensors) width = std::max(width, tensor.name.size());
  fmt::print("tensors\n");
  for (const TensorInfo& tensor : manifest.tensors) {
    fmt::print("  {:<{}}  {}\n", tensor.name, width, shape_text(tensor));
  }
}

int run_ckpt_inspect(const Args& args) {
  const auto disk = ckpt::posix_disk();
  const ckpt::Generation generation =
      open_checkpoint(*disk, args.text("checkpoint"), asked_step(args));
  if (args.has("--tensor")) return inspect_tensor(args, generation);
  if (!args.wants_json()) {
    print(generation);
    return 0;
  }
  const Manifest& manifest = generation.manifest();
  base::Json out = {{"ok", true},
                    {"checkpoint", generation.folder().string()},
                    {"generation", generation.folder().string()},  // the old name of "checkpoint"
                    {"step", manifest.step},
                    {"layout", layout_words(manifest)},
                    {"state", manifest.state},
                    {"plan", manifest.plan},
                    {"files", base::Json::array()},
                    {"tensors", base::Json::array()}};
  for (const ckpt::FileInfo& file : manifest.files) {
    out["files"].push_back(
        {{"rank", file.rank}, {"data_bytes", file.data_bytes}, {"index_bytes", file.index_bytes}});
  }
  for (const TensorInfo& tensor : manifest.tensors) out["tensors"].push_back(tensor_json(tensor));
  fmt::print("{}\n", out.dump());
  return 0;
}

}  // namespace

Verb ckpt_inspect_verb() {
  return {.name = "ckpt inspect",
          .summary = "Print the contents of a checkpoint: state, plan, tensors, files",
          .details =
              "Tensors weight/ are the master weights, m/ and v/ the moments of AdamW, momentum/\n"
              "that of Muon. The hash of a tensor does not depend on the layout that saved it.\n\n"
              "Examples:\n"
              "  trireme ckpt inspect runs/saved\n"
              "  trireme ckpt inspect runs/saved --step 20 --tensor "
              "weight/blocks.0.norm1.weight --json",
          .options = {{.name = "checkpoint",
                       .help = "Run's folder, its checkpoint folder, or a checkpoint",
                       .is_required = true},
                      step_option(),
                      {.name = "--tensor",
                       .help = "Name of a tensor whose statistics and hash are printed"}},
          .run = run_ckpt_inspect};
}

}  // namespace trireme::cli
