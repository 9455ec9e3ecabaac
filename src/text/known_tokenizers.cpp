// SPDX-License-Identifier: Apache-2.0
#include "text/known_tokenizers.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

namespace trireme::text {
namespace {

struct KnownTokenizer {
  std::string_view name;        // in small letters and digits alone
  std::string_view repository;  // of huggingface.co, with a tokenizer.json
  bool needs_account = false;   // its licence must be accepted first
};
constexpr auto known_tokenizers = std::to_array<KnownTokenizer>({
    {"gpt2", "openai-community/gpt2"},
    {"r50kbase", "openai-community/gpt2"},
    {"r50k", "openai-community/gpt2"},
    {"gpt35", "Xenova/gpt-4"},
    {"gpt4", "Xenova/gpt-4"},
    {"cl100kbase", "Xenova/gpt-4"},
    {"cl100k", "Xenova/gpt-4"},
    {"gpt4o", "Xenova/gpt-4o"},
    {"o200kbase", "Xenova/gpt-4o"},
    {"o200k", "Xenova/gpt-4o"},
    {"llama2", "meta-llama/Llama-2-7b-hf", true},
    {"llama3", "meta-llama/Llama-3.1-8B", true},
    {"llama31", "meta-llama/Llama-3.1-8B", true},
    {"llama32", "meta-llama/Llama-3.2-1B", true},
    {"mistral", "mistralai/Mistral-7B-v0.1", true},
    {"mixtral", "mistralai/Mixtral-8x7B-v0.1", true},
    {"qwen2", "Qwen/Qwen2-0.5B"},
    {"qwen25", "Qwen/Qwen2.5-0.5B"},
    {"qwen3", "Qwen/Qwen3-0.6B"},
    {"gptneox", "EleutherAI/gpt-neox-20b"},
    {"neox", "EleutherAI/gpt-neox-20b"},
    {"pythia", "EleutherAI/gpt-neox-20b"},
    {"deepseekv3", "deepseek-ai/DeepSeek-V3"},
});

}  // namespace

std::string known_tokenizer_hint(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    if (c >= 'A' && c <= 'Z') plain += static_cast<char>(c - 'A' + 'a');
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) plain += c;
  }
  const auto* found = std::ranges::find(known_tokenizers, plain, &KnownTokenizer::name);
  if (found == known_tokenizers.end()) return {};
  return fmt::format(
      "; the file of {} is https://huggingface.co/{}/resolve/main/tokenizer.json{}: `curl -L "
      "--create-dirs -o {}/tokenizer.json URL`{}, then give the folder",
      name, found->repository, found->needs_account ? " (after its licence is accepted there)" : "",
      plain, found->needs_account ? " with the header `Authorization: Bearer TOKEN`" : "");
}

}  // namespace trireme::text
