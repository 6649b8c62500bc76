#include <algorithm>
#include <set>
#include <string>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/utf8.h"
#include "millrace/format/detail/pickle.h"
#include "millrace/format/detail/zip.h"
#include "millrace/format/pt.h"

namespace millrace::format {
namespace {

using Kind = detail::PickleWordKind;

constexpr std::size_t kAlignment = 64;

std::string member(const std::string& name) { return "archive/" + name; }

// Writes pickle's protocol 2, as far as a dict of tensors needs it.
class Pickler {
 public:
  Pickler() { text_ += "\x80\x02"; }
  [[nodiscard]] const std::string& text() const noexcept { return text_; }
  void opcode(char code) { text_ += code; }
  void word(std::string_view module, std::string_view name) {
    text_ += 'c';
    text_.append(module).append("\n").append(name).append("\n");
  }
  void empty_ordered_dict() {
    word("collections", "OrderedDict");
    text_ += ")R";
  }
  void text(std::string_view value) {
    text_ += 'X';
    number(value.size(), 4);
    text_ += value;
  }
  void integer(std::int64_t value) {
    if (value >= 0 && value <= 0xFF) {
      text_ += 'K';
      number(static_cast<std::uint64_t>(value), 1);
    } else if (value >= 0 && value <= 0x7FFFFFFF) {
      text_ += 'J';
      number(static_cast<std::uint64_t>(value), 4);
    } else {  // LONG1 with eight bytes
      text_ += "\x8a\x08";
      number(static_cast<std::uint64_t>(value), 8);
    }
  }
  void tuple(const std::vector<std::int64_t>& values) {
    text_ += '(';
    for (const std::int64_t value : values) integer(value);
    text_ += 't';
  }

 private:
  void number(std::uint64_t value, std::size_t width) {
    for (; width > 0; --width, value >>= 8U) text_ += static_cast<char>(value & 0xFFU);
  }
  std::string text_;
};

const detail::PickleWord* word_of(Kind kind, DType dtype) noexcept {
  const auto words = detail::pickle_words();
  const auto found = std::find_if(words.begin(), words.end(),
                                  [&](const detail::PickleWord& word) { return word.kind == kind && word.dtype == dtype; });
  return found == words.end() ? nullptr : &*found;
}

// Writes a tensor. torch has typed storages for its older element types; for the others it has an untyped storage and a separate
// type.
void add_tensor(Pickler& pickle, const Field& field, std::size_t index) {
  const detail::PickleWord* const typed = word_of(Kind::storage, field.dtype);
  const auto elements = element_count(field.shape).value_or(0);
  pickle.text(field.name);
  pickle.word("torch._utils", typed != nullptr ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
  pickle.opcode('(');
  pickle.opcode('(');
  pickle.text("storage");
  typed != nullptr ? pickle.word(typed->module, typed->name) : pickle.word("torch.storage", "UntypedStorage");
  pickle.text(std::to_string(index));
  pickle.text("cpu");
  pickle.integer(typed != nullptr ? elements : elements * static_cast<std::int64_t>(size_of(field.dtype)));
  pickle.opcode('t');
  pickle.opcode('Q');  // BINPERSID: the tuple becomes the storage's persistent id
  pickle.integer(0);
  pickle.tuple(field.shape);
  std::vector<std::int64_t> strides(field.shape.size(), 1);
  for (std::size_t i = strides.size(); i-- > 1;) strides[i - 1] = strides[i] * std::max<std::int64_t>(field.shape[i], 1);
  pickle.tuple(strides);
  pickle.opcode('\x89');  // NEWFALSE: the tensor requires no gradient
  pickle.empty_ordered_dict();
  if (typed == nullptr) {
    const detail::PickleWord* const dtype = word_of(Kind::dtype, field.dtype);
    pickle.word(dtype->module, dtype->name);
  }
  pickle.opcode('t');
  pickle.opcode('R');
}

void check(std::span<const Field> tensors) {
  std::set<std::string_view> names;
  for (const Field& field : tensors) {
    const auto refuse = [&](const std::string& why) {
      throw DataError(
          {"tensor " + quoted(field.name) + " can't be stored in a .pt file: " + why, "", "give it another name or type"});
    };
    if (first_invalid_utf8(field.name)) refuse("its name is not UTF-8");
    if (field.name.size() > 1000) refuse("its name has more than 1000 bytes");
    if (!names.insert(field.name).second) refuse("the name occurs twice");
    Shape sizes = field.shape;  // a tensor without elements needs valid strides too, so its sizes of 0 count as 1
    std::replace(sizes.begin(), sizes.end(), std::int64_t{0}, std::int64_t{1});
    if (!element_count(field.shape) || !element_count(sizes)) refuse("shape " + to_text(field.shape) + " is not possible");
  }
}

}  // namespace

void write_pt(WritableFile& file, std::span<const Field> tensors, const TensorBytes& bytes_of) {
  check(tensors);
  Pickler pickle;
  pickle.empty_ordered_dict();
  pickle.opcode('(');
  for (std::size_t i = 0; i < tensors.size(); ++i) add_tensor(pickle, tensors[i], i);
  pickle.opcode('u');
  pickle.opcode('.');
  const auto bytes = [](const std::string& text) { return std::as_bytes(std::span(text)); };
  detail::ZipWriter zip(file);
  zip.add(member("data.pkl"), bytes(pickle.text()), false, kAlignment);
  zip.add(member("byteorder"), bytes("little"), false, kAlignment);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::span<const std::byte> data = bytes_of(i);
    MR_CHECK(data.size() == tensors[i].bytes(),
             "the writer got " + std::to_string(data.size()) + " bytes for tensor " + tensors[i].name);
    zip.add(member("data/" + std::to_string(i)), data, false, kAlignment);
  }
  zip.add(member("version"), bytes("3\n"), false, kAlignment);
  zip.finish();
}

}  // namespace millrace::format
