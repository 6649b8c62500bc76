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

// A key of the config that has a value, such as "optim.learning_rate". Made from fields() by schema_of(); it no longer depends
// on the struct's type.
struct Leaf {
  std::string path;  // dotted, such as "optim.learning_rate"
  std::string type;  // "number", "integer", "true|false", "text", "adamw|adam|sgd", "auto|integer", "list of numbers", ...
  std::string help;
  std::string range;  // ">= 0 and < 1", "2 values"; empty without limits
  std::string unit;   // "s", "bytes"; usually empty
  Json default_value;
  bool required = false;
  bool is_boolean = false;                          // true: the flag may be given without a value, and as --no-...
  std::vector<std::string> choices;                 // for an enum: the legal words
  bool is_path = false;                             // the value, or each element of the list, names a file or folder
  std::vector<std::string> words_beside_path = {};  // legal values of a path that are words, not paths
  bool free_on_resume = false;                      // true: the value may change when a run resumes
  // Checks one value and converts it to canonical JSON (numbers of the right kind, enum words). `scalar_text` is true if the
  // value came as text (flags, environment, YAML scalars) and must be parsed by type. If the value is not legal, adds problems
  // (what and next) and returns the default.
  std::function<Json(const Json& value, bool scalar_text, std::vector<Problem>& problems)> canonical;
};

struct Schema {
  std::vector<Leaf> leaves;                   // in order of declaration
  std::map<std::string, std::string> groups;  // for each section's path, the help of the section
  [[nodiscard]] const Leaf* find(std::string_view path) const;
  Schema& operator+=(const Schema& other);  // adds the sections of `other`; a leaf declared twice is a ConfigError
};

// JSON pointer of a key or section in nested values: "optim.clip_norm" -> /optim/clip_norm.
[[nodiscard]] Json::json_pointer pointer_to(std::string key);

// Another accepted name of a key, in files (flat or dotted) and as a flag. `convert` maps the given value to the key's value,
// or returns null to leave the key unset; without `convert` the value is taken unchanged. An alias with an empty `path` is
// accepted and changes nothing; its flag needs no value and takes true, false or a whole number.
struct Alias {
  std::string name;
  std::string path;  // the key that the alias stands for; "" = no key
  std::function<Json(const Json&)> convert;
  std::string note;  // for the reference page, e.g. "as in the original's TOML"
  // Returns the notice that a run prints if the value has a different effect here than in the program that uses this name; "" =
  // no notice.
  std::function<std::string(const Json&)> notice = nullptr;
  bool takes_text = false;  // true: the flag of an alias without a key is followed by a value
};

// A resolved config: each leaf with its canonical value and its origin.
struct Resolved {
  Json values;                                 // nested: values["optim"]["learning_rate"]
  std::map<std::string, std::string> origins;  // for each key, such as "optim.learning_rate": "flag --optim.learning_rate",
                                               // "default", "preset small" or "file a.toml:7"
  std::vector<std::string> notices;            // for example that resume = null in TOML was accepted as empty
};

// Collects layers, lowest precedence first; then resolve() checks all of them at once. The order is
// run < preset < files in order < environment (MILLRACE_OPTIM__LEARNING_RATE) < flags; every layer may use aliases.
//
// Paths in a resolved config are relative to the current folder. A path in a file is first looked for in that file's folder; if
// no file is found there, the path stays as written.
class Layers {
 public:
  // `schema` must outlive this object. Throws ConfigError if an alias names a key that `schema` lacks.
  explicit Layers(const Schema& schema, std::span<const Alias> aliases = {});
  // Adds defaults of a recipe, a preset or the config of a run, with nested or dotted keys. Their relative paths are looked for
  // in each of `folders` in turn.
  void add_values(const Json& values, const std::string& origin, std::vector<std::filesystem::path> folders = {});
  void add_file(const std::filesystem::path& path);  // .json (with comments), .toml, .yaml, .yml; resolve() throws problems
  // Reads a file of another program: add_file() calls `convert`, which turns the file's tree into Millrace's keys or aliases.
  // YAML values in the tree are texts. Messages give the line of each key whose path `convert` keeps.
  struct Foreign {
    const Json& earlier;             // the trees converted before; keys of later trees replace those of earlier ones
    std::vector<Problem>& problems;  // convert() adds a problem for each key that it can't convert; `where` = the key's path
    std::vector<std::string>& notices;
  };
  using Convert = std::function<Json(const Json& tree, Foreign& file)>;
  void add_file(const std::filesystem::path& path, const Convert& convert);
  void add_text(std::string_view text, std::string_view suffix, const std::string& name);  // adds a file's text from memory
  void add_environment();  // reads this process's MILLRACE_ variables; a variable without "__" sets no key
  void add_environment(std::span<const std::pair<std::string, std::string>> variables);
  // Takes --section.key=value, --section.key value, --flag, --no-flag and aliases from `words` (one-letter aliases also with a
  // single hyphen) and returns the other words in order. Hyphen and underscore are alike; a bare boolean takes the next word only
  // if it is true or false. Unknown --words are problems.
  std::vector<std::string> add_flags(std::span<const std::string> words);
  void add_problem(Problem problem);
  // Returns the unchecked value of a key in the highest layer so far that has the key; nullopt if no layer has it.
  [[nodiscard]] std::optional<Json> last(std::string_view path) const;
  // Like last(), for a key that names a file. Returns the path relative to the current folder; nullopt also if the value is not
  // a text.
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
  Json earlier_ = Json::object();  // the trees converted so far; see Foreign::earlier
  bool is_complete_ = true;        // false: a file was unreadable, so keys that seem to be missing may be in it
};

// Parses one config file's text into a tree; JSON may have comments, duplicate keys are problems. Sets `origins` (dotted path ->
// "name:line") and `is_complete` (false if a problem cut the text short).
Json parse_text(std::string_view text, std::string_view suffix, const std::string& name,
                std::map<std::string, std::string>& origins, std::vector<Problem>& problems, std::vector<std::string>& notices,
                bool& scalars_are_text, bool* is_complete = nullptr);

// Returns --help's list of options for these leaves, grouped by section; `width` is in columns.
[[nodiscard]] std::string help_text(const Schema& schema, int width = 100);
// Returns a Markdown table for each section (key, type, default, help), and then a table of the aliases.
[[nodiscard]] std::string reference_markdown(const Schema& schema, std::span<const Alias> aliases);

}  // namespace millrace::config
