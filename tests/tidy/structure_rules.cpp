// SPDX-License-Identifier: Apache-2.0
// Rules about folders, files and the arrows between them.
#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "rules.h"

namespace trireme::tidy {

namespace {

std::string folder_of(std::string_view path);
std::optional<size_t> find_folder(const std::vector<Folder>& folders, std::string_view name);
std::string directory_of(std::string_view path);
std::string resolve(const SourceFile& file, const Include& include,
                    const std::set<std::string>& paths);
std::map<std::string, std::vector<std::string>> include_graph(const Files& files);
bool is_unit_test(std::string_view path);
bool mentions(std::string_view cmake, std::string_view file_name);

}  // namespace

std::vector<Folder> parse_floors(std::string_view text, Problems& problems) {
  std::vector<Folder> folders;
  std::istringstream lines{std::string(text)};
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.find_first_not_of(" \t") == std::string::npos || line.front() == '#') continue;
    std::istringstream words(line);
    Folder folder{};
    std::string colon;
    if (!(words >> folder.floor >> folder.name >> colon) || colon != ":") {
      problems.push_back(fmt::format("src/floors.txt:{}: '{}' is not 'floor folder : dependencies'",
                                     number, line));
      continue;
    }
    for (std::string name; words >> name;) folder.may_include.push_back(name);
    if (find_folder(folders, folder.name)) {
      problems.push_back(fmt::format("src/floors.txt:{}: {} is listed twice", number, folder.name));
    }
    folders.push_back(folder);
  }
  return folders;
}

Problems check_floors(const std::vector<Folder>& folders) {
  Problems problems;
  for (size_t i = 0; i < folders.size(); ++i) {
    for (const std::string& name : folders[i].may_include) {
      const auto other = find_folder(folders, name);
      if (!other) {
        problems.push_back(
            fmt::format("src/floors.txt: {} names {}, which is not listed", folders[i].name, name));
      } else if (folders[*other].floor > folders[i].floor ||
                 (folders[*other].floor == folders[i].floor && *other >= i)) {
        problems.push_back(
            fmt::format("src/floors.txt: {} (floor {}) names {} (floor {}), which "
                        "is not below it",
                        folders[i].name, folders[i].floor, name, folders[*other].floor));
      }
    }
  }
  return problems;
}

Problems check_folders_listed(const Files& files, const std::vector<Folder>& folders) {
  std::set<std::string> existing;
  for (const SourceFile& file : files) existing.insert(folder_of(file.path));
  existing.erase("");
  Problems problems;
  for (const Folder& folder : folders) {
    if (existing.erase(folder.name) == 0) {
      problems.push_back(fmt::format("src/floors.txt: {} is listed, but src/{} has no file",
                                     folder.name, folder.name));
    }
  }
  for (const std::string& name : existing) {
    problems.push_back(fmt::format("src/{}: is not listed in src/floors.txt", name));
  }
  return problems;
}

Problems check_readme(std::string_view readme, const std::vector<Folder>& folders) {
  std::vector<std::string> described;
  std::istringstream lines{std::string(readme)};
  for (std::string line; std::getline(lines, line);) {
    const size_t end = line.find("/`**");
    if (line.rfind("**`", 0) == 0 && end != std::string::npos && line.size() > end + 40) {
      described.push_back(line.substr(3, end - 3));
    }
  }
  std::vector<std::string> listed;
  for (const Folder& folder : folders) listed.push_back(folder.name);
  Problems problems;
  for (const std::string& name : listed) {
    if (std::count(described.begin(), described.end(), name) != 1) {
      problems.push_back(
          fmt::format("src/README.md: wants one paragraph that starts with **`{}/`**", name));
    }
  }
  for (const std::string& name : described) {
    if (!find_folder(folders, name)) {
      problems.push_back(
          fmt::format("src/README.md: describes {}, which is not in src/floors.txt", name));
    }
  }
  if (problems.empty() && described != listed) {
    problems.push_back("src/README.md: paragraphs do not stand in the order of src/floors.txt");
  }
  return problems;
}

Problems check_include_arrows(const SourceFile& file, const std::vector<Folder>& folders) {
  Problems problems;
  const auto own = find_folder(folders, folder_of(file.path));
  if (!own || !is_source(file.path)) return problems;  // an unlisted folder is another rule's
  const Folder& folder = folders[*own];
  for (const Include& include : includes_of(file.text)) {
    if (!include.is_quoted) continue;
    const std::string to = folder_of("src/" + include.path);
    if (to.empty() || to == "..") {
      problems.push_back(fmt::format("{}:{}: \"{}\" is not a path from src/", file.path,
                                     include.line, include.path));
    } else if (to != folder.name && std::find(folder.may_include.begin(), folder.may_include.end(),
                                              to) == folder.may_include.end()) {
      problems.push_back(
          fmt::format("{}:{}: includes \"{}\", but {} does not list {} in "
                      "src/floors.txt",
                      file.path, include.line, include.path, folder.name, to));
    }
  }
  return problems;
}

Problems check_arrows_used(const Files& files, const std::vector<Folder>& folders) {
  std::set<std::pair<std::string, std::string>> used;
  for (const SourceFile& file : files) {
    if (!is_source(file.path) || is_unit_test(file.path)) continue;
    for (const Include& include : includes_of(file.text)) {
      if (include.is_quoted) used.emplace(folder_of(file.path), folder_of("src/" + include.path));
    }
  }
  Problems problems;
  for (const Folder& folder : folders) {
    for (const std::string& name : folder.may_include) {
      if (!used.contains({folder.name, name})) {
        problems.push_back(
            fmt::format("src/floors.txt: {} lists {}, but no file of src/{} besides its unit tests "
                        "includes it; remove {}",
                        folder.name, name, folder.name, name));
      }
    }
  }
  return problems;
}

Problems check_includes_exist(const Files& files) {
  std::set<std::string> paths;
  for (const SourceFile& file : files) paths.insert(file.path);
  Problems problems;
  for (const SourceFile& file : files) {
    if (!is_source(file.path)) continue;
    for (const Include& include : includes_of(file.text)) {
      if (include.is_quoted && resolve(file, include, paths).empty()) {
        problems.push_back(
            fmt::format("{}:{}: \"{}\" does not exist", file.path, include.line, include.path));
      }
    }
  }
  return problems;
}

Problems check_include_cycles(const Files& files) {
  const auto graph = include_graph(files);
  Problems problems;
  std::set<std::string> done;
  std::vector<std::string> trail;
  const auto visit = [&](const auto& self, const std::string& path) -> void {
    if (const auto seen = std::find(trail.begin(), trail.end(), path); seen != trail.end()) {
      std::string cycle;
      for (auto step = seen; step != trail.end(); ++step) cycle += *step + " -> ";
      problems.push_back("include cycle: " + cycle + path);
      return;
    }
    if (!done.insert(path).second) return;
    trail.push_back(path);
    for (const std::string& next : graph.at(path)) self(self, next);
    trail.pop_back();
  };
  for (const auto& [path, unused] : graph) visit(visit, path);
  return problems;
}

Problems check_headers_included(const Files& files) {
  std::set<std::string> included;
  for (const auto& [path, targets] : include_graph(files)) {
    for (const std::string& target : targets) {
      if (target != path) included.insert(target);
    }
  }
  Problems problems;
  for (const SourceFile& file : files) {
    if (is_header(file.path) && !included.contains(file.path)) {
      problems.push_back(fmt::format("{}: nothing includes this header", file.path));
    }
  }
  return problems;
}

Problems check_built(const Files& files, const std::vector<Folder>& folders) {
  static const std::set<std::string> unknown_extensions = {".c",  ".cc",  ".cxx", ".c++", ".C",
                                                           ".hh", ".hpp", ".hxx", ".inl"};
  Problems problems;
  for (const SourceFile& file : files) {
    const std::string extension = extension_of(file.path);
    if (unknown_extensions.contains(extension)) {
      problems.push_back(fmt::format("{}: sources end in .cpp, .cu, .h or .cuh", file.path));
    }
    if (extension != ".cpp" && extension != ".cu") continue;
    const auto parts = parts_of(file.path);
    bool built = false;
    if (parts.front() == "src") {
      built = find_folder(folders, folder_of(file.path)).has_value();
    } else {
      for (const SourceFile& cmake : files) {
        const std::string directory = directory_of(cmake.path);
        built = built ||
                (parts_of(cmake.path).back() == "CMakeLists.txt" &&
                 file.path.rfind(directory + "/", 0) == 0 && mentions(cmake.text, parts.back()));
      }
    }
    if (!built) problems.push_back(fmt::format("{}: no target builds this file", file.path));
  }
  return problems;
}

namespace {

// The folder of src/ that a path lies in: "base" for "src/base/cpu/x.h", "" outside of src/ and
// directly in it.
std::string folder_of(std::string_view path) {
  const auto parts = parts_of(path);
  return parts.size() >= 3 && parts[0] == "src" ? parts[1] : "";
}

std::optional<size_t> find_folder(const std::vector<Folder>& folders, std::string_view name) {
  const auto found = std::find_if(folders.begin(), folders.end(),
                                  [&](const Folder& folder) { return folder.name == name; });
  if (found == folders.end()) return std::nullopt;
  return static_cast<size_t>(found - folders.begin());
}

bool is_unit_test(std::string_view path) {
  return path.ends_with("_test.cpp") || path.ends_with("_test.h") ||
         path.find("/tests/") != std::string_view::npos;
}

std::string directory_of(std::string_view path) {
  return std::filesystem::path(path).parent_path().generic_string();
}

// The file that a quoted include means, or "": by path from src/; outside of src/ also beside the
// including file.
std::string resolve(const SourceFile& file, const Include& include,
                    const std::set<std::string>& paths) {
  const std::string from_src = "src/" + include.path;
  if (paths.contains(from_src)) return from_src;
  const std::string beside = directory_of(file.path) + "/" + include.path;
  if (file.path.rfind("src/", 0) == 0) return "";
  // Tests and benchmarks may also include by path from the root, and what lies beside them.
  if (paths.contains(include.path)) return include.path;
  return paths.contains(beside) ? beside : "";
}

std::map<std::string, std::vector<std::string>> include_graph(const Files& files) {
  std::set<std::string> paths;
  for (const SourceFile& file : files) paths.insert(file.path);
  std::map<std::string, std::vector<std::string>> graph;
  for (const SourceFile& file : files) {
    auto& targets = graph[file.path];
    if (!is_source(file.path)) continue;
    for (const Include& include : includes_of(file.text)) {
      const std::string target = include.is_quoted ? resolve(file, include, paths) : "";
      if (!target.empty()) targets.push_back(target);
    }
  }
  return graph;
}

// A CMakeLists.txt names a file "x.cpp", or has a pattern "*_bench.cpp" that fits it.
bool mentions(std::string_view cmake, std::string_view file_name) {
  constexpr std::string_view borders = " \t\r\n()\"/;";
  for (size_t start = 0; start < cmake.size();) {
    const size_t end = std::min(cmake.find_first_of(borders, start), cmake.size());
    const std::string_view word = cmake.substr(start, end - start);
    if (word == file_name) return true;
    if (word.size() > 1 && word.front() == '*' && file_name.ends_with(word.substr(1))) return true;
    start = end + 1;
  }
  return false;
}

}  // namespace

}  // namespace trireme::tidy
