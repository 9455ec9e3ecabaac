// SPDX-License-Identifier: Apache-2.0
#include "tests/verify/expert_kernels.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "device/cpu/cpu_device.h"

namespace trireme::tests {
namespace {

using namespace kernels;

template <typename Work>
void later(Stream& stream, Work work) {
  dynamic_cast<device::CpuStream&>(stream).enqueue(std::move(work));
}

Kernels faulty(void (*change)(Kernels&)) {
  Kernels table = cpu_kernels();
  change(table);
  return table;
}

template <typename T>
std::span<T> values_of(const ConstTensor& tensor) {
  return {reinterpret_cast<T*>(const_cast<std::byte*>(tensor.data)),
          static_cast<size_t>(tensor.elements())};
}

// Queues `work` while change(values) is applied to a tensor, which has its old values afterwards.
template <typename T, typename Change, typename Work>
void with_values(Stream& stream, const ConstTensor& tensor, Change change, Work work) {
  auto before = std::make_shared<std::vector<T>>();  // shared by two queued calls
  const std::span<T> values = values_of<T>(tensor);
  later(stream, [=] {
    before->assign(values.begin(), values.end());
    change(values);
  });
  work();
  later(stream, [=] { std::copy(before->begin(), before->end(), values.begin()); });
}

void all_one(std::span<float> values) { std::fill(values.begin(), values.end(), 1.0F); }
void all_zero(std::span<float> values) { std::fill(values.begin(), values.end(), 0.0F); }
void none(std::span<int32_t> places) { std::fill(places.begin(), places.end(), -1); }
void labelled(std::span<int32_t> labels) {
  for (int32_t& label : labels) label = std::max(label, 0);
}

// Exchanges the first two rows of every group that has two.
void swap_rows(Stream& stream, const ConstTensor& rows, const ConstTensor& starts) {
  later(stream, [rows, starts] {
    const std::span<int32_t> start = values_of<int32_t>(starts);
    const int64_t bytes = rows.cols() * base::size_of(rows.dtype);
    for (size_t g = 0; g + 1 < start.size(); ++g) {
      if (start[g + 1] - start[g] < 2) continue;
      auto* first = const_cast<std::byte*>(rows.slice_rows(start[g], 1).data);
      std::swap_ranges(first, first + bytes, first + bytes);
    }
  });
}

}  // namespace

const Kernels& row_weights_lost() {
  static const Kernels table = faulty([](Kernels& k) {
    k.grouped_swiglu_forward = [](Stream& s, const GroupedSwigluForwardArgs& a) {
      with_values<float>(s, a.row_weight, all_one,
                         [&] { cpu_kernels().grouped_swiglu_forward(s, a); });
    };
  });
  return table;
}

const Kernels& row_weights_lost_in_grad() {
  static const Kernels table = faulty([](Kernels& k) {
    k.grouped_swiglu_backward = [](Stream& s, const GroupedSwigluBackwardArgs& a) {
      with_values<float>(s, a.row_weight, all_one,
                         [&] { cpu_kernels().grouped_swiglu_backward(s, a); });
    };
  });
  return table;
}

const Kernels& rows_swapped_in_grad() {
  static const Kernels table = faulty([](Kernels& k) {
    k.grouped_swiglu_backward = [](Stream& s, const GroupedSwigluBackwardArgs& a) {
      swap_rows(s, a.dy, a.starts);
      cpu_kernels().grouped_swiglu_backward(s, a);
    };
  });
  return table;
}

const Kernels& expert_gradients_doubled() {
  static const Kernels table = faulty([](Kernels& k) {
    k.grouped_backward_weight = [](Stream& s, const GroupedBackwardWeightArgs& a) {
      cpu_kernels().grouped_backward_weight(s, a);
      GroupedBackwardWeightArgs again = a;
      again.adds = true;
      cpu_kernels().grouped_backward_weight(s, again);
    };
  });
  return table;
}

const Kernels& rows_of_the_next_expert() {
  static const Kernels table = faulty([](Kernels& k) {
    k.grouped_forward = [](Stream& s, const GroupedForwardArgs& a) {
      const auto early = [](std::span<int32_t> starts) {
        for (size_t g = 1; g + 1 < starts.size(); ++g) {
          starts[g] = std::max(starts[g] - 1, starts[g - 1]);
        }
      };
      with_values<int32_t>(s, a.starts, early, [&] { cpu_kernels().grouped_forward(s, a); });
    };
  });
  return table;
}

const Kernels& drops_not_counted() {
  static const Kernels table = faulty([](Kernels& k) {
    k.route_rows = [](Stream& s, const RouteRowsArgs& a) {
      RouteRowsArgs silent = a;
      silent.stats = {};
      cpu_kernels().route_rows(s, silent);
    };
  });
  return table;
}

const Kernels& pairs_counted_twice() {
  static const Kernels table = faulty([](Kernels& k) {
    k.router_forward = [](Stream& s, const RouterForwardArgs& a) {
      cpu_kernels().router_forward(s, a);
      if (!a.stats) return;
      later(s, [a] {
        const auto experts = static_cast<size_t>(a.rule.experts);
        const std::span<float> counts = values_of<float>(a.stats).first(experts);
        for (float& count : counts) count *= 2;
      });
    };
  });
  return table;
}

const Kernels& chosen_again() {
  static const Kernels table = faulty([](Kernels& k) {
    k.router_forward = [](Stream& s, const RouterForwardArgs& a) {
      if (a.is_chosen) {
        later(s, [a] {
          const std::span<int32_t> choices = values_of<int32_t>(a.choice);
          for (int32_t& choice : choices) {
            choice = static_cast<int32_t>((choice + 1) % a.rule.experts);
          }
        });
      }
      cpu_kernels().router_forward(s, a);
    };
  });
  return table;
}

const Kernels& bias_ignored() {
  static const Kernels table = faulty([](Kernels& k) {
    k.router_forward = [](Stream& s, const RouterForwardArgs& a) {
      with_values<float>(s, a.bias, all_zero, [&] { cpu_kernels().router_forward(s, a); });
    };
  });
  return table;
}

const Kernels& bias_not_updated() {
  static const Kernels table =
      faulty([](Kernels& k) { k.router_bias = [](Stream&, const RouterBiasArgs&) {}; });
  return table;
}

const Kernels& aux_doubled() {
  static const Kernels table = faulty([](Kernels& k) {
    k.router_backward = [](Stream& s, const RouterBackwardArgs& a) {
      RouterBackwardArgs wrong = a;
      wrong.aux_scale *= 2;
      cpu_kernels().router_backward(s, wrong);
    };
  });
  return table;
}

const Kernels& z_left_out() {
  static const Kernels table = faulty([](Kernels& k) {
    k.router_backward = [](Stream& s, const RouterBackwardArgs& a) {
      RouterBackwardArgs wrong = a;
      wrong.z_scale = 0;
      cpu_kernels().router_backward(s, wrong);
    };
  });
  return table;
}

const Kernels& terms_of_masked_tokens() {
  static const Kernels table = faulty([](Kernels& k) {
    k.router_backward = [](Stream& s, const RouterBackwardArgs& a) {
      with_values<int32_t>(s, a.labels, labelled, [&] { cpu_kernels().router_backward(s, a); });
    };
  });
  return table;
}

const Kernels& weights_without_gradient() {
  static const Kernels table = faulty([](Kernels& k) {
    k.router_backward = [](Stream& s, const RouterBackwardArgs& a) {
      with_values<int32_t>(s, a.place, none, [&] { cpu_kernels().router_backward(s, a); });
    };
  });
  return table;
}

const Kernels& last_choice_left_out() {
  static const Kernels table = faulty([](Kernels& k) {
    k.sum_pairs = [](Stream& s, const SumPairsArgs& a) {
      const auto chosen = static_cast<size_t>(a.place.cols());
      const auto without_last = [chosen](std::span<int32_t> places) {
        for (size_t i = chosen - 1; i < places.size(); i += chosen) places[i] = -1;
      };
      with_values<int32_t>(s, a.place, without_last, [&] { cpu_kernels().sum_pairs(s, a); });
    };
  });
  return table;
}

const Kernels& padding_not_zeroed() {
  static const Kernels table = faulty([](Kernels& k) {
    k.gather_pairs = [](Stream& s, const GatherPairsArgs& a) {
      cpu_kernels().gather_pairs(s, a);
      if (!a.end) return;
      later(s, [a] {
        const int32_t end = values_of<int32_t>(a.end).front();
        const std::span<int32_t> source = values_of<int32_t>(a.source);
        for (int32_t row = 0; row < end; ++row) {
          if (source[static_cast<size_t>(row)] >= 0) continue;
          const Tensor of_row = a.d.slice_rows(row, 1);
          all_one({reinterpret_cast<float*>(of_row.data), static_cast<size_t>(a.d.cols())});
        }
      });
    };
  });
  return table;
}

const Kernels& groups_of_one_rank() {
  static const Kernels table = faulty([](Kernels& k) {
    k.arrange_rows = [](Stream& s, const ArrangeRowsArgs& a) {
      const auto groups = static_cast<size_t>(a.counts.cols());
      const auto first_only = [groups](std::span<int32_t> counts) {
        std::fill(counts.begin() + static_cast<std::ptrdiff_t>(groups), counts.end(), 0);
      };
      with_values<int32_t>(s, a.counts, first_only, [&] { cpu_kernels().arrange_rows(s, a); });
    };
  });
  return table;
}

}  // namespace trireme::tests
