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
  std::string name;                  // of the file
  std::string title;                 // of the picture
  at::Tensor values;                 // on the CPU, first axis = rows
  std::vector<std::string> samples;  // name of each row
  FieldWords words = {};             // where they have as many axes as stand behind the rows, these are named and measured so
  std::string says = "";             // what the data say of themselves, for the caption
};

// What kind of picture the shape behind the rows makes, complex numbers as magnitudes, at most the first rows that fit:
//   []                        histogram over the rows
//   [n]  whole numbers        map, a row for each sample: token ids
//   [n]  up to 3              histograms, one for each column
//   [n]  up to 8              map, a row for each sample
//   [n]                       curves of the first samples
//   [H,W] both 8 or more      images
//   [C,n] C below 8           curves, one for each channel; otherwise maps
//   [1|3,H,W], u8 [H,W,1|3]   images, in colour where there are 3
//   [C,H,W]                   maps of the first channels
//   [C,D,H,W]                 maps of the three slices through the middle
// nullopt: more axes than that, or no finite value.
[[nodiscard]] std::optional<Picture> picture_of(const SeenField& field);

// The rule above for --help.
[[nodiscard]] std::string picture_rule();

}  // namespace millrace::cli
