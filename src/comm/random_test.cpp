// SPDX-License-Identifier: Apache-2.0
// Random sequences of collectives on random groups against a plain computation of the contents of
// every rank. Each sequence runs without waiting between calls, so in worker mode several are in
// flight.
#include "comm/world/rank_test.h"

namespace trireme::comm {
namespace {

class Dice {
 public:
  explicit Dice(uint64_t seed) : key_(base::rng_key(seed, "sequences")) {}
  int64_t roll(int64_t first, int64_t last) {
    return first + static_cast<int64_t>(
                       base::rng_below(key_, next_++, static_cast<uint64_t>(last - first + 1)));
  }

 private:
  base::RngKey key_;
  uint64_t next_ = 0;
};

enum class Kind : uint8_t { all_reduce, reduce_scatter, all_gather, broadcast, message, count };

// All ranks hold tensors a [n], b [n / ranks] and c [n * ranks].
struct Plain {
  std::vector<Values> a, b, c;
};

struct Step {
  Kind kind;
  int64_t from, to;  // root, or the ends of a message
};

void compute(Plain& plain, const Step& step, DType dtype) {
  const auto ranks = static_cast<int64_t>(plain.a.size());
  const Values sum = tree_sum(plain.a, dtype);
  Values gathered;
  for (const Values& a : plain.a) gathered.insert(gathered.end(), a.begin(), a.end());
  switch (step.kind) {
    case Kind::all_reduce:
      for (Values& a : plain.a) a = sum;
      break;
    case Kind::reduce_scatter:
      for (int64_t r = 0; r < ranks; ++r) plain.b[static_cast<size_t>(r)] = part_of(sum, r, ranks);
      break;
    case Kind::all_gather:
      for (Values& c : plain.c) c = gathered;
      break;
    case Kind::broadcast:
      for (Values& a : plain.a) a = Values(plain.a[static_cast<size_t>(step.from)]);
      break;
    case Kind::message:
      plain.a[static_cast<size_t>(step.to)] = plain.a[static_cast<size_t>(step.from)];
      break;
    case Kind::count:
      break;
  }
}

void perform(Rank& rank, const Step& step, const Tensor& a, const Tensor& b, const Tensor& c) {
  Communicator& group = *rank.group;
  switch (step.kind) {
    case Kind::all_reduce:
      group.all_reduce(*rank.stream, a, Reduce::sum);
      break;
    case Kind::reduce_scatter:
      group.reduce_scatter(*rank.stream, b, a);
      break;
    case Kind::all_gather:
      group.all_gather(*rank.stream, c, a);
      break;
    case Kind::broadcast:
      group.broadcast(*rank.stream, a, static_cast<int>(step.from));
      break;
    case Kind::message:
      if (group.rank() == step.from) group.send(*rank.stream, a, static_cast<int>(step.to));
      if (group.rank() == step.to) group.recv(*rank.stream, a, static_cast<int>(step.from));
      break;
    case Kind::count:
      break;
  }
}

void run_sequence(uint64_t seed, bool is_cuda = false) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  Dice dice(seed);
  const int64_t ranks = dice.roll(2, 5),
                shard = dice.roll(0, 9) == 0 ? dice.roll(800, 2000) : dice.roll(1, 60);
  const DType dtype = dice.roll(0, 1) == 0 ? DType::f32 : DType::bf16;
  const auto mode = dice.roll(0, 1) == 0 ? StreamMode::inline_calls : StreamMode::worker_threads;
  const Place place = is_cuda ? Place::cuda() : Place(mode);
  const int64_t buffer_bytes = 256 * ranks * dice.roll(1, 5);
  std::vector<Step> steps(static_cast<size_t>(dice.roll(1, 12)));
  for (Step& step : steps) {
    step.kind = static_cast<Kind>(dice.roll(0, static_cast<int64_t>(Kind::count) - 1));
    step.from = dice.roll(0, ranks - 1);
    step.to = (step.from + dice.roll(1, ranks - 1)) % ranks;
  }
  Plain start;
  for (int64_t r = 0; r < ranks; ++r) {
    start.a.push_back(random_values(shard * ranks, 10 * seed + static_cast<uint64_t>(r), dtype));
    start.b.emplace_back(static_cast<size_t>(shard));
    start.c.emplace_back(static_cast<size_t>(shard * ranks * ranks));
  }
  Plain end = start;
  for (const Step& step : steps) compute(end, step, dtype);
  ThreadWorld world(static_cast<int>(ranks), 60);
  run_ranks(world, [&](int r) {
    const auto own = static_cast<size_t>(r);
    Rank rank(world, r, place, buffer_bytes);
    const Tensor a = rank.make(start.a[own], dtype), b = rank.make(start.b[own], dtype),
                 c = rank.make(start.c[own], dtype);
    for (const Step& step : steps) perform(rank, step, a, b, c);
    EXPECT_EQ(rank.read(a), end.a[own]);
    EXPECT_EQ(rank.read(b), end.b[own]);
    EXPECT_EQ(rank.read(c), end.c[own]);
    rank.group->barrier();  // other ranks may still read from this one
  });
}

TEST(RandomCollectives, a_thousand_sequences_equal_plain_loops) {
  for (uint64_t seed = 0; seed < 1000 && !testing::Test::HasFailure(); ++seed) run_sequence(seed);
}

// Nothing waits between the calls: events alone keep the streams of the ranks in order.
TEST(RandomCollectives, on_cuda_a_hundred_sequences_equal_plain_loops) {
  if (const std::string problem = device::gpu_status().problem; !problem.empty()) {
    GTEST_SKIP() << problem;
  }
  for (uint64_t seed = 0; seed < 100 && !testing::Test::HasFailure(); ++seed) {
    run_sequence(seed, true);
  }
}

}  // namespace
}  // namespace trireme::comm
