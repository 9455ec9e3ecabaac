// SPDX-License-Identifier: Apache-2.0
#include "text/pipeline/pre_tokenizer.h"

#include <algorithm>
#include <utility>

#include "text/bpe/byte_alphabet.h"

namespace trireme::text {

namespace {

void add_piece(const Piece& whole, const Span& span, PieceList& out) {
  if (span.begin == span.end) return;
  out.pieces.push_back(
      {whole.text.substr(span.begin, span.end - span.begin), whole.is_at_start && span.begin == 0});
}

// Joins spans in place as the behavior asks.
void join_spans(SplitBehavior behavior, std::vector<Span>& spans) {
  if (behavior == SplitBehavior::isolated) return;
  if (behavior == SplitBehavior::removed) {
    std::erase_if(spans, [](const Span& span) { return span.is_match; });
    return;
  }
  const bool from_right = behavior == SplitBehavior::merged_with_next;
  if (from_right) std::reverse(spans.begin(), spans.end());
  bool was_match = false;
  size_t count = 0;
  for (const Span span : spans) {
    const bool joins = behavior == SplitBehavior::contiguous ? span.is_match == was_match
                                                             : span.is_match && !was_match;
    was_match = span.is_match;
    if (joins && count > 0) {
      Span& last = spans[count - 1];
      (from_right ? last.begin : last.end) = from_right ? span.begin : span.end;
    } else {
      spans[count++] = span;
    }
  }
  spans.resize(count);
  if (from_right) std::reverse(spans.begin(), spans.end());
}

class SplitPreTokenizer final : public PreTokenizer {
 public:
  SplitPreTokenizer(std::unique_ptr<Pattern> pattern, SplitOptions options)
      : pattern_(std::move(pattern)), options_(options) {}
  void apply(const Piece& piece, PieceList& out) const override {
    if (const auto known = pattern_->known();
        known && options_.behavior == SplitBehavior::isolated) {
      out.views.clear();
      split_by(*known, piece.text, out.views);
      bool is_at_start = piece.is_at_start;
      for (const std::string_view view : out.views) {
        out.pieces.push_back({view, is_at_start});
        is_at_start = false;
      }
      return;
    }
    auto& spans = out.spans;
    spans.clear();
    pattern_->find(piece.text, spans);
    if (options_.invert) {
      for (Span& span : spans) span.is_match = !span.is_match;
    }
    join_spans(options_.behavior, spans);
    for (const Span& span : spans) add_piece(piece, span, out);
  }

 private:
  std::unique_ptr<Pattern> pattern_;
  SplitOptions options_;
};

class ByteLevelPreTokenizer final : public PreTokenizer {
 public:
  explicit ByteLevelPreTokenizer(ByteLevelOptions options) : options_(options) {}
  void apply(const Piece& piece, PieceList& out) const override {
    Piece whole = piece;
    if (options_.add_prefix_space && !whole.text.starts_with(' ')) {
      out.changed.push_back(" " + std::string(whole.text));
      whole.text = out.changed.back();
    }
    const size_t first = out.pieces.size();
    if (options_.use_regex) {
      out.views.clear();
      split_by(KnownPattern::gpt2, whole.text, out.views);
      bool is_at_start = whole.is_at_start;
      for (const std::string_view view : out.views) {
        out.pieces.push_back({view, is_at_start});
        is_at_start = false;
      }
    } else {
      out.pieces.push_back(whole);
    }
    if (!options_.writes_alphabet) return;
    for (size_t i = first; i < out.pieces.size(); ++i) {
      out.changed.push_back(in_byte_alphabet(out.pieces[i].text));
      out.pieces[i].text = out.changed.back();
    }
  }

 private:
  ByteLevelOptions options_;
};

class MetaspacePreTokenizer final : public PreTokenizer {
 public:
  explicit MetaspacePreTokenizer(MetaspaceOptions options) : options_(std::move(options)) {}
  void apply(const Piece& piece, PieceList& out) const override {
    const std::string& mark = options_.replacement;
    std::string text;
    text.reserve(piece.text.size() + piece.text.size() / 4 + mark.size());
    const bool may_prepend = options_.scheme == PrependScheme::always ||
                             (options_.scheme == PrependScheme::first && piece.is_at_start);
    if (may_prepend && !piece.text.starts_with(' ') && !piece.text.starts_with(mark)) text = mark;
    for (const char c : piece.text) {
      if (c == ' ') {
        text += mark;
      } else {
        text += c;
      }
    }
    out.changed.push_back(std::move(text));
    const Piece whole{out.changed.back(), piece.is_at_start};
    if (!options_.split) {
      out.pieces.push_back(whole);
      return;
    }
    // Every mark begins a piece.
    size_t begin = 0;
    while (begin < whole.text.size()) {
      const size_t next = whole.text.find(
          mark, begin + (whole.text.substr(begin).starts_with(mark) ? mark.size() : 0));
      const size_t end = std::min(next, whole.text.size());
      add_piece(whole, {begin, end}, out);
      begin = end;
    }
  }

 private:
  MetaspaceOptions options_;
};

class SequencePreTokenizer final : public PreTokenizer {
 public:
  explicit SequencePreTokenizer(std::vector<std::unique_ptr<PreTokenizer>> parts)
      : parts_(std::move(parts)) {}
  void apply(const Piece& piece, PieceList& out) const override {
    if (parts_.empty()) {
      out.pieces.push_back(piece);
      return;
    }
    std::vector<Piece> pieces = {piece};
    // The pieces of the parts before the last one go through out.pieces and are taken away again.
    const auto first = static_cast<std::ptrdiff_t>(out.pieces.size());
    for (size_t part = 0; part < parts_.size(); ++part) {
      for (const Piece& each : pieces) parts_[part]->apply(each, out);
      if (part + 1 == parts_.size()) return;
      pieces.assign(out.pieces.begin() + first, out.pieces.end());
      out.pieces.resize(static_cast<size_t>(first));
    }
  }

 private:
  std::vector<std::unique_ptr<PreTokenizer>> parts_;
};

}  // namespace

std::unique_ptr<PreTokenizer> split_pre_tokenizer(std::unique_ptr<Pattern> pattern,
                                                  SplitOptions options) {
  return std::make_unique<SplitPreTokenizer>(std::move(pattern), options);
}

std::unique_ptr<PreTokenizer> byte_level_pre_tokenizer(ByteLevelOptions options) {
  return std::make_unique<ByteLevelPreTokenizer>(options);
}

std::unique_ptr<PreTokenizer> metaspace_pre_tokenizer(MetaspaceOptions options) {
  return std::make_unique<MetaspacePreTokenizer>(std::move(options));
}

std::unique_ptr<PreTokenizer> sequence_pre_tokenizer(
    std::vector<std::unique_ptr<PreTokenizer>> parts) {
  return std::make_unique<SequencePreTokenizer>(std::move(parts));
}

}  // namespace trireme::text
