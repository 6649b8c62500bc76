// The part of Board that counts classes.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "millrace/base/error.h"
#include "millrace/base/field.h"
#include "millrace/base/format.h"
#include "millrace/metrics/board.h"
#include "millrace/metrics/detail/sums.h"

namespace millrace::metrics {

namespace {

std::string table_name(const Classification& how) { return how.prefix() + "confusion"; }

bool is_logits(const at::Tensor& predicted) { return predicted.is_floating_point(); }

// Fills in the names of classes that are missing.
Classification named(const at::Tensor& predicted, Classification how) {
  const std::string name = table_name(how);
  if (is_logits(predicted)) {
    const std::int64_t classes = predicted.dim() > 0 ? predicted.size(-1) : 0;
    if (classes < 2) {
      detail::refuse(name, "logits " + detail::shape_text(predicted) + " have fewer than two classes",
                     "the last dimension must be the classes; turn a single logit into booleans: logits.squeeze(-1) > 0");
    }
    if (how.classes.empty()) {
      for (std::int64_t i = 0; i < classes; ++i) how.classes.push_back(std::to_string(i));
    }
    if (how.classes.size() != static_cast<std::size_t>(classes)) {
      detail::refuse(name,
                     with_commas(static_cast<std::int64_t>(how.classes.size())) +
                         " names of classes were given, but the logits " + detail::shape_text(predicted) + " have " +
                         with_commas(classes) + " classes",
                     "give one name for each class");
    }
  } else if (how.classes.empty()) {
    if (predicted.scalar_type() != at::kBool) {
      detail::refuse(name, "class ids alone do not tell the number of classes",
                     "name the classes: {.classes = {\"cat\", \"dog\"}}");
    }
    how.classes = {"false", "true"};
  }
  const auto classes = static_cast<std::int64_t>(how.classes.size());
  if (classes > detail::kMostClasses) {
    detail::refuse(name,
                   with_commas(classes) + " classes are more than the " + with_commas(detail::kMostClasses) +
                       " that a table of counts holds",
                   "count only the hits: add_rate(\"accuracy\", logits.argmax(-1) == labels)");
  }
  if (how.top_k != 0 && (!is_logits(predicted) || how.top_k < 2 || how.top_k >= classes)) {
    detail::refuse(name,
                   "top_k = " + std::to_string(how.top_k) + " does not fit " + std::to_string(classes) + " classes" +
                       (is_logits(predicted) ? "" : " given as ids"),
                   "give logits and a top_k of at least 2 and less than the number of classes; 0 turns top_k off");
  }
  return how;
}

void check_labels(const at::Tensor& predicted, const at::Tensor& labels, const Classification& how) {
  const std::string name = table_name(how);
  if (!at::isIntegralType(labels.scalar_type(), /*includeBool=*/true)) {
    throw DataError({"labels are " + detail::type_text(labels) + ", but class ids are integers", "metric " + quoted(name),
                     "convert them in prepare() or in the source"});
  }
  const at::IntArrayRef wanted = is_logits(predicted) ? predicted.sizes().slice(0, predicted.dim() - 1) : predicted.sizes();
  if (labels.sizes() == wanted) return;
  throw DataError({(is_logits(predicted) ? "logits " : "class ids ") + detail::shape_text(predicted) + " need labels of shape " +
                       to_text(Shape(wanted.begin(), wanted.end())) + ", the labels have shape " + detail::shape_text(labels),
                   "metric " + quoted(name),
                   "give the labels that shape, e.g. with squeeze(1); the classes must be the last dimension of the logits: "
                   "for images [rows,classes,height,width] call movedim(1, -1)"});
}

// Returns how many classes of each row rank above the label's class. Of equal logits the first ranks higher, and NaN ranks above
// all numbers, as in argmax.
at::Tensor places(const at::Tensor& logits, const at::Tensor& labels) {
  const at::Tensor own = labels.clamp(0, logits.size(1) - 1).unsqueeze(1);
  const at::Tensor score = logits.gather(1, own);
  const at::Tensor index = at::arange(logits.size(1), own.options());
  const at::Tensor behind = logits.lt(score) | (logits.eq(score) & index.ge(own));
  return logits.size(1) - behind.sum(1);
}

// Makes a new table's zeros on the device that counts the table, so that the zeros need no copy.
void begin_on(std::vector<at::Tensor>& parts, const at::Device& device) {
  for (at::Tensor& part : parts) part = detail::integers_on(device, part.sizes());
}

}  // namespace

Board::Entry& Board::classification_of(const Classification& how) {
  Entry& entry = entry_of(table_name(how), Reading::classification);
  if (entry.parts.empty()) {
    const auto classes = static_cast<std::int64_t>(how.classes.size());
    entry.how = how;
    entry.parts = {detail::integers_on(at::kCPU, {classes * classes + detail::kAside}), detail::integers_on(at::kCPU, {}),
                   detail::integers_on(at::kCPU, {detail::kExtremes})};
    for (const char* each : {"accuracy", "balanced_accuracy", "macro_f1"}) know(how.prefix() + each, BestIs::highest);
    if (how.top_k > 0) know(how.prefix() + "top" + std::to_string(how.top_k) + "_accuracy", BestIs::highest);
    for (const char* each : {"recall/*", "precision/*", "f1/*"}) {
      if (how.per_class) quiet(how.prefix() + each);
      if (how.per_class) know(how.prefix() + each, BestIs::highest);
    }
  } else if (entry.how.classes != how.classes || entry.how.top_k != how.top_k) {
    detail::refuse(entry.name, "the classes or top_k differ from those of an earlier batch",
                   "use the same classes for each batch, and give each classifier a different .name");
  }
  return entry;
}

void Board::add_counts(const Entry& other) {
  const std::size_t before = entries_.size();
  Entry& entry = classification_of(other.how);
  if (entries_.size() > before) begin_on(entry.parts, other.parts[0].device());
  for (std::size_t i = 0; i < entry.parts.size(); ++i) detail::move_to(entry.parts[i], other.parts[i].device());
  entry.parts[0].add_(other.parts[0]);
  entry.parts[1].add_(other.parts[1]);
  entry.parts[2] = at::maximum(entry.parts[2], other.parts[2]);
}

void Board::add_classification(const at::Tensor& predicted, const at::Tensor& labels, const Classification& how) {
  check_labels(predicted, labels, how);
  const Classification full = named(predicted, how);
  const std::size_t before = entries_.size();
  Entry& entry = classification_of(full);
  if (entries_.size() > before) begin_on(entry.parts, predicted.device());
  if (labels.numel() == 0) return;
  const auto classes = static_cast<std::int64_t>(full.classes.size());
  const at::Tensor scores = predicted.detach();
  const at::Tensor ids = (is_logits(scores) ? scores.argmax(-1) : scores.to(at::kLong)).reshape({-1});
  // If `ids` are on the host (a recipe copied its predictions to the host), waits for the copy of the labels.
  const at::Tensor truth = labels.detach().to(ids.options(), /*non_blocking=*/!ids.is_cpu()).reshape({-1});
  const auto is_class = [&](const at::Tensor& x) { return x.ge(0) & x.lt(classes); };
  const at::Tensor meant = truth.ne(full.ignore_index);
  const at::Tensor counted = meant & is_class(truth) & is_class(ids);
  const std::int64_t aside = classes * classes;
  at::Tensor cell = (truth * classes + ids).masked_fill(~counted, aside + 1);
  if (is_logits(scores)) cell = cell.masked_fill(scores.ne(scores).any(-1).reshape({-1}), aside + 2);
  cell = cell.masked_fill(~meant, aside);
  for (at::Tensor& part : entry.parts) detail::move_to(part, ids.device());
  // The counts are integers, so the order of a device's atomic additions does not change the result.
  entry.parts[0].index_add_(0, cell.to(entry.parts[0].device()), at::ones_like(cell).to(entry.parts[0].device()));
  if (full.top_k > 0) entry.parts[1].add_((places(scores.reshape({-1, classes}), truth).lt(full.top_k) & counted).sum());
  const at::Tensor label = truth.masked_fill(~meant, 0);
  const at::Tensor id = ids.masked_fill(~meant, 0);
  const at::Tensor extremes = at::stack({-label.amin(), label.amax(), -id.amin(), id.amax()});
  entry.parts[2] = at::maximum(entry.parts[2], extremes.to(entry.parts[2].device()));
}

Confusion Board::table_of(const Entry& entry, const double* value) {
  Confusion table{.name = entry.name, .classes = entry.how.classes, .counts = {}};
  const std::size_t cells = table.classes.size() * table.classes.size();
  if (value[cells + 1] > 0) {
    const auto classes = static_cast<double>(table.classes.size());
    const double* extreme = value + cells + detail::kAside + 1;
    const bool label = extreme[0] > 0 || extreme[1] >= classes;
    const double* own = label ? extreme : extreme + 2;
    const double bad = own[1] >= classes ? own[1] : -own[0];
    throw DataError({std::string(label ? "label " : "predicted class ") + fixed(bad, 0) + " is not one of the " +
                         std::to_string(table.classes.size()) + " classes 0.." + std::to_string(table.classes.size() - 1) + "; " +
                         with_commas(static_cast<std::int64_t>(value[cells + 1])) + " such values in all",
                     "metric " + quoted(entry.name),
                     "number the classes from 0, name all of them in {.classes = ...}, or set .ignore_index for labels that must "
                     "not be counted"});
  }
  table.counts.resize(cells);
  std::transform(value, value + cells, table.counts.begin(), [](double count) { return static_cast<std::int64_t>(count); });
  return table;
}

std::vector<Confusion> Board::tables() const {
  std::vector<Confusion> tables;
  const Host host = read_back();
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].reading == Reading::classification) tables.push_back(table_of(entries_[i], host.of(i)));
  }
  return tables;
}

}  // namespace millrace::metrics
