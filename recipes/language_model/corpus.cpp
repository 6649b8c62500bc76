#include "recipes/language_model/corpus.h"

#include <algorithm>
#include <iterator>

#include "millrace/base/error.h"
#include "millrace/data/files/folder.h"

namespace millrace::recipes::language_model {
namespace {

namespace stdfs = std::filesystem;

const std::vector<std::string> kEndings = {".txt"};

bool is_folder(const stdfs::path& path) {
  std::error_code ignored;
  return stdfs::is_directory(path, ignored);
}

std::vector<stdfs::path> text_files_of(const std::string& folder, const std::string& key, std::vector<std::string>& notices) {
  data::FilesFound found;
  std::string failure;
  try {
    if (!folder.empty()) found = data::find_files(folder, kEndings);
  } catch (const DataError& error) {
    failure = error.message().what;
  }
  if (found.files.empty()) {
    throw DataError({folder.empty() ? "there is no text to learn from" : "there is no .txt file in " + folder,
                     failure.empty() ? key : key + ": " + failure,
                     "name text files with --sources a.txt,b.txt, or their folder with --data DIR"});
  }
  if (!found.left_out.empty()) notices.push_back(std::move(found.left_out));
  return std::move(found.files);
}

}  // namespace

std::vector<stdfs::path> find_sources(const RecipeConfig& recipe, const std::string& data_folder,
                                      std::vector<std::string>& notices) {
  if (recipe.sources.empty()) return text_files_of(data_folder, "recipe.sources, data.dir", notices);
  std::vector<stdfs::path> files;
  for (std::size_t i = 0; i < recipe.sources.size(); ++i) {
    const stdfs::path source = recipe.sources[i];
    std::error_code ignored;
    if (is_folder(source)) {
      std::ranges::move(text_files_of(source.string(), "recipe.sources", notices), std::back_inserter(files));
      continue;
    }
    files.push_back(source);
    if (stdfs::is_regular_file(source, ignored)) continue;
    const bool is_there = stdfs::exists(source, ignored);
    throw DataError({"source " + std::to_string(i + 1) + " of " + std::to_string(recipe.sources.size()) + ": " + source.string() +
                         (is_there ? " is neither a file nor a folder" : " does not exist"),
                     "looked in " + (stdfs::current_path() / source).parent_path().string(),
                     "correct recipe.sources; paths are relative to the config file or the current folder"});
  }
  return files;
}

data::TextTokens read_corpus(const RecipeConfig& recipe, const std::string& data_folder,
                             std::shared_ptr<const data::Tokenizer> tokenizer, const Context& context) {
  data::TextOptions options;
  std::vector<std::string> notices;
  options.sources = find_sources(recipe, data_folder, notices);
  for (const std::string& line : notices) context.note(line);
  options.kind = recipe.tokenizer;
  options.vocabulary_from = recipe.vocab_from;
  options.tokenizer = std::move(tokenizer);
  options.end_between_sources = recipe.separator == Separator::eos;
  if (context.on("token_cache") && !context.places.cache_folder.empty())
    options.cache_folder = context.places.cache_folder / "tokens";
  options.writes_cache = context.places.writes;
  data::TextTokens text = data::tokens_of_text(options);
  for (const std::string& notice : text.notices) context.note(notice);
  return text;
}

std::vector<std::int64_t> tokens_of_prompt(const data::Tokenizer& tokenizer, const std::string& prompt) {
  std::vector<std::int64_t> tokens = tokenizer.encode(prompt.empty() ? "\n" : prompt);
  if (prompt.empty() && tokens == std::vector<std::int64_t>{data::Tokenizer::kUnknown}) tokens = {data::Tokenizer::kBegin};
  return tokens;
}

}  // namespace millrace::recipes::language_model
