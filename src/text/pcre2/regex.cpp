// SPDX-License-Identifier: Apache-2.0
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/regex.h"

#include <fmt/core.h>
#include <pcre2.h>

#include <array>
#include <optional>

#include "base/error.h"
#include "text/pipeline/oniguruma.h"
#include "text/unicode/utf8.h"

namespace trireme::text {

namespace {

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeCompile {
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
};
struct FreeData {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct FreeContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
struct FreeStack {
  void operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }
};

std::string error_text(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace

struct Regex::Impl {
  std::unique_ptr<pcre2_code, FreeCode> code;
  std::string pattern;

  int match(std::string_view text, size_t start, pcre2_match_data* data) const {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    const int found =
        pcre2_match(code.get(), subject, text.size(), start, PCRE2_NO_UTF_CHECK, data, nullptr);
    if (found != PCRE2_ERROR_JIT_STACKLIMIT) return found;
    // A long run of text can need more than the 32 KiB that compiled code takes by default.
    const std::unique_ptr<pcre2_jit_stack, FreeStack> stack(
        pcre2_jit_stack_create(1U << 20U, 1U << 28U, nullptr));
    const std::unique_ptr<pcre2_match_context, FreeContext> context(
        pcre2_match_context_create(nullptr));
    pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
    return pcre2_match(code.get(), subject, text.size(), start, PCRE2_NO_UTF_CHECK, data,
                       context.get());
  }
};

Regex::Regex(const std::string& oniguruma_pattern) : impl_(std::make_unique<Impl>()) {
  const std::string pattern = pcre2_pattern(oniguruma_pattern);
  const std::unique_ptr<pcre2_compile_context, FreeCompile> context(
      pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  impl_->pattern = oniguruma_pattern;
  impl_->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                  PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &offset,
                                  context.get()));
  if (impl_->code == nullptr) {
    throw base::ConfigError(fmt::format("the regular expression '{}' is malformed: {}",
                                        oniguruma_pattern, error_text(error)));
  }
  // Without support for this processor the interpreter runs the same expression.
  (void)pcre2_jit_compile(impl_->code.get(), PCRE2_JIT_COMPLETE);
}

Regex::~Regex() = default;

// As `tokenizers` iterates: an empty match right after a match is skipped.
void Regex::find_all(std::string_view text, std::vector<Span>& matches) const {
  const std::unique_ptr<pcre2_match_data, FreeData> data(pcre2_match_data_create(1, nullptr));
  size_t start = 0;
  std::optional<size_t> last_end;
  while (start <= text.size()) {
    const int found = impl_->match(text, start, data.get());
    if (found == PCRE2_ERROR_NOMATCH) return;
    if (found < 0) {
      throw base::ConfigError(
          fmt::format("the regular expression '{}' gave up on a text of {} bytes: {}",
                      impl_->pattern, text.size(), error_text(found)));
    }
    const PCRE2_SIZE* pair = pcre2_get_ovector_pointer(data.get());
    if (pair[0] == pair[1] && last_end == pair[1]) {
      start += start < text.size() ? code_point_at(text.data() + start).bytes : 1;
      continue;
    }
    matches.push_back({pair[0], pair[1]});
    start = pair[1];
    last_end = pair[1];
  }
}

bool has_regex() { return true; }

}  // namespace trireme::text
