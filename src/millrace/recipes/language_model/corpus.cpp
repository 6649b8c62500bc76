#include "millrace/recipes/language_model/corpus.h"

#include <algorithm>

#include "millrace/base/error.h"
#include "millrace/train/switchboard.h"

namespace millrace::recipes::language_model {
namespace {

namespace stdfs = std::filesystem;

bool is_file(const stdfs::path& path) {
  std::error_code ignored;
  return stdfs::is_regular_file(path, ignored);
}

std::vector<stdfs::path> text_files_of(const std::string& folder) {
  std::vector<stdfs::path> files;
  std::error_code failure;
  for (const auto& entry : stdfs::directory_iterator(folder, failure)) {
    if (entry.path().extension() == ".txt" && is_file(entry.path())) files.push_back(entry.path());
  }
  if (files.empty()) {
    throw DataError({folder.empty() ? "there is no text to learn from" : "there is no .txt file in " + folder,
                     failure && !folder.empty() ? "data.dir: " + failure.message() : "recipe.sources, data.dir",
                     "name text files with --sources a.txt,b.txt, or their folder with --data DIR"});
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

std::vector<stdfs::path> find_sources(const RecipeConfig& recipe, const std::string& data_folder) {
  if (recipe.sources.empty()) return text_files_of(data_folder);
  std::vector<stdfs::path> files(recipe.sources.begin(), recipe.sources.end());
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (is_file(files[i])) continue;
    throw DataError(
        {"source " + std::to_string(i + 1) + " of " + std::to_string(files.size()) + ": " + files[i].string() + " does not exist",
         "looked in " + (stdfs::current_path() / files[i]).parent_path().string(),
         "correct recipe.sources; paths are relative to the config file or the current folder"});
  }
  return files;
}

data::TextTokens read_corpus(const RecipeConfig& recipe, const std::string& data_folder,
                             std::shared_ptr<const data::Tokenizer> tokenizer, const Context& context) {
  data::TextOptions options;
  options.sources = find_sources(recipe, data_folder);
  options.kind = recipe.tokenizer;
  options.vocabulary_from = recipe.vocab_from;
  options.tokenizer = std::move(tokenizer);
  options.end_between_sources = recipe.separator == Separator::eos;
  if (context.on("token_cache") && !context.places.cache_folder.empty())
    options.cache_folder = context.places.cache_folder / "tokens";
  options.writes_cache = context.places.writes;
  data::TextTokens text = data::tokens_of_text(options);
  for (const std::string& notice : text.notices) context.say(notice);
  return text;
}

std::vector<std::int64_t> tokens_of_prompt(const data::Tokenizer& tokenizer, const std::string& prompt) {
  std::vector<std::int64_t> tokens = tokenizer.encode(prompt.empty() ? "\n" : prompt);
  if (prompt.empty() && tokens == std::vector<std::int64_t>{data::Tokenizer::kUnknown}) tokens = {data::Tokenizer::kBegin};
  return tokens;
}

}  // namespace millrace::recipes::language_model
