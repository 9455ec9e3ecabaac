// SPDX-License-Identifier: Apache-2.0
// StopText: text that ends before the first stop string. Text that could be the beginning of a stop
// string is held back until it is known, so stop strings are found across the borders of tokens.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trireme::train {

class StopText {
 public:
  // REQUIRES: no stop string is empty.
  explicit StopText(std::vector<std::string> stops);

  // Returns the text that is certain to come before any stop string. If several stop strings are
  // found, the one that is complete first counts. REQUIRES: not is_stopped().
  std::string push(std::string_view text);
  // Returns the text that was held back. No push() afterwards.
  std::string finish();
  bool is_stopped() const { return is_stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool is_stopped_ = false;
};

}  // namespace trireme::train
