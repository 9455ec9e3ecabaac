// SPDX-License-Identifier: Apache-2.0
// Scores of multiple-choice tasks: log-likelihoods of endings by a model, and the accuracy that
// follows from them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "train/tasks/task_item.h"
#include "train/weights/inference.h"

namespace trireme::train {

// A part of a micro-batch: `count` tokens of one request from position `begin` of the flat stream.
struct PackedRequest {
  size_t request = 0;
  int64_t begin = 0, count = 0;
};
// Packs requests of these many tokens into micro-batches of `sequences` sequences of `seq_len`
// tokens, the longest first; no request crosses the border of a sequence. REQUIRES: every length is
// from 1 to seq_len.
std::vector<std::vector<PackedRequest>> pack_requests(std::span<const int64_t> lengths,
                                                      int64_t sequences, int64_t seq_len);

// Returns the sum of log-probabilities, in nats, of the ending of each request. Of a request with
// more than seq_len tokens before its last one, the first tokens are left out. `progress` receives
// the number of requests done. REQUIRES: the model has a document mask.
std::vector<double> ending_likelihoods(Inference&, std::span<const TaskTokens>,
                                       const std::function<void(int64_t done)>& progress);

// The log-likelihoods of an item's choices, and the choices that follow.
struct ItemScore {
  std::vector<double> likelihoods;  // nats
  size_t by_sum = 0, by_byte = 0;   // the choice with the highest sum, and the highest sum per byte
  bool is_right = false, is_right_by_byte = false;
};
// The first of equal values wins.
ItemScore score_item(const TaskItem&, std::vector<double> likelihoods);

struct TaskScore {
  int64_t items = 0;
  double accuracy = 0, accuracy_by_byte = 0;
  // Standard errors of the means; 0 with fewer than two items.
  double accuracy_error = 0, accuracy_by_byte_error = 0;
  double bits_per_byte = 0;  // of all right endings together
};
TaskScore score_task(std::span<const TaskItem>, std::span<const ItemScore>);

}  // namespace trireme::train
