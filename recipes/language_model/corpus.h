// The text of a run: found, and encoded once.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "millrace/data/files/text_tokens.h"
#include "millrace/train/recipe/recipe.h"
#include "recipes/language_model/config.h"

namespace millrace::recipes::language_model {

// The files of recipe.sources, for a folder its .txt files by name; if recipe.sources is empty, those of `data_folder`. DataError
// names a missing one. `told` gets a line for each folder some of whose files are skipped.
[[nodiscard]] std::vector<std::filesystem::path> find_sources(const RecipeConfig& recipe, const std::string& data_folder,
                                                              std::vector<std::string>& notices);

// Encodes those files with `tokenizer`, or, if it is null, with a new one whose characters are taken from the text. Remarks on
// the text go to context.notice.
[[nodiscard]] data::TextTokens read_corpus(const RecipeConfig& recipe, const std::string& data_folder,
                                           std::shared_ptr<const data::Tokenizer> tokenizer, const Context& context);

// Returns at least one token: an empty prompt is a new line, or, if the vocabulary has no new line, the begin-of-text token.
[[nodiscard]] std::vector<std::int64_t> tokens_of_prompt(const data::Tokenizer& tokenizer, const std::string& prompt);

}  // namespace millrace::recipes::language_model
