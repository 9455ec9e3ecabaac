// SPDX-License-Identifier: Apache-2.0
#include "config/schema.h"

#include <fmt/format.h>

#include <cmath>

#include "base/text/json.h"
#include "config/key_list.h"
#include "schedule/catalogue.h"
#include "spec/layout/layout.h"

namespace trireme::config {
namespace {

Range at_least(int64_t low) { return {.low = static_cast<double>(low), .high = count_limit}; }
Range at_least_or(int64_t low, int64_t other) {
  Range range = at_least(low);
  range.or_value = other;
  return range;
}
Range between(double low, double high) { return {.low = low, .high = high}; }
Range positive() { return {.low = 0, .high = count_limit, .low_excluded = true}; }

std::string number_text(double value) {
  constexpr double exact = 9e15;
  if (std::abs(value) < exact && value == std::trunc(value)) {
    return fmt::format("{}", static_cast<int64_t>(value));
  }
  return fmt::format("{}", value);
}

}  // namespace

bool Range::contains(double value) const {
  if (or_value && value == static_cast<double>(*or_value)) return true;
  return (low_excluded ? value > low : value >= low) &&
         (high_excluded ? value < high : value <= high);
}

std::string Range::text() const {
  if (!std::isfinite(low)) return "";
  const std::string other = or_value ? fmt::format("{} or ", *or_value) : "";
  if (names_high() && !low_excluded && !high_excluded) {
    return fmt::format("{}from {} to {}", other, number_text(low), number_text(high));
  }
  std::string text =
      fmt::format("{}{} {}", other, low_excluded ? "above" : "at least", number_text(low));
  if (names_high()) {
    text += fmt::format(", {} {}", high_excluded ? "below" : "at most", number_text(high));
  }
  return text;
}

std::string Key::path() const {
  return section.empty() ? std::string(name) : fmt::format("{}.{}", section, name);
}

std::vector<Key> keys_of(Config& c) {
  const Range beta{.low = 0, .high = 1, .high_excluded = true};
  const Range share{.low = 0, .high = 1, .low_excluded = true};
  const Range degree{.low = 1, .high = spec::max_degree, .or_value = -1};
  KeyList k;
  k.section("job");
  k.text("name", c.job.name,
         "name of the run, at most 128 bytes without slashes; empty: the last part of dump_folder, "
         "or the model's name");
  k.text("dump_folder", c.job.dump_folder,
         "folder of everything the run writes; empty: runs/ and the name");
  k.text("description", c.job.description, "free text, kept with the run");

  k.section("model");
  k.text("name", c.model.name,
         "a file of configs/models without .toml, a path to a .toml file, or a path to a Hugging "
         "Face config.json or the folder that holds one; empty: the model of training.init_from");
  k.number("vocab_size", c.model.vocab_size, {.low = 2, .high = 1 << 30, .or_value = 0},
           "number of token ids; 0: the model's own");
  k.number("max_seq", c.model.max_seq, {.low = 1, .high = 1 << 30, .or_value = 0},
           "longest sequence the model can see; 0: the model's own");

  k.section("optimizer");
  k.choice("name", c.optimizer.name, {"AdamW"}, "the optimizer");
  k.number("lr", c.optimizer.lr, {.low = 0, .high = 1000, .low_excluded = true},
           "highest learning rate");
  k.number("beta1", c.optimizer.beta1, beta, "decay of the first moment");
  k.number("beta2", c.optimizer.beta2, beta, "decay of the second moment");
  k.number("eps", c.optimizer.eps, share, "added to the denominator");
  k.number("weight_decay", c.optimizer.weight_decay, between(0, 1000),
           "decoupled decay of matrices; norms and biases have none");
  k.choice("master_dtype", c.optimizer.master_dtype, {"f32", "u16"},
           "master weights of a bf16 run: in fp32, or as the 16 bits that the bf16 weights lack of "
           "it, which is the same value in 2 bytes less per parameter");

  k.section("lr_scheduler");
  k.number("warmup_steps", c.lr_scheduler.warmup_steps, at_least(0),
           "steps of linear growth to lr; cut where training.steps is not above it");
  k.number("total_steps", c.lr_scheduler.total_steps, at_least_or(1, -1),
           "step at which the decay ends; -1: training.steps");
  k.number("decay_ratio", c.lr_scheduler.decay_ratio, share,
           "share of total_steps that decays; wsd only");
  k.choice("decay_type", c.lr_scheduler.decay_type, {"constant", "linear", "cosine", "wsd"},
           "form of the decay; wsd: warm-up, stable, then linear decay");
  k.number("min_lr_factor", c.lr_scheduler.min_lr_factor, between(0, 1),
           "share of lr at the end of the decay");

  k.section("training");
  k.text("dataset_path", c.training.dataset_path, "token file, or prefix of a .bin/.idx pair");
  k.choice("dataset_format", c.training.dataset_format,
           {"auto", "megatron", "llmc", "nanogpt", "text"},
           "layout of the data; auto: by its first bytes");
  k.choice("dataset_dtype", c.training.dataset_dtype, {"u16", "u32"},
           "token type of files that have no header");
  k.number("local_batch_size", c.training.local_batch_size, {.low = 1, .high = 1 << 20},
           "sequences in one micro-batch");
  k.number("global_batch_size", c.training.global_batch_size,
           {.low = 1, .high = 1 << 24, .or_value = -1},
           "sequences in one step, a multiple of local_batch_size x logical_dp; -1: that");
  k.number("seq_len", c.training.seq_len, {.low = 1, .high = 1 << 24, .or_value = -1},
           "tokens in a sequence, at most the model's max_seq; -1: that, but at most 2048");
  k.number("max_norm", c.training.max_norm, positive(),
           "limit of the gradient norm, for clip = \"fixed\"");
  k.choice("clip", c.training.clip, {"fixed", "adaptive", "none"},
           "gradient clipping: at max_norm, by the running norm, or none");
  k.number("skip_norm_multiple", c.training.skip_norm_multiple, at_least_or(1, 0),
           "a step whose norm is this multiple of the running norm is skipped; 0: never");
  k.number("skip_row", c.training.skip_row, {.low = 0, .high = 1 << 20},
           "after so many steps in a row were skipped, the next one with a finite norm is taken, "
           "clipped; 0: no limit");
  k.number("steps", c.training.steps, at_least(1), "optimizer steps");
  k.choice("dtype", c.training.dtype, {"auto", "fp32", "bf16"},
           "format of parameters and activations; with bf16 fp32 master weights are kept; auto: "
           "bf16 on a GPU, fp32 on the CPU. run.json has the one that was taken");
  k.choice("grad_dtype", c.training.grad_dtype, {"f32", "bf16"},
           "format in which gradients are accumulated");
  k.number("head_chunk_rows", c.training.head_chunk_rows, {.low = 0, .high = 1 << 30},
           "rows of logits that exist at one time; 0: chosen for the device");
  k.boolean("document_mask", c.training.document_mask,
            "attention does not cross the borders of documents");
  k.text("init_from", c.training.init_from,
         "folder of Hugging Face weights to start from; empty: random weights");

  k.section("activation_checkpoint");
  k.choice("mode", c.activation_checkpoint.mode, {"none", "selective", "full"},
           "what a block computes again in the backward pass");
  k.number("blocks", c.activation_checkpoint.blocks, {.low = 0, .high = 1 << 20, .or_value = -1},
           "of how many blocks, the first ones; the others compute nothing again; -1: of all");

  k.section("validation");
  k.boolean("enable", c.validation.enable, "measure the loss on held-out data");
  k.text("dataset_path", c.validation.dataset_path,
         "held-out data; empty: split off the training data");
  k.number("split", c.validation.split, between(0, 0.5),
           "share of the training data that is held out where dataset_path is empty");
  k.number("freq", c.validation.freq, at_least(1), "steps between validations");
  k.number("samples", c.validation.samples, at_least_or(1, -1),
           "sequences per validation, on any layout; -1: all held-out data");
  k.number("steps", c.validation.steps, {.low = -1, .high = 1 << 30},
           "global batches per validation, in place of samples; -1: all held-out data; 0: samples "
           "counts");

  k.section("checkpoint");
  k.boolean("enable", c.checkpoint.enable, "write checkpoints, and weights at the end");
  k.number(
      "interval", c.checkpoint.interval, at_least_or(0, -1),
      "steps between checkpoints of the whole state, from which --resume continues; 0: none in "
      "between; -1: by time, after 60 s or 100 times the measured cost of a save, whichever is "
      "longer, at most an hour. The last step and a stop are always saved");
  k.number("interval_seconds", c.checkpoint.interval_seconds, {.low = 0, .high = 1e9},
           "seconds after which a checkpoint is due, too; 0: steps alone count");
  k.number("mean_failure_seconds", c.checkpoint.mean_failure_seconds, {.low = 0, .high = 1e9},
           "mean time between failures of the whole job: a checkpoint is due after sqrt(2 C T) "
           "seconds, C being what a save was measured to cost; 0: not known");
  k.text("folder", c.checkpoint.folder, "folder of checkpoints in job.dump_folder");
  k.number("keep_latest_k", c.checkpoint.keep_latest_k, at_least(0),
           "checkpoints, and weights of steps, that are kept; 0: all");
  k.boolean("reread", c.checkpoint.reread, "read a checkpoint again after it was written");
  k.number("export_interval", c.checkpoint.export_interval, at_least(0),
           "steps between weights in Hugging Face form; 0: only at the end");
  k.text("export_folder", c.checkpoint.export_folder,
         "folder of weights in job.dump_folder; empty: no weights are exported");
  k.choice("export_dtype", c.checkpoint.export_dtype, {"f32", "bf16"}, "format of saved weights");
  k.number("max_shard_bytes", c.checkpoint.max_shard_bytes, at_least(1 << 20),
           "weights above this are cut into several files");

  k.section("metrics");
  k.number("log_freq", c.metrics.log_freq, at_least(1), "steps between console lines");
  k.boolean("enable_tensorboard", c.metrics.enable_tensorboard, "write TensorBoard events");
  k.text("save_tb_folder", c.metrics.save_tb_folder,
         "folder of TensorBoard events in job.dump_folder");

  k.section("parallelism");
  k.number("data_parallel_replicate_degree", c.parallelism.data_parallel_replicate_degree, degree,
           "copies of the training state; of all degrees one may be -1: the ranks that are left");
  k.number("data_parallel_shard_degree", c.parallelism.data_parallel_shard_degree, degree,
           "ranks that share one copy of the training state (FSDP, ZeRO)");
  k.number("tensor_parallel_degree", c.parallelism.tensor_parallel_degree, degree,
           "ranks that share each matrix; must divide heads, kv_heads and ffn");
  k.number("pipeline_parallel_degree", c.parallelism.pipeline_parallel_degree,
           {.low = 1, .high = spec::max_pp, .or_value = -1}, "ranks that share the layers");
  static const std::string schedules_help =
      schedule::listed_names("or") + ", in any spelling; docs/schedules.md";
  k.text("pipeline_parallel_schedule", c.parallelism.pipeline_parallel_schedule, schedules_help);
  k.text("pipeline_parallel_schedule_file", c.parallelism.pipeline_parallel_schedule_file,
         "a schedule of one's own, in the text form of docs/schedules.md, in place of a named one; "
         "messages and reductions are added where it has none");
  k.number("pipeline_parallel_chunks", c.parallelism.pipeline_parallel_chunks,
           {.low = 0, .high = spec::max_pp},
           "stages of a rank; 0: the schedule's own number, for interleaved 2");
  k.numbers("pipeline_parallel_first_layers", c.parallelism.pipeline_parallel_first_layers,
            {.low = 0, .high = 1 << 20},
            "first layer of each stage, from 0, the embedding, on; the head is the last; empty: "
            "stages of equal FLOPs");
  k.number("pipeline_parallel_send_buffers", c.parallelism.pipeline_parallel_send_buffers,
           {.low = 1, .high = 1024}, "messages to one stage that may be on their way at one time");
  k.number("context_parallel_degree", c.parallelism.context_parallel_degree, degree,
           "ranks that share each sequence; 1 in this build");
  k.number("expert_parallel_degree", c.parallelism.expert_parallel_degree, degree,
           "ranks that share the experts; 1 in this build");
  k.number("zero_stage", c.parallelism.zero_stage, {.low = 0, .high = 3, .or_value = -1},
           "what data_parallel_shard_degree shards: 1 optimizer state, 2 gradients too, 3 "
           "parameters too; -1: 3. It says nothing at degree 1");
  k.choice("fsdp_reshard_after_forward", c.parallelism.fsdp_reshard_after_forward,
           {"default", "always", "never"},
           "parameters that zero_stage = 3 shards are released after each forward and gathered "
           "again, or never before the end of the step; default: never where "
           "pipeline_parallel_degree is above 1, else always");
  k.boolean("sequence_parallel", c.parallelism.sequence_parallel,
            "between the matrices of a block each rank of tensor_parallel_degree has its share of "
            "the tokens");
  k.number("logical_dp", c.parallelism.logical_dp, {.low = 0, .high = spec::max_degree},
           "workers whose gradients are summed, a multiple of the data ranks; runs with the same "
           "number give the same bits on any number of data ranks. 0: as many as data ranks");
  k.choice("reduce", c.parallelism.reduce, {"auto", "once", "each"},
           "sum gradients over workers once a step, or after each micro-batch; auto: once, but "
           "each where zero_stage is 2 or 3 and a worker has several micro-batches");
  k.choice("reduce_dtype", c.parallelism.reduce_dtype, {"f32", "bf16"},
           "format of sums over workers; f32: that of training.grad_dtype");
  k.number("prefetch", c.parallelism.prefetch, {.low = 0, .high = 1024},
           "layers whose parameters are gathered ahead, for zero_stage = 3");
  k.boolean("prefetch_after", c.parallelism.prefetch_after,
            "in backward gather the next layer after this one's gradients were sent off, not "
            "before its backward");

  k.section("comm");
  k.choice("backend", c.comm.backend, {"auto", "threads", "gloo", "nccl"},
           "how ranks talk; auto: threads of one process without a launcher, else nccl on GPUs "
           "and gloo on CPUs");
  k.number("deadline_s", c.comm.deadline_s, positive(),
           "seconds that one communication may take before the run is ended with a verdict; "
           "launch --deadline goes before it");
  k.boolean("fixed_order", c.comm.fixed_order,
            "nccl sums in the fixed order of threads and gloo, with their bits, at the price of an "
            "exchange of everything; threads and gloo always do");
  k.boolean("debug", c.comm.debug,
            "ranks compare what they call before each collective, and the first mismatch is named "
            "(slow); also with TRIREME_COMM_DEBUG=1");

  k.section("system");
  k.choice("device", c.system.device, {"auto", "cuda", "gpu", "cpu"},
           "where to run; auto: a GPU if one can be used, else the CPU; gpu: the same as cuda");
  k.number("gpu", c.system.gpu, {.low = 0, .high = 1023},
           "which GPU, counted from 0 as `trireme doctor` lists them");
  k.choice("determinism", c.system.determinism, {"l1", "fast"},
           "l1: the same bits in repeated runs; fast: also kernels whose order of sums varies");
  k.text("cache_folder", c.system.cache_folder,
         "where measured choices of GPU algorithms are kept; empty: the folder named by "
         "TRIREME_CACHE_DIR, else trireme in XDG_CACHE_HOME, else ~/.cache/trireme");
  k.number("threads", c.system.threads, {.low = 0, .high = 4096},
           "threads of the CPU device; 0: OMP_NUM_THREADS, or this rank's share of the cores that "
           "affinity mask and control group allow");
  k.number("peak_tflops", c.system.peak_tflops, at_least(0),
           "peak of the device in 10^12 operations/s, for MFU; 0: the datasheet's where the GPU is "
           "known, else that of measured matrix products on a GPU, else none");
  k.text("machine", c.system.machine,
         "machine whose file predicts the step's time, a name in machines/ or a path; empty: the "
         "one that names this GPU");

  k.section("debug");
  k.number("seed", c.debug.seed, {.low = 0, .high = 9e15},
           "of initial weights and of the order of samples");
  return k.take();
}

std::string_view type_name(const Key& key) {
  static constexpr std::string_view names[] = {"boolean", "integer", "number", "string",
                                               "list of integers"};
  return names[key.field.index()];
}

std::string value_text(const Key& key) {
  struct Visitor {
    std::string operator()(const bool* v) const { return *v ? "true" : "false"; }
    std::string operator()(const int64_t* v) const { return fmt::format("{}", *v); }
    std::string operator()(const double* v) const { return fmt::format("{}", *v); }
    std::string operator()(const std::string* v) const { return fmt::format("\"{}\"", *v); }
    std::string operator()(const std::vector<int64_t>* v) const {
      return fmt::format("[{}]", fmt::join(*v, ", "));
    }
  };
  return std::visit(Visitor{}, key.field);
}

base::Json value_json(const Key& key) {
  return std::visit([](const auto* value) { return base::Json(*value); }, key.field);
}

std::string rule_text(const Key& key) {
  if (!key.choices.empty()) return fmt::format("one of {}", fmt::join(key.choices, ", "));
  return key.range.text();
}

}  // namespace trireme::config
