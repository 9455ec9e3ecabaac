// SPDX-License-Identifier: Apache-2.0
#include "train/batches/data_watch.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/text/json.h"

namespace trireme::train {

void DataWatch::check() {
  const std::string change = data_.changed();
  if (change.empty() || change == accepted_change_) return;
  if (data_.contents() != contents_) {
    throw base::IoError(fmt::format(
        "{}: steps since the last checkpoint may have used other data; checkpoints hold none of "
        "them. Put the data back and resume (--resume auto), or continue with the new data "
        "(--resume auto --allow-data-change)",
        change));
  }
  accepted_change_ = change;
}

}  // namespace trireme::train
