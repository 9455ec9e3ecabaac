// SPDX-License-Identifier: Apache-2.0
#include "plan/import/from_torchtitan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "base/error.h"
#include "config/layout.h"
#include "plan/import/titan_keys.h"
#include "plan/price/price.h"
#include "schedule/catalogue.h"

namespace trireme::plan {
namespace {

using Notes = std::vector<std::string>;

struct Flavor {
  std::string_view name;
  int layers;
  int64_t hidden, heads, kv_heads, ffn, vocab;
};
// The sizes of llama3, from torchtitan/models/llama3.
constexpr std::array<Flavor, 4> flavors = {{{"debugmodel", 6, 256, 16, 16, 768, 2048},
                                            {"8B", 32, 4096, 32, 8, 14336, 128256},
                                            {"70B", 80, 8192, 64, 8, 28672, 128256},
                                            {"405B", 126, 16384, 128, 8, 53248, 128256}}};

void read_model(TitanKeys& keys, Described& d) {
  const std::string name = keys.text("model.name", "llama3");
  const std::string flavor = keys.text("model.flavor", "debugmodel");
  d.job.seq_len = keys.whole("training.seq_len").value_or(2048);
  const auto* found = std::find_if(flavors.begin(), flavors.end(),
                                   [&](const Flavor& one) { return one.name == flavor; });
  if (name != "llama3" || found == flavors.end()) {
    keys.problem(name != "llama3" ? "model.name" : "model.flavor",
                 fmt::format("the sizes of {} {} are unknown; known are llama3 debugmodel, 8B, 70B "
                             "and 405B. Give other models with --from-hf config.json",
                             name, flavor));
    return;
  }
  constexpr int64_t max_seq = 131072;
  d.dims = spec::ModelDims{.name = fmt::format("{}-{}", name, flavor),
                           .family = spec::Family::llama,
                           .layers = found->layers,
                           .hidden = found->hidden,
                           .heads = found->heads,
                           .kv_heads = found->kv_heads,
                           .ffn = found->ffn,
                           .vocab = found->vocab,
                           .max_seq = max_seq,
                           .tied_head = false,
                           .rope = {.theta = 500000, .scaling = spec::RopeScaling{.factor = 8}}};
  d.job.model = spec::make_model(*d.dims);
  if (d.job.seq_len > max_seq) {
    keys.problem("training.seq_len",
                 fmt::format("found {}, expected at most the model's {}", d.job.seq_len, max_seq));
  }
}

// TorchTitan gathers keys and values, or passes them round (alltoall); its slices are zig-zag
// unless load balancing is off.
void read_context(TitanKeys& keys, Layout& l, Notes& assumed) {
  const char* method_key = "parallelism.context_parallel_rotate_method";
  const char* balance_key = "parallelism.context_parallel_load_balancer";
  const std::vector<std::string_view> methods = {"allgather", "alltoall"};
  std::string method =
      keys.text("experimental.context_parallel_rotate_method", "allgather", methods);
  method = keys.text(method_key, method, methods);
  const std::string balance = keys.text(balance_key, "headtail");
  if (l.cp == 1) return;
  l.context_kind = method == "alltoall" ? spec::ContextKind::ring : spec::ContextKind::gather;
  if (balance.empty() || balance == "none") {
    l.context_slices = spec::ContextSlices::contiguous;
  } else if (balance != "headtail") {
    assumed.push_back(fmt::format("zig-zag slices instead of {} = {}", balance_key, balance));
  }
}

void read_pipe(TitanKeys& keys, int64_t blocks, Layout& l, Notes& assumed) {
  const char* schedule_key = "parallelism.pipeline_parallel_schedule";
  std::string name = keys.text("experimental.pipeline_parallel_schedule", "1F1B");
  name = keys.text(schedule_key, name);
  const auto of_stage = keys.whole("parallelism.pipeline_parallel_layers_per_stage");
  if (l.pp == 1) return;
  if (const auto found = schedule::find_pytorch_name(name)) {
    l.schedule = found->kind;
    l.chunks = schedule::chunks_of(found->kind);
    if (!found->is_same) assumed.emplace_back("Interleaved1F1B instead of " + name);
  } else {
    std::vector<std::string_view> known;
    for (const schedule::PytorchName& one : schedule::pytorch_names()) known.push_back(one.name);
    keys.problem(schedule_key, fmt::format("{} is not modelled; expected one of {}", name,
                                           fmt::join(known, ", ")));
  }
  if (l.schedule == Kind::interleaved && of_stage) {
    // Embedding and head count as a layer each.
    const int64_t stages = (blocks + 2 + *of_stage - 1) / *of_stage;
    if (stages % l.pp != 0) {
      keys.problem("parallelism.pipeline_parallel_layers_per_stage",
                   fmt::format("{} makes {} stages, which do not divide by "
                               "pipeline_parallel_degree = {}",
                               *of_stage, stages, l.pp));
    }
    l.chunks = static_cast<int>(std::max<int64_t>(1, stages / l.pp));
    if (l.chunks == 1) l.schedule = Kind::one_f_one_b;
  }
}

spec::Recompute read_recompute(TitanKeys& keys, Notes& assumed) {
  const char* option_key = "activation_checkpoint.selective_ac_option";
  const std::string mode = keys.text("activation_checkpoint.mode", "selective",
                                     {"none", "selective", "full", "memory_budget"});
  const std::string option = keys.text(option_key, "2");
  if (mode == "none") return spec::Recompute::none;
  if (mode == "full") return spec::Recompute::full;
  if (mode == "memory_budget") {
    assumed.emplace_back(
        "selective recompute instead of activation_checkpoint.mode = memory_budget");
    return spec::Recompute::selective;
  }
  if (option == "op") return spec::Recompute::selective;
  int every = 0;
  const auto [end, error] = std::from_chars(option.data(), option.data() + option.size(), every);
  if (error != std::errc{} || end != option.data() + option.size() || every < 1) {
    keys.problem(option_key, fmt::format("found \"{}\", expected \"op\" or a number", option));
  }
  if (every == 1) return spec::Recompute::full;
  assumed.push_back(
      fmt::format("selective recompute in every layer instead of full in one of {}", every));
  return spec::Recompute::selective;
}

// Scales by recipe, of torchao's float8 and of its MX formats. The recipes of rows are priced with
// one scale a tensor.
struct TitanRecipe {
  std::string_view name;
  Precision precision;
  bool is_same;  // the planner's recipe has the same scales
};
constexpr std::array<TitanRecipe, 3> float8_recipes = {
    {{"tensorwise", Precision::fp8, true},
     {"rowwise", Precision::fp8, false},
     {"rowwise_with_gw_hp", Precision::fp8, false}}};
constexpr std::array<TitanRecipe, 5> mx_recipes = {
    {{"mxfp8", Precision::fp8_block, false},
     {"mxfp8_cublas", Precision::fp8_block, false},
     {"mxfp8_emulated", Precision::fp8_block, false},
     {"mxfp8_cublas_rceil", Precision::fp8_block, false},
     {"mxfp4_cutlass", Precision::fp4, false}}};

// Reads `section`.recipe_name; absent: the first recipe.
template <size_t n>
TitanRecipe read_recipe(TitanKeys& keys, const std::string& section,
                        const std::array<TitanRecipe, n>& recipes) {
  const std::string path = section + ".recipe_name";
  const std::string name = keys.text(path, "");
  std::vector<std::string_view> names;
  for (const TitanRecipe& one : recipes) {
    if (one.name == name) return one;
    names.push_back(one.name);
  }
  if (!name.empty()) {
    keys.problem(path,
                 fmt::format("found \"{}\", expected one of {}", name, fmt::join(names, ", ")));
  }
  return recipes.front();
}

Precision read_float8(TitanKeys& keys, const std::string& section, Stack& stack, Notes& assumed) {
  if (keys.boolean(section + ".enable_fsdp_float8_all_gather", false)) stack.gather_bytes = 1;
  if (keys.boolean(section + ".emulate", false)) {
    keys.problem(section + ".emulate", "true is not modelled: products would be those of bf16");
  }
  const TitanRecipe recipe = read_recipe(keys, section, float8_recipes);
  if (!recipe.is_same) {
    assumed.push_back(
        fmt::format("one scale a tensor instead of {}.recipe_name = {}", section, recipe.name));
  }
  const std::string filter = section + ".filter_fqns";
  for (const std::string& name : keys.texts(filter)) {
    if (name == "output") continue;
    assumed.push_back(
        fmt::format("products of {} in 8 bits, although {} excludes them", name, filter));
  }
  return recipe.precision;
}

// The converters of model.converters. Any other one may change the price, so it is refused.
struct TitanConverter {
  std::string_view name;
  bool is_mx;
};
constexpr std::array<TitanConverter, 6> converters = {{{"float8", false},
                                                       {"mx", true},
                                                       {"quantize.linear.float8", false},
                                                       {"quantize.linear.mx", true},
                                                       {"quantize.grouped_mm.float8", false},
                                                       {"quantize.grouped_mm.mx", true}}};

Precision read_precision(TitanKeys& keys, Stack& stack, Notes& assumed) {
  const bool is_fp32 =
      keys.text("training.mixed_precision_param", "bfloat16", {"bfloat16", "float32"}) == "float32";
  if (keys.text("training.mixed_precision_reduce", "float32", {"bfloat16", "float32"}) ==
      "bfloat16") {
    stack.reduce_bytes = 2;
  }
  if (keys.text("training.dtype", "float32", {"float32", "bfloat16"}) == "bfloat16") {
    assumed.emplace_back("master weights in fp32, although training.dtype is bfloat16");
  }
  std::optional<Precision> found;
  if (keys.boolean("float8.enable_float8_linear", false)) {  // in older files
    found = read_float8(keys, "float8", stack, assumed);
  }
  for (const std::string& name : keys.texts("model.converters")) {
    const auto* converter = std::ranges::find(converters, name, &TitanConverter::name);
    if (converter == converters.end()) {
      std::vector<std::string_view> known;
      for (const TitanConverter& one : converters) known.push_back(one.name);
      keys.problem("model.converters", fmt::format("\"{}\" is not modelled; expected {}", name,
                                                   fmt::join(known, ", ")));
      continue;
    }
    // Files of several versions have the settings in a section of the short name.
    const std::string own(converter->name), other(converter->is_mx ? "mx" : "float8");
    const std::string& section = keys.has_section(own) ? own : other;
    if (!converter->is_mx) {
      found = read_float8(keys, section, stack, assumed);
      continue;
    }
    const TitanRecipe recipe = read_recipe(keys, section, mx_recipes);
    if (recipe.precision == Precision::fp8_block) {
      assumed.emplace_back("scales of 128 values instead of the 32 of the converter mx");
    }
    found = recipe.precision;
  }
  return found.value_or(is_fp32 ? Precision::fp32 : Precision::bf16);
}

// Returns the stack for the given settings: compiled or not, with asynchronous tp or not.
std::string stack_of_titan(TitanKeys& keys, Notes& assumed) {
  const bool is_compiled = keys.boolean("compile.enable", keys.boolean("training.compile", false));
  const bool is_async = keys.boolean("parallelism.enable_async_tensor_parallel", false);
  if (!is_compiled && is_async) {
    assumed.emplace_back("exposed collectives of tp, because asynchronous tp needs torch.compile");
  }
  if (!is_compiled) return "torchtitan-eager";
  return is_async ? "torchtitan-async-tp" : "torchtitan";
}

void read_rest(TitanKeys& keys, Described& d) {
  if (keys.boolean("training.enable_cpu_offload", false)) {
    keys.problem("training.enable_cpu_offload",
                 "true is not modelled; the planner keeps all state on the GPU");
  }
  const std::string optimizer = keys.text("optimizer.name", "AdamW");
  if (optimizer != "AdamW" && optimizer != "Adam") {
    d.assumed.push_back(fmt::format("the state of AdamW instead of {}", optimizer));
  }
  if (keys.boolean("optimizer.early_step_in_backward", false)) {
    d.assumed_speed.emplace_back(
        "an update after the backward, although early_step_in_backward is set");
  }
}

// Reads the degrees of data parallelism and the ZeRO stage.
void read_data(TitanKeys& keys, int64_t gpus, Layout& l) {
  const char* shard_key = "parallelism.data_parallel_shard_degree";
  const int64_t rest = int64_t{l.tp} * l.cp * l.pp;
  if (rest > max_described_gpus) {
    keys.problem("parallelism.tensor_parallel_degree",
                 fmt::format("tensor x context x pipeline degree = {}; at most {} GPUs", rest,
                             max_described_gpus));
    return;
  }
  const int replicas = keys.degree("data_parallel_replicate_degree");
  int64_t shards = keys.degree("data_parallel_shard_degree", -1);
  const std::string reshard = keys.text("parallelism.fsdp_reshard_after_forward", "default",
                                        {"default", "always", "never"});
  if (shards < 0) {
    if (gpus == 0) {
      keys.problem(shard_key, "-1 means all remaining GPUs: give --gpus");
      return;
    }
    if (gpus % (rest * replicas) != 0) {
      keys.problem(shard_key, fmt::format("{} GPUs do not divide by tensor x context x pipeline x "
                                          "replicate degree = {} x {} x {} x {}",
                                          gpus, l.tp, l.cp, l.pp, replicas));
      return;
    }
    shards = gpus / (rest * replicas);
  } else if (gpus > 0 && rest * replicas * shards != gpus) {
    keys.problem(shard_key, fmt::format("{} times the other degrees is {} GPUs, not {}", shards,
                                        rest * replicas * shards, gpus));
    return;
  }
  if (replicas * shards > 1 << 20) {
    keys.problem(shard_key,
                 fmt::format("{} data-parallel ranks; at most {}", replicas * shards, 1 << 20));
    return;
  }
  l.dp_replicate = replicas;
  l.dp_shard = static_cast<int>(shards);
  const bool is_sharded = shards * l.cp > 1;
  const bool keeps = reshard == "never" || (reshard == "default" && l.pp > 1);
  l.zero_stage = is_sharded ? (keeps ? 2 : 3) : 0;
}

void read_batch(TitanKeys& keys, Described& d) {
  Layout& l = *d.layout;
  const auto older = keys.whole("training.batch_size");
  const int64_t local = keys.whole("training.local_batch_size").value_or(older.value_or(8));
  const int64_t global = keys.whole("training.global_batch_size", -1).value_or(-1);
  const auto of_pipe = keys.whole("parallelism.pipeline_parallel_microbatch_size");
  const auto parts = keys.whole("experimental.pipeline_parallel_microbatches");
  l.micro_batch = local;
  if (l.pp > 1) l.micro_batch = parts && local % *parts == 0 ? local / *parts : of_pipe.value_or(1);
  if (local % l.micro_batch != 0) {
    keys.problem(
        "parallelism.pipeline_parallel_microbatch_size",
        fmt::format("{} does not divide training.local_batch_size = {}", l.micro_batch, local));
  }
  d.job.global_batch = global > 0 ? global : local * l.data_ranks();
  if (d.job.global_batch % (local * l.data_ranks()) != 0) {
    keys.problem("training.global_batch_size",
                 fmt::format("{} does not divide by local_batch_size x data-parallel degree = {} x "
                             "{}",
                             global, local, l.data_ranks()));
  }
  if (l.pp > 1 && d.job.global_batch > local * l.data_ranks()) {
    d.assumed_speed.emplace_back("one pipeline per step instead of one per local batch");
  }
}

}  // namespace

Described from_torchtitan(const std::string& text, const std::string& file, int64_t gpus,
                          const FindStack& find) {
  if (gpus < 0 || gpus > max_described_gpus) {
    throw base::ConfigError(
        fmt::format("{} GPUs: from 1 to {} are allowed", gpus, max_described_gpus));
  }
  TitanKeys keys(text, file);
  Described d;
  d.stack = find(stack_of_titan(keys, d.assumed_speed));
  d.layout.emplace();
  Layout& l = *d.layout;
  l.tp = keys.degree("tensor_parallel_degree");
  l.cp = keys.degree("context_parallel_degree");
  read_context(keys, l, d.assumed);
  l.pp = keys.degree("pipeline_parallel_degree");
  l.ep = keys.degree("expert_parallel_degree");
  l.sequence_parallel = l.tp > 1;
  read_model(keys, d);
  read_data(keys, gpus, l);
  read_pipe(keys, d.dims ? d.dims->layers : 0, l, d.assumed);
  l.recompute = read_recompute(keys, d.assumed);
  l.precision = read_precision(keys, d.stack, d.assumed);
  read_rest(keys, d);
  read_batch(keys, d);
  keys.throw_if_any();
  d.gpus = l.ranks();
  // TorchTitan's keys of a layout have the same names as Trireme's.
  const std::vector<std::string> rules = broken_rules(d.job, l, config::layout_paths());
  if (!rules.empty()) {
    throw base::ConfigError(fmt::format("{}: {}", file, fmt::join(rules, "\n  ")));
  }
  d.ignored = keys.not_read();
  return d;
}

}  // namespace trireme::plan
