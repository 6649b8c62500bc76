#include "millrace/nn/detail/labels.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>

#include <limits>
#include <string>

#include "millrace/base/field.h"
#include "millrace/core/scalar_type.h"
#include "millrace/nn/functional.h"

namespace millrace::nn::detail {
namespace {

std::string text_of(at::IntArrayRef sizes) { return to_text(Shape(sizes.begin(), sizes.end())); }

std::string type_text(const at::Tensor& value) {
  const auto dtype = dtype_of(value.scalar_type());
  return dtype ? std::string(name_of(*dtype)) : std::string(c10::toString(value.scalar_type()));
}

at::Tensor outside(const at::Tensor& labels, std::int64_t classes, std::int64_t ignore_index) {
  return (labels.lt(0) | labels.ge(classes)) & labels.ne(ignore_index);
}

}  // namespace

void check_labels(const at::Tensor& logits, const at::Tensor& labels) {
  const std::string where = "labels of a cross-entropy";
  if (labels.is_floating_point() && labels.sizes() == logits.sizes() && logits.dim() > 1) {
    throw DataError(
        {"the labels " + type_text(labels) + text_of(labels.sizes()) +
             " are a number for each class, but a cross-entropy takes ids of classes, i64" +
             text_of(logits.sizes().slice(0, logits.dim() - 1)),
         where,
         "give ids: labels.argmax(-1); if labels are truly shared between classes, compute the loss yourself, without "
         "label_smoothing: -(labels * logits.log_softmax(-1)).sum(), with the number of rows as count"});
  }
  if (labels.scalar_type() != at::kLong) {
    throw DataError({"the labels are " + type_text(labels) + text_of(labels.sizes()) + ", but a cross-entropy takes i64 (int64)",
                     where, "convert them in prepare() or in the source, e.g. batch[\"label\"].to(at::kLong)"});
  }
  if (!logits.is_floating_point() || logits.dim() == 0) {
    throw DataError({"logits " + type_text(logits) + text_of(logits.sizes()) + " are not scores of classes", where,
                     "give one float for each class, in the last dimension"});
  }
  const at::IntArrayRef wanted = logits.sizes().slice(0, logits.dim() - 1);
  if (labels.sizes() == wanted) return;
  throw DataError(
      {"logits " + text_of(logits.sizes()) + " need labels of shape " + text_of(wanted) + ", the labels have shape " +
           text_of(labels.sizes()),
       where,
       "bring the labels to that shape, e.g. with squeeze(1) in prepare(); the classes must be the last dimension of the "
       "logits: for images [rows,classes,height,width] call movedim(1, -1)"});
}

void find_bad_label(const at::Tensor& labels, std::int64_t classes, std::int64_t ignore_index) {
  if (!labels.is_cpu()) return;
  const at::Tensor places = outside(labels, classes, ignore_index).nonzero();
  if (places.size(0) == 0) return;
  const at::Tensor flat = labels.reshape({-1});  // host: the labels are on the CPU, and this runs only for an error
  const std::int64_t first = outside(flat, classes, ignore_index).nonzero()[0][0].item<std::int64_t>();
  const std::int64_t row = places.size(1) > 0 ? places[0][0].item<std::int64_t>() : 0;
  throw RowError({"label " + std::to_string(flat[first].item<std::int64_t>()) + " of row " + std::to_string(row) +
                      " is not one of the " + std::to_string(classes) + " classes 0.." + std::to_string(classes - 1),
                  "labels of a cross-entropy",
                  "number the classes from 0 in the source or in prepare(), make the model's last layer as wide as there are "
                  "classes, or set ignore_index for labels that must not be counted"},
                 row);
}

SafeLabels safe_labels(const at::Tensor& labels, std::int64_t classes, std::int64_t ignore_index) {
  const at::Tensor bad = outside(labels, classes, ignore_index);
  const at::Tensor zero = at::zeros({}, labels.options().dtype(at::kFloat));
  return {labels.masked_fill(bad, 0), zero.masked_fill(bad.any(), std::numeric_limits<float>::quiet_NaN())};
}

}  // namespace millrace::nn::detail
