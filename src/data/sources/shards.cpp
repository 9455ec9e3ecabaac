// SPDX-License-Identifier: Apache-2.0
#include "data/sources/shards.h"

#include <fmt/core.h>
#include <glob.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <optional>
#include <set>

#include "base/error.h"
#include "data/readers/mds.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;
using base::ConfigError;
using base::IoError;

constexpr std::array<std::string_view, 6> kind_names = {"auto", "text", "jsonl",
                                                        "tar",  "mds",  "tokens"};
constexpr int max_list_depth = 8;

// Returns the kind of a file by its name, or nothing.
std::optional<SourceKind> kind_by_name(const fs::path& path) {
  std::string name = path.filename().string();
  bool is_compressed = false;
  for (const std::string_view end : {".gz", ".zst", ".zstd"}) {
    if (is_compressed || !name.ends_with(end)) continue;
    name.resize(name.size() - end.size());
    is_compressed = true;
  }
  if (name.ends_with(".txt")) return SourceKind::text;
  if (name.ends_with(".jsonl") || name.ends_with(".ndjson") ||
      (is_compressed && name.ends_with(".json"))) {
    return SourceKind::json_lines;
  }
  if (name.ends_with(".tar") || name.ends_with(".tgz")) return SourceKind::tar;
  if (!is_compressed && (name.ends_with(".bin") || name.ends_with(".idx"))) {
    return SourceKind::tokens;
  }
  return std::nullopt;
}

// Throws ConfigError if the name shows a compression that another program must undo.
void check_compression(const fs::path& path, SourceKind given) {
  struct Program {
    std::string_view name;
    std::vector<std::string_view> endings, tar_endings;
  };
  const std::array<Program, 2> programs = {
      {{"xz", {".xz", ".lzma"}, {".txz"}}, {"bzip2", {".bz2"}, {".tbz", ".tbz2"}}}};
  const auto is_one_of = [&](const std::vector<std::string_view>& endings) {
    return std::ranges::find(endings, path.extension().string()) != endings.end();
  };
  for (const Program& program : programs) {
    const bool is_tar = is_one_of(program.tar_endings);
    if (!is_tar && !is_one_of(program.endings)) continue;
    const SourceKind kind = given != SourceKind::automatic ? given
                            : is_tar                       ? SourceKind::tar
                                     : kind_by_name(path.stem()).value_or(SourceKind::json_lines);
    throw ConfigError(fmt::format(
        "{}: is compressed by {}; gzip and zstd are read. Decompress it, or read it through a "
        "pipe: `{} -dc {} | trireme data build - --kind {} ...`",
        path.string(), program.name, program.name, path.string(), name_of(kind)));
  }
}

class Finder {
 public:
  explicit Finder(const ShardOptions& options) : options_(options) {}

  void add_input(const std::string& input, size_t source, int depth) {
    source_ = source;
    if (input.empty()) throw ConfigError("an input is empty; give a file, a folder or a pattern");
    std::error_code ignored;
    if (input == "-") {
      add_stdin();
    } else if (input.front() == '@') {
      add_list(input.substr(1), source, depth);
    } else if (fs::exists(input, ignored)) {
      add_path(input);
    } else if (input.find_first_of("*?[{") != std::string::npos) {
      add_pattern(input);
    } else if (fs::exists(input + ".idx", ignored) || fs::exists(input + ".bin", ignored)) {
      add_file(input + ".bin", SourceKind::tokens);  // the prefix of a data set
    } else {
      throw IoError(fmt::format("{}: cannot be read: No such file or directory", input));
    }
  }

  std::vector<Shard> take() { return std::move(shards_); }

 private:
  void add_stdin() {
    if (options_.kind != SourceKind::text && options_.kind != SourceKind::json_lines &&
        options_.kind != SourceKind::tar) {
      throw ConfigError(fmt::format(
          "stdin has no name that shows its kind, and the kind given is {}; allowed: text, jsonl, "
          "tar (--kind)",
          name_of(options_.kind)));
    }
    add_once({.path = "-", .kind = options_.kind, .source = source_, .stored_bytes = -1});
  }

  void add_list(const fs::path& list, size_t source, int depth) {
    if (depth >= max_list_depth) {
      throw ConfigError(fmt::format("{}: lists name lists more than {} levels deep", list.string(),
                                    max_list_depth));
    }
    std::ifstream file(list);
    if (!file) throw IoError(fmt::format("{}: cannot be read", list.string()));
    int64_t number = 0;
    for (std::string line; std::getline(file, line);) {
      ++number;
      if (line.ends_with('\r')) line.pop_back();
      if (line.empty() || line.front() == '#') continue;
      const bool is_list = line.front() == '@';
      const fs::path path(is_list ? line.substr(1) : line);
      const std::string absolute = (path.is_absolute() ? path : list.parent_path() / path).string();
      try {
        if (line == "-") throw ConfigError("stdin cannot be an entry of a list");
        add_input(is_list ? "@" + absolute : absolute, source, depth + 1);
      } catch (const IoError& error) {
        throw IoError(fmt::format("{}:{}: {}", list.string(), number, error.what()));
      } catch (const ConfigError& error) {
        throw ConfigError(fmt::format("{}:{}: {}", list.string(), number, error.what()));
      }
    }
    if (file.bad()) throw IoError(fmt::format("{}: cannot be read", list.string()));
  }

  void add_path(const fs::path& path) {
    std::error_code ignored;
    if (fs::is_directory(path, ignored)) return add_folder(path, true);
    if (path.filename() == "index.json" && may_be(SourceKind::mds)) {
      return add_mds(path.parent_path());
    }
    check_compression(path, options_.kind);
    const auto kind =
        options_.kind == SourceKind::automatic ? kind_by_name(path) : std::optional(options_.kind);
    if (!kind || *kind == SourceKind::mds) {
      throw ConfigError(
          kind ? fmt::format("{}: an MDS data set is named by its folder or its index.json",
                             path.string())
               : fmt::format("{}: the name does not show the kind of the file; known: .txt, "
                             ".jsonl, .ndjson, .tar, .bin, .idx, with .gz or .zst; otherwise give "
                             "the kind (--kind): text, jsonl, tar, mds, tokens{}",
                             path.string(),
                             path.extension() == ".parquet"
                                 ? "; docs/data.md has commands that print Parquet as JSON lines"
                                 : ""));
    }
    add_file(path, *kind);
  }

  void add_folder(const fs::path& folder, bool is_named) {
    std::error_code error;
    if (may_be(SourceKind::mds) && fs::exists(folder / "index.json", error)) {
      return add_mds(folder);
    }
    std::vector<fs::path> entries;
    for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
      if (!it->path().filename().string().starts_with('.')) entries.push_back(it->path());
    }
    if (error) {
      throw IoError(fmt::format("{}: cannot be read: {}", folder.string(), error.message()));
    }
    std::sort(entries.begin(), entries.end());
    const size_t before = shards_.size();
    for (const fs::path& entry : entries) {
      if (fs::is_directory(entry, error)) {
        // A link to a folder could lead back to one that contains it.
        if (!fs::is_symlink(entry, error)) add_folder(entry, false);
      } else if (const auto kind = kind_by_name(entry);
                 options_.kind != SourceKind::automatic || kind) {
        if (options_.kind != SourceKind::mds) add_file(entry, kind_or_given(kind));
      }
    }
    if (is_named && shards_.size() == before) {
      throw IoError(
          fmt::format("{}: no file of {} in this folder", folder.string(),
                      options_.kind == SourceKind::automatic
                          ? "a known name (.txt, .jsonl, .ndjson, .tar, .bin, with .gz or .zst)"
                          : fmt::format("the kind {}", name_of(options_.kind))));
    }
  }

  void add_pattern(const std::string& pattern) {
    glob_t found{};
    const int code = ::glob(pattern.c_str(), GLOB_BRACE, nullptr, &found);
    std::vector<std::string> paths(found.gl_pathv, found.gl_pathv + found.gl_pathc);
    ::globfree(&found);
    if (code == GLOB_NOMATCH || paths.empty()) {
      throw IoError(fmt::format("{}: no file matches the pattern", pattern));
    }
    if (code != 0) throw IoError(fmt::format("{}: the pattern cannot be resolved", pattern));
    std::sort(paths.begin(), paths.end());
    for (const std::string& path : paths) add_path(path);
  }

  void add_mds(const fs::path& folder) {
    for (MdsShard& mds : read_mds_index(folder)) {
      Shard shard{.path = mds.file, .kind = SourceKind::mds, .source = source_};
      shard.stored_bytes = mds.stored_bytes;
      shard.mds = std::make_shared<const MdsShard>(std::move(mds));
      add_once(std::move(shard));
    }
  }

  void add_file(fs::path path, SourceKind kind) {
    if (kind == SourceKind::tokens && path.extension() == ".idx") path.replace_extension(".bin");
    std::error_code error;
    const auto bytes = fs::file_size(path, error);
    if (error) {
      throw IoError(fmt::format("{}: cannot be read: {}", path.string(), error.message()));
    }
    const Shard shard{
        .path = path, .kind = kind, .source = source_, .stored_bytes = static_cast<int64_t>(bytes)};
    // Both files of a pair may have been named.
    if (kind == SourceKind::tokens && !shards_.empty() && shards_.back().path == path) return;
    add_once(shard);
  }

  // A shard that two inputs name would be read twice, which is rarely intended.
  void add_once(Shard shard) {
    if (!seen_.insert(shard.path.lexically_normal().string()).second) {
      throw ConfigError(
          fmt::format("{}: is named twice by the inputs; name every file once (weights of sources "
                      "belong to the mixture)",
                      shard.path.string()));
    }
    shards_.push_back(std::move(shard));
  }

  bool may_be(SourceKind kind) const {
    return options_.kind == SourceKind::automatic || options_.kind == kind;
  }
  SourceKind kind_or_given(std::optional<SourceKind> kind) const {
    return options_.kind == SourceKind::automatic ? *kind : options_.kind;
  }

  const ShardOptions& options_;
  size_t source_ = 0;
  std::vector<Shard> shards_;
  std::set<std::string> seen_;
};

}  // namespace

std::string_view name_of(SourceKind kind) { return kind_names[static_cast<size_t>(kind)]; }

SourceKind source_kind_from_name(std::string_view name) {
  for (size_t i = 0; i < kind_names.size(); ++i) {
    if (kind_names[i] == name) return static_cast<SourceKind>(i);
  }
  throw ConfigError(fmt::format(
      "'{}' is not a kind of source; allowed: auto, text, jsonl, tar, mds, tokens", name));
}

std::optional<fs::path> index_beside(const Shard& shard) {
  fs::path index = shard.path;
  index.replace_extension(".idx");
  std::error_code ignored;
  if (shard.kind != SourceKind::tokens || !fs::exists(index, ignored)) return std::nullopt;
  return index;
}

std::vector<Shard> find_shards(const std::vector<std::string>& inputs,
                               const ShardOptions& options) {
  if (inputs.empty()) {
    throw ConfigError("no input; give files, folders, patterns, @list.txt or - for stdin");
  }
  Finder finder(options);
  for (size_t source = 0; source < inputs.size(); ++source) {
    finder.add_input(inputs[source], source, 0);
  }
  return finder.take();
}

}  // namespace trireme::data
