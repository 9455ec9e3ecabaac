// SPDX-License-Identifier: Apache-2.0
// A small file in memory, to be written beside weights or into a checkpoint.
#pragma once

#include <string>

namespace trireme::ckpt {

struct NamedBytes {
  std::string name, bytes;
};

}  // namespace trireme::ckpt
