// SPDX-License-Identifier: Apache-2.0
// verify_precision(): compares the recipe of a configuration with bf16 and fp32 on one batch, layer
// by layer: the loss, every parameter's gradient, and what quantising does to the values of each
// matrix. One rank runs the model in each recipe from the same initial weights; large models are
// scaled down so that this takes seconds without a GPU.
//
// The distance of a gradient g to that of the fp32 run, r: |g - r| / |r| in the norm of all
// elements, and the cosine of the angle between them.
#pragma once

#include <string>
#include <vector>

#include "base/text/json_fwd.h"
#include "train/numerics/numerics_figures.h"
#include "train/verify/verify.h"

namespace trireme::train {

struct GradientDistance {
  double relative = 0, cosine = 1;
};

struct PrecisionParam {
  std::string name;
  GradientDistance recipe, bf16;
};

struct PrecisionLayer {
  int layer = 0;  // of the model
  std::string name;
  bool is_fp8 = false;            // its products are in 8 bits
  GradientDistance recipe, bf16;  // of all its parameters together
  std::vector<PrecisionParam> params;
};

struct PrecisionReport {
  spec::ModelDims dims;  // of the model that ran
  spec::Recipe recipe;
  std::vector<std::string> notes;  // how the model differs from the configured one
  int64_t tokens = 0;              // of the batch
  double loss_fp32 = 0, loss_bf16 = 0, loss = 0;
  std::vector<PrecisionLayer> layers;
  std::vector<LayerFigures> numerics;  // of layers in 8 bits
  std::vector<VerifyCheck> checks;     // by the bounds of bounds_of()

  bool ok() const;
};

// What a recipe may differ by. Bounds have a factor of two to three over what models of the
// supported families show with random weights.
struct PrecisionBounds {
  double loss = 0;           // relative difference
  double layer_cosine = 0;   // at least
  double matrix_cosine = 0;  // of any matrix of parameters, at least
  double forward_snr_db = 0, gradient_snr_db = 0;
};
PrecisionBounds bounds_of(spec::Precision);

// Throws ConfigError for a job that is not legal, or a device that does not exist.
PrecisionReport verify_precision(const VerifyJob&);
constexpr int64_t precision_steps = 3;  // that VerifyJob::progress reports

std::string to_text(const PrecisionReport&);
base::Json to_json(const PrecisionReport&);

}  // namespace trireme::train
