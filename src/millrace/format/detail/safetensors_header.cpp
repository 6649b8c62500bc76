#include "millrace/format/detail/safetensors_header.h"

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <utility>

#include "millrace/base/format.h"
#include "millrace/base/json.h"
#include "millrace/format/detail/safetensors_dtype.h"

namespace millrace::format::detail {
namespace {

constexpr std::size_t kMostAxes = 64;
constexpr std::size_t kShownName = 120;
// Element types of the format that Millrace has no DType for.
constexpr std::array<std::string_view, 8> kUnread = {"F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ",
                                                     "F8_E8M0", "F6_E2M3", "F6_E3M2",     "F4"};

std::string shown_name(std::string_view name) {
  return name.size() <= kShownName ? millrace::quoted(name) : millrace::quoted(name.substr(0, kShownName)) + "...";
}

// What the parser expects next. Each level of the header has its own state, so the depth can't exceed the number of states.
enum class Place : std::uint8_t {
  start,
  names,
  metadata_value,
  metadata,
  entry_value,
  entry,
  dtype,
  shape_value,
  shape,
  offsets_value,
  offsets,
  end
};

// nlohmann's SAX interface dictates the names and signatures.
class Handler {
 public:
  using number_integer_t = Json::number_integer_t;
  using number_unsigned_t = Json::number_unsigned_t;
  using number_float_t = Json::number_float_t;
  using string_t = Json::string_t;
  using binary_t = Json::binary_t;

  bool null() {  // some writers store null instead of metadata
    return place_ == Place::entry_value && key_ == "__metadata__" ? move_to(Place::names) : unexpected("null");
  }
  bool boolean(bool) { return unexpected("a boolean"); }
  bool number_integer(number_integer_t value) { return unexpected("the number " + std::to_string(value)); }
  bool number_float(number_float_t, const string_t&) { return unexpected("a number with a fraction"); }
  bool binary(binary_t&) { return unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) {
    if (place_ == Place::shape) {
      if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return unexpected("a size above 2^63");
      if (tensor_.shape.size() == kMostAxes) return fail("tensor " + shown_name(tensor_.name) + " has more than 64 dimensions");
      tensor_.shape.push_back(static_cast<std::int64_t>(value));
      return true;
    }
    if (place_ == Place::offsets && offsets_.size() < 2) {
      offsets_.push_back(value);
      return true;
    }
    return unexpected("the number " + std::to_string(value));
  }

  bool string(string_t& value) {
    if (place_ == Place::metadata_value) {
      header_.metadata[key_] = std::move(value);
      place_ = Place::metadata;
      return true;
    }
    if (place_ != Place::dtype) return unexpected("a text");
    const std::optional<DType> dtype = dtype_from_safetensors(value);
    if (!dtype) {
      is_unread_ = std::ranges::find(kUnread, value) != kUnread.end();
      return fail("tensor " + shown_name(tensor_.name) + " has the " + (is_unread_ ? "" : "unknown ") + "dtype " +
                  shown_name(value) + (is_unread_ ? ", which is not supported here" : ""));
    }
    tensor_.dtype = *dtype;
    place_ = Place::entry;
    return true;
  }

  bool start_object(std::size_t) {
    if (place_ == Place::start) return move_to(Place::names);
    if (place_ != Place::entry_value) return unexpected("an object");
    return move_to(key_ == "__metadata__" ? Place::metadata : Place::entry);
  }

  bool key(string_t& value) {
    if (place_ == Place::names) {
      if (!names_.insert(value).second) return fail(shown_name(value) + " occurs twice");
      tensor_ = StoredTensor{};
      tensor_.name = value;
      offsets_.clear();
      has_dtype_ = has_shape_ = has_offsets_ = false;
      key_ = std::move(value);
      return move_to(Place::entry_value);
    }
    if (place_ == Place::metadata) {
      if (header_.metadata.contains(value)) return fail("metadata key " + shown_name(value) + " occurs twice");
      key_ = std::move(value);
      return move_to(Place::metadata_value);
    }
    if (value == "dtype") return first_time(has_dtype_, value) && move_to(Place::dtype);
    if (value == "shape") return first_time(has_shape_, value) && move_to(Place::shape_value);
    if (value == "data_offsets") return first_time(has_offsets_, value) && move_to(Place::offsets_value);
    return fail("tensor " + shown_name(tensor_.name) + " has the unknown key " + shown_name(value));
  }

  bool end_object() {
    if (place_ == Place::names) return move_to(Place::end);
    if (place_ == Place::entry && !take_tensor()) return false;
    return move_to(Place::names);
  }

  bool start_array(std::size_t) {
    if (place_ == Place::shape_value) return move_to(Place::shape);
    if (place_ == Place::offsets_value) return move_to(Place::offsets);
    return unexpected("a list");
  }

  bool end_array() {
    if (place_ == Place::offsets && offsets_.size() != 2) {
      return fail("tensor " + shown_name(tensor_.name) + " has " + std::to_string(offsets_.size()) +
                  " data_offsets instead of 2");
    }
    return move_to(Place::entry);
  }

  bool parse_error(std::size_t position, const std::string&, const Json::exception&) {
    return fail("the header is not JSON (byte " + std::to_string(position + kLengthBytes - 1) + " of the file)");
  }

  [[nodiscard]] Header& header() noexcept { return header_; }
  [[nodiscard]] const std::string& problem() const noexcept { return problem_; }
  [[nodiscard]] bool is_unread() const noexcept { return is_unread_; }

 private:
  bool move_to(Place place) noexcept {
    place_ = place;
    return true;
  }
  bool fail(std::string problem) {
    problem_ = std::move(problem);
    return false;
  }
  bool unexpected(const std::string& what) {
    return fail(names_.empty() ? "the header is not a JSON object"
                               : "the entry of " + shown_name(tensor_.name) + " has " + what + " in the wrong place");
  }
  bool first_time(bool& seen, std::string_view name) {
    if (seen) return fail("tensor " + shown_name(tensor_.name) + " has " + std::string(name) + " twice");
    return seen = true;
  }

  bool take_tensor() {
    const std::string who = "tensor " + shown_name(tensor_.name);
    if (!has_dtype_ || !has_shape_ || !has_offsets_) {
      return fail(who + " lacks " + (!has_dtype_ ? "dtype" : !has_shape_ ? "shape" : "data_offsets"));
    }
    const std::optional<std::int64_t> count = element_count(tensor_.shape);
    const auto size = static_cast<std::int64_t>(size_of(tensor_.dtype));
    if (!count || *count > std::numeric_limits<std::int64_t>::max() / size) {
      return fail(who + " of shape " + to_text(tensor_.shape) + " is larger than any file");
    }
    if (offsets_[0] > offsets_[1]) return fail(who + " ends before it begins");
    tensor_.offset = offsets_[0];
    tensor_.bytes = offsets_[1] - offsets_[0];
    const auto needed = static_cast<std::uint64_t>(*count * size);
    if (tensor_.bytes != needed) {
      return fail(who + " of shape " + to_text(tensor_.shape) + " and dtype " + std::string(name_of(tensor_.dtype)) + " needs " +
                  std::to_string(needed) + " bytes, but its data_offsets span " + std::to_string(tensor_.bytes));
    }
    header_.tensors.push_back(std::move(tensor_));
    return true;
  }

  Header header_;
  std::string problem_;
  bool is_unread_ = false;
  Place place_ = Place::start;
  std::set<std::string, std::less<>> names_;
  std::string key_;
  StoredTensor tensor_;
  std::vector<std::uint64_t> offsets_;
  bool has_dtype_ = false, has_shape_ = false, has_offsets_ = false;
};

// Returns what is wrong with the layout; "" if the tensors follow each other and fill the data exactly.
std::string check_layout(const std::vector<StoredTensor>& tensors, std::uint64_t data_bytes) {
  std::vector<const StoredTensor*> by_offset;
  by_offset.reserve(tensors.size());
  for (const StoredTensor& tensor : tensors) by_offset.push_back(&tensor);
  std::sort(by_offset.begin(), by_offset.end(), [](const StoredTensor* a, const StoredTensor* b) {
    return std::pair(a->offset, a->bytes) < std::pair(b->offset, b->bytes);
  });
  std::uint64_t end = 0;
  for (const StoredTensor* tensor : by_offset) {
    if (tensor->offset != end) {
      return "tensor " + shown_name(tensor->name) + " begins at data byte " + std::to_string(tensor->offset) +
             (tensor->offset < end ? ", inside the tensor before it" : ", which leaves a hole before it") + " (expected " +
             std::to_string(end) + ")";
    }
    end += tensor->bytes;  // the sum can't overflow, because offset + bytes was read as one 64-bit number
    if (end > data_bytes) {
      return "tensor " + shown_name(tensor->name) + " ends at data byte " + std::to_string(end) + ", but the file holds only " +
             std::to_string(data_bytes) + ": it was cut off";
    }
  }
  if (end == data_bytes) return "";
  return std::to_string(data_bytes - end) + " bytes follow the last tensor";
}

}  // namespace

ParsedHeader parse_header(std::string_view text, std::uint64_t data_bytes) {
  ParsedHeader result;
  if (text.empty() || text.front() != '{') {
    result.problem = "the header does not begin with '{'";
    return result;
  }
  Handler handler;
  if (!Json::sax_parse(text, &handler)) {
    result.problem = handler.problem();
    result.is_unread = handler.is_unread();
    return result;
  }
  result.header = std::move(handler.header());
  std::sort(result.header.tensors.begin(), result.header.tensors.end(),
            [](const StoredTensor& a, const StoredTensor& b) { return a.name < b.name; });
  result.problem = check_layout(result.header.tensors, data_bytes);
  return result;
}

}  // namespace millrace::format::detail
