// SPDX-License-Identifier: Apache-2.0
// Attention of ranks along cp on packed documents of any lengths: o, dq, dk and dv of every row as
// on one rank, for every kind and kind of slices. Lengths are those that other programs got wrong:
// one row, one less or more than two chunks of each rank, and a tail of padding that fills ranks.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include "base/rng.h"
#include "comm/threads.h"
#include "device/cpu/cpu_device.h"
#include "engine/step/input.h"
#include "kernels/table.h"
#include "nn/attention/attention_core.h"
#include "spec/plan.h"

namespace trireme::tests {
namespace {

using device::Tensor;
using spec::BlockSlot;
using spec::ContextKind;
using spec::ContextSlices;

constexpr int64_t head_size = 4, query_heads = 8;

struct AttentionCase {
  int cp;
  ContextKind kind;
  ContextSlices slices = ContextSlices::zigzag;
  int ulysses = 1;
  int64_t kv_heads = 4;
  int64_t sequences = 1;
  bool has_documents = true;
  int64_t length = 0;  // of a sequence; 0: six rows for each rank

  // Attention is computed by the op of one rank, on all rows, and no sums over ranks follow.
  bool has_same_bits() const { return kind == ContextKind::ulysses && kv_heads % cp == 0; }
  int64_t seq_len() const { return length > 0 ? length : 6 * cp; }
  int64_t tokens() const { return sequences * seq_len(); }
};

std::string to_string(const AttentionCase& c) {
  return fmt::format("cp {} {} {} ulysses {}, {} kv heads, {} sequences{}", c.cp,
                     spec::name_of(c.kind), spec::name_of(c.slices), c.ulysses, c.kv_heads,
                     c.sequences, c.has_documents ? ", documents" : "");
}

// The documents of one seed. Rows from `padding` on have no gradient.
struct PackedDocuments {
  std::vector<int32_t> offsets;
  int64_t padding = 0;
};

PackedDocuments documents_of(const AttentionCase& c, uint64_t seed) {
  const base::RngKey key = base::rng_key(seed, "documents");
  const int64_t tokens = c.tokens(), seq_len = c.seq_len();
  PackedDocuments packed{.offsets = {}, .padding = tokens};
  const auto pattern = seed % 5;
  const auto length_at = [&](int64_t row) -> int64_t {
    switch (pattern) {
      case 0:
        return 1;
      case 1:
        return 2 * c.cp - 1;
      case 2:
        return 2 * c.cp + 1;
      case 3:
        return row % seq_len < 2 ? 1 : seq_len;  // a tail of padding
      default:
        return 1 + static_cast<int64_t>(base::rng_below(key, static_cast<uint64_t>(row),
                                                        static_cast<uint64_t>(seq_len)));
    }
  };
  int64_t next = 0;
  for (int64_t row = 0; row < tokens; ++row) {
    if (row == next || row % seq_len == 0) {
      packed.offsets.push_back(static_cast<int32_t>(row));
      next = row + (c.has_documents ? length_at(row) : seq_len);
    }
  }
  packed.offsets.resize(static_cast<size_t>(tokens) + 1, static_cast<int32_t>(tokens));
  if (pattern == 3) packed.padding = tokens - seq_len + 2;
  return packed;
}

class PackedSource final : public engine::MicrobatchSource {
 public:
  explicit PackedSource(const PackedDocuments& packed) : packed_(packed) {}
  void fill(int, const engine::HostMicrobatch& out) override {
    std::ranges::fill(out.tokens, 0);
    std::ranges::fill(out.labels, -1);
    std::ranges::fill(out.positions, 0);
    std::ranges::copy(packed_.offsets, out.seq_offsets.begin());
  }

 private:
  const PackedDocuments& packed_;
};

spec::LocalShape attention_shape(const AttentionCase& c) {
  spec::LocalShape shape{.tokens = c.tokens() / c.cp,
                         .sequences = c.sequences,
                         .seq_len = c.seq_len(),
                         .head_chunk_rows = 1,
                         .has_documents = c.has_documents,
                         .ulysses = c.ulysses,
                         .slices = c.slices,
                         .is_ring = spec::has_ring(c.kind)};
  shape.mesh[spec::Axis::cp] = c.cp;
  return shape;
}

spec::ModelSpec attention_model(const AttentionCase& c) {
  return spec::make_model({.name = "attention",
                           .family = spec::Family::llama,
                           .layers = 1,
                           .hidden = query_heads * head_size,
                           .heads = query_heads,
                           .kv_heads = c.kv_heads,
                           .head_dim = head_size,
                           .ffn = 8,
                           .vocab = 8,
                           .max_seq = c.seq_len()});
}

using Values = std::vector<float>;

// o, and the gradients of q, k and v in one row each: [rows, width].
struct AttentionResult {
  Values o, dqkv;
};

// One rank's attention, with its memory.
class AttentionRank {
 public:
  AttentionRank(const AttentionCase& c, comm::Communicator* world)
      : device_(kernels::cpu_kernels(), {.threads = 1}),
        stream_(device_.make_stream("compute")),
        arena_(device::Buffer(device_, device::Mem::scratch, int64_t{1} << 20, "attention")),
        model_(attention_model(c)),
        shape_(attention_shape(c)),
        block_(std::get<spec::BlockSpec>(model_.layers[1])),
        inputs_(device_, arena_, shape_, 1, 8, world == nullptr ? 0 : world->rank()) {
    const spec::ContextSplit split = shape_.context();
    if (split.ulysses > 1) {
      ulysses_ = world->split(world->rank() / split.ulysses, world->rank(), {.name = "ulysses"});
    }
    if (split.groups > 1) {
      groups_ = world->split(world->rank() % split.ulysses, world->rank(), {.name = "groups"});
      side_ = device_.make_stream("cp");
      groups_->set_buffer(arena_.take({{1 << 16}, base::DType::u8}));
    }
    core_ =
        nn::make_attention_core(block_, shape_, {}, {ulysses_.get(), groups_.get(), side_.get()});
    const spec::Facts facts =
        spec::facts(model_, 1, shape_, recipe_, spec::Recompute::none, spec::Backend{});
    for (const spec::Slot& slot : facts.stash) {
      slots_.push_back(slot.spec.shape.ndim() == 0 ? Tensor{} : arena_.take(slot.spec));
    }
    taken_.resize(slots_.size());
    fates_.resize(slots_.size(), spec::Fate::kept);
    const int64_t rows = shape_.tokens;
    qkv_ = arena_.take({{rows, block_.qkv_width()}, base::DType::f32});
    dqkv_ = arena_.take({{rows, block_.qkv_width()}, base::DType::f32});
  }

  // Returns the rows of this rank; `qkv` and `dout` have all rows.
  const spec::Rows& stage(const PackedDocuments& packed) {
    PackedSource source(packed);
    inputs_.load(source, 1);
    inputs_.take(*stream_, 1);
    return inputs_.rows(0);
  }

  AttentionResult run(const spec::Rows& rows, const Values& qkv, const Values& dout) {
    const int64_t out_width = query_heads * head_size;
    write(qkv_, rows, qkv);
    nn::Stash stash(slots_, taken_, fates_);
    nn::StepSink sink;
    const engine::Microbatch& batch = inputs_.batch(0);
    nn::Pass pass{.stream = *stream_,
                  .params = {},
                  .grads = {},
                  .stash = stash,
                  .scratch = arena_,
                  .recipe = recipe_,
                  .seq_offsets = batch.seq_offsets,
                  .sequences = shape_.sequences,
                  .max_seq = shape_.seq_len,
                  .has_documents = shape_.has_documents,
                  .context_keys = batch.keys,
                  .sink = sink};
    const nn::Heads own = nn::split_heads(qkv_, block_);
    const nn::Heads read = core_->exchanges_heads() ? nn::Heads{} : own;
    if (core_->exchanges_heads()) core_->exchange(pass, own);
    core_->forward(pass, read);
    core_->backward(
        pass, read, [&](Tensor to) { write(to, rows, dout); }, nn::split_heads(dqkv_, block_));
    stream_->synchronize();
    return {floats_of(stash[BlockSlot::o], out_width), floats_of(dqkv_, block_.qkv_width())};
  }

 private:
  // Streams run inline, so the host may write and read between calls.
  static void write(const Tensor& to, const spec::Rows& rows, const Values& from) {
    const auto width = static_cast<size_t>(to.cols());
    for (size_t t = 0; t < rows.size(); ++t) {
      std::memcpy(to.data + t * width * sizeof(float),
                  from.data() + static_cast<size_t>(rows[t]) * width, width * sizeof(float));
    }
  }
  static Values floats_of(const Tensor& x, int64_t width) {
    const auto* first = reinterpret_cast<const float*>(x.data);
    return {first, first + x.rows() * width};
  }

  device::CpuDevice device_;
  std::unique_ptr<device::Stream> stream_;
  device::Arena arena_;
  spec::ModelSpec model_;
  spec::LocalShape shape_;
  spec::BlockSpec block_;
  spec::Recipe recipe_ = spec::recipe_of(spec::Precision::fp32);
  engine::InputStaging inputs_;
  std::unique_ptr<comm::Communicator> ulysses_, groups_;
  std::unique_ptr<device::Stream> side_;
  std::unique_ptr<const nn::AttentionCore> core_;
  std::vector<Tensor> slots_;
  std::vector<uint8_t> taken_;
  std::vector<spec::Fate> fates_;
  Tensor qkv_, dqkv_;
};

Values random_floats(uint64_t seed, int64_t count) {
  const base::RngKey key = base::rng_key(seed, "values");
  Values values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    constexpr uint64_t range = 1 << 16;
    values[i] = static_cast<float>(base::rng_below(key, i, range)) / (range / 4) - 2;
  }
  return values;
}

double size_of_all(const Values& x) {
  double sum = 0;
  for (const float v : x) sum += double{v} * v;
  return std::sqrt(sum);
}

// `all` has the rows of one rank that has them all. A row that sees one key has the gradient of a
// constant: terms of the size of `terms` that cancel.
std::string rows_difference(const Values& found, const Values& all, const spec::Rows& rows,
                            bool is_exact, double terms) {
  const size_t width = found.size() / rows.size();
  Values wanted, apart;
  for (const int32_t row : rows) {
    const auto* first = all.data() + static_cast<size_t>(row) * width;
    wanted.insert(wanted.end(), first, first + width);
  }
  for (size_t i = 0; i < found.size(); ++i) {
    if (!std::isfinite(found[i])) return fmt::format("element {} is {}", i, found[i]);
    apart.push_back(found[i] - wanted[i]);
  }
  const double error = size_of_all(apart), size = std::max(size_of_all(wanted), terms);
  const double bound = is_exact ? 0 : 1e-6 * size;
  return error <= bound ? "" : fmt::format("off by {} of {}", error, size);
}

void expect_rows_of_one_rank(const AttentionCase& c, uint64_t first_seed, uint64_t seeds) {
  comm::ThreadWorld world(c.cp, 60);
  std::vector<std::string> problems(static_cast<size_t>(c.cp));
  comm::run_ranks(world, [&](int rank) {
    const auto communicator = world.communicator(rank, {.name = "cp"});
    AttentionRank own(c, communicator.get());
    AttentionCase whole = c;
    whole.length = c.seq_len();
    whole.cp = whole.ulysses = 1;
    AttentionRank one(whole, nullptr);
    const int64_t qkv_width = (query_heads + 2 * c.kv_heads) * head_size,
                  out_width = query_heads * head_size;
    for (uint64_t seed = first_seed; seed < first_seed + seeds; ++seed) {
      const PackedDocuments documents = documents_of(c, seed);
      const Values qkv = random_floats(2 * seed, c.tokens() * qkv_width);
      Values dout = random_floats(2 * seed + 1, c.tokens() * out_width);
      std::fill(dout.begin() + documents.padding * out_width, dout.end(), 0.0F);
      one.stage(documents);
      spec::Rows all(static_cast<size_t>(c.tokens()));
      std::iota(all.begin(), all.end(), 0);
      const AttentionResult wanted = one.run(all, qkv, dout);
      const spec::Rows rows = own.stage(documents);
      const AttentionResult found = own.run(rows, qkv, dout);
      const bool is_exact = c.has_same_bits();
      std::string problem = rows_difference(found.o, wanted.o, rows, is_exact, 0);
      if (problem.empty()) {
        problem = rows_difference(found.dqkv, wanted.dqkv, rows, is_exact, size_of_all(dout));
        if (!problem.empty()) problem = "gradients " + problem;
      } else {
        problem = "o " + problem;
      }
      std::string& first = problems[static_cast<size_t>(rank)];
      if (first.empty() && !problem.empty()) {
        first = fmt::format("seed {}, rank {}: {}", seed, rank, problem);
      }
    }
  });
  for (const std::string& problem : problems) EXPECT_EQ(problem, "") << to_string(c);
}

TEST(ContextDocuments, every_row_is_that_of_one_rank) {
  constexpr uint64_t seeds = 40;  // of each of the 25 cases: 1000
  std::vector<AttentionCase> cases = {
      {2, ContextKind::ulysses, ContextSlices::zigzag, 2},
      {4, ContextKind::ulysses, ContextSlices::zigzag, 4},
      {4, ContextKind::ulysses, ContextSlices::contiguous, 4, 4, 2},
      {4, ContextKind::ulysses, ContextSlices::zigzag, 4, 2},
      {8, ContextKind::ulysses, ContextSlices::zigzag, 8, 1},
      {2, ContextKind::gather},
      {3, ContextKind::gather},
      {4, ContextKind::gather, ContextSlices::contiguous},
      {4, ContextKind::gather, ContextSlices::striped},
      {4, ContextKind::gather, ContextSlices::blocks},
      {4, ContextKind::gather, ContextSlices::blocks, 1, 1, 2},
      {2, ContextKind::ring},
      {3, ContextKind::ring},
      {4, ContextKind::ring, ContextSlices::contiguous},
      {4, ContextKind::ring, ContextSlices::striped, 1, 8},
      {4, ContextKind::ring, ContextSlices::zigzag, 1, 2, 2},
      {4, ContextKind::ulysses_gather, ContextSlices::zigzag, 2},
      {4, ContextKind::ulysses_gather, ContextSlices::blocks, 2},
      {4, ContextKind::ulysses_gather, ContextSlices::striped, 2, 1},
      {4, ContextKind::ulysses_ring, ContextSlices::zigzag, 2},
      {4, ContextKind::ulysses_ring, ContextSlices::contiguous, 2, 8, 2},
      {4, ContextKind::ulysses_ring, ContextSlices::striped, 2, 2},
      // Without documents the host knows the keys, and passes chunks of rows.
      {4, ContextKind::gather, ContextSlices::zigzag, 1, 4, 2, false},
      {4, ContextKind::ring, ContextSlices::zigzag, 1, 4, 2, false},
      {4, ContextKind::ring, ContextSlices::striped, 1, 4, 1, false},
  };
  ASSERT_EQ(cases.size() * seeds, 1000U);
  uint64_t first = 0;
  for (const AttentionCase& c : cases) {
    expect_rows_of_one_rank(c, first, seeds);
    first += seeds;
  }
}

}  // namespace
}  // namespace trireme::tests
