// Reads YAML through yaml-cpp's events. Scalars stay text, so that the schema decides what `no` or `1e-3` means.
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <sstream>

#include "millrace/base/format.h"
#include "millrace/config/detail/tree_builder.h"

namespace millrace::config::detail {
namespace {

// Ends the parsing after a problem that is already recorded.
struct Stop {};

class YamlHandler final : public YAML::EventHandler {
 public:
  explicit YamlHandler(TreeBuilder& tree) : tree_(tree) {}

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1)
      refuse(mark, "the file holds a second document", "remove it and its --- line: a config is one document");
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_anchor(mark, anchor);
    if (tree_.expects_key()) refuse(mark, "a key is empty", "name the key");
    go_on(tree_.value(nullptr, line(mark)));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    refuse(mark, "aliases (*name) are not accepted in a config", "write the value out");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, const std::string& value) override {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    go_on(tree_.expects_key() ? tree_.key(value, line(mark)) : tree_.value(value, line(mark)));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    refuse_tag(mark, tag);
    begin(Json::array(), mark, anchor);
  }
  void OnSequenceEnd() override { go_on(tree_.end()); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    refuse_tag(mark, tag);
    begin(Json::object(), mark, anchor);
  }
  void OnMapEnd() override { go_on(tree_.end()); }

 private:
  static std::size_t line(const YAML::Mark& mark) { return mark.line < 0 ? 0 : static_cast<std::size_t>(mark.line) + 1; }
  static void go_on(bool wanted) {
    if (!wanted) throw Stop();
  }
  [[noreturn]] void refuse(const YAML::Mark& mark, std::string what, std::string next) {
    tree_.problem(std::move(what), line(mark), std::move(next));
    throw Stop();
  }
  void refuse_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) refuse(mark, "anchors (&name) are not accepted in a config", "write the value out");
  }
  // Refuses an application's own tag. Such a tag, as in "!env NAME", asks for an operation that Millrace does not do: without
  // this check the text NAME would become the value. YAML's and Python's tags (!!float, !!python/tuple) change nothing, because
  // the schema decides.
  void refuse_tag(const YAML::Mark& mark, const std::string& tag) {
    if (tag.size() < 2 || tag[0] != '!') return;  // yaml-cpp gives "?" or "!" if a scalar has no tag
    refuse(mark, "the tag " + quoted(tag) + " is not accepted in a config", "remove it and write the value out");
  }
  void begin(Json container, const YAML::Mark& mark, YAML::anchor_t anchor) {
    refuse_anchor(mark, anchor);
    if (tree_.expects_key()) refuse(mark, "a key is a list or a map", "write the key as plain text");
    go_on(tree_.begin(std::move(container), line(mark)));
  }

  TreeBuilder& tree_;
  int documents_ = 0;
};

}  // namespace

void parse_yaml(std::string_view text, TreeBuilder& tree) {
  std::istringstream stream{std::string(text)};
  try {
    YAML::Parser parser(stream);
    YamlHandler handler(tree);
    while (parser.HandleNextDocument(handler)) {
    }
  } catch (const Stop&) {
  } catch (const YAML::Exception& error) {
    const std::size_t line = error.mark.line < 0 ? 0 : static_cast<std::size_t>(error.mark.line) + 1;
    const std::size_t column = error.mark.column < 0 ? 0 : static_cast<std::size_t>(error.mark.column) + 1;
    tree.problem("syntax error in YAML: " + error.msg, line, "correct this place; check the indentation", column);
  }
}

}  // namespace millrace::config::detail
