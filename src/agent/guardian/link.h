// SPDX-License-Identifier: Apache-2.0
// Link: messages between a supervisor and its guardian, two processes of one host, with open
// descriptors. Either may end at any time; what was sent before is still received.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/system/descriptor.h"

namespace trireme::agent {

struct LinkMessage {
  enum class Kind : uint8_t { put, erase, beat, done };
  Kind kind = Kind::beat;
  std::string name, text;
  std::vector<base::Descriptor> descriptors;
};

class Link {
 public:
  // Returns the two ends. Throws IoError.
  static std::pair<base::Descriptor, base::Descriptor> make();
  explicit Link(base::Descriptor end) : end_(std::move(end)) {}

  int descriptor() const { return end_.value(); }
  // Does not wait. Returns false if the other end is closed, or does not read.
  bool send(LinkMessage::Kind kind, const std::string& name = "", const std::string& text = "",
            std::span<const int> descriptors = {});
  // Does not wait. None: there is no message now, or is_closed().
  std::optional<LinkMessage> receive();
  bool is_closed() const { return is_closed_; }

 private:
  const base::Descriptor end_;
  bool is_closed_ = false;
};

}  // namespace trireme::agent
