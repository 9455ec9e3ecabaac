// SPDX-License-Identifier: Apache-2.0
// The keys of a machine file, bound to a machine whose numbers are in the units of the file.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "config/schema.h"
#include "spec/machine.h"

namespace trireme::config {

constexpr int64_t machine_format = 2;

// A machine in the units of its file: tera, giga and micro as the names of keys say.
class MachineKeys {
 public:
  // `machine` has units of bytes, operations and seconds; they are changed to those of the file.
  explicit MachineKeys(const spec::Machine& machine);
  // The keys point into it.
  MachineKeys(const MachineKeys&) = delete;
  MachineKeys& operator=(const MachineKeys&) = delete;

  // Back in bytes, operations and seconds; sources without those that are empty.
  spec::Machine machine() const;
  // All, in the order of the file; those of section "sources" last, one for each key that has one.
  const std::vector<Key>& keys() const { return keys_; }
  int64_t format() const { return format_; }

 private:
  spec::Machine machine_;
  int64_t format_ = machine_format;
  std::vector<Key> keys_;
};

}  // namespace trireme::config
