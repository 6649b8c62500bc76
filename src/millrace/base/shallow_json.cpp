#include "millrace/base/shallow_json.h"

namespace millrace {
namespace {

// Brackets inside strings don't count: the text of an error may hold any number of them.
bool is_shallow(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kDeepestJson) return false;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return true;
}

}  // namespace

Json parse_shallow(std::string_view text) {
  return is_shallow(text) ? Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false)
                          : Json(Json::value_t::discarded);
}

}  // namespace millrace
