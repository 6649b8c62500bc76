// A picture of one field of a batch, for `millrace show`.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "millrace/picture/picture.h"
#include "millrace/train/recipe/recipe.h"

namespace millrace::cli {

struct SeenField {
  std::string name;                  // name of the file
  std::string title;                 // title of the picture
  at::Tensor values;                 // on the CPU, first axis = rows
  std::vector<std::string> samples;  // name of each row
  FieldWords words = {};             // names and units of axes, used if there are as many as axes after the rows
  std::string description = "";      // the data's own description, for the caption
};

// Draws the picture that suits the shape after the rows. Complex numbers are drawn as magnitudes, and at most the first rows that
// fit:
//   []                        histogram over the rows
//   [n]  whole numbers        map, one row per sample: token ids
//   [n]  up to 3              histograms, one per column
//   [n]  up to 8              map, one row per sample
//   [n]                       curves: a plot for each of the first samples
//   [H,W] both 8 or more      images
//   [C,n] C below 8           curves, one per channel; otherwise maps
//   [1|3,H,W], u8 [H,W,1|3]   images, in colour if there are 3 channels
//   [C,H,W]                   maps of the first channels
//   [C,D,H,W]                 maps of the three slices through the middle
// nullopt: more axes than that, or no finite value.
[[nodiscard]] std::optional<Picture> picture_of(const SeenField& field);

// The table above as text for --help.
[[nodiscard]] std::string picture_rule();

}  // namespace millrace::cli
