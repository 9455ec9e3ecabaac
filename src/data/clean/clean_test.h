// SPDX-License-Identifier: Apache-2.0
// Documents for tests of cleaning: random words, and variants of a text.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/text/json.h"
#include "data/clean/clean.h"
#include "data/files_test.h"

namespace trireme::data {

// Random numbers in sequence.
class TestRandom {
 public:
  explicit TestRandom(uint64_t seed) : key_(base::rng_key(seed, "clean_test")) {}
  uint64_t below(uint64_t bound) { return base::rng_below(key_, at_++, bound); }
  std::string word() { return fmt::format("w{}", below(20000)); }
  std::vector<std::string> words(size_t count) {
    std::vector<std::string> all(count);
    for (std::string& one : all) one = word();
    return all;
  }

 private:
  base::RngKey key_;
  uint64_t at_ = 0;
};

inline std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

inline std::string json_line(const std::string& text) {
  return base::Json{{"text", text}}.dump() + "\n";
}

// Plain definitions, to compare with: words as a stream reads them, shingles as strings.
inline std::set<std::string> plain_shingles(const std::string& text, size_t size) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  std::set<std::string> shingles;
  for (size_t i = 0; i + size <= words.size(); ++i) {
    shingles.insert(joined({words.begin() + static_cast<std::ptrdiff_t>(i),
                            words.begin() + static_cast<std::ptrdiff_t>(i + size)}));
  }
  if (shingles.empty() && !words.empty()) shingles.insert(joined(words));
  return shingles;
}

inline double plain_jaccard(const std::set<std::string>& a, const std::set<std::string>& b) {
  size_t shared = 0;
  for (const std::string& one : a) shared += b.count(one);
  return static_cast<double>(shared) / static_cast<double>(a.size() + b.size() - shared);
}

class CleanFilesTest : public FilesTest {
 protected:
  std::vector<base::Json> lines(const std::string& name) const {
    std::vector<base::Json> all;
    std::istringstream in(read(name));
    for (std::string line; std::getline(in, line);) all.push_back(base::Json::parse(line));
    return all;
  }
  std::vector<std::string> texts(const std::string& name) const {
    std::vector<std::string> all;
    for (const base::Json& line : lines(name)) all.push_back(line.at("text").get<std::string>());
    return all;
  }
};

}  // namespace trireme::data
