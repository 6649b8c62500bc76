// Finds the text files of a run, and encodes them once.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "millrace/data/files/text_tokens.h"
#include "millrace/train/recipe/recipe.h"
#include "recipes/language_model/config.h"

namespace millrace::recipes::language_model {

// Finds the files of recipe.sources; a folder stands for its .txt files, sorted by name. If recipe.sources is empty, finds the
// files of `data_folder`. Throws DataError with the name of a missing file. `notices` gets a line for each folder in which
// files are skipped.
[[nodiscard]] std::vector<std::filesystem::path> find_sources(const RecipeConfig& recipe, const std::string& data_folder,
                                                              std::vector<std::string>& notices);

// Encodes the files of find_sources() with `tokenizer`. If `tokenizer` is null, makes one from the characters of the text.
// Notices about the text go to context.notice.
[[nodiscard]] data::TextTokens read_corpus(const RecipeConfig& recipe, const std::string& data_folder,
                                           std::shared_ptr<const data::Tokenizer> tokenizer, const Context& context);

// The tokens of a prompt, at least one. An empty prompt becomes a line end, or the begin-of-text token if the vocabulary has no
// line end.
[[nodiscard]] std::vector<std::int64_t> tokens_of_prompt(const data::Tokenizer& tokenizer, const std::string& prompt);

}  // namespace millrace::recipes::language_model
