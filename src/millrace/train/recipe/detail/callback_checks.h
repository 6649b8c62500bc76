// Checks of the values that a recipe's callbacks return, for RecipeGuard. Each check throws a RecipeError that names the faulty
// value and says what it should be; RecipeGuard adds the callback's name.
#pragma once

#include <string>
#include <vector>

#include "millrace/train/recipe/recipe.h"

namespace millrace {

// Checks that every data set has a source with fields, that the data sets of a pipeline have distinct names, and that the fields
// of a source have distinct names.
void check_pipeline(const data::Pipeline& pipeline);
// Checks that every field has at least as many rows as its group has samples: a sample may become several rows.
void check_prepared(const Batch& batch);
// Checks that prepare() kept the batch's origin (split, epoch, index) and its sample indices. They are the key of the random
// numbers of layers and losses: without them every step would draw the same numbers.
void check_same_samples(const Batch& given, const Batch& prepared);
// Checks that each objective has a loss and a distinct name, and that it updates parameters of `model` that no other objective
// updates.
void check_objectives(const std::vector<Objective>& objectives, const torch::nn::Module& model);
// Names each parameter in the objectives' groups as `model` names it. Snapshots keep the optimiser's state and the averaged
// weights by these names, so two submodules must not both have a "0.weight".
void name_as_in_model(std::vector<Objective>& objectives, const torch::nn::Module& model);
// Checks that sums and counts of the loss are scalars, that the loss has a gradient if `training`, and that the names of its
// terms are distinct.
void check_loss(const Loss& loss, bool training);
// Checks that the pictures' names are distinct and valid file names, and that each picture has three bytes a pixel.
void check_pictures(const std::vector<Picture>& pictures);
// Checks that the tables' names are distinct and valid file names, and that each row has as many cells as its table has columns.
void check_tables(const std::vector<TextTable>& tables);
void check_facts(const Facts& facts);
// Throws if a tensor in the state is undefined.
void check_state(const State& state);

}  // namespace millrace
