// Computes a trained model's output for rows of input, one batch after another: for `millrace predict`.
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
  std::string origin;          // the input's name in messages: the path of its file
  std::vector<Field> tensors;  // names, types and complete shapes of the input's tensors
  // Reads rows [first, first + count) of tensors[index] into CPU memory; count = -1 reads the whole tensor, which may be a
  // scalar.
  std::function<at::Tensor(std::size_t index, std::int64_t first, std::int64_t count)> read;
};

struct PredictionReport {
  std::int64_t rows = 0;
  std::vector<std::string> warnings;  // about NaN in the input, and about tensors that the recipe does not take
};

// The tensors that the recipe takes, in its order, as indices into input.tensors. If the recipe does not describe its inputs,
// all tensors. Throws UsageError if a tensor is missing, or if its kind, shape or number of rows is wrong; the message says what
// was found and what was expected.
[[nodiscard]] std::vector<std::size_t> tensors_for(const Entry& entry, const PredictionInput& input);

// Calls Recipe::predict() for data.batch_size rows at a time, without gradients and in the run's number format. Passes each
// result to `write`, in CPU memory and with half precision converted to fp32. `progress` gets (rows done, rows). Holds one batch
// in memory at a time. If the recipe does not describe its inputs and the tensors differ in their first size, all tensors form
// one batch. Throws RecipeError if an output has another number of rows than the batch.
PredictionReport predict_rows(const Entry& entry, Loaded& loaded, const PredictionInput& input,
                              const std::function<void(const Tensors& outputs)>& write,
                              const std::function<void(std::int64_t done, std::int64_t rows)>& progress = {});

// Predicts one batch. `inputs`: the recipe's inputs by name, on its device. `rows`: the number of their rows, -1 = unknown.
// Returns the outputs of predict() in CPU memory, with half precision converted to fp32. Throws RecipeError for outputs that the
// entry does not name, or whose number of rows is wrong.
[[nodiscard]] Tensors predict_batch(const Entry& entry, Recipe& recipe, const Tensors& inputs, std::int64_t rows,
                                    std::optional<at::ScalarType> autocast);
// True if a tensor of this type and shape is valid as the input `field` of predict().
[[nodiscard]] bool takes(const PredictField& field, DType dtype, const Shape& shape);

// The field as messages show it: "x" c64 [rows,baselines,frequencies,RA].
[[nodiscard]] std::string to_text(const PredictField& field);

}  // namespace millrace
