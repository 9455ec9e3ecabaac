// SPDX-License-Identifier: Apache-2.0
// Takes the place of utf8proc/ in a build without utf8proc.
#include "base/error.h"
#include "text/normal_forms.h"

namespace trireme::text {

void require_normal_forms() {
  throw base::ConfigError(
      "the normal forms of Unicode need utf8proc, and this build is without it: install "
      "libutf8proc-dev and configure again");
}

std::string_view normalize(NormalForm /*form*/, std::string_view /*text*/,
                           std::string& /*storage*/) {
  require_normal_forms();
  return {};
}

}  // namespace trireme::text
