// SPDX-License-Identifier: Apache-2.0
// The harness of the kernel tests. A case makes its operands (the same from the same seed), queues
// one op on a stream, and is run several times: on the reference table, on the cpu table, with
// other numbers of threads, on a GPU. Then the operands of two runs are compared.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/rng.h"
#include "device/cpu/cpu_device.h"
#include "device/memory.h"
#include "kernels/args.h"
#include "kernels/step_state.h"
#include "kernels/table.h"

namespace trireme::kernels {

using base::DType;
using base::Shape;

// How a tensor of a test is made, and how close to the reference it must be:
//   |x - reference| <= 1e-6 (4 + sqrt(terms)) max(largest finite |reference| of the tensor, floor),
// (on a GPU the first factor is at least 1e-5, 1e-2 for bf16, and 2e-3 for f16: see
// expect_cuda_agrees), and 2^-7 |reference| more for bf16, 2^-10 |reference| + 2^-24 for f16. An
// fp32 rounding is 2^-24 = 6e-8 of what is summed, and the errors of `terms` additions grow like a
// random walk; the factor of 16 is margin. Two fp32 values that close may round to neighbouring
// bf16 (f16) numbers, which differ by at most that.
struct Make {
  DType dtype = DType::f32;
  int64_t gap = 0;     // elements between rows; they hold NaN and must not change
  float size = 1;      // standard deviation of random elements
  int64_t terms = 1;   // of the longest sum behind one element
  double floor = 0;    // size of the terms, if they may cancel in all elements at once
  bool exact = false;  // must have the reference's bits
  // f32 computed from 16 bits: tensor cores round what lies between, so a GPU has the bound of
  // bf16.
  bool from_half = false;
};

// Memory of operands, which the host and the kernels of one device can access. It is taken piece by
// piece and reused after the last user has left.
class OperandMemory {
 public:
  // Memory is requested from the device in chunks of `chunk_bytes`, which are then kept, since
  // page-locking is slow. With 0 every piece is a separate allocation, so that sanitizers see its
  // ends.
  OperandMemory(device::Device& device, int64_t chunk_bytes)
      : device_(device), chunk_bytes_(chunk_bytes) {}

  std::byte* take(int64_t bytes);  // at a multiple of 64
  void enter() { ++users_; }
  void leave();

 private:
  device::Device& device_;
  int64_t chunk_bytes_;
  std::vector<device::HostBuffer> chunks_;
  size_t chunk_ = 0;   // from which pieces are taken
  int64_t taken_ = 0;  // bytes of that chunk in use
  int users_ = 0;
};

// A device and a stream on it.
struct Machine {
  explicit Machine(const Kernels& kernels, const device::CpuDevice::Options& options = {});
  Machine(std::unique_ptr<device::Device> any, int64_t workspace_bytes);
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  std::unique_ptr<device::Device> owned_device;
  device::Device& device;
  OperandMemory memory;
  device::Buffer workspace;  // of the stream; holds NaN at first
  std::unique_ptr<Stream> stream;
};

// The first GPU with the cuda table. REQUIRES: gpu_status() has no problem.
Machine gpu_machine();

class Operands {
 public:
  explicit Operands(uint64_t seed);  // in plain memory
  // For an op that runs on this machine, which must outlive the operands.
  Operands(uint64_t seed, Machine& machine);
  ~Operands();
  Operands(const Operands&) = delete;
  Operands& operator=(const Operands&) = delete;

  // Must not be changed by the op. Random, or the values of the function of (row, column).
  Tensor input(const Shape& shape, const Make& make = {});
  Tensor input(const Shape& shape, const Make& make,
               const std::function<double(int64_t, int64_t)>& value);
  Tensor integers(const std::vector<int32_t>& values);
  // Holds NaN when the op starts.
  Tensor result(const Shape& shape, const Make& make = {});
  // Random, or the values of the function of (row, column); read and written.
  Tensor updated(const Shape& shape, const Make& make = {});
  Tensor updated(const Shape& shape, const Make& make,
                 const std::function<double(int64_t, int64_t)>& value);
  // NaN, never compared.
  Tensor scratch(const Shape& shape, DType dtype);
  Tensor sums(const StepSums& value = {});
  // With a tolerance of 0 it must be the reference's sum exactly.
  Tensor squares(const WideSum& value = {}, double relative_tolerance = 0);
  Tensor state(const StepState& value);
  // Zeros at first. Integers must be the reference's; signal and noise differ by the order of their
  // sums.
  Tensor counts();

  // Lets the reference compute inputs of the op under test (statistics of the forward).
  void prepare(const std::function<void(Stream&)>& queue_ops);

  // Each of these adds test failures. expect_intact(): inputs, gaps and the margins around tensors
  // are unchanged.
  void expect_intact() const;
  // `min_factors`: lower limits of the first factor of the bound (see Make).
  struct Factors {
    double f32 = 0, bf16 = 0, f16 = 0;
  };
  void expect_near(const Operands& reference, const Factors& min_factors) const;
  void expect_same_bits(const Operands& other) const;

 private:
  enum class Role : uint8_t { input, output, scratch };
  struct Entry {
    Role role;
    Make make;
    bool holds_sums = false, holds_squares = false, holds_counts = false;
    double tolerance = 0;  // of squares
    Tensor tensor = {};
    std::span<std::byte> bytes = {};  // of the tensor with a margin at each end
    std::vector<std::byte> before = {};
  };

  Entry& add(Role role, const Shape& shape, const Make& make);
  void fill_normal(Entry& entry);
  void remember(Entry& entry);  // the bytes before the op runs

  std::unique_ptr<Machine> plain_;  // whose memory is used if none is given
  OperandMemory& memory_;
  base::RngKey key_;
  uint64_t generated_ = 0;
  std::deque<Entry> entries_;  // a deque, so that references to entries stay valid
};

// Elements, in order and without gaps, of an f32, bf16, f16 or f64 tensor that no stream is using.
std::vector<double> values_of(const ConstTensor& tensor);

// Calls body(first, last) for parts of the range [0, count), in several threads if there is much to
// do: `work` is about the number of operations of one element.
void over_threads(int64_t count, int64_t work, const std::function<void(int64_t, int64_t)>& body);

// Returns the first i < count for which is_right(i) is false, or count.
template <typename IsRight>
size_t first_wrong(size_t count, const IsRight& is_right) {
  std::atomic<size_t> found = count;
  over_threads(static_cast<int64_t>(count), 1, [&](int64_t first, int64_t last) {
    for (auto i = static_cast<size_t>(first); i < static_cast<size_t>(last); ++i) {
      if (is_right(i)) continue;
      for (size_t old = found; i < old && !found.compare_exchange_weak(old, i);) {
      }
      return;
    }
  });
  return found;
}

struct Case {
  std::string name;
  std::function<void(Operands&, Stream&)> run;
};

// The operands of cases after they ran on the reference table: case i with the seed first_seed + i.
// References are slow, so several threads compute those of the next cases.
class References {
 public:
  References(const std::vector<Case>& cases, uint64_t first_seed);
  // REQUIRES: called with 0, 1, 2 ... The result is valid until the next call.
  const Operands& of(size_t i);

 private:
  const std::vector<Case>& cases_;
  const uint64_t first_seed_;
  size_t first_ = 0;  // of the block that is computed
  std::vector<std::unique_ptr<Operands>> block_;
};

// Runs each case on the reference and on the cpu table and compares.
void expect_cpu_agrees(const std::vector<Case>& cases);
// Runs each case on the reference and twice on the cuda table. The two runs must have the same bits
// and be close to the reference: 1e-5 of the largest element, 1e-2 for bf16 and 2e-3 for f16, whose
// products a library may round on the way. Skips the test with the reason if there is no GPU.
void expect_cuda_agrees(const std::vector<Case>& cases);
// Runs each case on the cpu table with 1, 2, 3 and 4 threads, inline and on worker streams.
void expect_bits_do_not_depend_on_threads(const std::vector<Case>& cases);
// Runs `body` on the reference and on the cpu table; streams are inline.
void for_each_table(const std::function<void(Stream&)>& body);
// Runs `body` on the reference, on the cpu table and, if there is a GPU, on the cuda table. The
// body waits for the stream before it reads results.
void for_each_machine(const std::function<void(Machine&)>& body);

// A contiguous f64 tensor, for finite differences of reference ops in double precision. These are
// called through the table, since ops.h does not admit f64.
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
// error is about 1e-10 of truncation and as much of cancellation; 1e-6 is required.
void expect_gradient(const std::string& what, Reals& x, const Reals& dx,
                     const std::function<double()>& loss);

}  // namespace trireme::kernels
