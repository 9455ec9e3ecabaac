// SPDX-License-Identifier: Apache-2.0
// Reads the keys of a JSON object and refuses keys that were not read, so that a file of another
// version is not misread silently.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/dtype.h"
#include "base/error.h"
#include "base/text/json.h"

namespace trireme::spec {

class JsonReader {
 public:
  // Throws ConfigError that begins with `path`, as all functions below do.
  JsonReader(const base::Json& object, std::string path) : object_(object), path_(std::move(path)) {
    if (!object.is_object()) throw base::ConfigError(path_ + ": must be an object");
  }

  bool has(const char* key) const { return object_.contains(key); }
  const base::Json& at(const char* key) {
    seen_.insert(key);
    const auto found = object_.find(key);
    if (found == object_.end()) throw base::ConfigError(path_ + ": no key '" + key + "'");
    return *found;
  }
  template <typename T>
  T get(const char* key) {
    const base::Json& value = at(key);
    try {
      return value.get<T>();
    } catch (const base::Json::exception&) {
      throw base::ConfigError(path_ + ": " + key + " = " + value.dump() + " has the wrong type");
    }
  }
  JsonReader object(const char* key) { return {at(key), path_ + "." + key}; }
  base::DType dtype(const char* key) { return base::dtype_from_name(get<std::string>(key)); }
  // Returns the value that `from_name` finds for a name; `allowed` lists the names.
  template <typename FromName>
  auto named(const char* key, FromName from_name, const std::string& allowed) {
    const std::string name = get<std::string>(key);
    const auto value = from_name(name);
    if (!value) {
      throw base::ConfigError(path_ + ": " + key + " = '" + name + "': allowed are " + allowed);
    }
    return *value;
  }
  // Accepts an optional key that may have one value only; throws if it has another.
  void ignore(const char* key, const base::Json& only) {
    if (!has(key) || at(key) == only) return;
    throw base::ConfigError(path_ + ": " + key + " = " + at(key).dump() +
                            ": this version supports " + only.dump() + " only");
  }
  // Throws for a key that was not read.
  void finish() const {
    for (const auto& [key, value] : object_.items()) {
      if (!seen_.contains(key)) throw base::ConfigError(path_ + ": unknown key '" + key + "'");
    }
  }

 private:
  const base::Json& object_;
  std::string path_;
  std::set<std::string> seen_;
};

// "once, each": the names of all values of an enum that has `count`.
template <typename Enum>
std::string all_names(std::string_view between = ", ") {
  std::string names;
  for (size_t i = 0; i < static_cast<size_t>(Enum::count); ++i) {
    names += i == 0 ? "" : between;
    names += name_of(static_cast<Enum>(i));
  }
  return names;
}

}  // namespace trireme::spec
