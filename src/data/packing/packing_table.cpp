// SPDX-License-Identifier: Apache-2.0
#include "data/packing/packing_table.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "data/packing/best_fit.h"

namespace trireme::data {
namespace {

using base::ConfigError;

// Returns the options with the number of documents.
PackingOptions checked_options(const TokenData& data, PackingOptions options) {
  constexpr int64_t longest = int64_t{1} << 30;
  if (options.seq_len < 1 || options.seq_len > longest) {
    throw ConfigError(fmt::format("seq_len = {}; allowed: 1 .. {}", options.seq_len, longest));
  }
  if (options.window_documents < 1 || options.window_documents > int64_t{1} << 24) {
    throw ConfigError(fmt::format("packing windows of {} documents; allowed: 1 .. {}",
                                  options.window_documents, int64_t{1} << 24));
  }
  const int64_t count = data.documents().count();
  const int64_t last = options.documents < 0 ? count : options.documents;
  if (options.first_document < 0 || options.first_document > count ||
      (options.documents >= 0 && last > count - options.first_document)) {
    throw ConfigError(fmt::format("{}: packing {} documents from {} on, of {}", data.name(),
                                  options.documents, options.first_document, count));
  }
  if (options.documents < 0) options.documents = count - options.first_document;
  return options;
}

}  // namespace

double PackingStats::padding_fraction() const {
  const int64_t slots = used_slots + padding_slots;
  return slots == 0 ? 0 : static_cast<double>(padding_slots) / static_cast<double>(slots);
}

std::string PackingStats::description(int64_t seq_len) const {
  return fmt::format(
      "{} documents in {} sequences of {}: {:.3g} % padding, {} split, {} without a label",
      documents, sequences, seq_len, 100 * padding_fraction(), documents_split,
      documents_without_label);
}

PackingTable PackingTable::pack(const TokenData& data, const PackingOptions& wanted) {
  PackingTable table;
  const PackingOptions& options = table.options_ = checked_options(data, wanted);
  const int64_t end = options.first_document + options.documents;
  for (int64_t window = options.first_document; window < end; window += options.window_documents) {
    table.add_window(data.documents(), window, std::min(end, window + options.window_documents));
  }
  table.ends_ = table.owned_ends_;
  table.first_tokens_ = table.owned_first_tokens_;
  table.slots_ = table.owned_slots_;
  if (table.sequences() == 0) {
    throw ConfigError(fmt::format("{}: none of {} documents has two tokens or more", data.name(),
                                  options.documents));
  }
  table.stats_.documents = options.documents;
  table.stats_.pieces = static_cast<int64_t>(table.slots_.size());
  table.stats_.sequences = table.sequences();
  table.stats_.padding_slots = table.sequences() * options.seq_len - table.stats_.used_slots;
  return table;
}

void PackingTable::add_window(const DocumentIndex& documents, int64_t first, int64_t end) {
  const int64_t seq_len = options_.seq_len;
  std::vector<int64_t> first_tokens;  // of the pieces that do not fill a sequence
  std::vector<int32_t> lengths;
  for (int64_t document = first; document < end; ++document) {
    int64_t begin = documents.start(document);
    int64_t slots = documents.start(document + 1) - begin - 1;
    stats_.documents_without_label += slots < 1;
    stats_.documents_split += slots > seq_len;
    stats_.used_slots += std::max<int64_t>(slots, 0);
    for (; slots >= seq_len; slots -= seq_len, begin += seq_len) {
      owned_first_tokens_.push_back(begin);
      owned_slots_.push_back(static_cast<int32_t>(seq_len));
      owned_ends_.push_back(static_cast<int64_t>(owned_slots_.size()));
    }
    if (slots < 1) continue;
    first_tokens.push_back(begin);
    lengths.push_back(static_cast<int32_t>(slots));
  }
  const Packing packing = best_fit(lengths, seq_len);
  // A counting sort by sequence, so that pieces stay in the order of the data set.
  const size_t before = owned_slots_.size();
  std::vector<size_t> places(static_cast<size_t>(packing.sequences) + 1, before);
  for (const int32_t sequence : packing.sequence) ++places[static_cast<size_t>(sequence) + 1];
  for (size_t i = 1; i < places.size(); ++i) {
    places[i] += places[i - 1] - before;
    owned_ends_.push_back(static_cast<int64_t>(places[i]));
  }
  owned_first_tokens_.resize(before + lengths.size());
  owned_slots_.resize(before + lengths.size());
  for (size_t i = 0; i < lengths.size(); ++i) {
    const size_t to = places[static_cast<size_t>(packing.sequence[i])]++;
    owned_first_tokens_[to] = first_tokens[i];
    owned_slots_[to] = lengths[i];
  }
}

int64_t PackingTable::pieces(int64_t sequence) const {
  TRIREME_CHECK(sequence >= 0 && sequence < sequences(), "sequence {} of {}", sequence,
                sequences());
  const auto at = static_cast<size_t>(sequence);
  return ends_[at] - (at == 0 ? 0 : ends_[at - 1]);
}

PackingTable::Piece PackingTable::piece(int64_t sequence, int64_t index) const {
  TRIREME_CHECK(index >= 0 && index < pieces(sequence), "piece {} of {}", index, pieces(sequence));
  const auto at =
      static_cast<size_t>(ends_[static_cast<size_t>(sequence)] - pieces(sequence) + index);
  return {first_tokens_[at], slots_[at]};
}

}  // namespace trireme::data
