// SPDX-License-Identifier: Apache-2.0
#include "plan/price/rules.h"

namespace trireme::plan {
namespace {

std::string first_text(const Job& job, const Layout& l, spec::Whose whose) {
  const spec::Settled settled =
      spec::settle(sizes_of(job), workload_of(job), 0, l, whose, rule_names());
  return settled.broken.empty() ? "" : spec::to_text(settled.broken.front());
}

}  // namespace

const spec::LayoutNames& rule_names() {
  static const spec::LayoutNames names = {"tp",
                                          "cp",
                                          "kind",
                                          "slices",
                                          "ulysses",
                                          "pp",
                                          "dp",
                                          "shard",
                                          "ep",
                                          "etp",
                                          "row-budget",
                                          "overflow",
                                          "capacity",
                                          "zero",
                                          "sp",
                                          "placement",
                                          "schedule",
                                          "chunks",
                                          "custom schedule",
                                          "first-layers",
                                          "send-buffers",
                                          "micro-batch",
                                          "accumulate",
                                          "batch",
                                          "seq_len",
                                          "logical-dp",
                                          "reduce",
                                          "recompute",
                                          "precision",
                                          "bf16-first",
                                          "bf16-last",
                                          "bf16-blocks",
                                          "optimizer",
                                          "grads",
                                          "masters",
                                          "sums",
                                          "reshard",
                                          "prefetch",
                                          "head-chunk",
                                          "ffn-rows",
                                          "model"};
  return names;
}

spec::ModelSizes sizes_of(const Job& job) { return spec::sizes_of(job.model); }

std::vector<std::string> broken_rules(const Job& job, const Layout& l,
                                      const spec::LayoutNames& names) {
  std::vector<std::string> texts;
  for (const spec::Broken& broken :
       spec::settle(sizes_of(job), workload_of(job), 0, l, spec::Whose::any, names).broken) {
    texts.push_back(spec::to_text(broken));
  }
  return texts;
}

std::string broken_rule(const Job& job, const Layout& l) {
  return first_text(job, l, spec::Whose::any);
}

std::string missing_in_engine(const Job& job, const Layout& l) {
  return first_text(job, l, spec::Whose::engine);
}

}  // namespace trireme::plan
