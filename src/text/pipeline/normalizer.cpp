// SPDX-License-Identifier: Apache-2.0
#include "text/pipeline/normalizer.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "text/unicode/char_classes.h"
#include "text/unicode/utf8.h"

namespace trireme::text {

namespace {

void check_growth(size_t before, size_t after) {
  const size_t allowed = max_normalized_bytes(before);
  if (after <= allowed) return;
  throw base::ConfigError(fmt::format(
      "normalizer: a text of {} bytes grows to {}; allowed: {}. Make the contents of its steps "
      "Replace and Prepend shorter",
      before, after, allowed));
}

class FormNormalizer final : public Normalizer {
 public:
  explicit FormNormalizer(NormalForm form) : form_(form) { require_normal_forms(); }
  std::string_view apply(std::string_view text, std::string& storage,
                         bool& /*keeps_start*/) const override {
    return normalize(form_, text, storage);
  }

 private:
  NormalForm form_;
};

class LowercaseNormalizer final : public Normalizer {
 public:
  std::string_view apply(std::string_view text, std::string& storage,
                         bool& /*keeps_start*/) const override {
    storage.clear();
    for (size_t i = 0; i < text.size();) {
      const CodePoint point = code_point_at(text.data() + i);
      if (point.value == 0x130) {
        storage += "i\xCC\x87";  // the dot stays as U+0307
      } else {
        append_utf8(storage, lower_case(point.value));
      }
      i += point.bytes;
    }
    return storage;
  }
};

class StripNormalizer final : public Normalizer {
 public:
  StripNormalizer(bool left, bool right) : left_(left), right_(right) {}
  std::string_view apply(std::string_view text, std::string& /*storage*/,
                         bool& keeps_start) const override {
    const CharClasses& classes = CharClasses::table();
    while (left_ && !text.empty()) {
      const CodePoint point = code_point_at(text.data());
      if (!classes.is(point.value, char_class::space)) break;
      text.remove_prefix(point.bytes);
      keeps_start = false;
    }
    while (right_ && !text.empty()) {
      const CodePoint point = code_point_before(text.data() + text.size());
      if (!classes.is(point.value, char_class::space)) break;
      text.remove_suffix(point.bytes);
    }
    return text;
  }

 private:
  bool left_;
  bool right_;
};

class StripAccentsNormalizer final : public Normalizer {
 public:
  std::string_view apply(std::string_view text, std::string& storage,
                         bool& keeps_start) const override {
    const CharClasses& classes = CharClasses::table();
    if (ascii_prefix(text) == text.size()) return text;
    storage.clear();
    for (size_t i = 0; i < text.size();) {
      const CodePoint point = code_point_at(text.data() + i);
      if (!classes.is(point.value, char_class::mark)) {
        storage.append(text.substr(i, point.bytes));
      } else if (i == 0) {
        keeps_start = false;
      }
      i += point.bytes;
    }
    return storage;
  }
};

class ReplaceNormalizer final : public Normalizer {
 public:
  ReplaceNormalizer(std::unique_ptr<Pattern> pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  std::string_view apply(std::string_view text, std::string& storage,
                         bool& keeps_start) const override {
    if (text.empty()) return text;
    std::vector<Span> spans;
    pattern_->find(text, spans);
    if (spans.size() == 1 && !spans.front().is_match) return text;
    size_t bytes = 0;
    for (const Span& span : spans) bytes += span.is_match ? content_.size() : span.end - span.begin;
    check_growth(text.size(), bytes);
    storage.clear();
    storage.reserve(bytes);
    for (const Span& span : spans) {
      if (span.is_match) {
        storage += content_;
        if (span.begin == 0 && span.end > 0 && content_.empty()) keeps_start = false;
      } else {
        storage.append(text.substr(span.begin, span.end - span.begin));
      }
    }
    return storage;
  }

 private:
  std::unique_ptr<Pattern> pattern_;
  std::string content_;
};

class PrependNormalizer final : public Normalizer {
 public:
  explicit PrependNormalizer(std::string prefix) : prefix_(std::move(prefix)) {}
  std::string_view apply(std::string_view text, std::string& storage,
                         bool& /*keeps_start*/) const override {
    if (text.empty()) return text;
    check_growth(text.size(), prefix_.size() + text.size());
    storage.assign(prefix_);
    storage.append(text);
    return storage;
  }

 private:
  std::string prefix_;
};

bool is_view_of(std::string_view view, const std::string& text) {
  return view.data() >= text.data() && view.data() <= text.data() + text.size();
}

class SequenceNormalizer final : public Normalizer {
 public:
  explicit SequenceNormalizer(std::vector<std::unique_ptr<Normalizer>> parts)
      : parts_(std::move(parts)) {}
  std::string_view apply(std::string_view text, std::string& storage,
                         bool& keeps_start) const override {
    std::string other;
    std::string *used = &other, *free = &storage;
    const size_t bytes = text.size();
    for (const auto& part : parts_) {
      const std::string_view made = part->apply(text, *free, keeps_start);
      check_growth(bytes, made.size());
      if (is_view_of(made, *free)) std::swap(used, free);
      text = made;
    }
    // The text may be a view of the local string, which ends here.
    if (!is_view_of(text, other)) return text;
    std::string copy(text);
    storage = std::move(copy);
    return storage;
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> parts_;
};

}  // namespace

size_t max_normalized_bytes(size_t text_bytes) {
  constexpr size_t factor = 32, always = size_t{1} << 16, most = size_t{1} << 30;
  return std::max(std::min(factor * text_bytes + always, most), 2 * text_bytes);
}

std::unique_ptr<Normalizer> form_normalizer(NormalForm form) {
  return std::make_unique<FormNormalizer>(form);
}

std::unique_ptr<Normalizer> lowercase_normalizer() {
  return std::make_unique<LowercaseNormalizer>();
}

std::unique_ptr<Normalizer> strip_normalizer(bool left, bool right) {
  return std::make_unique<StripNormalizer>(left, right);
}

std::unique_ptr<Normalizer> strip_accents_normalizer() {
  return std::make_unique<StripAccentsNormalizer>();
}

std::unique_ptr<Normalizer> replace_normalizer(std::unique_ptr<Pattern> pattern,
                                               std::string content) {
  return std::make_unique<ReplaceNormalizer>(std::move(pattern), std::move(content));
}

std::unique_ptr<Normalizer> prepend_normalizer(std::string prefix) {
  return std::make_unique<PrependNormalizer>(std::move(prefix));
}

std::unique_ptr<Normalizer> sequence_normalizer(std::vector<std::unique_ptr<Normalizer>> parts) {
  return std::make_unique<SequenceNormalizer>(std::move(parts));
}

}  // namespace trireme::text
