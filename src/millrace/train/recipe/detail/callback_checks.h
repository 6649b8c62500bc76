// Checks of a recipe's return values, for RecipeGuard. Each throws a RecipeError that names the faulty value and says what it
// should be; the guard adds the callback's name.
#pragma once

#include <string>
#include <vector>

#include "millrace/train/recipe/recipe.h"

namespace millrace {

// Every data set has a source with fields; data sets of a pipeline have distinct names, and so have the fields of a source.
void check_pipeline(const data::Pipeline& pipeline);
// Every field has at least as many rows as its group: a sample may become several rows.
void check_prepared(const Batch& batch);
// Each objective has a loss and a distinct name, and updates parameters of the model that no other objective updates.
void check_objectives(const std::vector<Objective>& objectives, const torch::nn::Module& model);
// Values that must be scalars are scalars; in training the loss has a gradient; the terms' names are distinct.
void check_loss(const Loss& loss, bool training);
// Names are valid file names and distinct; pictures have three bytes a pixel.
void check_pictures(const std::vector<Picture>& pictures);
// Names of tables as names of pictures; each row has as many cells as the table has columns.
void check_tables(const std::vector<TextTable>& tables);
void check_facts(const Facts& facts);
// Throws if a tensor in the state is undefined.
void check_state(const State& state);

}  // namespace millrace
