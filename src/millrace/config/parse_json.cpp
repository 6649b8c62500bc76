// Parses JSON through nlohmann's SAX interface, which does not recurse, and records the line of each event.
#include <algorithm>
#include <cctype>

#include "millrace/base/format.h"
#include "millrace/config/detail/tree_builder.h"

namespace millrace::config::detail {
namespace {

// An input iterator that reports how far the parser has read.
class Reader {
 public:
  using difference_type = std::ptrdiff_t;
  using value_type = char;
  using pointer = const char*;
  using reference = const char&;
  using iterator_category = std::input_iterator_tag;
  Reader(const char* at, const char** position) : at_(at), position_(position) {}
  reference operator*() const { return *at_; }
  Reader& operator++() {
    *position_ = ++at_;
    return *this;
  }
  Reader operator++(int) {
    const Reader before = *this;
    ++*this;
    return before;
  }
  [[maybe_unused]] friend bool operator==(const Reader& a, const Reader& b) { return a.at_ == b.at_; }
  friend bool operator!=(const Reader& a, const Reader& b) { return a.at_ != b.at_; }

 private:
  const char* at_;
  const char** position_;
};

class JsonHandler : public nlohmann::json_sax<Json> {
 public:
  JsonHandler(std::string_view text, TreeBuilder& tree)
      : text_(text), tree_(tree), position_(text.data()), counted_(text.data()) {}
  const char** position() { return &position_; }

  bool null() override { return tree_.value(nullptr, line()); }
  bool boolean(bool value) override { return tree_.value(value, line()); }
  bool number_integer(number_integer_t value) override { return tree_.value(value, line()); }
  bool number_unsigned(number_unsigned_t value) override { return tree_.value(value, line()); }
  bool number_float(number_float_t value, const string_t&) override { return tree_.value(value, line()); }
  bool string(string_t& value) override { return tree_.value(std::move(value), line()); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return tree_.begin(Json::object(), line()); }
  bool key(string_t& text) override { return tree_.key(std::move(text), line()); }
  bool end_object() override { return tree_.end(); }
  bool start_array(std::size_t) override { return tree_.begin(Json::array(), line()); }
  bool end_array() override { return tree_.end(); }

  bool parse_error(std::size_t offset, const std::string& last_token, const nlohmann::detail::exception& error) override {
    // `offset` counts the bytes that were read, up to and including the byte that the parser can't accept.
    const std::size_t at = std::min(text_.size(), offset == 0 ? 0 : offset - 1);
    const std::string_view before = text_.substr(0, at);
    const std::size_t error_line = 1 + static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n'));
    const std::size_t line_start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
    if (error.id == 406) {
      tree_.problem(last_token + " is too large for a number", error_line, "write a smaller number");
    } else {
      tree_.problem("syntax error in JSON: " + reason(error.what()), error_line, hint(at), at - line_start + 1);
    }
    return false;
  }

 private:
  // Returns the last part of nlohmann's message: what was read and what was expected.
  static std::string reason(std::string_view text) {
    for (const std::string_view mark : {"parse error at line ", "syntax error while parsing "}) {
      const std::size_t at = text.find(mark);
      if (at != std::string_view::npos) text.remove_prefix(at + mark.size());
    }
    const std::size_t dash = text.find(" - ");
    if (dash != std::string_view::npos) text.remove_prefix(dash + 3);
    return std::string(text);
  }

  std::string hint(std::size_t at) const {
    const auto before_space = [&](std::size_t end) {
      while (end > 0 && std::isspace(static_cast<unsigned char>(text_[end - 1])) != 0) --end;
      return end;
    };
    const std::size_t previous = before_space(at);
    if (at >= text_.size()) return "the file ends too early: close what is open, with } or ]";
    if (previous > 0 && text_[previous - 1] == ',' && (text_[at] == '}' || text_[at] == ']')) return "remove the comma before it";
    std::string range = range_hint(line_at(text_, at), "");
    if (!range.empty()) return range;
    if (text_[at] == '\'') return "JSON puts text in double quotes";
    if (text_[at] == '"') return "a comma or colon is missing before it";
    return "correct this place; put keys and text in double quotes";
  }

  std::size_t line() {
    line_ += static_cast<std::size_t>(std::count(counted_, position_, '\n'));
    counted_ = position_;
    return line_;
  }

  std::string_view text_;
  TreeBuilder& tree_;
  const char* position_;
  const char* counted_;
  std::size_t line_ = 1;
};

}  // namespace

void parse_json(std::string_view text, TreeBuilder& tree) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    tree.problem("the file is empty", 1, "write {} for a config without settings");
    return;
  }
  JsonHandler handler(text, tree);
  const Reader begin(text.data(), handler.position());
  const Reader end(text.data() + text.size(), handler.position());
  Json::sax_parse(begin, end, &handler, Json::input_format_t::json, true, true);
}

}  // namespace millrace::config::detail
