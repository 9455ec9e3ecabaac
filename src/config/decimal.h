// SPDX-License-Identifier: Apache-2.0
// float to double by way of the shortest decimal, so that 1e-5F is written as 1e-05 and not as
// 9.999999747378752e-06. Rounded back to float it is the same number.
#pragma once

namespace trireme::config {

double decimal(float value);

}  // namespace trireme::config
