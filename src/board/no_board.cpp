// SPDX-License-Identifier: Apache-2.0
// Replaces the embedded pages in a build without dygraphs.
#include "board/assets.h"

namespace trireme::board {

const std::vector<Asset>& embedded_assets() {
  static const std::vector<Asset> none;
  return none;
}

}  // namespace trireme::board
