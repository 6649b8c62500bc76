// Draws a field of a batch, for `millrace show`.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "millrace/picture/picture.h"
#include "millrace/train/recipe/recipe.h"

namespace millrace::cli {

struct SeenField {
  std::string name;                  // name of the picture's file
  std::string title;                 // title of the picture
  at::Tensor values;                 // in CPU memory; the first axis is that of rows
  std::vector<std::string> samples;  // the name of each row's sample
  // Names and units of the axes after the rows, and names of the values. The words of the axes are used only if there are words
  // for each axis.
  FieldWords words = {};
  std::string description = "";  // the data's own description, for the caption
};

// Draws the field. The kind of picture depends on the shape after the axis of rows. Complex numbers are drawn as magnitudes. Only
// the first rows are drawn, as many as fit.
//   []                        histogram over the rows
//   [n]  whole numbers        map, one row per sample: token ids
//   [n]  up to 3              histograms, one per column
//   [n]  up to 8              map, one row per sample
//   [n]                       curves: a plot for each of the first samples
//   [H,W] both 8 or more      images
//   [C,n] C below 8           a curve for each channel; otherwise maps
//   [1|3,H,W], u8 [H,W,1|3]   images, in colour if there are 3 channels
//   [C,H,W]                   maps of the first channels
//   [C,D,H,W]                 maps of the three slices through the middle
// nullopt if the shape has more axes, or if no value is finite.
[[nodiscard]] std::optional<Picture> picture_of(const SeenField& field);

// The table in the comment of picture_of(), as a text for --help.
[[nodiscard]] std::string picture_rule();

}  // namespace millrace::cli
