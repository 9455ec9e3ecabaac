// SPDX-License-Identifier: Apache-2.0
// Converts float to double via the shortest decimal, so that 1e-5F is written as 1e-05 and not as
// 9.999999747378752e-06. Rounding the result to float returns the original.
#pragma once

namespace trireme::config {

double decimal(float value);

}  // namespace trireme::config
