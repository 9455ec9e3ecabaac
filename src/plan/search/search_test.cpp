// SPDX-License-Identifier: Apache-2.0
#include "plan/search/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "base/error.h"
#include "plan/samples_test.h"
#include "plan/search/space.h"
#include "spec/layout/layout_text.h"

namespace trireme::plan {
namespace {

using Family = std::tuple<int, int, int, int>;

SearchOptions on(int64_t gpus) {
  SearchOptions options;
  options.gpus = gpus;
  return options;
}

// Returns every possible layout, by plain loops.
std::vector<Layout> all_layouts(const Job& job, int gpus) {
  std::vector<Layout> all;
  for (int tp = 1; tp <= gpus; ++tp) {
    for (int pp = 1; pp * tp <= gpus; ++pp) {
      if (gpus % (tp * pp) != 0) continue;
      const int dp = gpus / tp / pp;
      for (int64_t micro = 1; micro <= job.global_batch; ++micro) {
        if (job.global_batch % (dp * micro) != 0) continue;
        for (int pipe = 0; pipe < static_cast<int>(Kind::count); ++pipe) {
          for (int chunks = 1; pp * chunks <= job.model.blocks() + 2; ++chunks) {
            const auto kind = static_cast<Kind>(pipe);
            const int fixed = pp == 1 ? 1 : schedule::named(kind).chunks;
            if (fixed == 0 ? chunks == 1 : chunks != fixed) continue;
            if (pp == 1 && kind != Kind::one_f_one_b) continue;
            if (kind == Kind::dualpipe) continue;
            // Interleaved schedules are priced only in complete groups of micro-batches.
            const int64_t m = job.global_batch / (dp * micro);
            if (kind == Kind::interleaved && m % pp != 0) continue;
            for (int rest = 0; rest < 4 * 3 * 2 * 2; ++rest) {
              Layout l;
              l.tp = tp;
              l.pp = pp;
              l.micro_batch = micro;
              l.schedule = kind;
              l.chunks = chunks;
              spec::set_data_ranks(l, dp, rest % 4);
              l.recompute = static_cast<spec::Recompute>(rest / 4 % 3);
              l.sequence_parallel = rest / 12 % 2 == 1;
              l.placement = static_cast<Placement>(rest / 24);
              const bool repeats = (l.zero_stage > 0 && dp == 1) ||
                                   (l.sequence_parallel && tp == 1) ||
                                   (l.placement == Placement::pp_inside && (pp == 1 || dp == 1));
              if (repeats) continue;
              all.push_back(l);
              // HSDP: a copy of the state in each domain of eight.
              const int inside = 8 / tp;
              if (l.zero_stage == 0 || inside <= 1 || inside >= dp || dp % inside != 0) continue;
              l.dp_shard = inside;
              l.dp_replicate = dp / inside;
              all.push_back(l);
            }
          }
        }
      }
    }
  }
  return all;
}

bool comes_before(const Price& a, const Price& b) {
  return a.seconds != b.seconds ? a.seconds < b.seconds : a.bytes < b.bytes;
}

TEST(Search, the_best_equals_brute_force) {
  for (const auto& [model, gpus, batch] :
       {std::tuple{"gpt2-350m", 4, 8}, {"llama-1b", 8, 16}, {"llama-8b", 16, 16}}) {
    const Job job = job_of(model, batch, 2048);
    const spec::Machine machine = shipped_machine("a100-40gb");
    const double room = 0.95 * machine.processor.memory_bytes;
    std::optional<Price> best;
    int64_t priced = 0, too_large = 0;
    Pricer pricer(job, machine, trireme_stack());
    for (const Layout& l : all_layouts(job, gpus)) {
      if (!broken_rule(job, l).empty() || !missing_in_engine(job, l).empty()) continue;
      ++priced;
      const Price price = pricer.price(l);
      if (price.bytes > room) {
        ++too_large;
      } else if (!best || comes_before(price, *best)) {
        best = price;
      }
    }
    const SearchResult found = search(job, machine, trireme_stack(), on(gpus));
    EXPECT_EQ(found.priced, priced) << model;
    EXPECT_EQ(found.too_large, too_large) << model;
    EXPECT_EQ(found.layouts, found.priced + found.pruned);
    ASSERT_TRUE(best && found.best) << model;
    EXPECT_TRUE(found.best->price == *best) << to_text(found.best->layout);
    EXPECT_TRUE(Pricer(job, machine, trireme_stack()).price(found.best->layout) == *best);
  }
}

TEST(Search, layouts_priced_singly_agree_to_the_bit) {
  const Job job = job_of("gpt3-175b", 4096, 2048);
  const spec::Machine machine = shipped_machine("a100-80gb");
  SearchOptions options = on(4096);
  options.space.unaudited = true;
  options.space.pipes = {Kind::one_f_one_b, Kind::interleaved};
  std::vector<Candidate> all;
  options.visit = [&](const Layout& layout, const Price& price) { all.push_back({layout, price}); };
  const SearchResult found = search(job, machine, trireme_stack(), options);
  ASSERT_EQ(all.size(), static_cast<size_t>(found.priced));
  ASSERT_GT(all.size(), 50'000U);
  Dice dice(6);
  int different = 0;
  for (int i = 0; i < 10'000; ++i) {
    const Candidate& one = all[dice.below(all.size())];
    const Price alone = Pricer(job, machine, trireme_stack()).price(one.layout);
    if (!(alone == one.price)) ++different;
  }
  EXPECT_EQ(different, 0);
}

TEST(Search, every_price_is_the_sum_of_its_parts) {
  const Job job = job_of("llama3-70b", 256, 4096);
  SearchOptions options = on(64);
  int wrong = 0;
  options.visit = [&](const Layout&, const Price& price) {
    double seconds = 0, bytes = 0;
    for (const double part : price.seconds_of) {
      seconds += part;
      if (!(part >= 0)) ++wrong;
    }
    for (const double part : price.bytes_of) {
      bytes += part;
      if (!(part >= 0)) ++wrong;
    }
    if (std::abs(seconds / price.seconds - 1) > 1e-12) ++wrong;
    if (std::abs(bytes / price.bytes - 1) > 1e-12) ++wrong;
    if (price.hardware_flops < price.model_flops) ++wrong;
  };
  (void)search(job, shipped_machine("h100"), trireme_stack(), options);
  EXPECT_EQ(wrong, 0);
}

TEST(Search, the_front_is_pareto_optimal) {
  const Job job = job_of("llama-8b", 64, 4096);
  const spec::Machine machine = shipped_machine("h100");
  SearchOptions options = on(16);
  std::vector<Price> fitting;
  options.visit = [&](const Layout&, const Price& price) {
    if (price.bytes <= 0.95 * machine.processor.memory_bytes) fitting.push_back(price);
  };
  const SearchResult found = search(job, machine, trireme_stack(), options);
  ASSERT_GT(found.front.size(), 2U);
  EXPECT_TRUE(found.front.front().price == found.best->price);
  for (size_t i = 1; i < found.front.size(); ++i) {
    EXPECT_GT(found.front[i].price.seconds, found.front[i - 1].price.seconds);
    EXPECT_LT(found.front[i].price.bytes, found.front[i - 1].price.bytes);
  }
  for (const Price& price : fitting) {
    const bool is_covered = std::ranges::any_of(found.front, [&](const Candidate& kept) {
      return kept.price.seconds <= price.seconds && kept.price.bytes <= price.bytes;
    });
    ASSERT_TRUE(is_covered);
  }
}

TEST(Search, every_family_is_found_or_rejected_with_a_reason) {
  const Job job = job_of("llama3-70b", 64, 4096);
  const spec::Machine machine = shipped_machine("h100");
  std::set<Family> wanted;
  for_each_layout(job, machine, on(64), [&](const Layout& l) {
    wanted.insert({l.tp, l.cp, l.pp, l.ep});
  });
  const SearchResult found = search(job, machine, trireme_stack(), on(64));
  std::set<Family> seen;
  for (const Candidate& c : found.families) {
    EXPECT_TRUE(seen.insert({c.layout.tp, c.layout.cp, c.layout.pp, c.layout.ep}).second);
    EXPECT_LE(c.price.bytes, 0.95 * machine.processor.memory_bytes);
  }
  for (const Rejected& r : found.rejected) {
    EXPECT_TRUE(seen.insert({r.tp, r.cp, r.pp, r.ep}).second);
    EXPECT_FALSE(r.reason.empty());
    EXPECT_EQ(r.missing_bytes > 0, r.nearest.has_value());
  }
  EXPECT_EQ(seen, wanted);
  EXPECT_FALSE(found.rejected.empty());
  EXPECT_TRUE(std::ranges::is_sorted(found.families, {},
                                     [](const Candidate& c) { return c.price.seconds; }));
}

TEST(Search, limits_of_the_space_are_kept) {
  const Job job = job_of("llama-8b", 64, 4096);
  SearchOptions options = on(32);
  options.space.tp = {2, 4};
  options.space.pp = {4};
  options.space.zero = {1};
  options.space.micro_batch = {1, 2};
  options.space.pipes = {Kind::interleaved, Kind::zb_h1};
  options.space.chunks = {1, 2};
  options.space.recompute = {spec::Recompute::full};
  options.space.sequence_parallel = {1};
  options.space.placement = {Placement::dp_inside};
  int64_t visits = 0;
  options.visit = [&](const Layout& l, const Price&) {
    ++visits;
    EXPECT_TRUE((l.tp == 2 || l.tp == 4) && l.pp == 4 && l.zero_stage == 1 && l.micro_batch <= 2);
    EXPECT_TRUE((l.schedule == Kind::interleaved && l.chunks == 2) || l.schedule == Kind::zb_h1);
    EXPECT_TRUE(l.recompute == spec::Recompute::full && l.sequence_parallel);
    EXPECT_EQ(l.placement, Placement::dp_inside);
    EXPECT_EQ(l.ranks(), 32);
  };
  (void)search(job, shipped_machine("h100"), trireme_stack(), options);
  EXPECT_EQ(visits, 2 * 2 * 2);
}

TEST(Search, if_nothing_fits_the_smallest_gives_the_missing_memory) {
  const Job job = job_of("llama3-405b", 64, 4096);
  const SearchResult found = search(job, shipped_machine("h100"), trireme_stack(), on(8));
  EXPECT_FALSE(found.best);
  EXPECT_TRUE(found.front.empty());
  EXPECT_TRUE(found.alternatives.empty());
  ASSERT_TRUE(found.smallest);
  EXPECT_GT(found.smallest->price.bytes, shipped_machine("h100").processor.memory_bytes);
  const double room = 0.95 * shipped_machine("h100").processor.memory_bytes;
  double min_missing = INFINITY;
  for (const Rejected& r : found.rejected) {
    if (r.nearest) min_missing = std::min(min_missing, r.missing_bytes);
  }
  EXPECT_NEAR(min_missing, found.smallest->price.bytes - room, 1);
}

TEST(Search, an_empty_space_is_refused) {
  const Job job = job_of("llama-8b", 64, 4096);
  SearchOptions options = on(8);
  options.space.tp = {3};
  EXPECT_THROW((void)search(job, shipped_machine("h100"), trireme_stack(), options),
               base::ConfigError);
  options = on(1024);  // more data ranks than sequences
  options.space.tp = {1};
  options.space.pp = {1};
  EXPECT_THROW((void)search(job, shipped_machine("h100"), trireme_stack(), options),
               base::ConfigError);
}

TEST(Search, results_are_deterministic) {
  const Job job = job_of("llama-8b", 64, 4096);
  const auto once = [&] { return search(job, shipped_machine("h100"), trireme_stack(), on(32)); };
  const SearchResult a = once(), b = once();
  EXPECT_EQ(a.best->layout, b.best->layout);
  const auto same = [](const std::vector<Candidate>& x, const std::vector<Candidate>& y) {
    return std::ranges::equal(x, y, [](const Candidate& p, const Candidate& q) {
      return p.layout == q.layout && p.price == q.price;
    });
  };
  EXPECT_TRUE(same(a.front, b.front));
  EXPECT_TRUE(same(a.families, b.families));
  EXPECT_TRUE(same(a.alternatives, b.alternatives));
}

TEST(Search, alternatives_fit_and_are_not_the_best) {
  const Job job = job_of("llama-8b", 64, 4096);
  SearchOptions options = on(32);
  options.alternatives = 5;
  const SearchResult found = search(job, shipped_machine("h100"), trireme_stack(), options);
  ASSERT_EQ(found.alternatives.size(), 5U);
  for (const Candidate& other : found.alternatives) {
    EXPECT_NE(other.layout, found.best->layout);
    EXPECT_GE(other.price.seconds, found.best->price.seconds);
  }
}

TEST(Search, unaudited_layouts_are_priced_only_on_request) {
  Job job = job_of("llama-8b", 64, 4096);
  SearchOptions options = on(16);
  options.space.precision = {Precision::bf16, Precision::fp4};
  bool has_fp4 = false;
  options.visit = [&](const Layout& l, const Price&) {
    has_fp4 = has_fp4 || l.precision == Precision::fp4;
  };
  (void)search(job, shipped_machine("b200"), trireme_stack(), options);
  EXPECT_FALSE(has_fp4);
  options.space.unaudited = true;
  (void)search(job, shipped_machine("b200"), trireme_stack(), options);
  EXPECT_TRUE(has_fp4);
}

TEST(Search, the_best_of_each_recipe_is_found) {
  const Job job = job_of("llama-8b", 64, 4096);
  SearchOptions options = on(16);
  options.space.precision = {Precision::bf16, Precision::fp8, Precision::fp8_block};
  options.space.bf16_first = 2;
  const SearchResult found = search(job, shipped_machine("h100"), trireme_stack(), options);
  ASSERT_EQ(found.precisions.size(), 3U);
  EXPECT_EQ(found.precisions.front().layout, found.best->layout);
  EXPECT_EQ(found.precisions.front().layout.precision, Precision::fp8);
  EXPECT_EQ(found.precisions.front().layout.bf16_first, 2);
  EXPECT_EQ(found.precisions.back().layout.precision, Precision::bf16);
  EXPECT_EQ(found.precisions.back().layout.bf16_first, 0) << "no meaning";
}

// Returns the chunks of interleaved layouts by pp.
std::map<int, std::set<int>> chunks_tried(const Job& job, const SearchOptions& options) {
  std::map<int, std::set<int>> tried;
  for_each_layout(job, shipped_machine("h100"), options, [&](const Layout& l) {
    if (l.schedule == Kind::interleaved) tried[l.pp].insert(l.chunks);
  });
  return tried;
}

TEST(Search, all_chunks_are_tried_except_for_very_deep_models) {
  for (const auto& [pp, chunks] : chunks_tried(job_of("gpt3-175b", 64, 2048), on(64))) {
    std::set<int> all;
    for (int c = 2; c <= 98 / pp && c <= 64; ++c) all.insert(c);
    EXPECT_EQ(chunks, all) << pp;
  }
  Job deep = job_of("llama-15m", 1024, 256);
  const spec::LayerSpec block = spec::typical_block(deep.model);
  deep.model.layers.insert(deep.model.layers.begin() + 1, 100'000, block);
  int64_t all = 0;
  for (const auto& [pp, chunks] : chunks_tried(deep, on(1024))) {
    all += std::ssize(chunks);
    EXPECT_TRUE(chunks.empty() || pp * *chunks.rbegin() <= 512) << pp;
  }
  EXPECT_GT(all, 100);
  EXPECT_LT(all, 300);
  // Chunks that the space names are tried.
  SearchOptions asked = on(1024);
  asked.space.chunks = {700};
  EXPECT_TRUE(chunks_tried(deep, asked)[4].contains(700));
}

}  // namespace
}  // namespace trireme::plan
