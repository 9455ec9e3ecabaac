// SPDX-License-Identifier: Apache-2.0
// DataWatch: checks during a run that the files of its data are still those it started with.
#pragma once

#include <string>

#include "base/text/json_fwd.h"
#include "train/batches/data_sets.h"

namespace trireme::train {

class DataWatch {
 public:
  // `contents`: DataSets::contents() at the start. Both references must outlive it.
  DataWatch(const DataSets& data, const base::Json& contents) : data_(data), contents_(contents) {}

  // Throws IoError if the content of the data has changed. A file that was only touched, or
  // replaced by an equal one, is accepted. A rank calls it before it begins to save: the save of a
  // rank that throws here is never committed, because a commit needs all ranks.
  void check();

 private:
  const DataSets& data_;
  const base::Json& contents_;
  std::string accepted_change_;  // of files whose content is equal
};

}  // namespace trireme::train
