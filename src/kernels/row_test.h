// SPDX-License-Identifier: Apache-2.0
// The harness of the kernel tests. A case makes its operands (the same from the same seed), sends
// one row to a stream, and is run several times: on the reference table, on the cpu table, with
// other numbers of threads. Then the operands of two runs are compared.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "device/cpu/cpu_device.h"
#include "kernels/args.h"
#include "kernels/step_state.h"
#include "kernels/table.h"

namespace trireme::kernels {

using base::DType;
using base::Shape;

// How a tensor of a test is made, and how near to the reference it must be:
//   |x - reference| <= 1e-6 (4 + sqrt(terms)) max(largest |reference| of the tensor, floor),
// and 2^-7 |reference| more for bf16. An fp32 rounding is 2^-24 = 6e-8 of what is summed, and the
// errors of `terms` additions grow like a random walk; the factor of 16 is margin. Two fp32 values
// that near may round to neighbouring bf16 numbers, which differ by at most 2^-7 of the value.
struct Make {
  DType dtype = DType::f32;
  int64_t gap = 0;     // elements between rows; they hold NaN and must stay as they are
  float size = 1;      // standard deviation of random elements
  int64_t terms = 1;   // of the longest sum behind one element
  double floor = 0;    // size of the terms, where they may cancel in all elements at once
  bool exact = false;  // must have the reference's bits
};

class Operands {
 public:
  explicit Operands(uint64_t seed);

  // Must not be changed by the row. Random, or as the function (row, column) says.
  Tensor input(const Shape& shape, const Make& make = {});
  Tensor input(const Shape& shape, const Make& make,
               const std::function<double(int64_t, int64_t)>& value);
  Tensor integers(const std::vector<int32_t>& values);
  // Holds NaN when the row starts.
  Tensor result(const Shape& shape, const Make& make = {});
  // Random, read and written.
  Tensor updated(const Shape& shape, const Make& make = {});
  // NaN, never compared.
  Tensor scratch(const Shape& shape, DType dtype);
  Tensor sums(const StepSums& value = {});
  Tensor state(const StepState& value);

  // Lets the reference fill what the row under test takes as given (statistics of the forward).
  void prepare(const std::function<void(Stream&)>& rows);

  // Every comparison adds test failures. Inputs, gaps and the margins around tensors are untouched.
  void expect_intact() const;
  void expect_near(const Operands& reference) const;
  void expect_same_bits(const Operands& other) const;

 private:
  enum class Role : uint8_t { input, output, scratch };
  struct Entry {
    Role role;
    Make make;
    bool holds_sums = false;
    Tensor tensor = {};
    std::vector<std::byte> bytes = {};
    std::vector<std::byte> before = {};
  };

  Entry& add(Role role, const Shape& shape, const Make& make);
  void fill_normal(Entry& entry);

  base::RngKey key_;
  uint64_t drawn_ = 0;
  std::deque<Entry> entries_;  // a deque, so that entries stay where they are
};

struct Machine {
  explicit Machine(const Kernels& kernels, const device::CpuDevice::Options& options = {});

  device::CpuDevice device;
  std::unique_ptr<Stream> stream;
};

// Elements, in order and without gaps, of an f32, bf16 or f64 tensor that no stream is using.
std::vector<double> values_of(const ConstTensor& tensor);

struct Case {
  std::string name;
  std::function<void(Operands&, Stream&)> run;
};

// Runs each case on the reference and on the cpu table and compares.
void expect_cpu_agrees(const std::vector<Case>& cases);
// Runs each case on the cpu table with 1, 2, 3 and 4 threads, inline and on worker streams.
void expect_bits_do_not_depend_on_threads(const std::vector<Case>& cases);
// Runs `body` on the reference and on the cpu table; streams are inline.
void for_each_table(const std::function<void(Stream&)>& body);

// A contiguous f64 tensor, for finite differences of reference rows in double precision. These are
// called through the table, since the fronts admit no f64.
struct Reals {
  explicit Reals(const Shape& shape, uint64_t seed = 0);  // normal; zero without a seed
  Reals(const Reals&) = delete;
  Reals& operator=(const Reals&) = delete;

  std::vector<double> values;
  Tensor tensor;
};

// sum of weights * values: a scalar loss whose gradient with respect to `values` is `weights`.
double inner(const Reals& weights, const Reals& values);

// Central differences of loss() with respect to every element of x, against dx. With step 1e-5 the
// error is about 1e-10 of truncation and as much of cancellation; 1e-6 is demanded.
void expect_gradient(const std::string& what, Reals& x, const Reals& dx,
                     const std::function<double()>& loss);

}  // namespace trireme::kernels
