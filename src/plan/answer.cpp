// SPDX-License-Identifier: Apache-2.0
#include "plan/answer.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "plan/feasible.h"
#include "plan/layout_text.h"

namespace trireme::plan {
namespace {

// Layouts that pass as they stand, among which the simulator chooses.
constexpr size_t compared = 6;
// Bytes of training state per parameter in bf16: weight, gradient, master and moments.
double state_bytes_of(const Stack& stack) { return 2 + stack.grad_bytes + stack.optimizer_bytes; }

std::optional<Proposal> settle(const Job& job, const spec::Machine& machine, const Stack& stack,
                               const SearchOptions& options, const SearchResult& found) {
  if (!found.best) return {};
  if (options.space.unaudited) return propose(job, machine, stack, found.best->layout);
  const double room = machine.processor.memory_bytes * options.memory_fraction;
  std::optional<Proposal> best;
  size_t passed = 0;
  const auto look_at = [&](const std::vector<Candidate>& list) {
    for (const Candidate& candidate : list) {
      if (passed == compared) return;
      Proposal next = propose(job, machine, stack, candidate.layout);
      if (!next.confirmed.problem.empty() || next.confirmed.bytes > room) continue;
      ++passed;
      if (!best || next.confirmed.seconds < best->confirmed.seconds) best = std::move(next);
    }
  };
  look_at(found.fastest);
  if (!best) look_at(found.families);
  return best;
}

std::optional<Candidate> fits_on(const Job& job, const spec::Machine& machine, const Stack& stack,
                                 SearchOptions options, int64_t processors) {
  options.processors = processors;
  options.visit = {};
  try {
    return search(job, machine, stack, options).best;
  } catch (const base::ConfigError&) {
    return {};  // no layout has that number
  }
}

// What would have to be another way for something to fit.
std::vector<std::string> changes(const Job& job, const spec::Machine& machine, const Stack& stack,
                                 const SearchOptions& options, const SearchResult& found) {
  std::vector<std::string> all;
  const double room = machine.processor.memory_bytes * options.memory_fraction;
  const auto parameters = static_cast<double>(spec::parameter_count(job.model));
  const double state_bytes = state_bytes_of(stack);
  const auto least = static_cast<int64_t>(std::ceil(parameters * state_bytes / room));
  if (options.processors < least && !job.experts) {
    all.push_back(fmt::format(
        "the training state alone is {:.2f} TB ({} bytes for each of {:.3g} parameters), {:.0f} GB "
        "on each of {} processors; it needs at least {}, or its state offloaded to the host, which "
        "Trireme does not do yet",
        parameters * state_bytes / 1e12, state_bytes, parameters,
        parameters * state_bytes / 1e9 / static_cast<double>(options.processors),
        options.processors, least));
  }
  for (int64_t n = options.processors * 2, tries = 0; tries < 12 && n <= int64_t{1} << 20;
       n *= 2, ++tries) {
    if (const auto best = fits_on(job, machine, stack, options, n)) {
      all.push_back(fmt::format("{} processors: {} ({:.3g} s a step)", n, words(best->layout),
                                best->price.seconds));
      break;
    }
  }
  const auto with = [&](const char* what, auto change) {
    SearchOptions other = options;
    change(other);
    if (const auto best = fits_on(job, machine, stack, other, options.processors)) {
      all.push_back(
          fmt::format("{}: {} ({:.3g} s a step)", what, words(best->layout), best->price.seconds));
    }
  };
  const Space& space = options.space;
  if (!space.tp.empty() || !space.pp.empty() || !space.zero.empty() || !space.micro_batch.empty() ||
      !space.recompute.empty() || !space.pipes.empty() || !space.chunks.empty()) {
    with("without the limits on the layout", [](SearchOptions& o) {
      const Space old = o.space;
      o.space = {};
      o.space.precision = old.precision;
      o.space.unaudited = old.unaudited;
    });
  }
  if (options.memory_fraction < 1) {
    with("--memory-fraction 1", [](SearchOptions& o) { o.memory_fraction = 1; });
  }
  if (!space.unaudited) {
    with("context parallelism, which the engine does not have yet", [](SearchOptions& o) {
      o.space.unaudited = true;
      o.space.cp = {};
    });
  }
  if (found.smallest) {
    all.push_back(fmt::format("the layout that comes nearest needs {:.1f} GB of {:.1f}: {}",
                              found.smallest->price.bytes / 1e9, room / 1e9,
                              words(found.smallest->layout)));
  }
  return all;
}

}  // namespace

Proposal propose(const Job& job, const spec::Machine& machine, const Stack& stack,
                 const Layout& layout) {
  if (const std::string gap = missing_in_machine(machine, layout.processors(), layout.precision);
      !gap.empty()) {
    throw base::ConfigError(gap);
  }
  return {layout, Pricer(job, machine, stack).price(layout), confirm(job, machine, stack, layout),
          band_of(job, machine, stack, layout)};
}

Answer answer(const Job& job, const spec::Machine& machine, const Stack& stack,
              const SearchOptions& options) {
  Answer result;
  result.search = search(job, machine, stack, options);
  result.best = settle(job, machine, stack, options, result.search);
  if (!result.best) {
    result.changes = changes(job, machine, stack, options, result.search);
    return result;
  }
  // They differ from what is fastest by price; the answer may be one of them.
  std::erase_if(result.search.alternatives,
                [&](const Candidate& c) { return c.layout == result.best->layout; });
  for (int64_t n = options.processors / 2; n >= 1 && result.smaller.size() < 4; n /= 2) {
    const auto best = fits_on(job, machine, stack, options, n);
    if (!best) break;
    result.smaller.push_back({n, *best});
  }
  Pricer pricer(job, machine, stack);
  result.textbook = textbook(job, machine, options.processors, options.memory_fraction, pricer);
  if (result.textbook.layout) result.textbook_price = pricer.price(*result.textbook.layout);
  return result;
}

std::vector<Candidate> better_than(const Job& job, const spec::Machine& machine, const Stack& stack,
                                   const SearchOptions& options, const Price& price, size_t most) {
  SearchOptions own = options;
  own.space.unaudited = true;  // what Trireme's engine lacks is not the question
  own.space.pipes = {Pipe::one_f_one_b, Pipe::interleaved};
  if (stack.even_cut) {
    // Megatron's kinds: sharded optimizer state, and stages of equal numbers of blocks.
    own.space.zero = {0, 1};
    for (int chunks = 1; chunks <= job.model.blocks(); ++chunks) {
      if (job.model.blocks() % chunks == 0) own.space.chunks.push_back(chunks);
    }
    for (int pp = 1; pp <= job.model.blocks(); ++pp) {
      if (job.model.blocks() % pp == 0) own.space.pp.push_back(pp);
    }
  }
  std::vector<Candidate> faster = search(job, machine, stack, own).families;
  if (stack.even_cut) {
    std::erase_if(faster, [&](const Candidate& c) {
      return job.model.blocks() % (c.layout.pp * c.layout.chunks) != 0;
    });
  }
  std::erase_if(faster, [&](const Candidate& c) { return c.price.seconds >= price.seconds; });
  if (faster.size() > most) faster.resize(most);
  return faster;
}

double batch_efficiency(const Job& job) {
  if (job.critical_batch_tokens <= 0) return 1;
  return 1 / (1 + static_cast<double>(job.tokens()) / job.critical_batch_tokens);
}

}  // namespace trireme::plan
