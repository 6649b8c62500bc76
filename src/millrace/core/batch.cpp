#include "millrace/core/batch.h"

#include <algorithm>
#include <numeric>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/core/scalar_type.h"

namespace millrace {

namespace {

std::string names_of(const Tensors& fields) {
  return fields.empty() ? "none" : joined(fields, ", ", &Tensors::value_type::first);
}

[[noreturn]] void refuse(std::string what, std::string next) { throw RecipeError({std::move(what), "", std::move(next)}); }

// Returns the field with the most similar name; "" if no name is similar.
std::string nearest_field(std::string_view name, const Tensors& fields) {
  std::vector<std::string> names;
  for (const auto& [known, tensor] : fields) names.push_back(known);
  return nearest(name, names.data(), names.data() + names.size());
}

std::string word_of(at::ScalarType type) {
  const auto ours = dtype_of(type);
  return ours ? std::string(name_of(*ours)) : c10::toString(type);
}

}  // namespace

Batch::Batch(Tensors fields) {
  Group group;
  std::int64_t rows = 0;
  for (const auto& [name, tensor] : fields) {
    if (!tensor.defined() || tensor.dim() < 1)
      refuse("field " + quoted(name) + " of a batch has no dimension that counts the rows", "give it the shape (rows, ...)");
    if (name == fields.begin()->first) rows = tensor.size(0);
    if (tensor.size(0) != rows) {
      refuse("field " + quoted(name) + " of a batch has " + std::to_string(tensor.size(0)) + " rows, " +
                 quoted(fields.begin()->first) + " has " + std::to_string(rows),
             "give all fields the same first dimension");
    }
  }
  group.fields = std::move(fields);
  group.positions.resize(static_cast<std::size_t>(rows));
  std::iota(group.positions.begin(), group.positions.end(), std::int64_t{0});
  groups_.push_back(std::move(group));
}

const at::Tensor& Batch::operator[](std::string_view name) const {
  if (groups_.size() != 1) {
    refuse("field " + quoted(name) + " was read from a batch of " + std::to_string(groups_.size()) + " groups",
           "read the field from one of groups(), or give the pipeline only one data set");
  }
  const Tensors& fields = groups_.front().fields;
  const auto found = fields.find(name);
  if (found == fields.end()) {
    const std::string near = nearest_field(name, fields);
    refuse("the batch has no field " + quoted(name) + "; its fields: " + names_of(fields),
           near.empty() ? "use a name that the source or prepare() gives" : "did you mean " + quoted(near) + "?");
  }
  return found->second;
}

void Batch::set(std::string name, at::Tensor value) {
  if (groups_.empty()) groups_.emplace_back();
  groups_.front().fields.insert_or_assign(std::move(name), std::move(value));
}

bool Batch::has(std::string_view name) const { return !groups_.empty() && groups_.front().fields.contains(name); }

std::int64_t Batch::rows() const noexcept {
  std::int64_t rows = 0;
  for (const Group& group : groups_) rows += group.rows();
  return rows;
}

const LossTerm& Loss::term(std::string_view name) const {
  const auto it = std::find_if(terms.begin(), terms.end(), [&](const LossTerm& t) { return t.name == name; });
  if (it == terms.end()) {
    std::string known;
    for (const LossTerm& t : terms) known += (known.empty() ? "" : ", ") + quoted(t.name);
    refuse("the loss has no term " + quoted(name) +
               (known.empty() ? ": the objective was absent from this step" : "; its terms: " + known),
           known.empty() ? "first check that terms is not empty" : "use one of these names");
  }
  return *it;
}

std::string to_text(const Tensors& tensors) {
  std::string text;
  for (const auto& [name, tensor] : tensors) {
    text += (text.empty() ? "" : ", ") + name + " ";
    text += tensor.defined() ? word_of(tensor.scalar_type()) + " " + to_text(Shape(tensor.sizes().begin(), tensor.sizes().end()))
                             : "undefined";
  }
  return text.empty() ? "no fields" : text;
}

std::string to_text(const Batch& batch) {
  if (batch.groups().size() == 1) return to_text(batch.groups().front().fields);
  return joined(batch.groups(), "; ", [](const Group& group) { return group.name + ": " + to_text(group.fields); });
}

std::string to_text(const BatchOrigin& origin) {
  const std::string number = "batch " + std::to_string(origin.index);
  return origin.split == Split::train ? "training " + number + " of epoch " + std::to_string(origin.epoch)
                                      : "validation " + number;
}

}  // namespace millrace
