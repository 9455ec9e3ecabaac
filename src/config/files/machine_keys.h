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

// A machine in the units of its file, which are part of the key names: tera, giga and micro.
class MachineKeys {
 public:
  // `machine` is in bytes, operations and seconds; the constructor converts to the units of the
  // file.
  explicit MachineKeys(const spec::Machine& machine);
  // The keys point into it.
  MachineKeys(const MachineKeys&) = delete;
  MachineKeys& operator=(const MachineKeys&) = delete;

  // Returns the machine in bytes, operations and seconds, without empty sources.
  spec::Machine machine() const;
  // Returns all keys in the order of the file; section "sources" is last, with one key for each key
  // that has a source.
  const std::vector<Key>& keys() const { return keys_; }
  int64_t format() const { return format_; }

 private:
  spec::Machine machine_;
  int64_t format_ = machine_format;
  std::vector<Key> keys_;
};

}  // namespace trireme::config
