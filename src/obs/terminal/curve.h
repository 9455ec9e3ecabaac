// SPDX-License-Identifier: Apache-2.0
// Draws a curve in the terminal. The first series is a line (of braille dots, two by four per
// character, or of '*' in plain ASCII), the others are marks.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace trireme::obs {

struct CurvePoint {
  double x = 0, y = 0;
};

struct CurveSeries {
  std::string name;
  std::vector<CurvePoint> points;  // with x ascending; points that are not finite are omitted
};

struct CurveOptions {
  int width = 72;   // characters per line, with the axis
  int height = 14;  // lines of the plot, without axis and legend
  bool is_unicode = true;
  std::string x_title = "step";
};

// A few values far above the others and above the first one do not determine the height: they are
// marked with an arrow at the upper edge, and a line below the legend counts them.
//
// Returns lines without trailing spaces, each with a newline, or a note if there is no finite
// point. REQUIRES: width >= 24, height >= 2.
std::string curve_text(std::span<const CurveSeries> series, const CurveOptions& options);

}  // namespace trireme::obs
