// Rows of input through a trained model, a batch at a time: what `millrace predict` computes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "millrace/base/field.h"
#include "millrace/core/batch.h"
#include "millrace/train/run/run.h"

namespace millrace {

struct PredictionInput {
  std::string origin;          // what messages call it: the file's path
  std::vector<Field> tensors;  // with their whole shapes
  // Rows [first, first + count) of tensors[index] in CPU memory; count -1 = the whole tensor, which may have no axis.
  std::function<at::Tensor(std::size_t index, std::int64_t first, std::int64_t count)> read;
};

struct PredictionReport {
  std::int64_t rows = 0;
  std::vector<std::string> warnings;  // input that is not a number, tensors that the recipe does not take
};

// The tensors that the recipe takes, in the order it says, of those there are: indices into input.tensors. All of them where it
// says nothing. UsageError for one that is missing, of another kind or shape, or with another number of rows: says what there is
// and what was expected.
[[nodiscard]] std::vector<std::size_t> tensors_for(const Entry& entry, const PredictionInput& input);

// Calls Recipe::predict() for data.batch_size rows after the other, without gradients, in the run's number format, and hands
// `write` what each gave: in CPU memory, half precision as fp32. `progress` gets (rows done, rows). Memory: what one batch needs.
// Where the recipe does not say what it takes and the tensors differ in their first size, they are one batch. RecipeError for
// outputs whose rows are not those of the batch.
PredictionReport predict_rows(const Entry& entry, Loaded& loaded, const PredictionInput& input,
                              const std::function<void(const Tensors& outputs)>& write,
                              const std::function<void(std::int64_t done, std::int64_t rows)>& progress = {});

// One batch: the recipe's inputs by name, on its device. What predict() gave, in CPU memory, half precision as fp32. `rows`: of
// the inputs, -1 = unknown. RecipeError for outputs that the entry does not name, or whose rows are not those of the batch.
[[nodiscard]] Tensors predict_batch(const Entry& entry, Recipe& recipe, const Tensors& inputs, std::int64_t rows,
                                    std::optional<at::ScalarType> autocast);
// Whether predict() may be given a tensor of this type and shape for one of its inputs.
[[nodiscard]] bool takes(const PredictField& field, DType dtype, const Shape& shape);

// "x" c64 [rows,baselines,frequencies,RA].
[[nodiscard]] std::string to_text(const PredictField& field);

}  // namespace millrace
