// SPDX-License-Identifier: Apache-2.0
// trireme verify: checks that the layout of a configuration trains as one rank does.
#include "train/verify/verify.h"

#include "base/text/json.h"

#include "base/error.h"
#include "cli/shell/config_options.h"
#include "cli/shell/progress.h"
#include "cli/verbs.h"
#include "config/config.h"
#include "train/setup/setup.h"
#include "train/verify/verify_precision.h"

namespace trireme::cli {
namespace {

template <typename Report>
int print(const Report& report, const Args& args) {
  if (args.wants_json()) {
    fmt::print("{}\n", train::to_json(report).dump());
  } else {
    fmt::print("{}", train::to_text(report));
  }
  return report.ok() ? 0 : 1;
}

int run_verify(const Args& args) {
  const config::Config asked = config::load(
      config_text_of(args), {.overrides = overrides_of(args), .model_folders = model_folders()});
  train::VerifyJob job = train::make_verify_job(config::solved(asked, 0));
  job.deadline_s = args.number("--deadline");
  if (!(job.deadline_s > 0)) {
    throw base::ConfigError(fmt::format("--deadline {}: above 0", args.text("--deadline")));
  }
  const bool compares_recipes = args.flag("--precision");
  Progress progress("verify", "steps",
                    compares_recipes ? train::precision_steps : train::verify_total_steps(job));
  job.progress = [&progress](int64_t done, std::string_view what) { progress.update(done, what); };
  if (compares_recipes) {
    const train::PrecisionReport report = train::verify_precision(job);
    progress.finish();
    return print(report, args);
  }
  const train::VerifyReport report = train::verify(job);
  progress.finish();
  return print(report, args);
}

}  // namespace

Verb verify_verb() {
  Verb verb = {
      .name = "verify",
      .summary = "Check that the layout of a configuration trains as one rank does",
      .details =
          "Takes the layout of a configuration (degrees, ZeRO stage, accumulation, reduction\n"
          "order, recompute, precision), shrinks the model without changing its structure, and\n"
          "trains it for three steps twice: with the ranks of the layout as threads of this\n"
          "process (on a GPU they share it), and with one fp32 rank. It compares samples, loss,\n"
          "gradient norm, every parameter's gradient and the weights after the steps, the choices\n"
          "and biases of routers, and the bytes on the wire and the memory of every rank with\n"
          "their predictions. It reads only the configuration and writes no file. Exit code 0:\n"
          "all agree, 1: something differs, 2: the configuration is wrong.\n\n"
          "With --precision it compares the recipe of the configuration with bf16 and fp32 "
          "instead,\n"
          "on one rank and one batch: the loss, the gradients of every layer and matrix, and what\n"
          "quantising did to the values of each matrix. docs/precision.md has the bounds.\n\n"
          "Examples:\n"
          "  trireme verify configs/kjv.toml\n"
          "  trireme verify configs/kjv.toml --parallelism.data_parallel_shard_degree=4\n"
          "  trireme verify configs/kjv.toml --model.name=kjv-moe "
          "--parallelism.data_parallel_shard_degree=4 --parallelism.expert_parallel_degree=4\n"
          "  trireme verify configs/kjv.toml --parallelism.tensor_parallel_degree=2 "
          "--parallelism.sequence_parallel --training.dtype=bf16 --json\n"
          "  trireme verify configs/kjv.toml --precision --precision.recipe=fp8-tensor",
      .options = {{.name = "--deadline",
                   .kind = Kind::number,
                   .fallback = "30",
                   .help = "Seconds that a rank waits for another before the check fails"},
                  {.name = "--precision",
                   .kind = Kind::flag,
                   .help = "Compare the recipe with bf16 and fp32, layer by layer"}},
      .takes_overrides = true,
      .run = run_verify};
  const std::vector<Option> options = config_options();
  verb.options.insert(verb.options.begin(), options.begin(), options.end());
  return verb;
}

}  // namespace trireme::cli
