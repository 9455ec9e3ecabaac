// SPDX-License-Identifier: Apache-2.0
// The commands that documents and help texts show, and how docs_test.cpp treats each.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::tests {

enum class How : uint8_t {
  here,     // the test runs it, in the order of the table
  started,  // the same, and the test asks it to stop after its first steps
  script,   // a script of this tree that users run
  ranks,    // as started, if the build has Gloo
  gpu,      // needs a GPU; without one, the test requires the reason in its message
};

struct Known {
  std::string command;
  How how;
  std::string cheaper = {};  // run instead: the same verb with less work; the same text: once
};

inline const std::vector<Known> known_commands = {
    {"./quickstart.sh", How::script},
    {"./test.sh", How::script},
    {"./bench/compare_torch_cpu.sh", How::script},
    {"./bench/overlap.sh", How::script},
    {"./bench/pipeline.sh", How::script},
    {"tests/fuzz/run.sh", How::script},
    {"tests/fuzz/run.sh 60 config", How::script},
    {"bench/peers/compare_tokenizers.py --program build/release/bench/tokenizer_answers",
     How::script},
    {"bench/peers/compare_tokenizers.py --program build/release/bench/tokenizer_answers --part "
     "shapes",
     How::script},

    {"scripts/try_package.sh", How::script},
    {"scripts/test_gpu.sh", How::script},
    {"scripts/test_gpu.sh --build-only", How::script},
    {"scripts/test_gpu.sh --memcheck --hf deps", How::script},
    {"scripts/compare_gpu.sh llama-1b:8 gpt2-124m:64", How::script},
    {"bench/loss_gap.py --program build/gpu/trireme --model gpt2-124m --tokens 100.4e6 "
     "--micro-batch 64 --seq 1024 --recipes fp8-tensor,fp8-block,fp16 --vocab 32000 --jobs 2 --set "
     "system.determinism=fast --folder /usr/lib/python3 /usr/include /usr/share",
     How::script},
    {"bench/loss_gap.py --program build/gpu/trireme --model gpt2-124m --tokens 100.4e6 "
     "--start-tokens 32.8e6 --micro-batch 16 --seq 1024 --recipes fp8-tensor,fp8-block,fp16 "
     "--vocab "
     "32000 --jobs 2 --set system.determinism=fast --folder /usr/lib/python3 /usr/include "
     "/usr/share",
     How::script},
    {"tests/drift/run.py --program build/release/trireme --data runs/kjv-data/kjv --seeds 20 "
     "--fallback",
     How::script},

    {"trireme train configs/kjv.toml --device cuda --training.dtype=bf16", How::gpu},
    {"trireme train configs/kjv.toml --device cuda --trace-steps 3:5", How::gpu},
    {"trireme bench train --model llama-1b --micro-batch 8 --seq 4096 --dtype bf16 --device cuda "
     "--determinism fast",
     How::gpu},
    {"trireme bench train --model gpt2-124m --micro-batch 64 --seq 1024 --dtype bf16 --device cuda "
     "--roofline",
     How::gpu},
    {"trireme bench train --model llama-1b --micro-batch 8 --seq 4096 --dtype bf16 --device cuda "
     "--determinism fast --recompute selective",
     How::gpu},
    {"trireme bench train --model llama3-405b --as-rank 5 --layout 'tp=8 pp=16 dp=128' --machine "
     "h200 --device cuda",
     How::gpu},
    {"trireme bench train --model llama3.1-405b --seq 8192 --as-rank 5 --layout 'tp=8 sp pp=16 "
     "dp=128 zero=1 accumulate=32' --machine h200 --device cuda",
     How::gpu},
    {"trireme bench gpu --quick", How::gpu},
    {"trireme bench attention --cp 8 --seq 32768 --heads 32 --kv-heads 8 --device cuda "
     "--determinism fast",
     How::gpu},
    {"trireme bench attention --cp 8 --seq 32768 --heads 32 --kv-heads 8 --device cuda "
     "--determinism fast --documents 1024",
     How::gpu},
    {"trireme bench attention --cp 4 --seq 2048", How::here,
     "trireme bench attention --cp 4 --seq 256 --heads 2 --kv-heads 1 --head-dim 16 --device cpu"},
    {"trireme bench attention --cp 2 --kind ring --documents 300 --json", How::here,
     "trireme bench attention --cp 2 --kind ring --documents 30 --json --seq 256 --heads 2 "
     "--kv-heads 1 --head-dim 16 --device cpu"},
    {"trireme bench gpu --out machines/measured/h200.toml --overwrite", How::gpu},

    {"trireme calibrate --device cuda --like h200 --out mine.toml", How::gpu},

    {"trireme calibrate --out mine.toml", How::here,
     "trireme calibrate --out mine.toml --device cpu --threads 1 --quick --json"},
    {"trireme calibrate --device cpu --threads 1 --quick --json", How::here,
     "trireme calibrate --out mine.toml --device cpu --threads 1 --quick --json"},
    {"trireme train configs/kjv.toml", How::here,
     "trireme train configs/kjv.toml --training.steps=2 --lr_scheduler.warmup_steps=1"},
    {"trireme train configs/kjv.toml --training.steps=300 --job.dump_folder=runs/short",
     How::started},
    {"trireme train configs/kjv.toml --training.dtype=bf16 --training.steps=300 "
     "--job.dump_folder=runs/bf16",
     How::started},
    {"trireme train configs/kjv-moe.toml --parallelism.data_parallel_shard_degree=2 "
     "--parallelism.expert_parallel_degree=2 --training.steps=300 --job.dump_folder=runs/spread",
     How::here,
     "trireme train configs/kjv-moe.toml --parallelism.data_parallel_shard_degree=2 "
     "--parallelism.expert_parallel_degree=2 --training.steps=2 --lr_scheduler.warmup_steps=1 "
     "--job.dump_folder=runs/spread"},
    {"trireme train configs/kjv-moe.toml --training.global_batch_size=4 --training.steps=400 "
     "--job.dump_folder=runs/spread --resume auto",
     How::here,
     "trireme train configs/kjv-moe.toml --training.global_batch_size=4 --training.steps=3 "
     "--lr_scheduler.warmup_steps=1 --job.dump_folder=runs/spread --resume auto"},
    {"trireme train runs/kjv/run.json --overwrite --json", How::here},
    {"trireme train --model kjv-llama --data runs/kjv-data/kjv.txt --steps 300", How::here,
     "trireme train --model kjv-llama --data runs/kjv-data/kjv.txt --steps 2"},
    {"trireme train configs/kjv.toml --training.steps=120 --job.dump_folder=runs/stopping",
     How::here,
     "trireme train configs/kjv.toml --training.steps=2 --lr_scheduler.warmup_steps=1 "
     "--job.dump_folder=runs/stopping"},
    {"trireme train configs/kjv.toml --training.steps=140 --job.dump_folder=runs/stopping "
     "--resume auto",
     How::here,
     "trireme train configs/kjv.toml --training.steps=3 --lr_scheduler.warmup_steps=1 "
     "--job.dump_folder=runs/stopping --resume auto"},
    {"trireme train configs/kjv.toml --parallelism.data_parallel_shard_degree=2 "
     "--job.dump_folder=runs/threads",
     How::started},
    {"trireme launch -n 2 configs/kjv.toml --training.steps=300 --job.dump_folder=runs/processes",
     How::ranks},
    {"trireme launch -n 2 configs/kjv.toml --training.steps=300 --job.dump_folder=runs/elastic "
     "--spares=1",
     How::ranks},
    {"trireme launch -n 4 configs/kjv.toml --parallelism.data_parallel_replicate_degree=2 "
     "--job.dump_folder=runs/hsdp",
     How::ranks},
    {"trireme chaos configs/kjv.toml -n 2 --kills 3 --seed 1 --steps 300 "
     "--parallelism.data_parallel_shard_degree=2",
     How::here,
     "trireme chaos tiny_run.toml -n 1 --kills 1 --kinds pause --steps 300 --folder runs/chaos "
     "--elastic.detect_s=0.5"},
    {"trireme train configs/kjv.toml --parallelism.pipeline_parallel_degree=2 "
     "--training.global_batch_size=8 --job.dump_folder=runs/pipeline",
     How::started},
    {"trireme launch -n 4 configs/kjv.toml --parallelism.pipeline_parallel_degree=2 "
     "--parallelism.pipeline_parallel_schedule=interleaved --training.global_batch_size=16 "
     "--job.dump_folder=runs/pipelines",
     How::ranks},
    {"trireme train configs/kjv.toml --training.steps=3 --training.dtype=bf16 "
     "--training.global_batch_size=8 --parallelism.tensor_parallel_degree=2 "
     "--parallelism.pipeline_parallel_degree=2 --parallelism.data_parallel_shard_degree=2 "
     "--job.dump_folder=runs/example",
     How::here},
    {"trireme train configs/long.toml --training.steps=1 --lr_scheduler.warmup_steps=0", How::here,
     "trireme train configs/long.toml --training.steps=1 --lr_scheduler.warmup_steps=0 "
     "--training.seq_len=1024"},
    {"trireme train configs/kjv.toml --parallelism.context_parallel_degree=2 --training.steps=20 "
     "--job.dump_folder=runs/context",
     How::here,
     "trireme train configs/kjv.toml --parallelism.context_parallel_degree=2 --training.steps=2 "
     "--lr_scheduler.warmup_steps=1 --job.dump_folder=runs/context"},
    {"trireme train configs/kjv.toml --parallelism.context_parallel_degree=4 "
     "--parallelism.context_parallel_kind=ulysses_gather --training.steps=20 "
     "--job.dump_folder=runs/both",
     How::here,
     "trireme train configs/kjv.toml --parallelism.context_parallel_degree=4 "
     "--parallelism.context_parallel_kind=ulysses_gather --training.steps=2 "
     "--lr_scheduler.warmup_steps=1 --job.dump_folder=runs/both"},
    {"trireme train configs/kjv.toml --activation_checkpoint.ffn_rows=128 --training.steps=20 "
     "--job.dump_folder=runs/tiles",
     How::here,
     "trireme train configs/kjv.toml --activation_checkpoint.ffn_rows=128 --training.steps=2 "
     "--lr_scheduler.warmup_steps=1 --job.dump_folder=runs/tiles"},
    {"trireme diagnose runs/kjv", How::here},
    {"trireme diagnose runs/kjv --steps 100:400", How::here},
    {"trireme diagnose runs/kjv --json", How::here},
    {"trireme runs", How::here},
    {"trireme runs runs/kjv --json", How::here},
    {"trireme runs runs --group", How::here},
    {"trireme runs runs --filter 'state=done loss<5' --sort validation", How::here},
    {"trireme runs --diff runs/kjv runs/bf16", How::here},
    {"trireme watch runs/kjv", How::here},
    {"trireme watch runs/kjv --once --columns 40", How::here},
    {"trireme watch runs/kjv --json", How::here},
    {"trireme board runs", How::here, "trireme board runs --seconds 0.1"},
    {"trireme board runs/kjv", How::here, "trireme board runs/kjv --seconds 0.1"},
    {"trireme board runs/kjv runs/bf16 --listen 127.0.0.1:8080", How::here,
     "trireme board runs/kjv runs/bf16 --listen 127.0.0.1:0 --seconds 0.1"},
    {"trireme board runs --listen unix:board.sock --json", How::here,
     "trireme board runs --listen unix:board.sock --json --seconds 0.1"},
    {"trireme board runs --state running --open-metrics", How::here,
     "trireme board runs --state running --open-metrics --seconds 0.1"},
    {"trireme board --plan", How::here, "trireme board --plan --seconds 0.1"},
    {"trireme report runs/kjv --out report.html", How::here},
    {"trireme report runs/kjv runs/bf16 --out report.html --json", How::here,
     "trireme report runs/kjv runs/bf16 --out both.html --json"},
    {"trireme eval runs/kjv", How::here},
    {"trireme eval runs/kjv --limit 100", How::here, "trireme eval runs/kjv --limit 3"},
    {"trireme eval runs/kjv --dtype fp8-tensor --by-block", How::here,
     "trireme eval runs/kjv --dtype fp8-tensor --by-block --limit 3"},
    {"trireme eval runs/kjv/weights/final --data runs/kjv-data/kjv --seq 256", How::here},
    {"trireme eval DIR --data val.bin --seq 1024 --json", How::here},
    {"trireme generate runs/kjv --prompt 'In the beginning'", How::here,
     "trireme generate runs/kjv --prompt 'In the beginning' --tokens 5"},
    {"trireme generate runs/kjv --prompt 'The LORD is my' --seed 3", How::here,
     "trireme generate runs/kjv --prompt 'The LORD is my' --seed 3 --tokens 5"},
    {"trireme generate runs/kjv --prompt 'And he' --prompt 'But' --stop '.' --top-p 0.9", How::here,
     "trireme generate runs/kjv --prompt 'And he' --prompt 'But' --stop '.' --top-p 0.9 --tokens "
     "5"},
    {"trireme generate runs/kjv --prompts prompts.txt --batch 16 --output out.jsonl", How::here,
     "trireme generate runs/kjv --prompts prompts.txt --batch 16 --output out.jsonl --tokens 5"},
    {"trireme eval runs/kjv --data book.txt --seq 256", How::here,
     "trireme eval runs/kjv --data book.txt --seq 256 --limit 20"},
    {"trireme eval runs/kjv --tasks tasks.jsonl --per-item answers.jsonl", How::here},
    {"trireme generate DIR --prompt-ids 464,3290 --tokens 20 --temperature 0 --json", How::here},
    {"trireme data build book.txt --output runs/book", How::here},
    {"trireme init --data book.txt", How::here},
    {"trireme train run.toml", How::here, "trireme train run.toml --training.steps=2"},
    {"trireme init --data runs/book --output small.toml", How::here},
    {"trireme init --data book.txt --size 50M --gpus 8 --machine h100 --output large.toml",
     How::here},
    {"trireme train --from-torchtitan titan.toml --data book.txt", How::here,
     "trireme train --from-torchtitan titan.toml --data book.txt --training.steps=2"},
    {"trireme convert-config --from-torchtitan titan.toml --gpus 64", How::here},
    {"trireme convert-config --from-torchtitan titan.toml --data book.txt --output titan-run.toml",
     How::here},
    {"trireme plan --from-torchtitan titan.toml --gpus 8 --machine h100", How::here},
    {"trireme convert-config --from-megatron pretrain.sh --output megatron-run.toml", How::here},
    {"trireme launch -n 2 --from-megatron pretrain.sh", How::ranks,
     "trireme launch -n 2 --from-megatron pretrain.sh --metrics.log_freq=1 "
     "--training.steps=1000000"},
    {"trireme data build a.jsonl b.jsonl --output corpus --key text --workers 4", How::here},
    {"trireme data build a.jsonl b.jsonl --output runs/corpus --workers 2", How::here},
    {"trireme data build a.jsonl --output runs/tokens --tokenizer model/tokenizer.json --eod "
     "'<|endoftext|>'",
     How::here},
    {"trireme data build chats.jsonl --output runs/chats --prompt-key question --completion-key "
     "answer",
     How::here},
    {"trireme data tokenizer train book.txt --output runs/tokenizer --vocab 512", How::here},
    {"trireme data tokenizer train a.jsonl b.jsonl --output runs/tok --vocab 300 --pattern gpt2 "
     "--special '<|endoftext|>' '<|pad|>' --pad '<|pad|>'",
     How::here},
    {"trireme data tokenizer inspect model/tokenizer.json", How::here},
    {"trireme data tokenizer encode model/tokenizer.json 'In the beginning'", How::here},
    {"trireme data tokenizer encode model/tokenizer.json 'In the beginning' --pieces", How::here},
    {"trireme data tokenizer encode runs/tokenizer 'In the beginning' --pieces", How::here},
    {"trireme data tokenizer decode model/tokenizer.json 72 105", How::here},
    {"trireme data build book.txt --output runs/book-bpe --tokenizer runs/tokenizer", How::here},
    {"trireme data inspect runs/book-bpe --show 1", How::here},
    {"trireme data convert runs/book-bpe --output runs/book-llmc --format llmc", How::here},
    {"trireme data convert runs/book --output runs/book-llmc --format llmc", How::here,
     "trireme data convert runs/book --output runs/book-llmc --format llmc --overwrite"},
    {"trireme data convert train.bin --from-type u16 --eod 50256 --output runs/train", How::here},
    {"trireme train --model kjv-llama --model.vocab_size=512 --data runs/book-bpe --steps 300 "
     "--job.dump_folder=runs/bpe",
     How::here,
     "trireme train --model kjv-llama --model.vocab_size=512 --data runs/book-bpe --steps 2 "
     "--training.seq_len=64 --job.dump_folder=runs/bpe"},
    {"trireme data inspect runs/book", How::here},
    {"trireme data inspect runs/book --show 1", How::here},
    {"trireme data inspect train.bin --format nanogpt --type u16 --json", How::here},
    {"trireme data synth --output runs/markov --vocab 64 --order 2", How::here},
    {"trireme data ngram runs/book --context 4 --split 0.05", How::here},
    {"trireme data clean a.jsonl b.jsonl --output runs/clean.jsonl", How::here},
    {"trireme data clean a.jsonl --output runs/strict.jsonl --threshold 0.7 --normalize "
     "--repetition",
     How::here},
    {"trireme data clean a.jsonl b.jsonl --output runs/look --report-only --json", How::here},
    {"trireme data build runs/clean.jsonl --output runs/cleaned", How::here},
    {"trireme train --model kjv-llama --data runs/book --steps 300 --validation.enable --curve "
     "--job.dump_folder=runs/mine",
     How::here,
     "trireme train --model kjv-llama --data runs/book --steps 2 --validation.enable --curve "
     "--job.dump_folder=runs/mine"},
    {"trireme generate runs/mine --prompt 'In the'", How::here,
     "trireme generate runs/mine --prompt 'In the' --tokens 5"},
    {"trireme eval runs/mine", How::here},
    {"trireme ckpt export runs/mine --out runs/mine-hf", How::here},
    {"trireme train runs/mine/run.json --training.steps=600 --resume auto", How::here,
     "trireme train runs/mine/run.json --training.steps=3 --resume auto"},
    {"trireme train configs/kjv.toml --training.steps=40 --training.global_batch_size=8 "
     "--parallelism.logical_dp=4 --checkpoint.interval=20 --job.dump_folder=runs/moved",
     How::here,
     "trireme train configs/kjv.toml --training.steps=4 --training.global_batch_size=8 "
     "--parallelism.logical_dp=4 --checkpoint.interval=2 --validation.enable=false "
     "--job.dump_folder=runs/moved"},
    {"trireme launch -n 2 configs/kjv.toml --training.steps=40 --training.global_batch_size=8 "
     "--parallelism.logical_dp=4 --checkpoint.interval=20 --job.dump_folder=runs/moved "
     "--parallelism.zero_stage=1 --resume 20",
     How::ranks,
     "trireme launch -n 2 configs/kjv.toml --training.steps=1000000 --training.global_batch_size=8 "
     "--parallelism.logical_dp=4 --checkpoint.interval=1000000 --validation.enable=false "
     "--job.dump_folder=runs/moved --parallelism.zero_stage=1 --resume 2"},
    {"trireme train configs/kjv.toml --training.steps=40 --training.global_batch_size=8 "
     "--parallelism.logical_dp=4 --checkpoint.interval=20 --job.dump_folder=runs/moved "
     "--parallelism.pipeline_parallel_degree=2 --resume 20",
     How::here,
     "trireme train configs/kjv.toml --training.steps=4 --training.global_batch_size=8 "
     "--parallelism.logical_dp=4 --checkpoint.interval=2 --validation.enable=false "
     "--job.dump_folder=runs/moved --parallelism.pipeline_parallel_degree=2 --resume 2"},
    {"trireme ckpt list runs/moved", How::here},
    {"trireme train configs/kjv.toml --training.steps=40 --training.global_batch_size=8 "
     "--parallelism.logical_dp=4 --checkpoint.interval=20 --job.dump_folder=runs/straight",
     How::here,
     "trireme train configs/kjv.toml --training.steps=4 --training.global_batch_size=8 "
     "--parallelism.logical_dp=4 --checkpoint.interval=2 --validation.enable=false "
     "--job.dump_folder=runs/straight"},
    {"trireme ckpt diff runs/straight runs/moved", How::here},
    {"trireme train configs/kjv.toml --training.steps=21 --trace-steps 3:5 "
     "--job.dump_folder=runs/slow",
     How::here,
     "trireme train configs/kjv.toml --training.steps=6 --trace-steps 3:5 "
     "--validation.enable=false --job.dump_folder=runs/slow"},
    {"trireme train configs/kjv.toml --training.steps=8 "
     "--parallelism.data_parallel_shard_degree=2 --trace-steps 4:6 --job.dump_folder=runs/traced",
     How::here,
     "trireme train configs/kjv.toml --training.steps=4 --validation.enable=false "
     "--parallelism.data_parallel_shard_degree=2 --trace-steps 3:3 --job.dump_folder=runs/traced"},
    {"trireme train configs/kjv.toml --training.steps=40 --system.machine=mine.toml "
     "--job.dump_folder=runs/slower",
     How::here,
     "trireme train configs/kjv.toml --training.steps=4 --system.machine=mine.toml "
     "--validation.enable=false --job.dump_folder=runs/slower"},
    {"trireme bench train --model gpt2-10m --micro-batch 8 --seq 256", How::here,
     "trireme bench train --model gpt2-10m --micro-batch 1 --seq 32 --steps 1 --warmup 0 "
     "--peak-tflops 1"},
    {"trireme bench train --model gpt2-10m --micro-batch 8 --seq 256 --steps 6", How::here,
     "trireme bench train --model gpt2-10m --micro-batch 1 --seq 32 --steps 1 --warmup 0 "
     "--peak-tflops 1"},
    {"trireme bench train --model gpt2-10m --micro-batch 8 --seq 256 --by-row", How::here,
     "trireme bench train --model gpt2-10m --micro-batch 1 --seq 32 --by-op --steps 1 --warmup 0 "
     "--peak-tflops 1"},
    {"trireme bench train --model gpt2-10m --micro-batch 8 --seq 256 --roofline", How::here,
     "trireme bench train --model gpt2-10m --micro-batch 1 --seq 32 --roofline --steps 1 --warmup "
     "0 --peak-tflops 1"},
    {"trireme bench train --model llama-11m --as-rank 3 --layout 'tp=2 pp=2 accumulate=4'",
     How::here,
     "trireme bench train --model llama-11m --as-rank 3 --layout 'tp=2 pp=2 accumulate=2' --seq 32 "
     "--steps 1 --warmup 0 --peak-tflops 1"},
    {"trireme bench train --model llama-11m --dtype bf16 --by-op", How::here,
     "trireme bench train --model llama-11m --dtype bf16 --by-op --micro-batch 1 --seq 32 "
     "--steps 1 --warmup 0 --peak-tflops 1"},
    {"trireme verify configs/kjv.toml --parallelism.context_parallel_degree=2 "
     "--parallelism.context_parallel_kind=ring",
     How::here},
    {"trireme train configs/kjv-moe.toml", How::here,
     "trireme train configs/kjv-moe.toml --training.steps=4 --validation.enable=false "
     "--job.dump_folder=runs/moe"},
    {"trireme generate runs/kjv-moe --prompt 'In the beginning'", How::here,
     "trireme generate runs/moe --prompt 'In the beginning' --tokens 5"},
    {"trireme train configs/kjv-moe.toml --parallelism.data_parallel_shard_degree=4 "
     "--parallelism.expert_parallel_degree=4 --training.steps=20 --job.dump_folder=runs/experts",
     How::here,
     "trireme train configs/kjv-moe.toml --parallelism.data_parallel_shard_degree=4 "
     "--parallelism.expert_parallel_degree=4 --training.steps=3 --training.seq_len=64 "
     "--validation.enable=false --job.dump_folder=runs/experts"},
    {"trireme verify configs/kjv-moe.toml --parallelism.data_parallel_shard_degree=2 "
     "--parallelism.expert_parallel_degree=2",
     How::here},
    {"trireme train configs/kjv-moe.toml --precision.recipe=fp8-tensor --training.steps=50 "
     "--job.dump_folder=runs/experts-fp8",
     How::here,
     "trireme train configs/kjv-moe.toml --precision.recipe=fp8-tensor --training.steps=2 "
     "--validation.enable=false --job.dump_folder=runs/experts-fp8"},
    {"trireme train configs/kjv.toml --precision.recipe=fp8-tensor --training.steps=200 "
     "--job.dump_folder=runs/fp8",
     How::here,
     "trireme train configs/kjv.toml --precision.recipe=fp8-tensor --training.steps=4 "
     "--validation.enable=false --job.dump_folder=runs/fp8"},
    {"trireme train configs/kjv.toml --precision.recipe=fp8-tensor --precision.fallback=bf16 "
     "--training.steps=200 --job.dump_folder=runs/fp8-fallback",
     How::here,
     "trireme train configs/kjv.toml --precision.recipe=fp8-tensor --precision.fallback=bf16 "
     "--training.steps=4 --validation.enable=false --job.dump_folder=runs/fp8-fallback"},
    {"trireme verify configs/kjv.toml --precision --precision.recipe=fp8-tensor", How::here},
    {"trireme verify configs/kjv.toml --model.name=kjv-moe "
     "--parallelism.data_parallel_shard_degree=4 --parallelism.expert_parallel_degree=4",
     How::here},
    {"trireme verify configs/kjv.toml", How::here},
    {"trireme verify configs/kjv.toml --parallelism.data_parallel_shard_degree=4", How::here},
    {"trireme verify configs/kjv.toml --parallelism.tensor_parallel_degree=2 "
     "--parallelism.sequence_parallel --training.dtype=bf16 --json",
     How::here},
    {"trireme verify configs/kjv.toml --parallelism.pipeline_parallel_degree=2 "
     "--parallelism.pipeline_parallel_schedule=zb-v --training.global_batch_size=8",
     How::here},
    {"trireme schedule 1f1b --stages 4 --microbatches 8", How::here},
    {"trireme schedule zb-h2 --stages 4 --microbatches 8", How::here},
    {"trireme schedule interleaved --stages 4 --microbatches 10 --chunks 2 --svg i.svg", How::here},
    {"trireme schedule zb-h1 --stages 8 --microbatches 24 --costs 1,1.2,0.8 --json", How::here},
    {"trireme schedule capped --stages 4 --microbatches 8 --mem 3", How::here},
    {"trireme schedule --check mine.txt", How::here},
    {"trireme sim configs/gpt2-124m.toml --tflops 100 --stages 4 --microbatches 16", How::here},
    {"trireme sim configs/gpt2-124m.toml --machine h100 --stages 4 --microbatches 16", How::here},
    {"trireme sim configs/gpt2-124m.toml --tflops 100 --schedule zb-h1 --stages 4 --link 25 "
     "--straggler 2:1.2 --json",
     How::here},
    {"trireme train configs/kjv.toml --checkpoint.interval=20 --job.dump_folder=runs/saved",
     How::started,
     "trireme train tiny_run.toml --training.steps=1000000 --job.dump_folder=runs/saved "
     "--checkpoint.interval=1000000"},
    {"trireme train configs/kjv.toml --checkpoint.interval=20 --job.dump_folder=runs/saved "
     "--resume auto",
     How::started,
     "trireme train tiny_run.toml --training.steps=1000000 --job.dump_folder=runs/saved "
     "--checkpoint.interval=1000000 --resume auto"},
    {"trireme eval runs/saved", How::here, "trireme eval runs/saved --data text.txt"},
    {"trireme generate runs/saved/checkpoint --prompt 'In the beginning'", How::here,
     "trireme generate runs/saved/checkpoint --prompt 'In the beginning' --tokens 5"},
    {"trireme ckpt list runs/saved", How::here},
    {"trireme ckpt list runs/saved/checkpoint --json", How::here},
    {"trireme ckpt inspect runs/saved", How::here},
    {"trireme ckpt inspect runs/saved --step 20 --tensor weight/blocks.0.norm1.weight --json",
     How::here, "trireme ckpt inspect runs/saved --tensor weight/blocks.0.norm1.weight --json"},
    {"trireme ckpt verify runs/saved", How::here},
    {"trireme ckpt verify runs/saved --step 20 --json", How::here,
     "trireme ckpt verify runs/saved/checkpoint --json"},
    {"trireme ckpt reshard runs/saved --out runs/resharded "
     "--parallelism.tensor_parallel_degree=2",
     How::here},
    {"trireme ckpt reshard runs/saved --step 20 --out runs/back --plan runs/saved/plan.json",
     How::here, "trireme ckpt reshard runs/resharded --out runs/back --plan runs/saved/plan.json"},
    {"trireme ckpt diff runs/saved runs/resharded", How::here},
    {"trireme ckpt diff runs/saved/checkpoint/step-00000020 runs/resharded --tolerance 1e-6 --json",
     How::here, "trireme ckpt diff runs/back runs/resharded --tolerance 1e-6 --json"},
    {"trireme ckpt export runs/saved --out runs/exported", How::here},
    {"trireme ckpt export runs/saved --step 20 --out runs/exported-bf16 --dtype bf16 "
     "--max-shard-bytes 2000000000 --json",
     How::here,
     "trireme ckpt export runs/saved --out runs/exported-bf16 --dtype bf16 --max-shard-bytes 20000 "
     "--json"},
    {"trireme ckpt import runs/exported --out runs/imported", How::here},
    {"trireme ckpt import runs/exported --upcycle --model my-moe.toml --noise 0.001 --out "
     "runs/upcycled",
     How::here},
    {"trireme train configs/kjv.toml --job.dump_folder=runs/imported --resume auto", How::started,
     "trireme train tiny_run.toml --training.steps=1000000 --job.dump_folder=runs/imported "
     "--resume auto"},
    {"trireme ckpt mark runs/saved 20 bad --why 'the loss of its evaluation is wrong'", How::here,
     "trireme ckpt mark runs/imported 0 bad --why 'the loss of its evaluation is wrong'"},
    {"trireme ckpt mark runs/saved 20 good --why 'evaluated' --json", How::here,
     "trireme ckpt mark runs/imported 0 good --why 'evaluated' --json"},
    {"trireme plan --model llama3.2-1b --machine h200 --gpus 8 --batch 512 --seq-len 4096",
     How::here},
    {"trireme plan --model llama3.2-1b --machine h200 --gpus 8 --batch 512 --tokens 20B",
     How::here},
    {"trireme plan --machine h100 --gpus 8 --days 7", How::here,
     "trireme plan --machine h100 --gpus 1 --days 7 --recompute none --zero 0"},
    {"trireme plan --machine h100 --gpus 8 --budget 5k --price 2.5", How::here,
     "trireme plan --model llama3.2-1b --machine h100 --gpus 8 --budget 5k --price 2.5"},
    {"trireme plan --model llama3.1-8b --machine h100 --batch-tokens 2M --tokens 160B --deadline "
     "30",
     How::here},
    {"trireme plan --model llama-3b --machine h200 --gpus 1 --batch 16 --seq-len 4096 --precision "
     "bf16,fp8-tensor,fp8-block",
     How::here},
    {"trireme plan --model llama3.1-8b --machine h100 --gpus 8 --batch 16 --seq-len 8192",
     How::here},
    {"trireme plan --model llama3.1-8b --machine h100 --gpus 8 --batch 16 --seq-len 8192 --layout "
     "'zero=3 micro=2'",
     How::here},
    {"trireme plan --model llama3-70b --machine h100 --gpus 1024 --batch-tokens 4e6 --seq-len 8192 "
     "--tokens 2e12 --price 2.50",
     How::here},
    {"trireme plan --model olmoe-1b-7b --machine h100 --gpus 16 --batch 256 --expert-imbalance 1.3",
     How::here},
    {"trireme plan configs/llama-11m.toml --machine h200 --json", How::here},
    {"trireme plan configs/llama-11m.toml --machine h200", How::here},
    {"trireme plan --from-hf DIR --machine h100 --gpus 64 --batch-tokens 4e6", How::here},
    {"trireme plan --validate runs.jsonl", How::here},
    {"trireme plan --validate runs.jsonl --fit", How::here},
    {"trireme plan --validate data/published_runs.jsonl --fit", How::here,
     "trireme plan --validate data/published_runs.jsonl"},
    {"trireme plan --validate data/published_runs_single_node.jsonl", How::here},
    {"trireme plan --validate tests/planner/program_runs.jsonl", How::here},
    {"trireme plan --model llama3.1-8b --machine h100 --gpus 8 --batch 16 --seq-len 8192 --stack "
     "torchtitan --layout 'zero=3 micro=2 selective'",
     How::here},
    {"trireme plan --model llama3.1-8b --machine h100 --gpus 64 --batch 128 --seq-len 8192 --stack "
     "torchtitan",
     How::here},
    {"trireme plan --model llama3.1-8b --machine h100 --gpus 64 --batch 128 --seq-len 8192 --stack "
     "my-fork.toml",
     How::here,
     "trireme plan --model llama3.1-8b --machine h100 --gpus 64 --batch 128 --seq-len 8192 --stack "
     "stacks/fsdp.toml"},
    {"trireme plan --model llama3-70b --machine h100 --gpus 1024 --batch-tokens 4e6 --seq-len 8192",
     How::here},
    {"trireme plan --model llama-11m --machine cpu --gpus 2 --batch 8 --seq-len 256 --out "
     "plan.toml",
     How::here},
    {"trireme plan --model llama3-70b --machine h100 --gpus 1024 --batch 512 --seq-len 8192 "
     "--explain 'tp=8 sp pp=2 zero=1 selective' --explain 'tp=8 sp zero=3 selective'",
     How::here},
    {"trireme plan --from-megatron '--num-layers 32 --hidden-size 4096 --num-attention-heads 32 "
     "--seq-length 4096 --max-position-embeddings 4096 --vocab-size 32000 --micro-batch-size 1 "
     "--global-batch-size 128 --tensor-model-parallel-size 2 --bf16 --swiglu --ffn-hidden-size "
     "11008 --use-distributed-optimizer' --gpus 64 --machine a100-80gb",
     How::here},
    {"trireme version", How::here},
    {"trireme version --json", How::here},
    {"trireme help", How::here},
    {"trireme help train", How::here},
    {"trireme help data build", How::here},
    {"trireme completion bash", How::here},
    {"trireme completion zsh", How::here},
    {"trireme man", How::here},
    {"trireme doctor", How::here},
    {"trireme doctor --measure --json", How::here},
};

}  // namespace trireme::tests
