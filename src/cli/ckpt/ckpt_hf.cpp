// SPDX-License-Identifier: Apache-2.0
// trireme ckpt export, trireme ckpt import: convert checkpoints to Hugging Face weights, and back.
#include <cmath>
#include <optional>

#include "base/error.h"
#include "base/text/json.h"
#include "ckpt/disk/posix_disk.h"
#include "ckpt/generation/tokenizer_copy.h"
#include "ckpt/hf/hf_names.h"
#include "ckpt/hf/hf_weights.h"
#include "cli/ckpt/ckpt_place.h"
#include "cli/ckpt/ckpt_verbs.h"
#include "cli/shell/progress.h"
#include "cli/verbs.h"
#include "config/files/model_file.h"
#include "obs/terminal/number_text.h"
#include "train/checkpointing/checkpoint_weights.h"
#include "train/checkpointing/export_loss.h"
#include "train/weights/import_weights.h"
#include "train/weights/upcycle.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> tokenizer_of(const Args& args) {
  std::vector<fs::path> files;
  if (!args.has("--tokenizer")) return files;
  const fs::path folder = args.text("--tokenizer");
  std::string names;
  for (const char* name : ckpt::tokenizer_files) {
    if (fs::is_regular_file(folder / name)) files.push_back(folder / name);
    names += fmt::format("{}{}", names.empty() ? "" : ", ", name);
  }
  if (!files.empty()) return files;
  throw base::IoError(
      fmt::format("--tokenizer {}: contains none of these files: {}", folder.string(), names));
}

void expect_free(const fs::path& out, bool may_replace) {
  if (may_replace || !fs::exists(out) || (fs::is_directory(out) && fs::is_empty(out))) return;
  throw base::IoError(fmt::format(
      "{}: already exists; give another --out, or --overwrite to replace the weights in it",
      out.string()));
}

// A loss that is not finite becomes null, since JSON has no NaN.
base::Json loss_json(const train::ExportLoss& loss) {
  const auto number = [](double value) {
    return std::isfinite(value) ? base::Json(value) : base::Json();
  };
  return {{"checkpoint", number(loss.checkpoint)},
          {"exported", number(loss.exported)},
          {"tokens", loss.tokens}};
}

int export_weights(const Args& args) {
  const auto disk = ckpt::posix_disk();
  const ckpt::Generation from = open_checkpoint(*disk, args.text("from"), asked_step(args));
  const spec::ModelDims dims = model_of(from);
  const fs::path out = args.text("--out");
  expect_free(out, args.flag("--overwrite"));
  const base::DType dtype = base::dtype_from_name(args.text("--dtype"));
  const bool wants_loss = !args.flag("--no-loss");
  int64_t elements = 0;
  size_t tensors = 0;
  for (const ckpt::HfParam& param : ckpt::hf_params(dims)) {
    elements += param.elements();
    tensors += param.tensors.size();
  }
  const train::CheckpointWeights weights(from, dims);
  // Everything is read twice, to write it and to compare; then the losses are computed.
  Progress progress("ckpt export", "values",
                    2 * elements + (wants_loss ? train::compared_elements(dims) : 0));
  int64_t done = 0;
  const auto read = [&](const std::string& name, const spec::Piece& box, std::span<float> values) {
    weights.read(name, box, values);
  };
  std::optional<train::ExportLoss> loss;
  const auto compare = [&](const fs::path& written) {
    loss = train::compare_losses(dims, read, written, dtype, [&](int64_t more) {
      progress.update(done += more, "comparing losses");
    });
  };
  ckpt::export_hf(
      out, dims,
      ckpt::ReadBox([&](const std::string& name, const spec::Piece& box, std::span<float> values) {
        read(name, box, values);
        progress.update(done += std::ssize(values), name);
      }),
      {.dtype = dtype,
       .max_shard_bytes = args.integer("--max-shard-bytes"),
       .extra_files = tokenizer_of(args),
       .extra_bytes = args.has("--tokenizer") ? std::vector<ckpt::NamedBytes>()
                                              : ckpt::read_tokenizer(*disk, from.folder()),
       .reread = true,
       .check = wants_loss ? compare : std::function<void(const fs::path&)>()});
  progress.finish();
  if (args.wants_json()) {
    base::Json json{{"ok", true},
                    {"weights", out.string()},
                    {"step", from.manifest().step},
                    {"model", dims.name},
                    {"tensors", tensors},
                    {"parameters", elements},
                    {"dtype", args.text("--dtype")}};
    if (loss) json["loss"] = loss_json(*loss);
    fmt::print("{}\n", json.dump());
    return 0;
  }
  fmt::print("{}: step {} of {}, {} tensors, {} parameters as {}; read again and compared\n",
             out.string(), from.manifest().step, dims.name, tensors, obs::grouped(elements),
             args.text("--dtype"));
  if (loss) {
    fmt::print("loss on {} fixed tokens: {:.6f} of the checkpoint{}, {:.6f} of the export\n",
               loss->tokens.size() - 1, loss->checkpoint,
               dtype == base::DType::bf16 ? " rounded to bf16" : "", loss->exported);
  }
  return 0;
}

// Returns how dense weights become a mixture of experts, if that is asked for.
std::optional<train::Upcycling> upcycling_of(const Args& args, const fs::path& weights,
                                             const spec::ModelDims& dims) {
  if (!args.flag("--upcycle")) {
    for (const char* option : {"--noise", "--seed"}) {
      if (!args.has(option)) continue;
      throw base::ConfigError(fmt::format("{}: is an option of --upcycle; add it", option));
    }
    const bool has_config = fs::is_directory(weights) && fs::exists(weights / "config.json");
    if (dims.moe && has_config && !config::model_from_file(weights.string(), model_folders()).moe) {
      throw base::ConfigError(fmt::format(
          "{}: weights of a dense model, and '{}' has experts; add --upcycle to begin every expert "
          "as a copy of the dense feed-forward",
          weights.string(), dims.name));
    }
    return std::nullopt;
  }
  if (!args.has("--model") || !fs::exists(weights / "config.json")) {
    throw base::ConfigError(
        "--upcycle: needs --model, which describes the experts, and weights with a config.json, "
        "which describes the dense model");
  }
  const int64_t seed = args.has("--seed") ? args.integer("--seed") : 0;
  if (seed < 0) throw base::ConfigError(fmt::format("--seed {}: must be at least 0", seed));
  train::Upcycling how{.dense = config::model_from_file(weights.string(), model_folders()),
                       .moe = dims,
                       .seed = static_cast<uint64_t>(seed),
                       .noise = args.has("--noise") ? args.number("--noise") : 0};
  train::check_upcycling(how);
  return how;
}

int import_weights(const Args& args) {
  const fs::path weights = args.text("weights");
  if (!fs::exists(weights)) {
    throw base::IoError(fmt::format("{}: there is no such folder or file", weights.string()));
  }
  const std::string model = args.has("--model") ? args.text("--model") : weights.string();
  if (!args.has("--model") && !fs::exists(weights / "config.json")) {
    throw base::ConfigError(fmt::format(
        "{}: contains no config.json that describes the model; give --model", weights.string()));
  }
  const spec::ModelDims dims = config::model_from_file(model, model_folders());
  const std::optional<train::Upcycling> upcycling = upcycling_of(args, weights, dims);
  const fs::path root = folder_to_write(args.text("--out"));
  const auto disk = ckpt::posix_disk();
  const int64_t parameters = spec::parameter_count(spec::make_model(dims));
  // Weights and two moments in fp32.
  Progress progress("import", "MiB", (3 * 4 * parameters) >> 20);
  const auto update = [&](int64_t bytes) { progress.update(bytes >> 20); };
  const fs::path made = upcycling ? train::upcycle_weights(*disk, weights, *upcycling, root, update)
                                  : train::import_weights(*disk, weights, dims, root, update);
  progress.finish();
  if (args.wants_json()) {
    fmt::print("{}\n", base::Json{{"ok", true},
                                  {"checkpoint", made.string()},
                                  {"generation", made.string()},  // the old name of "checkpoint"
                                  {"step", 0},
                                  {"model", dims.name},
                                  {"upcycled", upcycling.has_value()},
                                  {"parameters", parameters}}
                           .dump());
  } else {
    if (upcycling) {
      fmt::print("{} experts in each of {} blocks begin as copies of the feed-forward of '{}'{}\n",
                 dims.moe->router.experts, spec::expert_blocks(dims), upcycling->dense.name,
                 dims.moe->router.renormalizes
                     ? ""
                     : "; their weights do not add up to 1 (renormalize = false), so the model "
                       "computes another function than the dense one");
    }
    fmt::print(
        "{}: {}, {} parameters; a run in the folder {} starts from them with --resume auto\n",
        made.string(), dims.name, obs::grouped(parameters), root.parent_path().string());
  }
  return 0;
}

}  // namespace

Verb ckpt_export_verb() {
  return {.name = "ckpt export",
          .summary = "Export the weights of a checkpoint as a Hugging Face folder",
          .details =
              "Memory does not grow with the number of layers, and no GPU is needed. Before the "
              "folder is\n"
              "renamed to --out, every tensor is read again and its hash compared with the "
              "checkpoint, and\n"
              "the loss of one sequence of fixed tokens is computed from both, with half a block "
              "in memory\n"
              "at a time. Both losses must have the same bits.\n\nExamples:\n"
              "  trireme ckpt export runs/saved --out runs/exported\n"
              "  trireme ckpt export runs/saved --step 20 --out runs/exported-bf16 --dtype bf16 "
              "--max-shard-bytes 2000000000 --json",
          .options = {{.name = "from",
                       .help = "Run's folder, its checkpoint folder, or a checkpoint",
                       .is_required = true},
                      step_option(),
                      {.name = "--out", .help = "Folder to create", .is_required = true},
                      {.name = "--dtype",
                       .fallback = "f32",
                       .help = "Dtype of the exported weights",
                       .choices = {"f32", "bf16"}},
                      {.name = "--max-shard-bytes",
                       .kind = Kind::integer,
                       .fallback = "5000000000",
                       .help = "Maximum size of one file; a larger tensor gets a file of its size"},
                      {.name = "--tokenizer",
                       .help = "Folder whose tokenizer files are copied beside the weights; "
                               "default: the files in the checkpoint, if it has any"},
                      {.name = "--no-loss",
                       .kind = Kind::flag,
                       .help = "Compare tensors but no losses, which takes less time and memory"},
                      {.name = "--overwrite",
                       .kind = Kind::flag,
                       .help = "Replace the folder of --out if it contains weights"}},
          .run = export_weights};
}

Verb ckpt_import_verb() {
  return {
      .name = "ckpt import",
      .summary = "Create a checkpoint of step 0 from Hugging Face weights",
      .details =
          "`train --resume auto` starts from it: with these weights, zero moments, and the seed "
          "and\n"
          "data of the run's configuration. --upcycle makes a mixture of experts from a dense "
          "model: every\n"
          "expert is a copy of the dense feed-forward (expert_ffn must be its ffn), routers are "
          "random.\n\nExamples:\n"
          "  trireme ckpt import runs/exported --out runs/imported\n"
          "  trireme ckpt import runs/exported --upcycle --model my-moe.toml --noise 0.001 --out "
          "runs/upcycled",
      .options = {{.name = "weights",
                   .help = "Hugging Face folder, index, or safetensors file",
                   .is_required = true},
                  {.name = "--out",
                   .help = "Folder of the future run, or a checkpoint folder",
                   .is_required = true},
                  {.name = "--model",
                   .help = "Model by name or file, if there is no config.json, or to upcycle to"},
                  {.name = "--upcycle",
                   .kind = Kind::flag,
                   .help = "Copy the feed-forward of a dense model into every expert of --model"},
                  {.name = "--noise",
                   .kind = Kind::number,
                   .help = "Standard deviation of noise that --upcycle adds to each weight of an "
                           "expert (default: 0)"},
                  {.name = "--seed",
                   .kind = Kind::integer,
                   .help = "Seed of the routers and of the noise of --upcycle (default: 0)"}},
      .run = import_weights};
}

}  // namespace trireme::cli
