// SPDX-License-Identifier: Apache-2.0
// Kept: what a launcher leaves to the process that continues its work: texts and open descriptors,
// by name. A supervisor and its guardian have the same.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/system/descriptor.h"

namespace trireme::agent {

class Kept {
 public:
  struct Entry {
    std::string text;
    std::vector<base::Descriptor> descriptors;  // belong to the entry
  };

  void put(const std::string& name, const std::string& text,
           std::vector<base::Descriptor> descriptors);
  // Copies the descriptors. Throws IoError.
  void put_copies(const std::string& name, const std::string& text,
                  std::span<const int> descriptors);
  void erase(const std::string& name) { entries_.erase(name); }
  const std::map<std::string, Entry>& entries() const { return entries_; }

  // For a process that inherits all descriptors() under their numbers, and reads text().
  std::string text() const;
  std::vector<int> descriptors() const;
  // What another process's text() tells of the descriptors that this one has inherited; they are
  // closed on exec from now on. Throws IoError.
  static Kept inherited(const std::string& text);

 private:
  std::map<std::string, Entry> entries_;
};

}  // namespace trireme::agent
