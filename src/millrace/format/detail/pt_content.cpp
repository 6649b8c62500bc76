#include "millrace/format/detail/pt_content.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "millrace/base/format.h"

namespace millrace::format::detail {
namespace {

using Kind = PickleWordKind;

constexpr std::size_t kMostLevels = 64;
constexpr std::size_t kMostDimensions = 64;  // the limit that torch itself has
constexpr std::size_t kLongestName = 1000;
constexpr std::size_t kMostNameBytes = std::size_t{1} << 26U;  // limit on the bytes of all names together

constexpr const char* kToFloat =
    "in Python, save such tensors as float32: torch.save({name: x.float() if x.is_floating_point() else x for name, x in "
    "state_dict.items()}, path)";
constexpr const char* kToPlain =
    "in Python, save copies: torch.save({name: x.detach().resolve_conj().resolve_neg().clone() for name, x in "
    "state_dict.items()}, path)";

// Returns the remedy for an element type such as "torch.bits8". torch itself converts only types of 8 bits to numbers.
std::string remedy_of(const std::string& type) {
  if (type.find("float8") != std::string::npos) return kToFloat;
  return "in Python, save their bytes: torch.save({name: x.view(torch.uint8) if x.dtype == " + type +
         " else x for name, x in state_dict.items()}, path)";
}

struct RefusedContent {
  std::string why;
  bool is_unread = false;
  std::string remedy = {};
};

class Interpreter {
 public:
  explicit Interpreter(const Pickled& pickled) : pickled_(pickled) {}

  PtContent run() {
    try {
      const PickleNode& root = node(pickled_.root);
      const bool is_container = root.kind == PickleKind::dict || root.kind == PickleKind::list ||
                                root.kind == PickleKind::tuple || root.kind == PickleKind::object;
      visit(root, is_container ? "" : "tensor", 0);
      in_order(content_.tensors);
      in_order(content_.values);
    } catch (RefusedContent& refused) {
      content_.problem = std::move(refused.why);
      content_.is_unread = refused.is_unread;
      content_.remedy = std::move(refused.remedy);
    }
    return std::move(content_);
  }

 private:
  const PickleNode& node(std::uint32_t index) const { return pickled_.nodes[index]; }

  template <class Entry>
  static void in_order(std::vector<Entry>& entries) {
    std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.name < b.name; });
    const auto twice =
        std::adjacent_find(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.name == b.name; });
    if (twice != entries.end()) throw RefusedContent{"the name " + quoted(twice->name) + " occurs twice", true};
  }

  // Visits a value and everything inside it. A shared container is visited once for each place in which it occurs. A few bytes
  // can therefore cause any number of visits, so the visits are limited.
  void visit(const PickleNode& value, const std::string& name, std::size_t level) {
    if (level > kMostLevels) throw RefusedContent{"it is nested more than 64 levels deep, or holds itself", true};
    if (++visits_ > kMostPickleNodes || (name_bytes_ += name.size()) > kMostNameBytes) {
      throw RefusedContent{"its containers are shared so often that the list of all entries would be too long", true};
    }
    switch (value.kind) {
      case PickleKind::dict:
        for (std::size_t i = 0; i + 1 < value.items.size(); i += 2) {
          visit(node(value.items[i + 1]), joined(name, key_text(node(value.items[i]))), level + 1);
        }
        return;
      case PickleKind::list:
      case PickleKind::tuple:
        for (std::size_t i = 0; i < value.items.size(); ++i)
          visit(node(value.items[i]), joined(name, std::to_string(i)), level + 1);
        return;
      case PickleKind::object:
        if (!name.empty()) content_.values.push_back({name, describe(value)});
        if (!value.items.empty()) visit(node(value.items[0]), name, level + 1);
        return;
      case PickleKind::foreign:
        throw RefusedContent{"global " + class_name(value) + " is not allowed", true};
      case PickleKind::persistent:
        throw RefusedContent{quoted(name) + " is a storage without a tensor", true};
      case PickleKind::call:
        if (value.word->kind != Kind::device) return add_tensor(value, name);
        [[fallthrough]];
      default:
        content_.values.push_back({name, plain(value)});
    }
  }

  static std::string joined(const std::string& path, const std::string& key) {
    std::string name = path.empty() ? key : path + "." + key;
    if (name.size() > kLongestName) throw RefusedContent{"a name has more than " + std::to_string(kLongestName) + " bytes"};
    return name;
  }
  static std::string key_text(const PickleNode& key) {
    if (key.kind == PickleKind::text && key.text.size() <= kLongestName) return std::string(key.text);
    if (key.kind == PickleKind::integer) return std::to_string(key.integer);
    if (key.kind == PickleKind::text) throw RefusedContent{"a name has more than " + std::to_string(kLongestName) + " bytes"};
    throw RefusedContent{"a key of a dict is " + describe(key) + "; texts and whole numbers can be read", true};
  }

  Json plain(const PickleNode& value) const {
    switch (value.kind) {
      case PickleKind::none:
        return nullptr;
      case PickleKind::boolean:
        return value.integer != 0;
      case PickleKind::integer:
        return value.integer;
      case PickleKind::unsigned_integer:
        return value.unsigned_integer;
      case PickleKind::real:
        return value.real;
      case PickleKind::text:
        return std::string(value.text);
      case PickleKind::call: {  // torch.device("cuda", 0)
        std::string text;
        for (const std::uint32_t item : value.items) {
          const PickleNode& part = node(item);
          const bool is_text = part.kind == PickleKind::text && part.text.size() <= kLongestName;
          if (!is_text && part.kind != PickleKind::integer)
            throw RefusedContent{"torch.device has an argument that is " + describe(part)};
          text += (text.empty() ? "" : ":") + (is_text ? std::string(part.text) : std::to_string(part.integer));
        }
        return text;
      }
      default:
        return describe(value);
    }
  }

  void add_tensor(const PickleNode& call, const std::string& name) {
    const PickleNode* made = &call;
    if (call.word->kind == Kind::rebuild_parameter) {
      if (call.items.empty() || call.items.size() > 4 || node(call.items[0]).kind != PickleKind::call)
        throw RefusedContent{quoted(name) + " is a parameter without a tensor"};
      made = &node(call.items[0]);
    }
    const auto refuse = [&](const std::string& why) { throw RefusedContent{"tensor " + quoted(name) + " " + why}; };
    const Kind kind = made->word->kind;
    const std::size_t least = kind == Kind::rebuild_tensor ? 4 : kind == Kind::rebuild_tensor_v2 ? 6 : 7;
    const std::size_t most = kind == Kind::rebuild_tensor ? least : least + 1;
    const bool is_tensor = kind == Kind::rebuild_tensor || kind == Kind::rebuild_tensor_v2 || kind == Kind::rebuild_tensor_v3;
    if (!is_tensor || made->items.size() < least || made->items.size() > most)
      refuse("is not described as torch describes a tensor");
    PtTensor tensor;
    tensor.name = name;
    std::optional<DType> dtype;
    tensor.storage = storage(node(made->items[0]), name, dtype);
    if (kind == Kind::rebuild_tensor_v3) {
      const PickleNode& word = node(made->items[6]);
      if (word.kind == PickleKind::foreign) {
        const std::string type = class_name(word);
        throw RefusedContent{"tensor " + quoted(name) + " has the element type " + type + ", which Millrace does not read", true,
                             remedy_of(type.substr(1, type.size() - 2))};
      }
      dtype = word.kind == PickleKind::word && word.word->kind == Kind::dtype ? std::optional(word.word->dtype) : std::nullopt;
    }
    if (!dtype) refuse("has no element type");
    tensor.dtype = *dtype;
    tensor.shape = whole_numbers(node(made->items[2]), name, "sizes");
    tensor.strides = whole_numbers(node(made->items[3]), name, "strides");
    const PickleNode& first = node(made->items[1]);
    if (first.kind != PickleKind::integer || first.integer < 0) refuse("does not begin at an element of its storage");
    tensor.first = static_cast<std::uint64_t>(first.integer);
    bool repeats = false;
    if (const std::string problem = place(tensor, repeats); !problem.empty())
      throw RefusedContent{"tensor " + quoted(name) + " " + problem, repeats};
    if (made->items.size() > least) left_for_later(node(made->items[least]), tensor);
    content_.tensors.push_back(std::move(tensor));
  }

  // Reads the last argument of a rebuild call: None, or a dict of operations that torch postpones until it needs the elements.
  void left_for_later(const PickleNode& content, PtTensor& tensor) const {
    if (content.kind == PickleKind::none) return;
    const auto refuse = [&](const std::string& what) {
      throw RefusedContent{"tensor " + quoted(tensor.name) + " has " + what + " as an attribute that may change its values", true,
                           kToPlain};
    };
    if (content.kind != PickleKind::dict) refuse(describe(content));
    for (std::size_t i = 0; i + 1 < content.items.size(); i += 2) {
      const PickleNode& key = node(content.items[i]);
      const PickleNode& value = node(content.items[i + 1]);
      if (key.kind != PickleKind::text) refuse(describe(key));
      const bool is_set = value.kind == PickleKind::boolean && value.integer != 0;
      const bool conjugates = key.text == "conj" && (tensor.dtype == DType::c64 || tensor.dtype == DType::c128);
      const bool negates = key.text == "neg" && tensor.dtype != DType::boolean;
      if (!is_set || (!conjugates && !negates)) refuse(quoted(std::string(key.text.substr(0, kLongestName))));
      (conjugates ? tensor.conjugated : tensor.negated) = true;
    }
  }

  std::vector<std::int64_t> whole_numbers(const PickleNode& tuple, const std::string& name, const char* what) const {
    const bool short_enough = tuple.kind == PickleKind::tuple && tuple.items.size() <= kMostDimensions;
    std::vector<std::int64_t> numbers;
    for (std::size_t i = 0; short_enough && i < tuple.items.size(); ++i) {
      const PickleNode& number = node(tuple.items[i]);
      if (number.kind == PickleKind::integer && number.integer >= 0) numbers.push_back(number.integer);
    }
    if (!short_enough || numbers.size() != tuple.items.size()) {
      throw RefusedContent{"tensor " + quoted(name) + " has " + what +
                           " that are invalid: they must be at most 64 whole numbers, each 0 or more"};
    }
    return numbers;
  }

  // Returns the index of the storage that ("storage", type, key, location, elements) names.
  std::size_t storage(const PickleNode& id, const std::string& name, std::optional<DType>& dtype) {
    const auto is = [&](std::size_t i, PickleKind kind) { return node(id.items[i]).kind == kind; };
    const bool known = id.kind == PickleKind::persistent && id.items.size() == 5 && is(0, PickleKind::text) &&
                       node(id.items[0]).text == "storage" && is(1, PickleKind::word) && is(2, PickleKind::text) &&
                       node(id.items[2]).text.size() <= kLongestName && is(4, PickleKind::integer) &&
                       node(id.items[4]).integer >= 0;
    const PickleWord* const type = known ? node(id.items[1]).word : nullptr;
    if (type == nullptr || (type->kind != Kind::storage && type->kind != Kind::untyped_storage)) {
      throw RefusedContent{"tensor " + quoted(name) + " has a storage that is not described as torch describes a storage"};
    }
    if (type->kind == Kind::storage) dtype = type->dtype;
    const std::uint64_t width = type->kind == Kind::storage ? size_of(type->dtype) : 1;
    const auto elements = static_cast<std::uint64_t>(node(id.items[4]).integer);
    if (elements > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) / width) {
      throw RefusedContent{"tensor " + quoted(name) + " has a storage of impossible size"};
    }
    std::string key(node(id.items[2]).text);
    const auto [found, fresh] = by_key_.emplace(key, content_.storages.size());
    if (fresh) content_.storages.push_back({std::move(key), elements * width});
    if (content_.storages[found->second].bytes != elements * width) {
      throw RefusedContent{"storage " + quoted(found->first) +
                           " has two sizes: " + std::to_string(content_.storages[found->second].bytes) + " and " +
                           std::to_string(elements * width) + " bytes"};
    }
    return found->second;
  }

  // Sets tensor.bytes. Sets `repeats` if the view fits but uses some elements several times. Returns why the view does not fit
  // its storage; "" if it fits.
  std::string place(PtTensor& tensor, bool& repeats) {
    const std::uint64_t width = size_of(tensor.dtype);
    const std::uint64_t limit = content_.storages[tensor.storage].bytes / width;  // number of elements in the storage
    const auto outside = [&] {
      return "of shape " + to_text(tensor.shape) + " and strides " + to_text(tensor.strides) + " from element " +
             std::to_string(tensor.first) + " on does not fit its storage of " + std::to_string(limit) + " elements";
    };
    if (tensor.shape.size() != tensor.strides.size())
      return "has " + std::to_string(tensor.shape.size()) + " sizes and " + std::to_string(tensor.strides.size()) + " strides";
    // A tensor without elements needs valid strides too, so its sizes of 0 are counted as 1.
    Shape sizes = tensor.shape;
    std::replace(sizes.begin(), sizes.end(), std::int64_t{0}, std::int64_t{1});
    const std::optional<std::int64_t> count = element_count(tensor.shape);
    if (!element_count(sizes) || !count) return outside();
    if (*count == 0) return "";
    std::uint64_t last = tensor.first;
    for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
      const auto steps = static_cast<std::uint64_t>(tensor.shape[i] - 1);
      const auto stride = static_cast<std::uint64_t>(tensor.strides[i]);
      if (steps == 0) continue;
      if (last >= limit || stride > (limit - 1 - last) / steps) return outside();
      last += steps * stride;
    }
    if (last >= limit) return outside();
    repeats = static_cast<std::uint64_t>(*count) > limit;
    if (repeats)
      return "of shape " + to_text(tensor.shape) + " and strides " + to_text(tensor.strides) +
             " repeats elements of its storage: save tensor.contiguous() instead";
    tensor.bytes = static_cast<std::uint64_t>(*count) * width;
    const std::uint64_t reach = std::max((last - tensor.first + 1) * width, tensor.bytes);
    content_.reach += std::min(reach, std::numeric_limits<std::uint64_t>::max() - content_.reach);
    return "";
  }

  const Pickled& pickled_;
  PtContent content_;
  std::map<std::string, std::size_t> by_key_;
  std::size_t visits_ = 0;
  std::size_t name_bytes_ = 0;
};

}  // namespace

PtContent interpret(const Pickled& pickled) { return Interpreter(pickled).run(); }

}  // namespace millrace::format::detail
