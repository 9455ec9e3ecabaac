// SPDX-License-Identifier: Apache-2.0
#include "agent/guardian/kept.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/text/json.h"

namespace trireme::agent {

void Kept::put(const std::string& name, const std::string& text,
               std::vector<base::Descriptor> descriptors) {
  entries_.erase(name);
  entries_.emplace(name, Entry{text, std::move(descriptors)});
}

void Kept::put_copies(const std::string& name, const std::string& text,
                      std::span<const int> descriptors) {
  std::vector<base::Descriptor> copies;
  for (const int descriptor : descriptors) {
    copies.emplace_back(::fcntl(descriptor, F_DUPFD_CLOEXEC, 3));
    if (copies.back().value() >= 0) continue;
    throw base::IoError(
        fmt::format("'{}' cannot be kept: {}", name, std::generic_category().message(errno)));
  }
  put(name, text, std::move(copies));
}

std::string Kept::text() const {
  base::Json all = base::Json::object();
  for (const auto& [name, entry] : entries_) {
    base::Json numbers = base::Json::array();
    for (const base::Descriptor& one : entry.descriptors) numbers.push_back(one.value());
    all[name] = {entry.text, numbers};
  }
  return all.dump(-1, ' ', false, base::Json::error_handler_t::replace);
}

std::vector<int> Kept::descriptors() const {
  std::vector<int> all;
  for (const auto& [name, entry] : entries_) {
    for (const base::Descriptor& one : entry.descriptors) all.push_back(one.value());
  }
  return all;
}

Kept Kept::inherited(const std::string& text) {
  Kept kept;
  try {
    const base::Json all = base::Json::parse(text);
    for (const auto& [name, entry] : all.items()) {
      std::vector<base::Descriptor> descriptors;
      for (const base::Json& number : entry.at(1)) {
        descriptors.emplace_back(number.get<int>());
        if (::fcntl(descriptors.back().value(), F_SETFD, FD_CLOEXEC) == 0) continue;
        throw base::IoError(fmt::format("'{}' was not inherited", name));
      }
      kept.put(name, entry.at(0).get<std::string>(), std::move(descriptors));
    }
  } catch (const base::Json::exception& error) {
    throw base::IoError(fmt::format("what a launcher left: {}", error.what()));
  }
  return kept;
}

}  // namespace trireme::agent
