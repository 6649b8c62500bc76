// Computes a trained model's output for rows of input, a batch at a time: for `millrace predict`.
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
  std::string origin;          // the input's name in messages: the file's path
  std::vector<Field> tensors;  // the input's tensors with their whole shapes
  // Rows [first, first + count) of tensors[index] in CPU memory; count -1 = the whole tensor, which may be a scalar.
  std::function<at::Tensor(std::size_t index, std::int64_t first, std::int64_t count)> read;
};

struct PredictionReport {
  std::int64_t rows = 0;
  std::vector<std::string> warnings;  // input with NaN or infinity, tensors that the recipe does not take
};

// The tensors that the recipe takes, in its order: indices into input.tensors. All tensors if the recipe does not describe its
// input. UsageError if a tensor is missing, of another kind or shape, or has another number of rows: the message says what there
// is and what was expected.
[[nodiscard]] std::vector<std::size_t> tensors_for(const Entry& entry, const PredictionInput& input);

// Calls Recipe::predict() for data.batch_size rows at a time, without gradients, in the run's number format, and passes each
// result to `write`: in CPU memory, half precision as fp32. `progress` gets (rows done, rows). Memory: one batch. If the recipe
// does not describe its input and the tensors differ in their first size, they form one batch. RecipeError if the outputs' rows
// are not those of the batch.
PredictionReport predict_rows(const Entry& entry, Loaded& loaded, const PredictionInput& input,
                              const std::function<void(const Tensors& outputs)>& write,
                              const std::function<void(std::int64_t done, std::int64_t rows)>& progress = {});

// Predicts one batch: the recipe's inputs by name, on its device. Returns the outputs of predict() in CPU memory, half precision
// as fp32. `rows`: the inputs' rows, -1 = unknown. RecipeError for outputs that the entry does not name, or whose number of rows
// differs.
[[nodiscard]] Tensors predict_batch(const Entry& entry, Recipe& recipe, const Tensors& inputs, std::int64_t rows,
                                    std::optional<at::ScalarType> autocast);
// Whether a tensor of this type and shape is valid as this input of predict().
[[nodiscard]] bool takes(const PredictField& field, DType dtype, const Shape& shape);

// "x" c64 [rows,baselines,frequencies,RA].
[[nodiscard]] std::string to_text(const PredictField& field);

}  // namespace millrace
