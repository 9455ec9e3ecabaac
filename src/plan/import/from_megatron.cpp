// SPDX-License-Identifier: Apache-2.0
#include "plan/import/from_megatron.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "plan/import/megatron_flags.h"
#include "plan/import/megatron_model.h"
#include "plan/price/price.h"

namespace trireme::plan {
namespace {

using Notes = std::vector<std::string>;

// Returns the number of GPUs in torchrun's flags, or 0.
int64_t stated_gpus(MegatronFlags& flags) {
  const auto world = flags.whole("--world-size", max_described_gpus);
  const auto nodes = flags.whole("--nnodes", max_described_gpus / 1024);
  const auto of_node = flags.whole("--nproc-per-node", 1024);
  if (world) return *world;
  return of_node ? nodes.value_or(1) * *of_node : 0;
}

int read_zero(MegatronFlags& flags, const Layout& l, bool is_tied) {
  const bool is_optimizer = flags.is_on("--use-distributed-optimizer");
  const bool is_torch = flags.is_on("--use-torch-fsdp2");
  const bool is_custom = flags.is_on("--use-custom-fsdp");
  const bool is_megatron = flags.is_on("--use-megatron-fsdp") || is_custom;
  const std::string strategy =
      flags.text("--data-parallel-sharding-strategy",
                 {"no_shard", "optim", "optim_grads", "optim_grads_params"});
  if (is_torch) {
    if (is_optimizer) flags.problem("--use-torch-fsdp2", "contradicts --use-distributed-optimizer");
    if (l.pp > 1) flags.problem("--use-torch-fsdp2", "cannot be combined with pipelines");
    if (is_tied) flags.problem("--use-torch-fsdp2", "needs --untie-embeddings-and-output-weights");
    return 3;
  }
  if (is_megatron) {
    if (strategy == "optim_grads_params") return 3;
    if (strategy == "optim_grads") return 2;
    return strategy == "optim" ? 1 : 0;
  }
  if (!strategy.empty() && strategy != "no_shard") {
    flags.problem("--data-parallel-sharding-strategy", "has no effect without --use-megatron-fsdp");
  }
  return is_optimizer ? 1 : 0;
}

// --cp-comm-type may name a type for each layer; a2a+p2p exchanges heads in groups of the first of
// --hierarchical-context-parallel-sizes.
void read_context(MegatronFlags& flags, Layout& l, Notes& assumed) {
  constexpr std::string_view type_flag = "--cp-comm-type";
  constexpr std::string_view sizes_flag = "--hierarchical-context-parallel-sizes";
  const std::vector<std::string> types = flags.list(type_flag);
  const std::vector<std::string> sizes = flags.list(sizes_flag);
  if (l.cp == 1) return;
  l.context_kind = spec::ContextKind::ring;
  if (types.empty()) return;
  if (std::ranges::any_of(types, [&](const std::string& type) { return type != types.front(); })) {
    assumed.push_back(fmt::format("{} {} in all layers", type_flag, types.front()));
  }
  if (types.front() == "a2a") {
    l.context_kind = spec::ContextKind::ulysses;
  } else if (types.front() == "allgather" || types.front() == "all_gather") {
    l.context_kind = spec::ContextKind::gather;
  } else if (types.front() == "a2a+p2p") {
    l.context_kind = spec::ContextKind::ulysses_ring;
    int exchanged = 0;
    if (sizes.size() == 2) {
      const std::string& first = sizes.front();
      (void)std::from_chars(first.data(), first.data() + first.size(), exchanged);
    }
    if (exchanged < 1) {
      flags.problem(type_flag, fmt::format("a2a+p2p needs {} with two sizes", sizes_flag));
    }
    l.ulysses = exchanged;
  } else if (types.front() != "p2p") {
    flags.problem(type_flag,
                  fmt::format("found {}, expected p2p, a2a, allgather or a2a+p2p", types.front()));
  }
}

void read_pipe(MegatronFlags& flags, int64_t layers, Layout& l, Notes& assumed) {
  constexpr std::string_view by_layers = "--num-layers-per-virtual-pipeline-stage";
  constexpr std::string_view by_count = "--num-virtual-stages-per-pipeline-rank";
  const auto of_stage = flags.whole(by_layers);
  const auto stages = flags.whole(by_count, 1 << 20);
  bool is_uneven = false;
  for (const char* name :
       {"--pipeline-model-parallel-layout", "--decoder-first-pipeline-num-layers",
        "--decoder-last-pipeline-num-layers", "--account-for-embedding-in-pipeline-split",
        "--account-for-loss-in-pipeline-split"}) {
    if (!flags.was_given(name)) continue;
    is_uneven = true;
    assumed.push_back(fmt::format("equal numbers of layers per stage instead of {}", name));
  }
  if (!is_uneven && layers % l.pp != 0) {
    flags.problem("--pipeline-model-parallel-size",
                  fmt::format("{} does not divide --num-layers {}", l.pp, layers));
    return;
  }
  if (of_stage && stages) {
    flags.problem(by_layers, fmt::format("contradicts {}: give one of them", by_count));
    return;
  }
  if (of_stage) {
    const int64_t of_rank = layers / l.pp;
    if (of_rank % *of_stage != 0 && !is_uneven) {
      flags.problem(by_layers,
                    fmt::format("{} does not divide the {} layers of a rank", *of_stage, of_rank));
      return;
    }
    l.chunks = static_cast<int>(std::max<int64_t>(1, of_rank / *of_stage));
  }
  if (stages) l.chunks = static_cast<int>(*stages);
  if (l.chunks > 1 && l.pp == 1) {
    flags.problem(of_stage ? by_layers : by_count,
                  "has no effect without --pipeline-model-parallel-size above 1");
  }
  if (l.chunks > 1) l.schedule = Kind::interleaved;
}

spec::Recompute read_recompute(MegatronFlags& flags, Notes& assumed) {
  std::string kind = flags.text("--recompute-granularity", {"full", "selective"});
  if (flags.is_on("--recompute-activations")) kind = "selective";
  if (flags.is_on("--checkpoint-activations")) kind = "full";
  if (flags.was_given("--activations-checkpoint-method")) kind = "full";
  const std::string method = flags.text("--recompute-method", {"uniform", "block"});
  const auto layers = flags.whole("--recompute-num-layers");
  if (flags.was_given("--recompute-modules")) {
    assumed.emplace_back("selective recompute of attention alone instead of --recompute-modules");
    if (kind.empty()) kind = "selective";
  }
  if (kind == "full" && method == "block" && layers) {
    assumed.push_back(fmt::format("full recompute of all layers, not of {} per stage", *layers));
  }
  if (kind == "full" && method == "uniform" && layers.value_or(1) > 1) {
    assumed.push_back(
        fmt::format("the input of every layer is kept, not that of every {}th", *layers));
  }
  if (kind == "full") return spec::Recompute::full;
  return kind == "selective" ? spec::Recompute::selective : spec::Recompute::none;
}

// Megatron's default is delayed scaling.
Precision read_fp8_recipe(MegatronFlags& flags, Notes& assumed) {
  const std::string recipe =
      flags.text("--fp8-recipe", {"delayed", "tensorwise", "blockwise", "mxfp8", "custom"});
  if (recipe == "mxfp8") {
    assumed.emplace_back("scales of 128 values instead of the 32 of --fp8-recipe mxfp8");
  }
  if (recipe == "custom") {
    assumed.emplace_back("one scale a tensor instead of --fp8-recipe custom");
  }
  if (recipe == "blockwise" || recipe == "mxfp8") return Precision::fp8_block;
  return recipe.empty() || recipe == "delayed" ? Precision::fp8_delayed : Precision::fp8;
}

// Reads the blocks that stay in bf16; each number is 1 by default.
void read_bf16_blocks(MegatronFlags& flags, Layout& l) {
  const bool has_blocks = flags.is_on("--first-last-layers-bf16");
  const auto count = [&](const char* name) {
    const auto given = flags.whole(name, 1 << 20, 0);
    return has_blocks ? static_cast<int>(given.value_or(1)) : 0;
  };
  const int first = count("--num-layers-at-start-in-bf16");
  const int last = count("--num-layers-at-end-in-bf16");
  if (!spec::is_fp8(l.precision)) return;
  l.bf16_first = first;
  l.bf16_last = last;
}

Precision read_precision(MegatronFlags& flags, Notes& assumed, Notes& assumed_speed) {
  const bool is_bf16 = flags.is_on("--bf16"), is_fp16 = flags.is_on("--fp16");
  const bool is_fp4 = !flags.text("--fp4-format", {"e2m1"}).empty();
  bool is_fp8 = !flags.text("--fp8-format", {"e4m3", "hybrid"}).empty();
  for (const char* name : {"--fp8-hybrid", "--fp8-e4m3"}) is_fp8 = flags.is_on(name) || is_fp8;
  if (is_bf16 && is_fp16) flags.problem("--fp16", "contradicts --bf16");
  if (is_fp4 && is_fp8) flags.problem("--fp4-format", "contradicts --fp8-format");
  if (is_fp16) assumed_speed.emplace_back("fp16 at the cost of bf16");
  if (is_fp4) return Precision::fp4;
  if (is_fp8) return read_fp8_recipe(flags, assumed);
  if (is_fp16) return Precision::fp16;
  if (!is_bf16) {
    assumed.emplace_back("fp32, because neither --bf16 nor --fp16 is given");
    return Precision::fp32;
  }
  return Precision::bf16;
}

// Reads formats and places of the training state that Megatron can change and that are priced as
// its defaults.
void read_state(MegatronFlags& flags, Notes& assumed) {
  const std::vector<std::string_view> types = {"fp32", "bf16", "fp16", "fp8"};
  for (const char* name :
       {"--main-grads-dtype", "--main-params-dtype", "--exp-avg-dtype", "--exp-avg-sq-dtype"}) {
    const std::string type = flags.text(name, types);
    if (!type.empty() && type != "fp32") {
      assumed.push_back(fmt::format("fp32 instead of {} {}", name, type));
    }
  }
  (void)flags.is_on("--use-precision-aware-optimizer");
  for (const char* name : {"--optimizer-cpu-offload", "--cpu-offloading-num-layers"}) {
    if (flags.was_given(name)) {
      flags.problem(name, "not modelled; the planner keeps all state on the GPU");
    }
  }
}

void read_other_training(MegatronFlags& flags, Notes& assumed) {
  const std::string optimizer = flags.text("--optimizer");
  if (!optimizer.empty() && optimizer != "adam") {
    assumed.push_back(fmt::format("the state of AdamW instead of --optimizer {}", optimizer));
  }
  for (const char* name : {"--hidden-dropout", "--attention-dropout"}) {
    const std::string rate = flags.text(name);
    if (rate.find_first_not_of("0.") != std::string::npos || rate.empty()) {
      assumed.push_back(fmt::format("no dropout, although {} is {}", name,
                                    rate.empty() ? "0.1 by default" : rate));
    }
  }
}

Stack read_stack(MegatronFlags& flags, const Layout& l, const FindStack& find, Notes& assumed) {
  const std::string backend =
      flags.text("--attention-backend", {"auto", "flash", "fused", "unfused", "local"});
  const bool has_flash = flags.is_on("--use-flash-attn");
  const bool is_local =
      flags.text("--transformer-impl", {"local", "transformer_engine"}) == "local" && !has_flash;
  const bool is_old = flags.is_on("--use-legacy-models") || flags.was_given("--DDP-impl") ||
                      flags.was_given("--checkpoint-activations") ||
                      flags.was_given("--activations-checkpoint-method");
  const bool is_2021 =
      is_local || backend == "unfused" || backend == "local" || (is_old && !has_flash);
  Stack stack = find(is_2021 ? "megatron-2021" : "megatron-core");
  if (is_2021) assumed.emplace_back("the kernels of Megatron before Transformer Engine");
  if (flags.is_on("--grad-reduce-in-bf16")) stack.grad_bytes = stack.reduce_bytes = 2;
  const bool gathers_codes = flags.is_on("--fp8-param-gather");
  if (gathers_codes && spec::is_fp8(l.precision)) stack.gather_bytes = 1;
  const bool reduces = flags.is_on("--overlap-grad-reduce");
  (void)flags.is_on("--overlap-param-gather");
  const bool tensor = flags.is_on("--tp-comm-overlap");
  (void)flags.is_on("--overlap-moe-expert-parallel-comm");
  const std::string dispatcher =
      flags.text("--moe-token-dispatcher-type", {"allgather", "alltoall", "flex"});
  if (!dispatcher.empty()) stack.two_level_dispatch = dispatcher == "flex";
  if (!reduces && l.zero_stage < 3 && stack.dp_overlap > 0) {
    stack.dp_overlap = 0;
    assumed.emplace_back(
        "reduction over dp after the backward, because --overlap-grad-reduce is not given");
  }
  if (!tensor && l.tp > 1 && stack.tp_overlap > 0) {
    assumed.emplace_back("the default overlap of tp, although --tp-comm-overlap is not given");
  }
  return stack;
}

// Returns the flags that set a layout's fields.
const spec::LayoutNames& flag_names() {
  static const spec::LayoutNames names = [] {
    spec::LayoutNames all = rule_names();
    const auto set = [&all](spec::LayoutKey key, const char* flag) {
      all[static_cast<size_t>(key)] = flag;
    };
    set(spec::LayoutKey::tp, "--tensor-model-parallel-size");
    set(spec::LayoutKey::cp, "--context-parallel-size");
    set(spec::LayoutKey::context_kind, "--cp-comm-type");
    set(spec::LayoutKey::ulysses, "--hierarchical-context-parallel-sizes");
    set(spec::LayoutKey::pp, "--pipeline-model-parallel-size");
    set(spec::LayoutKey::ep, "--expert-model-parallel-size");
    set(spec::LayoutKey::etp, "--expert-tensor-parallel-size");
    set(spec::LayoutKey::sequence_parallel, "--sequence-parallel");
    set(spec::LayoutKey::chunks, "virtual stages per rank");
    set(spec::LayoutKey::micro_batch, "--micro-batch-size");
    set(spec::LayoutKey::global_batch, "--global-batch-size");
    set(spec::LayoutKey::seq_len, "--seq-length");
    return all;
  }();
  return names;
}

// Reports rules that the flags break together; those of the batch only if the number of GPUs is
// known.
void check_rules(MegatronFlags& flags, const Described& d) {
  Job job = d.job;
  if (d.gpus == 0) job.global_batch = 0;
  for (const std::string& text : broken_rules(job, *d.layout, flag_names())) flags.broken(text);
}

void set_ranks_and_batch(MegatronFlags& flags, std::optional<int64_t> batch, Described& d) {
  Layout& l = *d.layout;
  const int64_t rest = int64_t{l.tp} * l.pp * l.cp;
  if (d.gpus > 0 && d.gpus % rest != 0) {
    throw base::ConfigError(fmt::format(
        "{} GPUs do not divide by --tensor-model-parallel-size {} x "
        "--pipeline-model-parallel-size {} x --context-parallel-size {} = {}; give --gpus as a "
        "multiple of {}",
        d.gpus, l.tp, l.pp, l.cp, rest, rest));
  }
  const int ranks = d.gpus > 0 ? static_cast<int>(d.gpus / rest) : 1;
  spec::set_data_ranks(l, ranks, l.zero_stage);
  if (batch) {
    d.job.global_batch = *batch;
  } else if (d.gpus > 0) {
    d.job.global_batch = l.micro_batch * l.data_ranks();
    d.assumed.push_back(
        fmt::format("a batch of {} sequences, one micro-batch per rank, Megatron's "
                    "default",
                    d.job.global_batch));
  } else {
    flags.problem("--global-batch-size", "required if the number of GPUs is not given either");
  }
}

}  // namespace

Described from_megatron(std::string_view text, int64_t gpus, const FindStack& find) {
  MegatronFlags flags(flags_of(text));
  Described d;
  Layout l;
  l.tp = flags.degree("--tensor-model-parallel-size");
  l.pp = flags.degree("--pipeline-model-parallel-size");
  l.cp = flags.degree("--context-parallel-size");
  read_context(flags, l, d.assumed);
  l.ep = flags.degree("--expert-model-parallel-size");
  l.micro_batch = flags.required("--micro-batch-size", 1 << 20);
  const auto batch = flags.whole("--global-batch-size");
  if (flags.was_given("--rampup-batch-size")) {
    d.assumed.emplace_back("the batch size after its ramp-up");
  }
  read_megatron_model(flags, d);
  const int64_t layers = flags.whole("--num-layers").value_or(1);
  l.zero_stage = read_zero(flags, l, !flags.is_on("--untie-embeddings-and-output-weights"));
  read_pipe(flags, layers, l, d.assumed);
  l.recompute = read_recompute(flags, d.assumed);
  l.precision = read_precision(flags, d.assumed, d.assumed_speed);
  read_bf16_blocks(flags, l);
  read_state(flags, d.assumed);
  l.sequence_parallel = flags.is_on("--sequence-parallel");
  if (l.sequence_parallel && l.tp == 1) {
    l.sequence_parallel = false;
    d.assumed.emplace_back(
        "no sequence parallelism: --sequence-parallel has no effect without tensor parallelism");
  }
  if (flags.is_on("--use-tp-pp-dp-mapping")) l.placement = Placement::pp_inside;
  const auto of_experts = flags.whole("--expert-tensor-parallel-size", 1 << 20);
  if (flags.was_given("--num-experts")) {
    l.etp = static_cast<int>(of_experts.value_or(l.tp));
    if (l.tp > 1 && !l.sequence_parallel) {
      l.sequence_parallel = true;
      d.assumed.emplace_back("sequence parallelism, because ranks along tp route different tokens");
    }
  }
  read_other_training(flags, d.assumed);
  d.stack = read_stack(flags, l, find, d.assumed_speed);
  const int64_t stated = stated_gpus(flags);
  d.gpus = gpus > 0 ? gpus : stated;
  if (gpus > 0 && stated > 0 && stated != gpus) {
    d.assumed.push_back(fmt::format("{} GPUs, not the {} of the flags", gpus, stated));
  }
  if (gpus < 0 || gpus > max_described_gpus) {
    throw base::ConfigError(
        fmt::format("{} GPUs: from 1 to {} are allowed", gpus, max_described_gpus));
  }
  // Missing sizes would break rules that do not matter.
  flags.throw_if_any();
  d.layout = l;
  set_ranks_and_batch(flags, batch, d);
  check_rules(flags, d);
  flags.throw_if_any();
  d.assumed.insert(d.assumed.end(), flags.repeated().begin(), flags.repeated().end());
  d.ignored = flags.not_read();
  return d;
}

}  // namespace trireme::plan
