#include "millrace/hdf5/child/library.h"

#include <array>
#include <cstring>
#include <utility>

namespace millrace::hdf5::child {
namespace {

herr_t collect(unsigned, const H5E_error2_t* error, void* to) {
  static_cast<std::vector<std::string>*>(to)->emplace_back(error->desc != nullptr ? error->desc : "");
  return 0;
}

Id small_float(int exponent_bits, int mantissa_bits) {
  Id type = owned(H5Tcopy(H5T_IEEE_F32LE));
  const auto exponent = static_cast<std::size_t>(exponent_bits);
  const auto mantissa = static_cast<std::size_t>(mantissa_bits);
  check(H5Tset_fields(type.get(), 15, mantissa, exponent, 0, mantissa));
  check(H5Tset_precision(type.get(), 16));
  check(H5Tset_offset(type.get(), 0));
  check(H5Tset_size(type.get(), 2));
  check(H5Tset_ebias(type.get(), (std::size_t{1} << (exponent - 1)) - 1));
  return type;
}

// The names of the two parts of a complex number. The defaults are h5py's names; other programs use other names.
struct PartNames {
  std::string real = "r";
  std::string imaginary = "i";
};

Id complex_type(hid_t part, std::size_t part_bytes, const PartNames& names = {}) {
  Id type = owned(H5Tcreate(H5T_COMPOUND, 2 * part_bytes));
  check(H5Tinsert(type.get(), names.real.c_str(), 0, part));
  check(H5Tinsert(type.get(), names.imaginary.c_str(), part_bytes, part));
  return type;
}

// Returns the type that h5py uses for booleans.
Id boolean_type() {
  Id type = owned(H5Tenum_create(H5T_STD_I8LE));
  std::int8_t value = 0;
  check(H5Tenum_insert(type.get(), "FALSE", &value));
  value = 1;
  check(H5Tenum_insert(type.get(), "TRUE", &value));
  return type;
}

DType integer_of(hid_t type) {
  const std::size_t size = H5Tget_size(type);
  const bool has_sign = H5Tget_sign(type) != H5T_SGN_NONE;
  if (size == 1) return has_sign ? DType::i8 : DType::u8;
  if (size == 2) return has_sign ? DType::i16 : DType::u16;
  if (size == 4) return has_sign ? DType::i32 : DType::u32;
  if (size == 8) return has_sign ? DType::i64 : DType::u64;
  throw LibraryError("integers of " + std::to_string(size) + " bytes");
}

DType float_of(hid_t type) {
  const std::size_t size = H5Tget_size(type);
  if (size == 4) return DType::f32;
  if (size == 8) return DType::f64;
  if (size == 2) {
    std::size_t sign = 0;
    std::size_t exponent_at = 0;
    std::size_t exponent_bits = 0;
    std::size_t mantissa_at = 0;
    std::size_t mantissa_bits = 0;
    check(H5Tget_fields(type, &sign, &exponent_at, &exponent_bits, &mantissa_at, &mantissa_bits));
    if (exponent_bits == 5) return DType::f16;
    if (exponent_bits == 8) return DType::bf16;
  }
  throw LibraryError("floats of " + std::to_string(size) + " bytes in a format that is not IEEE's");
}

std::string member_name(hid_t type, unsigned index) {
  char* name = H5Tget_member_name(type, index);
  std::string text = name != nullptr ? name : "";
  H5free_memory(name);
  return text;
}

std::string in_small_letters(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

// Returns the names of a complex number's two parts, in either order; nullopt for all other compounds.
std::optional<PartNames> parts_of(hid_t type) {
  if (H5Tget_nmembers(type) != 2) return std::nullopt;
  PartNames names{member_name(type, 0), member_name(type, 1)};
  for (int order = 0; order < 2; ++order, std::swap(names.real, names.imaginary)) {
    const std::string real = in_small_letters(names.real), imaginary = in_small_letters(names.imaginary);
    if ((real == "r" && imaginary == "i") || (real == "re" && imaginary == "im") || (real == "real" && imaginary == "imag") ||
        (real == "real" && imaginary == "imaginary"))
      return names;
  }
  return std::nullopt;
}

// Makes the memory type of a complex number. The library matches members of a compound by name, and converts them.
Element complex_of(hid_t type) {
  const auto element = [](DType dtype, const PartNames& names) {
    const bool wide = dtype == DType::c128;
    return Element{dtype, complex_type(wide ? H5T_IEEE_F64LE : H5T_IEEE_F32LE, wide ? 8 : 4, names)};
  };
  if (const std::optional<PartNames> names = parts_of(type)) {
    const Id first = owned(H5Tget_member_type(type, 0));
    const Id second = owned(H5Tget_member_type(type, 1));
    const bool equal = H5Tequal(first.get(), second.get()) > 0;
    if (H5Tget_class(first.get()) == H5T_FLOAT && equal)
      return element(float_of(first.get()) == DType::f64 ? DType::c128 : DType::c64, *names);
    // Complex integers are counts from a correlator. c64 holds integers of up to 2 bytes exactly, c128 those of up to 4.
    if (H5Tget_class(first.get()) == H5T_INTEGER && equal && H5Tget_size(first.get()) <= 4)
      return element(H5Tget_size(first.get()) <= 2 ? DType::c64 : DType::c128, *names);
  }
  throw LibraryError("a compound other than {r,i} or {real,imag} of two equal floats or of two integers of at most 4 bytes");
}

}  // namespace

std::string library_words() {
  std::vector<std::string> words;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, collect, &words);
  H5Eclear2(H5E_DEFAULT);
  if (words.empty()) return "the HDF5 library gives no reason";
  return words.size() == 1 ? words.front() : words.front() + ": " + words.back();
}

Id owned(hid_t id) {
  if (id < 0) throw LibraryError(library_words());
  return Id(id);
}

void check(herr_t result) {
  if (result < 0) throw LibraryError(library_words());
}

void start_library() {
  check(H5open());
  check(H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr));
  check(H5PLset_loading_state(0));
  register_filters();
}

Id memory_type_of(DType dtype) {
  switch (dtype) {
    case DType::boolean:
      return boolean_type();
    case DType::u8:
      return owned(H5Tcopy(H5T_STD_U8LE));
    case DType::i8:
      return owned(H5Tcopy(H5T_STD_I8LE));
    case DType::i16:
      return owned(H5Tcopy(H5T_STD_I16LE));
    case DType::u16:
      return owned(H5Tcopy(H5T_STD_U16LE));
    case DType::i32:
      return owned(H5Tcopy(H5T_STD_I32LE));
    case DType::u32:
      return owned(H5Tcopy(H5T_STD_U32LE));
    case DType::i64:
      return owned(H5Tcopy(H5T_STD_I64LE));
    case DType::u64:
      return owned(H5Tcopy(H5T_STD_U64LE));
    case DType::f16:
      return small_float(5, 10);
    case DType::bf16:
      return small_float(8, 7);
    case DType::f32:
      return owned(H5Tcopy(H5T_IEEE_F32LE));
    case DType::f64:
      return owned(H5Tcopy(H5T_IEEE_F64LE));
    case DType::c64:
      return complex_type(H5T_IEEE_F32LE, 4);
    case DType::c128:
      return complex_type(H5T_IEEE_F64LE, 8);
  }
  throw LibraryError("a type without a number");
}

Element element_of(hid_t file_type) {
  const H5T_class_t kind = H5Tget_class(file_type);
  if (kind == H5T_ENUM) {
    const Id base = owned(H5Tget_super(file_type));
    Id boolean = boolean_type();
    if (H5Tequal(file_type, boolean.get()) > 0) return {DType::boolean, std::move(boolean)};
    const DType dtype = integer_of(base.get());
    return {dtype, owned(H5Tget_native_type(file_type, H5T_DIR_ASCEND))};
  }
  std::optional<DType> dtype;
  if (kind == H5T_INTEGER) dtype = integer_of(file_type);
  if (kind == H5T_FLOAT) dtype = float_of(file_type);
  if (kind == H5T_COMPOUND) return complex_of(file_type);
  if (dtype) return {*dtype, memory_type_of(*dtype)};
  constexpr std::array<const char*, 12> kKinds = {
      "integers",     "floats",    "times",      "text",         "bit fields",
      "opaque bytes", "compounds", "references", "enumerations", "rows of variable length",
      "arrays"};
  const bool known = kind >= 0 && static_cast<std::size_t>(kind) < 11;
  throw LibraryError(known ? kKinds.at(static_cast<std::size_t>(kind)) : "an unknown type");
}

std::optional<std::string> read_text(hid_t type, hid_t space, std::size_t most, const std::function<herr_t(void*)>& read) {
  std::string text;
  if (H5Tis_variable_str(type) > 0) {
    char* words = nullptr;
    check(read(static_cast<void*>(&words)));
    if (words != nullptr) text.assign(words, strnlen(words, most + 1));
    check(H5Dvlen_reclaim(type, space, H5P_DEFAULT, static_cast<void*>(&words)));
    if (text.size() > most) return std::nullopt;
    return text;
  }
  const std::size_t size = H5Tget_size(type);
  if (size > most) return std::nullopt;
  if (size == 0) return text;
  text.resize(size);
  check(read(text.data()));
  text.resize(strnlen(text.c_str(), size));
  if (H5Tget_strpad(type) == H5T_STR_SPACEPAD) text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

Id block_of(hid_t dataset, std::span<const std::int64_t> offset, std::span<const std::int64_t> count) {
  Id space = owned(H5Dget_space(dataset));
  if (offset.empty()) return space;
  const std::vector<hsize_t> start(offset.begin(), offset.end());
  const std::vector<hsize_t> size(count.begin(), count.end());
  check(H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start.data(), nullptr, size.data(), nullptr));
  return space;
}

}  // namespace millrace::hdf5::child
