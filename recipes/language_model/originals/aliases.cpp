#include "recipes/language_model/entry_parts.h"

#include <filesystem>
#include <sstream>
#include <string>
#include <utility>

#include "millrace/train/recipe/foreign_options.h"

namespace millrace::recipes::language_model {
namespace {

config::Alias plain(std::string name, std::string path) {
  return {std::move(name), std::move(path), nullptr, "as in the original's TOML"};
}

// Turns an empty string into null, because in AGI2's files both mean that no value is given.
Json given(const Json& value) { return value.is_string() && value.get<std::string>().empty() ? Json() : value; }

Json stem(const Json& value) {
  return value.is_string() ? Json(std::filesystem::path(value.get<std::string>()).stem().string()) : value;
}

// Makes a list from a text in which commas separate the entries.
Json list_of(const Json& value) {
  if (!value.is_string()) return value;
  Json list = Json::array();
  std::istringstream words(value.get<std::string>());
  for (std::string word; std::getline(words, word, ',');) list.push_back(word);
  return list;
}

}  // namespace

std::vector<config::Alias> aliases() {
  std::vector<config::Alias> list;
  for (const char* key :
       {"seq_len", "model_positions", "model_embd", "model_layer", "model_head", "model_activation", "model_dropout",
        "embd_pdrop", "attn_pdrop", "resid_pdrop", "val_fraction", "tokenizer", "vocab_from"}) {
    list.push_back(plain(key, std::string("recipe.") + key));
  }
  for (const char* key : {"max_length", "temperature", "top_k", "top_p", "beam_size", "max_context_length", "prompt"}) {
    list.push_back(plain(key, std::string("generate.") + key));
  }
  list.push_back({"sources", "recipe.sources", list_of, "one text, or several with commas between them"});
  list.push_back({"corpus_path", "recipe.sources", list_of, "what the original's first files call sources"});
  list.push_back({"model_seed", "generate.prompt", given, "what the original calls the text to continue"});
  list.push_back(accepted_text("model_name", "model_path names the run"));
  list.push_back({"model_path", "run.name", stem, "its stem names the run; millrace export writes the weights to a file"});
  list.push_back({"device", "device.name", given, "as in the original's TOML"});
  list.push_back({"resume", "train.resume", given, "path of a run or snapshot; empty or null: not given"});
  list.push_back({"resume_path", "train.resume", given, "as in the original's train_model"});
  list.push_back(accepted_word("start_epoch", "a resumed run knows its epoch"));
  return list;
}

}  // namespace millrace::recipes::language_model
