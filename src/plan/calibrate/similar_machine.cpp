// SPDX-License-Identifier: Apache-2.0
#include "plan/calibrate/similar_machine.h"

#include <fmt/format.h>

#include <string>

namespace trireme::plan {

void take_unmeasured(const spec::Machine& like, spec::Machine& m) {
  m.domain = like.domain;
  m.network = like.network;
  m.residuals.collective = like.residuals.collective;
  const spec::Processor& from = like.processor;
  spec::Processor& to = m.processor;
  to.fp8_flops = from.fp8_flops;
  to.fp4_flops = from.fp4_flops;
  to.fp8_reach = from.fp8_reach;
  to.fp4_reach = from.fp4_reach;
  to.fp8_fast = from.fp8_fast;
  to.fp8_split = from.fp8_split;
  to.fp8_block = from.fp8_block;
  to.fp8_rows = from.fp8_rows;
  to.host_bytes_per_second = from.host_bytes_per_second;
  to.reserved_bytes = from.reserved_bytes;
  to.flash2_factor = from.flash2_factor;
  const std::string whole = fmt::format("{} (of {})", like.source, like.name);
  for (const char* key : {"processor.fp8_tflops",
                          "processor.fp4_tflops",
                          "processor.fp8_reach",
                          "processor.fp4_reach",
                          "processor.fp8_fast",
                          "processor.fp8_split",
                          "processor.fp8_block",
                          "processor.fp8_rows",
                          "processor.host_gigabytes_per_second",
                          "processor.reserved_gigabytes",
                          "processor.flash2_factor",
                          "domain.size",
                          "domain.link_gigabytes_per_second",
                          "domain.latency_microseconds",
                          "domain.reach",
                          "domain.in_switch_reduction",
                          "network.link_gigabytes_per_second",
                          "network.latency_microseconds",
                          "network.reach",
                          "network.oversubscription",
                          "network.nodes_below_switch",
                          "network.in_network_reduction",
                          "residuals.collective"}) {
    const auto own = like.sources.find(key);
    if (own != like.sources.end()) {
      m.sources[key] = fmt::format("{} (of {})", own->second, like.name);
    } else if (!like.source.empty()) {
      m.sources[key] = whole;
    }
  }
}

}  // namespace trireme::plan
