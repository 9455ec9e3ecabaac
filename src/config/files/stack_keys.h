// SPDX-License-Identifier: Apache-2.0
// The keys of a stack file, bound to a stack whose numbers are in the units of the file.
#pragma once

#include <string>
#include <vector>

#include "config/schema.h"
#include "spec/stack.h"

namespace trireme::config {

constexpr int64_t stack_format = 1;

class StackKeys {
 public:
  explicit StackKeys(const spec::Stack& stack);
  // The keys point into it.
  StackKeys(const StackKeys&) = delete;
  StackKeys& operator=(const StackKeys&) = delete;

  // Returns the stack in seconds and bytes, without empty sources.
  // REQUIRES: every key has a value that its rule allows.
  spec::Stack stack() const;
  // Returns all keys in the order of the file; section "sources" is last, with one key for each key
  // that has a source.
  const std::vector<Key>& keys() const { return keys_; }

 private:
  spec::Stack stack_;
  int64_t format_ = stack_format;
  std::string selective_;  // the name of stack_.selective
  std::vector<Key> keys_;
};

}  // namespace trireme::config
