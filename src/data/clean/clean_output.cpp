// SPDX-License-Identifier: Apache-2.0
#include "data/clean/clean_output.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <span>
#include <system_error>

#include "base/error.h"
#include "base/text/json.h"
#include "data/corpus/counts.h"
#include "data/readers/json_text.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;
using base::ConfigError;
using base::Json;

void append_json_string(std::string_view text, std::string& out) {
  out += '"';
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    const char* const special = string_special(at, end);
    out.append(at, special);
    if (special == end) break;
    switch (*special) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        out +=
            fmt::format("\\u{:04x}", static_cast<unsigned>(static_cast<unsigned char>(*special)));
    }
    at = special + 1;
  }
  out += '"';
}

std::string absolute_name(const fs::path& path) {
  std::error_code error;
  const fs::path real = fs::weakly_canonical(path, error);
  return (error ? fs::absolute(path).lexically_normal() : real).string();
}

bool is_part_name(const std::string& name) {
  return name.starts_with("part-") && name.find(".jsonl") != std::string::npos;
}

}  // namespace

CleanFiles clean_files(const fs::path& output) {
  if (output.empty() || output == "-") {
    throw ConfigError(
        "data clean: no output; give a file that ends in .jsonl, .jsonl.gz or .jsonl.zst, or a "
        "folder");
  }
  std::string name = output.string();
  while (name.size() > 1 && name.ends_with('/')) name.pop_back();
  CleanFiles files{
      .documents = name, .removed = name + ".removed.jsonl", .report = name + ".report.json"};
  std::string_view stem = name;
  const auto cut = [&stem](std::string_view end) {
    if (!stem.ends_with(end)) return false;
    stem.remove_suffix(end.size());
    return true;
  };
  if (cut(".gz")) {
    files.compression = Compression::gzip;
  } else if (cut(".zst") || cut(".zstd")) {
    files.compression = Compression::zstd;
  }
  const bool is_lines = cut(".jsonl") || cut(".ndjson");
  files.is_folder = !is_lines;
  const std::string extension = fs::path(name).extension().string();
  if (!is_lines && (files.compression != Compression::none || extension == ".json" ||
                    extension == ".txt" || extension == ".tar" || extension == ".parquet")) {
    throw ConfigError(
        fmt::format("{}: documents are written as JSON lines; give a file that ends in .jsonl, "
                    ".jsonl.gz or .jsonl.zst, or a folder",
                    name));
  }
  return files;
}

void check_clean_files(const CleanFiles& files, const std::vector<std::string>& inputs,
                       const std::vector<Shard>& shards, bool replaces) {
  const fs::path parent = files.documents.has_parent_path() ? files.documents.parent_path() : ".";
  std::error_code error;
  if (!fs::is_directory(parent, error)) {
    throw ConfigError(
        fmt::format("{}: the folder {} does not exist; create it, or give another "
                    "--output",
                    files.documents.string(), parent.string()));
  }
  const std::string output = absolute_name(files.documents);
  for (const std::string& input : inputs) {
    if (!fs::is_directory(input, error)) continue;
    const std::string folder = (fs::path(absolute_name(input)) / "").string();
    if ((output + "/").starts_with(folder)) {
      throw ConfigError(
          fmt::format("{}: the output lies in the input folder {}, where it would be read; give "
                      "another --output",
                      files.documents.string(), input));
    }
  }
  for (const Shard& shard : shards) {
    if (shard.path == "-") continue;
    const std::string file = absolute_name(shard.path);
    const bool is_part = files.is_folder && file.starts_with(output + "/");
    if (file == output || file == absolute_name(files.removed) || is_part) {
      throw ConfigError(fmt::format("{}: is read and would be replaced; give another --output",
                                    shard.path.string()));
    }
  }
  const bool is_file = fs::is_regular_file(files.documents, error),
             is_folder = fs::is_directory(files.documents, error);
  if (fs::exists(files.documents, error) && !(files.is_folder ? is_folder : is_file)) {
    throw ConfigError(fmt::format("{}: exists and is not a {}; give another --output",
                                  files.documents.string(),
                                  files.is_folder ? "folder" : "regular file"));
  }
  if (replaces) return;
  for (const fs::path& file : {files.documents, files.removed, files.report}) {
    const bool is_empty_folder = fs::is_directory(file, error) && fs::is_empty(file, error);
    if (!fs::exists(file, error) || is_empty_folder) continue;
    throw ConfigError(fmt::format(
        "{}: already exists; give --overwrite to replace it, or another --output", file.string()));
  }
}

void append_json_line(const SpooledDocument& document, std::string& out) {
  out += document.completion ? "{\"prompt\":" : "{\"text\":";
  append_json_string(document.text, out);
  if (document.completion) {
    out += ",\"completion\":";
    append_json_string(*document.completion, out);
  }
  out += "}\n";
}

std::string place_of(const SpooledDocument& document, const std::vector<Shard>& shards) {
  const fs::path& path = shards.at(document.shard).path;
  return to_text(Origin{.file = path == "-" ? "stdin" : json_name(path),
                        .line = document.line,
                        .member = json_name(document.member),
                        .offset = document.offset});
}

Json place_json(const SpooledDocument& document, const std::vector<Shard>& shards) {
  const fs::path& path = shards.at(document.shard).path;
  Json json{{"file", path == "-" ? "stdin" : json_name(path)}};
  if (document.line > 0) json["line"] = document.line;
  if (!document.member.empty()) json["member"] = json_name(document.member);
  json["offset"] = document.offset;
  return json;
}

DocumentFiles::DocumentFiles(const CleanFiles& files, int64_t part_bytes)
    : files_(files), part_bytes_(part_bytes) {
  if (files_.is_folder) {
    std::error_code error;
    made_folder_ = fs::create_directory(files_.documents, error);
    if (error) {
      throw base::IoError(
          fmt::format("{}: cannot be created: {}", files_.documents.string(), error.message()));
    }
  }
  open_part();
}

DocumentFiles::~DocumentFiles() {
  parts_.clear();
  std::error_code ignored;
  if (made_folder_) fs::remove(files_.documents, ignored);  // fails if it holds files
}

void DocumentFiles::open_part() {
  written_ = 0;
  if (!files_.is_folder) {
    parts_.push_back(std::make_unique<OutputFile>(files_.documents));
    return;
  }
  if (!parts_.empty()) parts_.back()->sync();
  parts_.push_back(std::make_unique<OutputFile>(files_.documents /
                                                fmt::format("part-{:05}.jsonl", parts_.size())));
}

void DocumentFiles::append(std::string_view bytes, int64_t text_bytes) {
  if (files_.is_folder && written_ > 0 && written_ + text_bytes > part_bytes_) open_part();
  written_ += text_bytes;
  parts_.back()->append(std::as_bytes(std::span(bytes)));
}

std::vector<fs::path> DocumentFiles::publish() {
  std::vector<fs::path> written;
  std::set<std::string> names;
  parts_.back()->sync();
  for (const auto& part : parts_) {
    part->rename();
    written.push_back(part->path());
    names.insert(part->path().filename().string());
  }
  if (!files_.is_folder) return written;
  std::vector<fs::path> old;
  for (const auto& entry : fs::directory_iterator(files_.documents)) {
    const std::string name = entry.path().filename().string();
    if (is_part_name(name) && !names.contains(name)) old.push_back(entry.path());
  }
  std::error_code ignored;
  for (const fs::path& path : old) fs::remove(path, ignored);
  return written;
}

}  // namespace trireme::data
