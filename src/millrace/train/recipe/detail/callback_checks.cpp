#include "millrace/train/recipe/detail/callback_checks.h"

#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/base/format.h"

namespace millrace {
namespace {

[[noreturn]] void refuse(std::string what, std::string next) { throw RecipeError({std::move(what), "", std::move(next)}); }

std::string shape_text(const at::Tensor& tensor) { return to_text(tensor.sizes().vec()); }

void check_source(const data::Source& source, const std::string& who) {
  if (source.size() < 0)
    refuse("the source of " + who + " has the size " + std::to_string(source.size()), "return the number of samples from size()");
  if (source.fields().empty()) refuse("the source of " + who + " has no fields", "return at least one field from fields()");
  std::set<std::string_view> names;
  for (const Field& field : source.fields()) {
    const std::string which = "field " + quoted(field.name) + " of " + who;
    if (field.name.empty()) refuse("a field of " + who + " has no name", "give it a name, under which the batch holds it");
    if (!names.insert(field.name).second) refuse(who + " has two fields " + quoted(field.name), "give each field its own name");
    if (!element_count(field.shape)) {
      refuse(which + " has the shape " + to_text(field.shape),
             "give the shape of one sample: sizes of 0 or more, without the batch");
    }
  }
}

void check_term(const LossTerm& term, bool training) {
  const std::string who = term.name.empty() ? "the loss" : "term " + quoted(term.name) + " of the loss";
  if (!term.sum.defined()) refuse(who + " has no sum", "add its values up: values.sum()");
  if (term.sum.dim() != 0)
    refuse(who + " has a sum of shape " + shape_text(term.sum) + ", expected a scalar", "add its values up: values.sum()");
  const std::string counting = "say how many values the sum adds up, as a scalar on the sum's device";
  if (!term.count.defined()) refuse(who + " has no count", counting);
  if (term.count.dim() != 0) refuse(who + " has a count of shape " + shape_text(term.count) + ", expected a scalar", counting);
  if (!(term.nominal_count > 0))
    refuse(who + " has the nominal_count " + significant(term.nominal_count, 6), "give the count of a full micro-batch, above 0");
  if (term.report && (!term.report->sum.defined() || !term.report->count.defined()))
    refuse(who + " has a report without " + (term.report->sum.defined() ? "a count" : "a sum"), "give both, or no report");
  if (term.report) {
    const bool of_sum = term.report->sum.numel() != 1;
    const at::Tensor& value = of_sum ? term.report->sum : term.report->count;
    if (value.numel() != 1)
      refuse(who + " has a report whose " + (of_sum ? "sum" : "count") + " has the shape " + shape_text(value) +
                 ", expected a scalar",
             "add its values up: values.sum()");
  }
  if (term.weight_now.defined() && term.weight_now.numel() != 1)
    refuse(who + " has a weight_now of shape " + shape_text(term.weight_now) + ", expected a scalar",
           "give one number for the term, such as StepContext::number()");
  if (training && at::GradMode::is_enabled() && !term.sum.requires_grad()) {
    refuse(who + " has no gradient: it depends on no parameter of the objective",
           "look for a detach(), item(), NoGradGuard or an integer on the way from the model to the sum");
  }
}

void check_picture(const Picture& picture) {
  const std::string who = "picture " + quoted(picture.name);
  const std::string file = "because it is saved as pictures/NAME.png";
  if (picture.name.empty()) refuse("a picture has no name", "name it, " + file);
  if (picture.name.find('/') != std::string::npos || picture.name.front() == '.')
    refuse(who + " has a name that is not a valid file name", "leave out slashes and a dot at the beginning, " + file);
  if (picture.width < 1 || picture.height < 1)
    refuse(who + " is " + std::to_string(picture.width) + " x " + std::to_string(picture.height), "give it a width and a height");
  const auto bytes = static_cast<std::uint64_t>(picture.width) * static_cast<std::uint64_t>(picture.height) * 3;
  if (picture.rgb.size() == bytes) return;
  refuse(who + " has " + std::to_string(picture.rgb.size()) + " bytes, and " + std::to_string(picture.width) + " x " +
             std::to_string(picture.height) + " pixels need " + std::to_string(bytes),
         "give three bytes a pixel, rows from the top");
}

}  // namespace

void check_pipeline(const data::Pipeline& pipeline) {
  std::set<std::string> names;
  for (const data::Dataset& dataset : pipeline.datasets) {
    const std::string who = dataset.name.empty() ? "the data set" : "data set " + quoted(dataset.name);
    if (!dataset.source) refuse(who + " has no source", "give it a source, not a null pointer");
    check_source(*dataset.source, who);
    if (!dataset.name.empty() && !names.insert(dataset.name).second)
      refuse("two data sets have the name " + quoted(dataset.name),
             "give each its own name, by which the groups of a batch are found");
  }
}

void check_prepared(const Batch& batch) {
  for (const Group& group : batch.groups()) {
    for (const auto& [name, tensor] : group.fields) {
      const std::string who =
          "field " + quoted(name) + (group.name.empty() ? "" : " of group " + quoted(group.name)) + " of the prepared batch";
      if (!tensor.defined()) refuse(who + " has no tensor", "leave the field out, or give it a tensor");
      if (tensor.dim() > 0 && tensor.size(0) >= group.rows()) continue;  // a sample may become several rows
      refuse(who + " has the shape " + shape_text(tensor) + ", but the batch has " + std::to_string(group.rows()) + " rows",
             "give at least a row for each sample, in the first dimension; to leave samples out, do so in data()");
    }
  }
}

void check_same_samples(const Batch& given, const Batch& prepared) {
  const auto knows_samples = [](const Group& group) { return group.indices.size() == group.positions.size(); };
  const BatchOrigin &before = given.origin(), &after = prepared.origin();
  const bool same = before.split == after.split && before.epoch == after.epoch && before.index == after.index;
  const bool lost = std::ranges::all_of(given.groups(), knows_samples) &&
                    !std::ranges::all_of(prepared.groups(), knows_samples) && given.rows() > 0;
  if (same && !lost) return;
  refuse(
      "it returned a new batch that does not say which samples of which epoch it holds, so each batch would draw the same random "
      "numbers",
      "set the fields of the batch that prepare() got, with batch.set(name, value), and return it; if the batch needs "
      "other groups, copy positions and indices into them, and return Batch(std::move(groups), batch.origin())");
}

void check_objectives(const std::vector<Objective>& objectives, const torch::nn::Module& model) {
  std::map<const void*, std::string> names;  // parameter -> its name in the model
  for (const auto& item : model.named_parameters()) names[item.value().unsafeGetTensorImpl()] = item.key();
  std::map<const void*, std::string> movers;
  std::set<std::string> own;
  for (const Objective& objective : objectives) {
    const std::string who = "objective " + quoted(objective.name);
    if (!objective.loss) refuse(who + " has no loss", "set Objective::loss to a function");
    if (!own.insert(objective.name).second)
      refuse("two objectives have the name " + quoted(objective.name), "give each its own name, which logs and snapshots use");
    const auto move = [&](const void* parameter, const std::string& name) {
      if (const auto [it, is_new] = movers.emplace(parameter, who); !is_new) {
        refuse("parameter " + quoted(name) + " is updated " +
                   (it->second == who ? "twice by " + who : "by " + it->second + " and by " + who),
               it->second == who
                   ? "leave it in one ParameterGroup, because each group has its own learning rate and decay"
                   : "give each objective its own parameters; losses of the same parameters are terms of one objective");
      }
    };
    for (const auto& group : objective.parameters) {
      if (!(group.learning_rate_scale >= 0 && std::isfinite(group.learning_rate_scale)))
        refuse("a group of " + who + " has the learning_rate_scale " + significant(group.learning_rate_scale, 6),
               "give a factor of 0 or more");
      if (group.weight_decay && !(*group.weight_decay >= 0))
        refuse("a group of " + who + " has the weight_decay " + significant(*group.weight_decay, 6), "give 0 or more");
      for (const auto& parameter : group.parameters) {
        if (!parameter.value.defined())
          refuse("parameter " + quoted(parameter.name) + " of " + who + " has no tensor", "give it one");
        if (!parameter.value.requires_grad()) continue;
        const void* impl = parameter.value.unsafeGetTensorImpl();
        if (!names.contains(impl)) {
          refuse("parameter " + quoted(parameter.name) + " of " + who +
                     " does not belong to model(), so no snapshot would contain it",
                 "register it in a module below model(), and take it from there");
        }
        move(impl, parameter.name);
      }
    }
    if (!objective.parameters.empty()) continue;
    std::map<const void*, std::string> here;
    for (const auto& item : model.named_parameters()) {
      if (!item.value().requires_grad()) continue;
      const void* impl = item.value().unsafeGetTensorImpl();
      if (const auto [it, is_new] = here.emplace(impl, item.key()); !is_new) {
        refuse(quoted(it->second) + " and " + quoted(item.key()) + " are one parameter, registered twice below model()",
               "register it in only one of the two layers; the other layer's forward() can read it from there");
      }
      move(impl, item.key());
    }
  }
}

void name_as_in_model(std::vector<Objective>& objectives, const torch::nn::Module& model) {
  std::map<const void*, std::string> names;
  for (const auto& item : model.named_parameters()) names.emplace(item.value().unsafeGetTensorImpl(), item.key());
  for (Objective& objective : objectives) {
    for (optim::ParameterGroup& group : objective.parameters) {
      for (optim::NamedParameter& parameter : group.parameters) {
        const auto known = names.find(parameter.value.unsafeGetTensorImpl());
        if (known != names.end()) parameter.name = known->second;
      }
    }
  }
}

void check_loss(const Loss& loss, bool training) {
  if (loss.terms.empty()) refuse("the loss has no terms", "give it a term, or return nullopt where the objective is absent");
  std::set<std::string> names;
  for (const LossTerm& term : loss.terms) {
    check_term(term, training);
    if (!names.insert(term.name).second) {
      refuse(
          term.name.empty() ? "two terms of the loss have no name" : "two terms of the loss have the name " + quoted(term.name),
          "name each term of a loss");
    }
  }
  for (const auto& [name, tensor] : loss.outputs) {
    if (!tensor.defined()) refuse("output " + quoted(name) + " of the loss has no tensor", "leave it out, or give it a tensor");
  }
}

namespace {

constexpr const char* kTableNameRule =
    "use only letters, digits, \"_\" and \"-\", and not \"history\", because the table is saved as NAME.csv next to history.csv";

// True if a run folder may have a table file `name`.csv.
bool is_table_name(const std::string& name) {
  const auto fits = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-'; };
  return !name.empty() && name != "history" && std::ranges::all_of(name, fits);
}

}  // namespace

void check_pictures(const std::vector<Picture>& pictures) {
  std::set<std::string> names;
  for (const Picture& picture : pictures) {
    check_picture(picture);
    if (!names.insert(picture.name).second)
      refuse("two pictures have the name " + quoted(picture.name),
             "give each its own name, because the second would overwrite the first");
  }
}

void check_tables(const std::vector<TextTable>& tables) {
  std::set<std::string> names;
  for (const TextTable& table : tables) {
    if (!is_table_name(table.name)) {
      refuse("a table has the name " + quoted(table.name), kTableNameRule);
    }
    if (!names.insert(table.name).second)
      refuse("two tables have the name " + quoted(table.name),
             "give each its own name, because the second would overwrite the first");
    for (const auto& row : table.rows) {
      if (row.size() == table.columns.size()) continue;
      refuse("table " + quoted(table.name) + " has a row of " + std::to_string(row.size()) + " cells, but " +
                 std::to_string(table.columns.size()) + " columns",
             "give each row a cell for each column");
    }
  }
}

void check_facts(const Facts& facts) {
  if (!(std::isfinite(facts.units_per_sample) && facts.units_per_sample > 0)) {
    refuse("Facts::units_per_sample is " + significant(facts.units_per_sample, 6),
           "say how many " + facts.rate_unit + " a sample has, above 0");
  }
  if (facts.step_log && !is_table_name(facts.step_log->name))
    refuse("Facts::step_log has the name " + quoted(facts.step_log->name), kTableNameRule);
  if (facts.step_log && !facts.step_log->row)
    refuse("Facts::step_log " + quoted(facts.step_log->name) + " has no row()", "give step_log a row()");
  std::set<std::string> columns;
  for (const std::string& column : facts.history) {
    if (!columns.insert(column).second)
      refuse("Facts::history names the column " + quoted(column) + " twice", "name each column once");
  }
}

void check_state(const State& state) {
  for (const auto& [name, tensor] : state.tensors) {
    if (!tensor.defined()) refuse("tensor " + quoted(name) + " of the state is undefined", "omit it until it is defined");
  }
}

}  // namespace millrace
