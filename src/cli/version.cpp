// SPDX-License-Identifier: Apache-2.0
// trireme version: version, commit and back ends of this program.
#include <fmt/format.h>

#include "base/text/json.h"
#include "cli/shell/build_info.h"
#include "cli/verbs.h"
#include "device/gpu/architectures.h"

namespace trireme::cli {
namespace {

int run_version(const Args& args) {
  if (args.wants_json()) {
    base::Json out = to_json(build_info());
    out["ok"] = true;
    fmt::print("{}\n", out.dump());
  } else {
    fmt::print("{}", to_text(build_info()));
  }
  return 0;
}

}  // namespace

std::string to_text(const BuildInfo& info) {
  const auto yes_or_no = [](bool is_there) { return is_there ? "yes" : "no"; };
  return fmt::format(
      "trireme {} (commit {})\n"
      "build      {}, {}, {}\n"
      "back ends  cpu: yes; cuda: {}; gloo: {}; nccl: {}\n",
      info.version, info.commit, info.build_type.empty() ? "no build type" : info.build_type,
      info.compiler, info.system,
      info.cuda_architectures.empty() ? "no" : device::architectures_text(info.cuda_architectures),
      yes_or_no(info.has_gloo), yes_or_no(info.has_nccl));
}

base::Json to_json(const BuildInfo& info) {
  return {{"version", info.version},
          {"commit", info.commit},
          {"date", info.date},
          {"build_type", info.build_type},
          {"compiler", info.compiler},
          {"system", info.system},
          {"cuda_architectures", info.cuda_architectures},
          {"gloo", info.has_gloo},
          {"nccl", info.has_nccl}};
}

Verb version_verb() {
  return {.name = "version",
          .summary = "Print version, commit and back ends of this program",
          .details =
              "`trireme --version` and `trireme -V` print the same text.\n\n"
              "Examples:\n  trireme version\n  trireme version --json",
          .run = run_version};
}

}  // namespace trireme::cli
