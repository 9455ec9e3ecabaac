// SPDX-License-Identifier: Apache-2.0
#include "data/corpus/counts.h"

#include <fmt/core.h>

#include <numeric>
#include <span>

#include "base/text/json.h"
#include "data/files/utf8.h"

namespace trireme::data {

using base::Json;

int64_t CorpusCounts::all_rejected() const {
  return std::accumulate(rejected.begin(), rejected.end(), int64_t{0});
}

void CorpusCounts::add(const CorpusCounts& other) {
  documents += other.documents;
  tokens += other.tokens;
  text_bytes += other.text_bytes;
  stored_bytes += other.stored_bytes;
  blank_lines += other.blank_lines;
  for (size_t i = 0; i < rejected.size(); ++i) rejected[i] += other.rejected[i];
}

std::string json_name(const std::filesystem::path& path) {
  std::string name;
  std::string_view rest = path.native();
  while (const auto bad = first_invalid_utf8(std::as_bytes(std::span(rest)))) {
    name += rest.substr(0, *bad);
    name += fmt::format("\\x{:02x}", static_cast<unsigned char>(rest[*bad]));
    rest.remove_prefix(*bad + 1);
  }
  return name.append(rest);
}

Json to_json(const CorpusCounts& counts) {
  Json rejected = Json::object();
  for (size_t i = 0; i < reject_reasons; ++i) {
    if (counts.rejected[i] == 0) continue;
    rejected[std::string(name_of(static_cast<RejectReason>(i)))] = counts.rejected[i];
  }
  return {{"documents", counts.documents},     {"tokens", counts.tokens},
          {"text_bytes", counts.text_bytes},   {"stored_bytes", counts.stored_bytes},
          {"blank_lines", counts.blank_lines}, {"rejected", rejected}};
}

Json to_json(const ShardRecord& record) {
  return {{"file", record.file},
          {"compression", std::string(name_of(record.end.compression))},
          {"xxh3_128", record.end.hash},
          {"modified_ns", record.modified_ns},
          {"counts", to_json(record.counts)}};
}

CorpusCounts counts_from_json(const Json& json) {
  CorpusCounts counts{.documents = json.at("documents").get<int64_t>(),
                      .tokens = json.at("tokens").get<int64_t>(),
                      .text_bytes = json.at("text_bytes").get<int64_t>(),
                      .stored_bytes = json.at("stored_bytes").get<int64_t>(),
                      .blank_lines = json.at("blank_lines").get<int64_t>()};
  for (size_t i = 0; i < reject_reasons; ++i) {
    counts.rejected[i] =
        json.at("rejected").value(std::string(name_of(static_cast<RejectReason>(i))), int64_t{0});
  }
  return counts;
}

ShardRecord record_from_json(const Json& json) {
  ShardRecord record{.file = json.at("file").get<std::string>(),
                     .modified_ns = json.at("modified_ns").get<int64_t>(),
                     .counts = counts_from_json(json.at("counts"))};
  const auto compression = json.at("compression").get<std::string>();
  for (const Compression known : {Compression::gzip, Compression::zstd}) {
    if (compression == name_of(known)) record.end.compression = known;
  }
  record.end.hash = json.at("xxh3_128").get<std::string>();
  record.end.stored_bytes = record.counts.stored_bytes;
  return record;
}

}  // namespace trireme::data
