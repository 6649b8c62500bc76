// Checks of what the callbacks of a recipe return, for RecipeGuard. Each throws a RecipeError that names the thing and says what
// it should be; the guard adds which callback it was.
#pragma once

#include <string>
#include <vector>

#include "millrace/train/recipe/recipe.h"

namespace millrace {

// Every data set has a source with fields; no two data sets of a pipeline, and no two fields of a source, have one name.
void check_pipeline(const data::Pipeline& pipeline);
// Every field has at least as many rows as its group: a sample may become several.
void check_prepared(const Batch& batch);
// Each has a loss and a name of its own, and moves parameters of the model that no other one moves.
void check_objectives(const std::vector<Objective>& objectives, const torch::nn::Module& model);
// Scalars where scalars are due; a gradient, in training; names of its own for each term.
void check_loss(const Loss& loss, bool training);
// Names that are file names, each of them once; three bytes a pixel.
void check_pictures(const std::vector<Picture>& pictures);
// The same for tables; rows as long as their columns.
void check_tables(const std::vector<TextTable>& tables);
void check_facts(const Facts& facts);
// No tensor that is none.
void check_state(const State& state);

}  // namespace millrace
