// SPDX-License-Identifier: Apache-2.0
// DataWatch: checks during a run that the files of its data are still those it started with.
#pragma once

#include <string>

#include "base/text/json_fwd.h"
#include "train/batches/batches.h"

namespace trireme::train {

class DataWatch {
 public:
  // `identity`: DataSets::identity() at the start. Both references must outlive it.
  DataWatch(const DataSets& data, const base::Json& identity) : data_(data), identity_(identity) {}

  // Throws IoError if the content of the data has changed. A file that was only touched, or
  // replaced by an equal one, is accepted.
  void check();

 private:
  const DataSets& data_;
  const base::Json& identity_;
  std::string accepted_change_;  // of files whose content is equal
};

}  // namespace trireme::train
