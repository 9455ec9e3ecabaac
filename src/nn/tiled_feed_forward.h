// SPDX-License-Identifier: Apache-2.0
// The second part of a transformer block, computed for a tile of rows at a time (Layout::ffn_rows).
// The inner tensors of the feed-forward exist for one tile, in scratch: no slot is kept. The
// backward recomputes a tile from x2 and adds its weight gradients before the next tile begins, in
// the order of the rows, so that W has nothing left to compute.
#pragma once

#include "nn/block_part.h"

namespace trireme::nn {

class TiledFeedForward final : public BlockPart {
 public:
  using BlockPart::BlockPart;

  void forward(Pass&) const;
  // Also computes all weight gradients.
  void backward(Pass&) const;

 private:
  // Inner tensors of a tile, in scratch. Under sequence parallelism those from `whole` on have the
  // rows of all ranks.
  struct Tile {
    Tensor h2, stats;  // [n, D], [n, stats]
    Tensor whole;      // [N, D]: h2 of all ranks
    Tensor up, act;    // [N, U], [N, F]
  };
  Tile make_tile(Pass&, Tensor x2) const;
  void backward_tile(Pass&, int64_t begin, int64_t rows) const;
  // Computes dup in place of the tile's up, and its act.
  void backward_activation(Pass&, const Tile&, Tensor dy) const;
};

}  // namespace trireme::nn
