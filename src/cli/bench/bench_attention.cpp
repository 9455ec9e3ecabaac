// SPDX-License-Identifier: Apache-2.0
// trireme bench attention: the cost of cutting attention for context parallelism.
#include <fmt/core.h>

#include "base/text/json.h"
#include "cli/shell/device_options.h"
#include "cli/shell/progress.h"
#include "cli/verbs.h"
#include "train/measure/context_bench.h"

namespace trireme::cli {
namespace {

void print_times(const char* name, const train::ContextBench::Times& times) {
  fmt::print("{:<10}{:>12.3f} ms{:>12.3f} ms{:>10.1f} %\n", name, times.whole_seconds * 1e3,
             times.ranks_seconds * 1e3, times.overhead() * 100);
}

int run_bench_attention(const Args& args) {
  train::ContextBenchOptions options;
  options.kind = spec::context_kind_from_name(args.text("--kind")).value();
  options.cp = args.small_integer("--cp");
  options.seq_len = args.integer("--seq");
  options.heads = args.integer("--heads");
  options.kv_heads = args.integer("--kv-heads");
  options.head_dim = args.integer("--head-dim");
  options.documents = args.integer("--documents");
  options.dtype = args.text("--dtype") == "fp32" ? "f32" : args.text("--dtype");
  options.system = system_of(args);
  Progress progress("bench attention", "figures", train::context_bench_figures);
  int64_t figures = 0;
  options.measured = [&](std::string_view what) { progress.update(++figures, what); };
  const train::ContextBench result = train::bench_context(options);
  progress.finish();
  if (args.wants_json()) {
    fmt::print("{}\n", train::to_json(options, result).dump());
    return 0;
  }
  fmt::print("{}: {} tokens, heads {}/{} of {}, {}, cp {} {}", result.hardware, options.seq_len,
             options.heads, options.kv_heads, options.head_dim, base::name_of(result.dtype),
             options.cp, spec::name_of(options.kind));
  if (options.documents > 0) fmt::print(", documents of {} tokens on average", options.documents);
  fmt::print("\n{:<10}{:>15}{:>15}{:>12}\n", "", "one call", "all ranks", "overhead");
  print_times("forward", result.forward);
  print_times("backward", result.backward);
  fmt::print("{} calls in a forward of all ranks; pairs of a rank, max / mean: {:.3f}\n",
             result.calls, result.pairs_max_mean);
  return 0;
}

}  // namespace

Verb bench_attention_verb() {
  Verb verb = {
      .name = "bench attention",
      .summary = "Measure what cutting attention for context parallelism costs",
      .details =
          "Runs the calls of all ranks along cp one after the other on this device, and one call\n"
          "over the whole sequence. The overhead is the time beyond that one call: smaller calls,\n"
          "sums of dk and dv, merging in a ring. Transfers between ranks are left out.\n\n"
          "Examples:\n"
          "  trireme bench attention --cp 4 --seq 2048\n"
          "  trireme bench attention --cp 8 --seq 32768 --heads 32 --kv-heads 8 --device cuda "
          "--determinism fast\n"
          "  trireme bench attention --cp 2 --kind ring --documents 300 --json",
      .options =
          {{.name = "--cp",
            .kind = Kind::integer,
            .fallback = "2",
            .help = "Ranks that share a sequence"},
           {.name = "--kind",
            .fallback = "gather",
            .help = "How ranks share attention",
            .choices = {"gather", "ulysses", "ring"}},
           {.name = "--seq",
            .kind = Kind::integer,
            .fallback = "4096",
            .help = "Tokens of the sequence"},
           {.name = "--heads", .kind = Kind::integer, .fallback = "8", .help = "Query heads"},
           {.name = "--kv-heads",
            .kind = Kind::integer,
            .fallback = "2",
            .help = "Key and value heads"},
           {.name = "--head-dim",
            .kind = Kind::integer,
            .fallback = "128",
            .help = "Size of a head"},
           {.name = "--documents",
            .kind = Kind::integer,
            .fallback = "0",
            .help = "Mean tokens of documents in the sequence; 0: one document"},
           {.name = "--dtype",
            .fallback = "auto",
            .help = "Precision; auto: bf16 on a GPU, fp32 on a CPU",
            .choices = {"auto", "fp32", "bf16"}}},
      .run = run_bench_attention};
  for (const Option& option : device_options()) verb.options.push_back(option);
  return verb;
}

}  // namespace trireme::cli
