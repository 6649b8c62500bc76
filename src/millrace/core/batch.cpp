#include "millrace/core/batch.h"

#include <algorithm>
#include <numeric>

#include "millrace/base/error.h"
#include "millrace/base/format.h"

namespace millrace {

namespace {

std::string names_of(const Tensors& fields) {
  return fields.empty() ? "none" : joined(fields, ", ", &Tensors::value_type::first);
}

}  // namespace

Batch::Batch(Tensors fields) {
  Group group;
  std::int64_t rows = 0;
  for (const auto& [name, tensor] : fields) {
    MR_CHECK(tensor.defined() && tensor.dim() >= 1, "field \"" + name + "\" has no first dimension to count rows by");
    if (name == fields.begin()->first) rows = tensor.size(0);
    MR_CHECK(tensor.size(0) == rows, "field \"" + name + "\" has " + std::to_string(tensor.size(0)) + " rows, \"" +
                                         fields.begin()->first + "\" has " + std::to_string(rows));
  }
  group.fields = std::move(fields);
  group.positions.resize(static_cast<std::size_t>(rows));
  std::iota(group.positions.begin(), group.positions.end(), std::int64_t{0});
  groups_.push_back(std::move(group));
}

const at::Tensor& Batch::operator[](std::string_view name) const {
  MR_CHECK(groups_.size() == 1,
           "field \"" + std::string(name) + "\" asked of a batch of " + std::to_string(groups_.size()) + " groups: use groups()");
  const Tensors& fields = groups_.front().fields;
  const auto found = fields.find(name);
  MR_CHECK(found != fields.end(), "the batch has no field \"" + std::string(name) + "\"; fields: " + names_of(fields));
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
    throw InternalError({"a loss without a term " + quoted(name), known.empty() ? "it has no terms" : "it has " + known, ""});
  }
  return *it;
}

}  // namespace millrace
