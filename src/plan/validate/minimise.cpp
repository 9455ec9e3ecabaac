// SPDX-License-Identifier: Apache-2.0
#include "plan/validate/minimise.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace trireme::plan {
namespace {

using Point = std::vector<double>;
using Value = std::function<double(const Point&)>;

// a + t (b - a)
Point between(const Point& a, const Point& b, double t) {
  Point result(a.size());
  for (size_t i = 0; i < a.size(); ++i) result[i] = a[i] + t * (b[i] - a[i]);
  return result;
}

// Nelder and Mead, "A simplex method for function minimization", 1965, with the usual factors.
Minimum one_simplex(const Value& value, const Point& start, double step) {
  constexpr int max_steps = 4000;
  constexpr double enough = 1e-10;
  const size_t n = start.size();
  std::vector<Minimum> corners = {{start, value(start)}};
  for (size_t i = 0; i < n; ++i) {
    Point corner = start;
    corner[i] += step;
    corners.push_back({corner, value(corner)});
  }
  const auto by_value = [](const Minimum& a, const Minimum& b) { return a.value < b.value; };
  for (int count = 0; count < max_steps; ++count) {
    std::stable_sort(corners.begin(), corners.end(), by_value);
    if (corners.back().value - corners.front().value < enough) break;
    Point centre(n, 0.0);
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j) centre[j] += corners[i].at[j] / static_cast<double>(n);
    }
    Minimum& worst = corners.back();
    const auto tried = [&](double t) {
      Minimum one{between(centre, worst.at, t), 0};
      one.value = value(one.at);
      return one;
    };
    const Minimum reflected = tried(-1);
    if (reflected.value < corners.front().value) {
      const Minimum expanded = tried(-2);
      worst = expanded.value < reflected.value ? expanded : reflected;
    } else if (reflected.value < corners[n - 1].value) {
      worst = reflected;
    } else {
      const Minimum contracted = tried(reflected.value < worst.value ? -0.5 : 0.5);
      if (contracted.value < std::min(reflected.value, worst.value)) {
        worst = contracted;
      } else {
        for (size_t i = 1; i <= n; ++i) {
          corners[i].at = between(corners.front().at, corners[i].at, 0.5);
          corners[i].value = value(corners[i].at);
        }
      }
    }
  }
  return *std::min_element(corners.begin(), corners.end(), by_value);
}

}  // namespace

Minimum minimise(const Value& value, Point start, double step) {
  TRIREME_CHECK(!start.empty() && std::isfinite(value(start)), "{} variables", start.size());
  constexpr int max_restarts = 20;
  Minimum best = one_simplex(value, start, step);
  for (int i = 0; i < max_restarts; ++i) {
    // The direction alternates, so that a degenerate simplex does not form again.
    const Minimum next = one_simplex(value, best.at, i % 2 == 0 ? -step / 2 : step);
    const bool gains = next.value < best.value * (1 - 1e-5);
    if (next.value < best.value) best = next;
    if (!gains && i > 0) break;
  }
  return best;
}

}  // namespace trireme::plan
