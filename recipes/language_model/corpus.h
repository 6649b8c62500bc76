// The text a run learns from: found, and encoded once.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "millrace/data/files/text_tokens.h"
#include "millrace/train/recipe/recipe.h"
#include "recipes/language_model/config.h"

namespace millrace::recipes::language_model {

// recipe.sources, of a folder its .txt files in order of name; without any, those of `data_folder`. DataError names the one that
// is not there. `told` gets a line for each folder of which something is left out.
[[nodiscard]] std::vector<std::filesystem::path> find_sources(const RecipeConfig& recipe, const std::string& data_folder,
                                                              std::vector<std::string>& told);

// Encodes them with `tokenizer`, or with one whose characters are taken from the text when it is null. What there is to know
// about the text goes to context.notice.
[[nodiscard]] data::TextTokens read_corpus(const RecipeConfig& recipe, const std::string& data_folder,
                                           std::shared_ptr<const data::Tokenizer> tokenizer, const Context& context);

// At least one token: an empty prompt is a new line, or the begin-of-text token where there is none.
[[nodiscard]] std::vector<std::int64_t> tokens_of_prompt(const data::Tokenizer& tokenizer, const std::string& prompt);

}  // namespace millrace::recipes::language_model
