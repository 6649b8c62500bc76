// The schema of a config at run time, the layers it is merged from, and the resolved result with the origin of each value.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/base/json.h"
#include "millrace/config/field.h"

namespace millrace::config {

// One leaf: "optim.learning_rate". Made from fields() by schema_of(); nothing here depends on the struct's type any more.
struct Leaf {
  std::string path;  // dotted
  std::string type;  // "number", "integer", "true|false", "text", "adamw|adam|sgd", "auto|integer", "list of numbers", ...
  std::string help;
  std::string range;  // ">= 0 and < 1", "2 values"; empty without limits
  std::string unit;   // "s", "bytes"; empty mostly
  Json default_value;
  bool required = false;
  bool is_boolean = false;                          // as a flag it may stand without a value, and with --no- before it
  std::vector<std::string> choices;                 // legal words of an enum
  bool is_path = false;                             // the value, or each one of the list, names a file or folder
  std::vector<std::string> words_beside_path = {};  // of a path: legal values that name none
  bool free_on_resume = false;                      // a run may go on with another value
  // Checks and converts one value to canonical JSON (numbers of the right kind, enum words). `scalar_text` is true when the
  // value came as text (flags, environment, YAML scalars) and must be parsed by type. Adds problems (what and next) and
  // returns the default when it can't.
  std::function<Json(const Json& value, bool scalar_text, std::vector<Problem>& problems)> canonical;
};

struct Schema {
  std::vector<Leaf> leaves;                   // in order of declaration
  std::map<std::string, std::string> groups;  // section path -> its help
  [[nodiscard]] const Leaf* find(std::string_view path) const;
  Schema& operator+=(const Schema& other);  // sections of `other` are added; a leaf declared twice is a ConfigError
};

// An accepted other name of a key, in files (flat or dotted) and as a flag. `convert` maps the old value to the new one;
// null = unchanged. A null result means "leave the key alone". Without a key the word is accepted and changes nothing; as a flag
// it needs no value and takes true, false or a whole number.
struct Alias {
  std::string name;
  std::string path;  // "" = no key
  std::function<Json(const Json&)> convert;
  std::string note;  // for the reference, e.g. "as in the original's TOML"
  // What a run says of a value that does not do here what it does elsewhere; "" = nothing.
  std::function<std::string(const Json&)> notice = nullptr;
  bool takes_text = false;  // of a word without a key: its flag is followed by a value
};

// A resolved config: every leaf has a value, canonical, with where it came from.
struct Resolved {
  Json values;  // nested: values["optim"]["learning_rate"]
  std::map<std::string, std::string>
      origins;  // "optim.learning_rate" -> "flag --optim.learning_rate", "default", "preset small", "file a.toml:7"
  std::vector<std::string> notices;  // e.g. resume = null in TOML accepted as empty
};

// Collects layers, lowest precedence first, then resolve() checks all of them at once.
// run < preset < files in order < environment (MILLRACE_OPTIM__LEARNING_RATE) < flags; aliases are accepted in all.
//
// Paths: what a resolved config holds is relative to the current folder. A path that a file holds is looked for beside that file
// first; where nothing is there it stays as it is written.
class Layers {
 public:
  // `schema` must outlive this; an alias of a key that isn't in it is a ConfigError.
  explicit Layers(const Schema& schema, std::span<const Alias> aliases = {});
  // Defaults of a recipe, a preset, the config of a run: nested or dotted keys. A relative path in them is looked for in each of
  // `folders` in turn.
  void add_values(const Json& values, const std::string& origin, std::vector<std::filesystem::path> folders = {});
  void add_file(const std::filesystem::path& path);  // .json (comments allowed) .toml .yaml .yml; problems are kept, not thrown
  // The same for a file of another program's making: `convert` makes keys of ours, or of an alias, of its tree, whose values are
  // texts in YAML. A key that keeps its path keeps its line in messages.
  struct Foreign {
    const Json& earlier;             // the trees that were converted before, the keys of later ones over those of earlier ones
    std::vector<Problem>& problems;  // what it can't take; `where` is a path in the file
    std::vector<std::string>& notices;
  };
  using Convert = std::function<Json(const Json& tree, Foreign& file)>;
  void add_file(const std::filesystem::path& path, const Convert& convert);
  void add_text(std::string_view text, std::string_view suffix, const std::string& name);  // the same from memory
  void add_environment();  // of this process, prefix MILLRACE_; MILLRACE_TORCH and names without "__" are not ours
  void add_environment(std::span<const std::pair<std::string, std::string>> variables);
  // Takes --section.key=value, --section.key value, --flag, --no-flag and aliases from `words`, those of one letter also with one
  // hyphen; what is not one is returned in order. Hyphen and underscore alike; a bare boolean takes the next word only if it is
  // true or false. Unknown --words are problems.
  std::vector<std::string> add_flags(std::span<const std::string> words);
  void add_problem(Problem problem);
  // What the highest layer so far says of a key, unchecked; nullopt when none does.
  [[nodiscard]] std::optional<Json> last(std::string_view path) const;
  // The same of a key that names a file, as seen from the current folder; nullopt also where that is no text.
  [[nodiscard]] std::optional<std::string> last_path(std::string_view path) const;
  // Throws ConfigError with all problems (unknown keys with the nearest legal one, wrong types, out of range, missing, ...).
  [[nodiscard]] Resolved resolve() const;

 private:
  struct Set {
    std::string path;
    Json value;
    bool scalar_text;
    std::string origin;
    std::vector<std::filesystem::path> folders;
  };
  struct Layer;
  void read_text(std::string_view text, std::string_view suffix, const std::string& name,
                 std::vector<std::filesystem::path> folders, const Convert& convert = {});
  void walk(const Json& tree, const std::string& prefix, Layer& layer);
  void add_key(const std::string& name, const Json& value, Layer& layer);
  void set(const std::string& name, const Json& value, const std::string& origin, Layer& layer);
  void add_flag(const std::string& name, const std::string* value, std::span<const std::string> words, std::size_t& next);
  void unknown(const std::string& name, const std::string& what, const std::string& origin, const std::string& dashes);
  [[nodiscard]] const Alias* alias(std::string_view name) const;
  [[nodiscard]] bool is_section(std::string_view path) const;
  [[nodiscard]] std::string suggestion(const std::string& name) const;

  const Schema* schema_;
  std::vector<Alias> aliases_;
  std::vector<Problem> problems_;
  std::vector<std::string> notices_;
  std::vector<Set> sets_;          // in order of precedence, lowest first
  Json earlier_ = Json::object();  // Foreign::earlier
  bool is_complete_ = true;        // false: a file was unreadable, so what is missing may stand in it
};

// Parses one config file's text into a tree: comments in JSON, duplicate keys are problems, positions kept for messages.
// Returned in `origins`: dotted path -> "name:line"; in `is_complete` false when a problem cut the text short.
Json parse_text(std::string_view text, std::string_view suffix, const std::string& name,
                std::map<std::string, std::string>& origins, std::vector<Problem>& problems, std::vector<std::string>& notices,
                bool& scalars_are_text, bool* is_complete = nullptr);

// --help's option list for these leaves, grouped by section; width in columns.
[[nodiscard]] std::string help_text(const Schema& schema, int width = 100);
// Markdown table per section: key, type, default, help; then the aliases.
[[nodiscard]] std::string reference_markdown(const Schema& schema, std::span<const Alias> aliases);

}  // namespace millrace::config
