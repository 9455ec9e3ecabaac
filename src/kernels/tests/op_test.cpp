// SPDX-License-Identifier: Apache-2.0
#include "kernels/tests/op_test.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>
#include <type_traits>

#include "base/check.h"
#include "base/float16.h"
#include "base/float8.h"
#include "device/accelerator.h"
#include "kernels/wide_sum.h"
#include "spec/facts/backend.h"

namespace trireme::kernels {
namespace {

constexpr int64_t margin_bytes = 64;  // keeps the alignment of pieces
constexpr int64_t gpu_chunk_bytes = 64 << 20;
constexpr std::byte poison{0xff};  // bytes of a NaN in every real type

template <typename T>
T& at(const Tensor& tensor, int64_t index) {
  return reinterpret_cast<T*>(tensor.data)[index];
}

void store(const Tensor& tensor, int64_t index, double value) {
  switch (tensor.dtype) {
    case DType::f32:
      at<float>(tensor, index) = static_cast<float>(value);
      break;
    case DType::bf16:
      at<base::Bf16>(tensor, index) = base::Bf16(static_cast<float>(value));
      break;
    case DType::f8e4m3:
      at<base::E4m3>(tensor, index) = base::E4m3(static_cast<float>(value));
      break;
    case DType::f8e5m2:
      at<base::E5m2>(tensor, index) = base::E5m2(static_cast<float>(value));
      break;
    case DType::f16:
      at<base::F16>(tensor, index) = base::F16(static_cast<float>(value));
      break;
    default:
      TRIREME_CHECK(false, "no random values of type {}", base::name_of(tensor.dtype));
  }
}

void expect_squares_near(WideSum found, WideSum reference, double tolerance) {
  normalise(found);
  normalise(reference);
  if (tolerance > 0) {
    EXPECT_EQ(found.not_finite, reference.not_finite);
    found.not_finite = reference.not_finite = 0;
    const double expected = to_double(reference);
    EXPECT_NEAR(to_double(found), expected, tolerance * expected);
    return;
  }
  EXPECT_EQ(std::memcmp(&found, &reference, sizeof(WideSum)), 0)
      << to_double(found) << " instead of " << to_double(reference);
}

// Sums of two runs: integers must be equal, the loss is a sum of logarithms computed in fp32.
void expect_sums_near(const StepSums& found, const StepSums& reference) {
  EXPECT_NEAR(found.loss, reference.loss, 1e-5 * std::max(1.0, std::abs(reference.loss)));
  EXPECT_EQ(found.tokens, reference.tokens);
  expect_squares_near(found.squares, reference.squares, 0);
}

void expect_counts_near(const QuantizeCounts& found, const QuantizeCounts& reference) {
  EXPECT_EQ(found.amax_bits, reference.amax_bits);
  EXPECT_EQ(found.values, reference.values);
  EXPECT_EQ(found.flushed, reference.flushed);
  EXPECT_EQ(found.saturated, reference.saturated);
  // Each term is computed as the reference does; a sum of n terms in fp64 loses n 2^-53.
  const auto expect_sum = [](const char* name, double sum, double expected) {
    if (!std::isfinite(expected)) {
      EXPECT_FALSE(std::isfinite(sum)) << name;
    } else {
      EXPECT_NEAR(sum, expected, 1e-10 * expected) << name;
    }
  };
  expect_sum("signal", found.signal, reference.signal);
  expect_sum("noise", found.noise, reference.noise);
}

void expect_elements_near(const Make& make, const Operands::Factors& least, const Tensor& found,
                          const Tensor& expected) {
  const std::vector<double> x = values_of(found), reference = values_of(expected);
  double scale = make.floor;
  for (const double value : reference) {
    if (std::isfinite(value)) scale = std::max(scale, std::abs(value));
  }
  const bool is_f16 = make.dtype == DType::f16;
  const double relative = make.dtype == DType::bf16 ? 0x1p-7 : is_f16 ? 0x1p-10 : 0;
  const double factor = 1e-6 * (4 + std::sqrt(static_cast<double>(make.terms)));
  const bool is_rounded = make.dtype == DType::bf16 || make.from_half;
  const double min_factor = is_f16 ? least.f16 : is_rounded ? least.bf16 : least.f32;
  const double absolute = std::max(factor, min_factor) * scale + (is_f16 ? 0x1p-24 : 0);
  int wrong = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (x[i] == reference[i]) continue;  // also an infinity of the same sign
    if (std::abs(x[i] - reference[i]) <= absolute + relative * std::abs(reference[i])) continue;
    if (++wrong == 1) {
      ADD_FAILURE() << "element " << i << " of " << found.shape.to_string() << " is " << x[i]
                    << ", the reference has " << reference[i] << ", allowed is " << absolute
                    << " and " << relative << " of the value";
    }
  }
  EXPECT_EQ(wrong, 0) << "elements of " << x.size();
}

}  // namespace

std::byte* OperandMemory::take(int64_t bytes) {
  const int64_t rounded = base::round_up(bytes, margin_bytes);
  while (chunk_ < chunks_.size() && taken_ + rounded > chunks_[chunk_].bytes()) {
    ++chunk_;
    taken_ = 0;
  }
  if (chunk_ == chunks_.size()) {
    chunks_.push_back(device_.make_host_buffer(device::Mem::scratch,
                                               std::max(rounded, chunk_bytes_), "operands"));
    taken_ = 0;
  }
  std::byte* piece = chunks_[chunk_].data() + taken_;
  TRIREME_CHECK(reinterpret_cast<uintptr_t>(piece) % margin_bytes == 0,
                "host memory at {} is not aligned", reinterpret_cast<uintptr_t>(piece));
  taken_ += rounded;
  return piece;
}

void OperandMemory::leave() {
  if (--users_ > 0) return;
  chunk_ = 0;
  taken_ = 0;
  if (chunk_bytes_ == 0) chunks_.clear();
}

Machine::Machine(const Kernels& kernels, const device::CpuDevice::Options& options)
    : Machine(std::make_unique<device::CpuDevice>(kernels, options), 0) {}

Machine::Machine(std::unique_ptr<device::Device> any, int64_t workspace_bytes)
    : owned_device(std::move(any)),
      device(*owned_device),
      memory(device, workspace_bytes > 0 ? gpu_chunk_bytes : 0),
      workspace(device, device::Mem::scratch, workspace_bytes, "workspace of a test"),
      stream(device.make_stream("test")) {
  if (workspace_bytes == 0) return;
  stream->set_workspace(device::view_of(workspace.data(), {{workspace_bytes}, DType::u8}));
  const std::vector<std::byte> dirt(static_cast<size_t>(workspace_bytes), poison);
  stream->upload(stream->workspace(), dirt);
  stream->synchronize();
}

Machine gpu_machine() {
  return Machine(device::make_gpu(cuda_kernels(), {}),
                 spec::cuda_backend(true).stream_workspace_bytes);
}

Operands::Operands(uint64_t seed)
    : plain_(std::make_unique<Machine>(reference_kernels())),
      memory_(plain_->memory),
      key_(base::rng_key(seed, "operands")) {
  memory_.enter();
}

Operands::Operands(uint64_t seed, Machine& machine)
    : memory_(machine.memory), key_(base::rng_key(seed, "operands")) {
  memory_.enter();
}

Operands::~Operands() { memory_.leave(); }

Operands::Entry& Operands::add(Role role, const Shape& shape, const Make& make) {
  Entry& entry = entries_.emplace_back(Entry{.role = role, .make = make});
  const int64_t stride = shape.row_elements() + make.gap;
  const int64_t bytes = shape[0] * stride * base::size_of(make.dtype) + 2 * margin_bytes;
  entry.bytes = {memory_.take(bytes), static_cast<size_t>(bytes)};
  std::ranges::fill(entry.bytes, poison);
  entry.tensor = {entry.bytes.data() + margin_bytes, shape, stride, make.dtype};
  remember(entry);
  return entry;
}

void Operands::remember(Entry& entry) {
  entry.before.assign(entry.bytes.begin(), entry.bytes.end());
}

void Operands::fill_normal(Entry& entry) {
  const Tensor& t = entry.tensor;
  over_threads(t.rows(), 50 * t.cols(), [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) {
      uint64_t number = generated_ + static_cast<uint64_t>(r * t.cols());
      for (int64_t c = 0; c < t.cols(); ++c) {
        const float value = base::rng_normal(key_, number++, entry.make.size);
        store(t, r * t.row_stride + c, static_cast<double>(value));
      }
    }
  });
  generated_ += static_cast<uint64_t>(t.rows() * t.cols());
  remember(entry);
}

Tensor Operands::input(const Shape& shape, const Make& make) {
  Entry& entry = add(Role::input, shape, make);
  fill_normal(entry);
  return entry.tensor;
}

Tensor Operands::input(const Shape& shape, const Make& make,
                       const std::function<double(int64_t, int64_t)>& value) {
  Entry& entry = add(Role::input, shape, make);
  const Tensor& t = entry.tensor;
  for (int64_t r = 0; r < t.rows(); ++r) {
    for (int64_t c = 0; c < t.cols(); ++c) store(t, r * t.row_stride + c, value(r, c));
  }
  remember(entry);
  return t;
}

Tensor Operands::integers(const std::vector<int32_t>& values) {
  const Shape shape = {static_cast<int64_t>(values.size())};
  Entry& entry = add(Role::input, shape, {.dtype = DType::i32});
  if (!values.empty()) {
    std::memcpy(entry.tensor.data, values.data(), values.size() * sizeof(int32_t));
  }
  remember(entry);
  return entry.tensor;
}

Tensor Operands::result(const Shape& shape, const Make& make) {
  return add(Role::output, shape, make).tensor;
}

Tensor Operands::updated(const Shape& shape, const Make& make) {
  Entry& entry = add(Role::output, shape, make);
  fill_normal(entry);
  return entry.tensor;
}

Tensor Operands::updated(const Shape& shape, const Make& make,
                         const std::function<double(int64_t, int64_t)>& value) {
  const Tensor t = input(shape, make, value);
  entries_.back().role = Role::output;
  return t;
}

Tensor Operands::scratch(const Shape& shape, DType dtype) {
  return add(Role::scratch, shape, {.dtype = dtype}).tensor;
}

Tensor Operands::sums(const StepSums& value) {
  Entry& entry = add(Role::output, {static_cast<int64_t>(sizeof value)}, {.dtype = DType::u8});
  entry.holds_sums = true;
  std::memcpy(entry.tensor.data, &value, sizeof value);
  return entry.tensor;
}

Tensor Operands::squares(const WideSum& value, double relative_tolerance) {
  Entry& entry = add(Role::output, {static_cast<int64_t>(sizeof value)}, {.dtype = DType::u8});
  entry.holds_squares = true;
  entry.tolerance = relative_tolerance;
  std::memcpy(entry.tensor.data, &value, sizeof value);
  return entry.tensor;
}

Tensor Operands::state(const StepState& value) {
  const Make make = {.dtype = DType::u8, .exact = true};
  Entry& entry = add(Role::output, {static_cast<int64_t>(sizeof value)}, make);
  std::memcpy(entry.tensor.data, &value, sizeof value);
  return entry.tensor;
}

Tensor Operands::counts() {
  Entry& entry =
      add(Role::output, {static_cast<int64_t>(sizeof(QuantizeCounts))}, {.dtype = DType::u8});
  entry.holds_counts = true;
  at<QuantizeCounts>(entry.tensor, 0) = {};
  return entry.tensor;
}

void Operands::prepare(const std::function<void(Stream&)>& queue_ops) {
  Machine machine(reference_kernels());
  queue_ops(*machine.stream);
  for (Entry& entry : entries_) remember(entry);
}

void Operands::expect_intact() const {
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    std::vector<std::byte> now(entry.bytes.begin(), entry.bytes.end());
    if (entry.role !=
        Role::input) {  // restores the elements, so that only gaps and margins are compared
      const int64_t size = base::size_of(entry.tensor.dtype);
      for (int64_t r = 0; r < entry.tensor.rows(); ++r) {
        const auto first = static_cast<size_t>(margin_bytes + r * entry.tensor.row_stride * size);
        const auto count = static_cast<size_t>(entry.tensor.cols() * size);
        std::copy_n(entry.before.begin() + static_cast<ptrdiff_t>(first), count,
                    now.begin() + static_cast<ptrdiff_t>(first));
      }
    }
    EXPECT_TRUE(now == entry.before)
        << "operand " << i << " " << entry.tensor.shape.to_string()
        << (entry.role == Role::input ? " is an input and was changed" : " was written outside");
  }
}

void Operands::expect_near(const Operands& reference, const Factors& min_factors) const {
  ASSERT_EQ(entries_.size(), reference.entries_.size());
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry &found = entries_[i], &expected = reference.entries_[i];
    if (found.role != Role::output) continue;
    SCOPED_TRACE("operand " + std::to_string(i));
    if (found.holds_sums) {
      expect_sums_near(at<StepSums>(found.tensor, 0), at<StepSums>(expected.tensor, 0));
    } else if (found.holds_squares) {
      expect_squares_near(at<WideSum>(found.tensor, 0), at<WideSum>(expected.tensor, 0),
                          found.tolerance);
    } else if (found.holds_counts) {
      expect_counts_near(at<QuantizeCounts>(found.tensor, 0),
                         at<QuantizeCounts>(expected.tensor, 0));
    } else if (found.make.exact) {
      EXPECT_TRUE(std::ranges::equal(found.bytes, expected.bytes))
          << "bits differ from the reference";
    } else {
      expect_elements_near(found.make, min_factors, found.tensor, expected.tensor);
    }
  }
}

void Operands::expect_same_bits(const Operands& other) const {
  ASSERT_EQ(entries_.size(), other.entries_.size());
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].role != Role::output) continue;
    if (entries_[i].holds_counts) {
      expect_counts_near(at<QuantizeCounts>(entries_[i].tensor, 0),
                         at<QuantizeCounts>(other.entries_[i].tensor, 0));
      continue;
    }
    EXPECT_TRUE(std::ranges::equal(entries_[i].bytes, other.entries_[i].bytes))
        << "operand " << i << " " << entries_[i].tensor.shape.to_string();
  }
}

namespace {

template <typename T>
void read_rows(const ConstTensor& tensor, std::vector<double>& values) {
  const auto* data = reinterpret_cast<const T*>(tensor.data);
  over_threads(tensor.rows(), tensor.cols(), [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) {
      for (int64_t c = 0; c < tensor.cols(); ++c) {
        const T value = data[r * tensor.row_stride + c];
        double& to = values[static_cast<size_t>(r * tensor.cols() + c)];
        if constexpr (std::is_same_v<T, double>) {
          to = value;
        } else {
          to = static_cast<double>(static_cast<float>(value));
        }
      }
    }
  });
}

}  // namespace

std::vector<double> values_of(const ConstTensor& tensor) {
  std::vector<double> values(static_cast<size_t>(tensor.rows() * tensor.cols()));
  switch (tensor.dtype) {
    case DType::f32:
      read_rows<float>(tensor, values);
      break;
    case DType::bf16:
      read_rows<base::Bf16>(tensor, values);
      break;
    case DType::f16:
      read_rows<base::F16>(tensor, values);
      break;
    case DType::f64:
      read_rows<double>(tensor, values);
      break;
    default:
      TRIREME_CHECK(false, "{} cannot be read as numbers", base::name_of(tensor.dtype));
  }
  return values;
}

void over_threads(int64_t count, int64_t work, const std::function<void(int64_t, int64_t)>& body) {
  constexpr int64_t work_of_thread = 1 << 20;  // starting a thread costs as much as some 10,000
  const int64_t cores = std::max<int64_t>(1, std::thread::hardware_concurrency());
  const int64_t parts = std::clamp<int64_t>(count * work / work_of_thread, 1, cores);
  std::vector<std::jthread> threads;
  for (int64_t part = 1; part < parts; ++part) {
    threads.emplace_back([&, part] { body(count * part / parts, count * (part + 1) / parts); });
  }
  body(0, count / parts);
}

References::References(const std::vector<Case>& cases, uint64_t first_seed)
    : cases_(cases), first_seed_(first_seed) {}

const Operands& References::of(size_t i) {
  if (i >= first_ + block_.size()) {
    first_ = i;
    const size_t cores = std::max(1U, std::thread::hardware_concurrency());
    block_.clear();
    block_.resize(std::min(cores, cases_.size() - i));
    std::vector<std::jthread> threads;
    for (size_t k = 0; k < block_.size(); ++k) {
      block_[k] = std::make_unique<Operands>(first_seed_ + i + k);
      threads.emplace_back([this, i, k] {
        const Machine reference(reference_kernels());
        cases_[i + k].run(*block_[k], *reference.stream);
      });
    }
  }
  TRIREME_CHECK(i >= first_, "reference {} after those from {} on", i, first_);
  return *block_[i - first_];
}

void expect_cpu_agrees(const std::vector<Case>& cases) {
  Machine reference(reference_kernels()), cpu(cpu_kernels(), {.threads = 2});
  uint64_t seed = 1;
  for (const Case& test : cases) {
    SCOPED_TRACE(test.name + ", seed " + std::to_string(seed));
    Operands expected(seed), found(seed);
    test.run(expected, *reference.stream);
    test.run(found, *cpu.stream);
    cpu.stream->synchronize();
    expected.expect_intact();
    found.expect_intact();
    found.expect_near(expected, {});
    ++seed;
    if (testing::Test::HasFailure()) return;  // the first failing case is enough
  }
}

void expect_cuda_agrees(const std::vector<Case>& cases) {
  const std::string problem = device::gpu_status().problem;
  if (!problem.empty()) GTEST_SKIP() << problem;
  // Several failing cases help more than one; many do not.
  constexpr int enough_failures = 20;
  const auto* result = testing::UnitTest::GetInstance()->current_test_info()->result();
  Machine cuda = gpu_machine();
  References references(cases, 1);
  for (size_t i = 0; i < cases.size(); ++i) {
    const Case& test = cases[i];
    const uint64_t seed = 1 + i;
    SCOPED_TRACE(test.name + ", seed " + std::to_string(seed));
    const Operands& expected = references.of(i);
    Operands found(seed, cuda), again(seed, cuda);
    test.run(found, *cuda.stream);
    test.run(again, *cuda.stream);
    cuda.stream->synchronize();
    expected.expect_intact();
    found.expect_intact();
    found.expect_near(expected, {.f32 = 1e-5, .bf16 = 1e-2, .f16 = 2e-3});
    again.expect_same_bits(found);
    if (result->total_part_count() > enough_failures) return;
  }
}

void expect_bits_do_not_depend_on_threads(const std::vector<Case>& cases) {
  using device::StreamMode;
  Machine one(cpu_kernels());
  std::vector<std::unique_ptr<Machine>> others;  // with 1, 2, 3 and 4 threads
  for (const int threads : {1, 2, 3, 4}) {
    const auto mode = threads == 2 ? StreamMode::inline_calls : StreamMode::worker_threads;
    others.push_back(std::make_unique<Machine>(
        cpu_kernels(), device::CpuDevice::Options{.threads = threads, .streams = mode}));
  }
  uint64_t seed = 1;
  for (const Case& test : cases) {
    Operands expected(seed);
    test.run(expected, *one.stream);
    for (size_t i = 0; i < others.size(); ++i) {
      SCOPED_TRACE(test.name + ", threads " + std::to_string(i + 1));
      Operands found(seed);
      test.run(found, *others[i]->stream);
      others[i]->stream->synchronize();
      found.expect_same_bits(expected);
    }
    ++seed;
    if (testing::Test::HasFailure()) return;
  }
}

void for_each_table(const std::function<void(Stream&)>& body) {
  {
    SCOPED_TRACE("reference table");
    body(*Machine(reference_kernels()).stream);
  }
  SCOPED_TRACE("cpu table");
  body(*Machine(cpu_kernels(), {.threads = 2}).stream);
}

void for_each_machine(const std::function<void(Machine&)>& body) {
  {
    SCOPED_TRACE("reference table");
    Machine machine(reference_kernels());
    body(machine);
  }
  {
    SCOPED_TRACE("cpu table");
    Machine machine(cpu_kernels(), {.threads = 2});
    body(machine);
  }
  if (!device::gpu_status().problem.empty()) return;
  SCOPED_TRACE("cuda table");
  Machine machine = gpu_machine();
  body(machine);
}

Reals::Reals(const Shape& shape, uint64_t seed)
    : values(static_cast<size_t>(shape.elements())),
      tensor{reinterpret_cast<std::byte*>(values.data()), shape, shape.row_elements(), DType::f64} {
  if (seed == 0) return;
  const base::RngKey key = base::rng_key(seed, "reals");
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<double>(base::rng_normal(key, i, 1));
  }
}

double inner(const Reals& weights, const Reals& values) {
  TRIREME_CHECK(weights.values.size() == values.values.size(), "{} weights of {} values",
                weights.values.size(), values.values.size());
  double sum = 0;
  for (size_t i = 0; i < values.values.size(); ++i) sum += weights.values[i] * values.values[i];
  return sum;
}

void expect_gradient(const std::string& what, Reals& x, const Reals& dx,
                     const std::function<double()>& loss) {
  ASSERT_EQ(x.values.size(), dx.values.size());
  constexpr double step = 1e-5;
  for (size_t i = 0; i < x.values.size(); ++i) {
    const double original = x.values[i];
    x.values[i] = original + step;
    const double above = loss();
    x.values[i] = original - step;
    const double below = loss();
    x.values[i] = original;
    const double numeric = (above - below) / (2 * step);
    EXPECT_NEAR(dx.values[i], numeric, 1e-6 * (1 + std::abs(numeric))) << what << " element " << i;
  }
}

}  // namespace trireme::kernels
