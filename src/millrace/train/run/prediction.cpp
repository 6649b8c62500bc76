#include "millrace/train/run/prediction.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/isnan.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/core/scalar_type.h"
#include "millrace/device/autocast.h"
#include "millrace/train/step/draws.h"

namespace millrace {
namespace {

enum class Kind : std::uint8_t { integer, real, complex };

Kind kind_of(DType dtype) {
  if (dtype == DType::c64 || dtype == DType::c128) return Kind::complex;
  const bool real = dtype == DType::f16 || dtype == DType::bf16 || dtype == DType::f32 || dtype == DType::f64;
  return real ? Kind::real : Kind::integer;
}

bool fits(DType given, DType taken) {
  return kind_of(given) == kind_of(taken) || (kind_of(given) == Kind::integer && kind_of(taken) == Kind::real);
}

// Splits "[rows,2]" into {"rows", "2"}.
std::vector<std::string> sizes_of(const std::string& shape) {
  std::vector<std::string> sizes(1);
  for (const char c : shape) {
    if (c == ',') sizes.emplace_back();
    if (c != ',' && c != '[' && c != ']' && c != ' ') sizes.back() += c;
  }
  return sizes;
}

bool fits(const Shape& given, const std::string& taken) {
  const std::vector<std::string> sizes = sizes_of(taken);
  if (given.size() != sizes.size()) return false;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    std::int64_t size = 0;
    const auto [end, error] = std::from_chars(sizes[i].data(), sizes[i].data() + sizes[i].size(), size);
    if (error == std::errc() && end == sizes[i].data() + sizes[i].size() && size != given[i]) return false;
  }
  return true;
}

std::string text_of(const Field& field) {
  return quoted(field.name) + " " + std::string(name_of(field.dtype)) + " " + to_text(field.shape);
}

template <class Fields, class Text>
std::string listed(const Fields& fields, Text text) {
  std::string all;
  for (const auto& field : fields) all += (all.empty() ? "" : ", ") + text(field);
  return all.empty() ? "nothing" : all;
}

[[noreturn]] void refuse(const Entry& entry, const PredictionInput& input, std::string what) {
  const std::string takes = listed(entry.predicts.inputs, [](const PredictField& field) { return to_text(field); });
  throw UsageError({std::move(what), input.origin + " holds " + listed(input.tensors, text_of),
                    "recipe " + entry.name + " takes " + takes + "; millrace predict " + entry.name + " --help says more"});
}

std::size_t find(const Entry& entry, const PredictionInput& input, const PredictField& taken) {
  const auto found =
      std::find_if(input.tensors.begin(), input.tensors.end(), [&](const Field& field) { return field.name == taken.name; });
  if (found == input.tensors.end()) refuse(entry, input, "the input has no tensor " + quoted(taken.name));
  if (!takes(taken, found->dtype, found->shape)) {
    refuse(entry, input, "tensor " + text_of(*found) + " is not what recipe " + entry.name + " takes");
  }
  return static_cast<std::size_t>(found - input.tensors.begin());
}

// The number of rows of the input; -1 if all tensors form one batch.
std::int64_t rows_of(const Entry& entry, const PredictionInput& input, const std::vector<std::size_t>& used) {
  if (used.empty()) refuse(entry, input, "the input holds no tensor");
  std::int64_t rows = -1;
  for (const std::size_t i : used) {
    const Shape& shape = input.tensors[i].shape;
    const bool differs = shape.empty() || (rows >= 0 && shape[0] != rows);
    if (differs && entry.predicts.inputs.empty()) return -1;
    if (differs) refuse(entry, input, "the tensors of the input differ in their number of rows");
    rows = shape[0];
  }
  if (rows == 0) refuse(entry, input, "the input has no rows");
  return rows;
}

// Counts the NaN values of one tensor over all batches, and finds the first row with such a value.
struct NotANumber {
  std::int64_t count = 0;
  std::int64_t first_row = -1;

  void look(const at::Tensor& tensor, std::int64_t row) {
    if (!at::isFloatingType(tensor.scalar_type()) && !at::isComplexType(tensor.scalar_type())) return;
    const at::Tensor bad = at::isnan(tensor);
    const auto here = bad.sum().item<std::int64_t>();
    if (here > 0 && count == 0) first_row = row + (tensor.dim() == 0 ? 0 : bad.nonzero()[0][0].item<std::int64_t>());
    count += here;
  }
};

at::Tensor on_cpu(const at::Tensor& output) {
  const at::ScalarType type = output.scalar_type();
  const bool half = type == at::kBFloat16 || type == at::kHalf;
  return output.detach().to(at::kCPU, half ? at::kFloat : type).resolve_conj().resolve_neg().contiguous();
}

[[noreturn]] void refuse_output(const Entry& entry, const std::string& what) {
  throw RecipeError({what, "recipe " + entry.name + ", Entry::predicts",
                     "make predict() and the entry agree; the entry has: " +
                         listed(entry.predicts.outputs, [](const PredictField& field) { return to_text(field); })});
}

void check_names(const Entry& entry, const Tensors& outputs) {
  const std::vector<PredictField>& promised = entry.predicts.outputs;
  if (promised.empty()) return;
  for (const PredictField& field : promised) {
    if (!outputs.contains(field.name)) refuse_output(entry, "predict() gives no " + quoted(field.name));
  }
  for (const auto& output : outputs) {
    if (std::ranges::none_of(promised, [&](const PredictField& field) { return field.name == output.first; }))
      refuse_output(entry, "predict() gives " + quoted(output.first) + ", which the entry does not name");
  }
}

// Checks the types and shapes of the outputs. For example, an integer output is refused if the recipe's entry says real, because
// readers of the file rely on the entry.
void check_kinds(const Entry& entry, const Tensors& outputs) {
  for (const PredictField& field : entry.predicts.outputs) {
    const at::Tensor& output = outputs.at(field.name);
    const auto dtype = dtype_of(output.scalar_type());
    if (dtype && kind_of(*dtype) == kind_of(field.dtype) && fits(output.sizes().vec(), field.shape)) continue;
    refuse_output(entry, "predict() gives " + to_text(Tensors{{field.name, output}}) + ", but the entry says " + to_text(field));
  }
}

Tensors checked(const Entry& entry, const Tensors& outputs, std::int64_t rows) {
  check_names(entry, outputs);
  Tensors result;
  for (const auto& [name, output] : outputs) {
    const bool whole = rows < 0;
    if (!output.defined() || (!whole && (output.dim() == 0 || output.size(0) != rows))) {
      const std::string shape = output.defined() ? to_text(output.sizes().vec()) : "no tensor";
      throw RecipeError(
          {"output " + quoted(name) + " of predict() is " + shape + " for " + std::to_string(rows) + " rows of input",
           "recipe " + entry.name, "give every output as many rows as the inputs have"});
    }
    result[name] = on_cpu(output);
  }
  check_kinds(entry, result);
  return result;
}

}  // namespace

bool takes(const PredictField& field, DType dtype, const Shape& shape) {
  return fits(dtype, field.dtype) && fits(shape, field.shape);
}

Tensors predict_batch(const Entry& entry, Recipe& recipe, const Tensors& inputs, std::int64_t rows,
                      std::optional<at::ScalarType> autocast) {
  const at::NoGradGuard no_grad;
  const at::Device device = inputs.empty() ? at::Device(at::kCPU) : inputs.begin()->second.device();
  Tensors outputs;
  {
    const device::Autocast scope(device.type(), autocast);
    outputs = recipe.predict(inputs);
  }
  return checked(entry, outputs, rows);
}

std::string to_text(const PredictField& field) {
  return quoted(field.name) + " " + std::string(name_of(field.dtype)) + " " + field.shape;
}

std::vector<std::size_t> tensors_for(const Entry& entry, const PredictionInput& input) {
  std::vector<std::size_t> used;
  for (const PredictField& field : entry.predicts.inputs) used.push_back(find(entry, input, field));
  if (entry.predicts.inputs.empty()) {
    for (std::size_t i = 0; i < input.tensors.size(); ++i) used.push_back(i);
  }
  static_cast<void>(rows_of(entry, input, used));
  return used;
}

PredictionReport predict_rows(const Entry& entry, Loaded& loaded, const PredictionInput& input,
                              const std::function<void(const Tensors& outputs)>& write,
                              const std::function<void(std::int64_t done, std::int64_t rows)>& progress) {
  const std::vector<std::size_t> used = tensors_for(entry, input);
  const std::int64_t rows = rows_of(entry, input, used);
  const bool whole = rows < 0;
  const std::int64_t most = whole ? 1 : loaded.shared->data.samples_per_batch();
  std::vector<NotANumber> bad(used.size());
  PredictionReport report{.rows = whole ? 1 : rows, .warnings = {}};
  seed_draws(loaded.device, static_cast<std::uint64_t>(loaded.shared->train.seed), Draws::predict);
  for (std::int64_t first = 0; first < report.rows; first += most) {
    const std::int64_t count = std::min(most, report.rows - first);
    Tensors batch;
    for (std::size_t k = 0; k < used.size(); ++k) {
      at::Tensor tensor = input.read(used[k], first, whole ? -1 : count);
      bad[k].look(tensor, first);
      const bool known = k < entry.predicts.inputs.size();
      const at::ScalarType type = known ? scalar_type_of(entry.predicts.inputs[k].dtype) : tensor.scalar_type();
      batch[input.tensors[used[k]].name] = tensor.to(loaded.device, type);
    }
    write(predict_batch(entry, *loaded.recipe, batch, whole ? -1 : count, loaded.autocast));
    if (progress) progress(first + count, report.rows);
  }
  for (std::size_t k = 0; k < used.size(); ++k) {
    if (bad[k].count == 0) continue;
    const std::string which = quoted(input.tensors[used[k]].name);
    report.warnings.push_back((bad[k].count == 1 ? "1 element of input " + which + " is"
                                                 : with_commas(bad[k].count) + " elements of input " + which + " are") +
                              " not a number (NaN), the first in row " + with_commas(bad[k].first_row) +
                              ": predictions from such a row are meaningless");
  }
  for (std::size_t i = 0; i < input.tensors.size(); ++i) {
    if (std::find(used.begin(), used.end(), i) == used.end())
      report.warnings.push_back("the recipe does not take " + quoted(input.tensors[i].name) + ", which is left out");
  }
  return report;
}

}  // namespace millrace
