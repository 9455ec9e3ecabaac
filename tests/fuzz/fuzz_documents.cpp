// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>

#include "base/check.h"
#include "base/error.h"
#include "base/text/json.h"
#include "data/readers/json_fields.h"
#include "data/readers/mds.h"
#include "data/sources/document_source.h"
#include "memory_file.h"
#include "readers.h"

namespace trireme::fuzz {
namespace {

// Reads all documents of one shard. Returns true if it is not damaged and no document was rejected.
bool reads_documents(const data::Shard& shard, const data::DocumentOptions& options) {
  try {
    data::DocumentSource source({shard}, options);
    bool is_good = true;
    int64_t line = 0;
    for (data::Document document; source.next(document);) {
      is_good = is_good && !document.rejected;
      TRIREME_CHECK(document.rejected || !document.text.empty(), "an empty document");
      TRIREME_CHECK(document.origin.line == 0 || document.origin.line > line, "line {} after {}",
                    document.origin.line, line);
      line = document.origin.line;
    }
    TRIREME_CHECK(source.ends().size() == 1, "{} shards ended", source.ends().size());
    return is_good;
  } catch (const base::Error&) {
    return false;  // refused
  }
}

// A folder with the shard s.mds, whose bytes are in memory.
class MdsFolder {
 public:
  MdsFolder()
      : path_(std::filesystem::temp_directory_path() /
              ("trireme_fuzz_mds_" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(path_);
    std::filesystem::create_symlink(shard_.path(), path_ / "s.mds");
  }
  ~MdsFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  MdsFolder(const MdsFolder&) = delete;
  MdsFolder& operator=(const MdsFolder&) = delete;

  const MemoryFile& shard() const { return shard_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  MemoryFile shard_;
  std::filesystem::path path_;
};

}  // namespace

// Text lines, plain or compressed.
bool read_lines(Input input) {
  static const MemoryFile file;
  file.fill(input);
  return reads_documents({.path = file.path(), .kind = data::SourceKind::text},
                         {.split_lines = true, .max_document_bytes = 1 << 16});
}

// One line of JSON: accepted exactly if a parser accepts it, and with the same string.
bool read_json_line(Input input) {
  const std::string line(reinterpret_cast<const char*>(input.data()), input.size());
  data::JsonFields fields({data::field_path("text")});
  const auto rejection = fields.read(line);
  const base::Json parsed = base::Json::parse(line, nullptr, false);
  // The parser takes a NUL behind the value for the end of the text; no line of JSON contains one.
  const bool has_nul = line.find('\0') != std::string::npos;
  const bool is_syntax_error = rejection && rejection->reason != data::RejectReason::wrong_field;
  if (is_syntax_error) {
    const bool is_deep = rejection->detail.find("nested deeper") != std::string::npos;
    TRIREME_CHECK(!parsed.is_object() || is_deep || has_nul, "a parser accepts: {}",
                  rejection->detail);
  } else if (has_nul) {
    TRIREME_CHECK(rejection.has_value(), "accepted in spite of a NUL");
  } else if (!parsed.is_object()) {
    // The only lines that the parser alone refuses have numbers above the range of a double.
    bool is_out_of_range = false;
    std::string accepted;
    try {
      accepted = base::Json::parse(line).dump();
    } catch (const base::Json::out_of_range&) {
      is_out_of_range = true;
    }
    TRIREME_CHECK(is_out_of_range, "parsed in one way only: {}", accepted);
  } else if (!rejection) {
    TRIREME_CHECK(parsed.at("text").get<std::string>() == fields.value(0), "another string");
  }
  return !rejection;
}

bool read_tar(Input input) {
  static const MemoryFile file;
  file.fill(input);
  return reads_documents({.path = file.path(), .kind = data::SourceKind::tar},
                         {.max_document_bytes = 1 << 16});
}

// index.json, a NUL, and the bytes of the shard s.mds.
bool read_mds(Input input) {
  static const MdsFolder folder;
  const std::string text(reinterpret_cast<const char*>(input.data()), input.size());
  const size_t nul = std::min(text.find('\0'), text.size());
  folder.shard().fill(input.subspan(std::min(nul + 1, input.size())));
  try {
    bool is_good = true;
    for (const data::MdsShard& mds : data::parse_mds_index(text.substr(0, nul), folder.path())) {
      const data::Shard shard{.path = mds.file,
                              .kind = data::SourceKind::mds,
                              .mds = std::make_shared<const data::MdsShard>(mds)};
      is_good = reads_documents(shard, {.max_document_bytes = 1 << 16}) && is_good;
    }
    return is_good;
  } catch (const base::Error&) {
    return false;  // refused
  }
}

}  // namespace trireme::fuzz
