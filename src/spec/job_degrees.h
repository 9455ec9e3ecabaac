// SPDX-License-Identifier: Apache-2.0
// The degrees of a JobLayout: which a model can take, and how they multiply to the ranks that there
// are. Part of check_layout().
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "spec/job_layout.h"

namespace trireme::spec {

// "a, b or c".
std::string joined(const std::vector<std::string>& parts, std::string_view last);

// What the model allows of tp and pp. A model that is not known allows all.
class DegreeRules {
 public:
  DegreeRules(const ModelDims&, const JobLayout& asked);

  bool tp_is_legal(int64_t tp) const;
  bool pp_is_legal(int64_t pp) const;
  // Sizes that tp must divide, by name.
  const std::vector<std::pair<std::string, int64_t>>& tp_cuts() const { return tp_cuts_; }
  bool is_tied() const { return is_tied_; }   // head and embedding share a table
  int64_t vocab() const { return vocab_; }    // 0: not known
  int64_t layers() const { return layers_; }  // with embedding and head; 0: not known
  // Stages of a rank. An own schedule has as many for each of its ranks; an unknown name, 1.
  int64_t chunks() const { return chunks_; }

 private:
  std::vector<std::pair<std::string, int64_t>> tp_cuts_;
  bool is_tied_ = false;
  int64_t vocab_ = 0, layers_ = 0, chunks_ = 1;
  int64_t own_ranks_ = 0;  // of an own schedule
};

// Fills in the degree that is left open in `check.layout`. False: what is left of the world is not
// known.
bool solve_degrees(const DegreeRules&, const JobLayout& asked, const LayoutNames&,
                   LayoutCheck& check);

}  // namespace trireme::spec
