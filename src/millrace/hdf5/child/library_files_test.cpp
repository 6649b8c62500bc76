// Tests files made by the library's own calls or by other programs, which Millrace's writer can't make.
#include <gmock/gmock.h>
#include <unistd.h>

#include <complex>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/hdf5/child/made_by_library.h"
#include "millrace/hdf5/file.h"

namespace millrace::hdf5 {
namespace {

class LibraryFiles : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  const std::filesystem::path path_ =
      std::filesystem::path(testing::TempDir()) / ("library_files" + std::to_string(::getpid()) + ".h5");
};

TEST_F(LibraryFiles, BitshuffleIsUndone) {
  // 5,003 values: whole blocks, a shorter last block, and three remaining values, which are fewer than eight.
  std::vector<float> values(5003);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * i % 977) * 0.37F - 100;
  for (const unsigned packing : {0U, 2U, 3U}) {
    for (const unsigned block : {0U, 64U}) {
      made::write_bitshuffled(path_, values, 5003, 1, block, packing);
      const auto file = File::open(path_);
      EXPECT_THAT(file->filters("/g/a"), testing::ElementsAre("bitshuffle"));
      std::vector<float> read(values.size());
      file->read("/g/a", Shape{0, 0}, Shape{5003, 1}, std::as_writable_bytes(std::span(read)));
      EXPECT_EQ(read, values) << packing << " " << block;
      std::vector<float> part(7);
      file->read("/g/a", Shape{4996, 0}, Shape{7, 1}, std::as_writable_bytes(std::span(part)));
      EXPECT_EQ(part, std::vector<float>(values.end() - 7, values.end()));
    }
  }
}

TEST_F(LibraryFiles, PairsOfIntegersAreComplexNumbers) {
  const std::array<std::int32_t, 4> wide{2'147'483'647, -2'147'483'647, 16'777'217, 3};
  made::write_integer_pairs(path_, H5T_STD_I32LE, wide.data(), 2);
  auto file = File::open(path_);
  EXPECT_EQ(file->dataset("/a").dtype, DType::c128);
  std::array<std::complex<double>, 2> doubles;
  file->read("/a", Shape{0}, Shape{2}, std::as_writable_bytes(std::span(doubles)));
  EXPECT_EQ(doubles[0], std::complex<double>(2'147'483'647, -2'147'483'647));
  EXPECT_EQ(doubles[1], std::complex<double>(16'777'217, 3));
  const std::array<std::int16_t, 4> narrow{-32'768, 32'767, 1, -1};
  made::write_integer_pairs(path_, H5T_STD_I16LE, narrow.data(), 2);
  file = File::open(path_);
  EXPECT_EQ(file->dataset("/a").dtype, DType::c64);
  std::array<std::complex<float>, 2> floats;
  file->read("/a", Shape{0}, Shape{2}, std::as_writable_bytes(std::span(floats)));
  EXPECT_EQ(floats[0], std::complex<float>(-32'768, 32'767));
  EXPECT_EQ(floats[1], std::complex<float>(1, -1));
  const std::array<std::int64_t, 2> longest{1, 2};
  made::write_integer_pairs(path_, H5T_STD_I64LE, longest.data(), 1);
  EXPECT_THAT(File::open(path_)->unreadable()[0].reason, testing::HasSubstr("integers of at most 4 bytes"));
}

using Words = std::map<std::string, std::string>;

Words words_of(const Attributes& attributes) {
  Words words;
  for (const Attribute& attribute : attributes.all) words[attribute.name] = value_text(attribute);
  return words;
}

std::vector<std::int32_t> numbers_in(const File& file) {
  std::vector<std::int32_t> numbers(3);
  file.read("/a", Shape{0}, Shape{3}, std::as_writable_bytes(std::span(numbers)));
  return numbers;
}

// Types that are closed at the end of the test.
struct Types {
  ~Types() {
    for (const hid_t type : all) H5Tclose(type);
  }
  hid_t operator()(hid_t type) { return all.emplace_back(type); }
  std::vector<hid_t> all;
};

TEST_F(LibraryFiles, NumbersAndTextsOfEveryKindAreReadFromAttributes) {
  Types kept;
  made::write_with_attributes(path_, [&](hid_t root, hid_t set) {
    const std::int8_t small = -5;
    made::attach(root, "small", H5T_STD_I8LE, &small);
    const std::array<unsigned char, 4> big_endian{0, 0, 1, 2};
    made::attach(root, "big", H5T_STD_I32BE, big_endian.data());
    const std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
    made::attach(root, "most", H5T_STD_U64LE, &most);
    const std::uint64_t few = 5;
    made::attach(root, "few", H5T_STD_U64LE, &few);
    const float half = 0.5F;
    made::attach(root, "half", H5T_IEEE_F32LE, &half);
    const double tenth = 0.1;
    made::attach(root, "tenth", H5T_IEEE_F64LE, &tenth, {1});
    const hid_t boolean = kept(H5Tenum_create(H5T_STD_I8LE));
    std::int8_t truth = 0;
    H5Tenum_insert(boolean, "FALSE", &truth);
    truth = 1;
    H5Tenum_insert(boolean, "TRUE", &truth);
    made::attach(root, "sure", boolean, &truth);
    made::attach(set, "zeros", kept(made::text_type(8, H5T_STR_NULLPAD)), "Jy\0\0\0\0\0");
    made::attach(set, "spaces", kept(made::text_type(4, H5T_STR_SPACEPAD)), "sr  ");
    made::attach(set, "line", kept(made::text_type(4, H5T_STR_NULLTERM)), "a\nb");
    const std::string longest(kMaxAttributeText, 'x');
    made::attach(set, "longest", kept(made::text_type(longest.size(), H5T_STR_NULLPAD)), longest.data());
    const char* any = "kelvin µ";
    made::attach(set, "any", kept(made::text_type(H5T_VARIABLE, H5T_STR_NULLTERM)), static_cast<const void*>(&any));
  });
  const auto file = File::open(path_);
  EXPECT_EQ(words_of(file->attributes("/")), (Words{{"small", "-5"},
                                                    {"big", "258"},
                                                    {"most", "18446744073709551615"},
                                                    {"few", "5"},
                                                    {"half", "0.5"},
                                                    {"tenth", "0.1"},
                                                    {"sure", "true"}}));
  EXPECT_EQ(words_of(file->attributes("/a")), (Words{{"zeros", "\"Jy\""},
                                                     {"spaces", "\"sr\""},
                                                     {"line", "\"a\\nb\""},
                                                     {"longest", '"' + std::string(kMaxAttributeText, 'x') + '"'},
                                                     {"any", "\"kelvin µ\""}}));
}

TEST_F(LibraryFiles, OtherAttributesSayWhyTheyAreNotRead) {
  Types kept;
  made::write_with_attributes(path_, [&](hid_t root, hid_t) {
    std::array<std::int32_t, 4> numbers{1, 2, 3, 4};
    made::attach(root, "array", H5T_STD_I32LE, numbers.data(), {3});
    const hsize_t two = 2;
    made::attach(root, "array type", kept(H5Tarray_create2(H5T_STD_I32LE, 1, &two)), numbers.data());
    const hid_t pair = kept(H5Tcreate(H5T_COMPOUND, 8));
    H5Tinsert(pair, "r", 0, H5T_IEEE_F32LE);
    H5Tinsert(pair, "i", 4, H5T_IEEE_F32LE);
    made::attach(root, "compound", pair, numbers.data());
    const hid_t colour = kept(H5Tenum_create(H5T_STD_I32LE));
    H5Tenum_insert(colour, "red", numbers.data());
    made::attach(root, "colour", colour, numbers.data());
    made::attach(root, "opaque", kept(H5Tcreate(H5T_OPAQUE, 4)), numbers.data());
    hvl_t row{numbers.size(), numbers.data()};
    made::attach(root, "row", kept(H5Tvlen_create(H5T_STD_I32LE)), &row);
    hobj_ref_t reference{};
    H5Rcreate(&reference, root, "/a", H5R_OBJECT, -1);
    made::attach(root, "reference", H5T_STD_REF_OBJ, &reference);
    const long double wide = 1;
    made::attach(root, "wide", H5T_NATIVE_LDOUBLE, &wide);
    const std::string huge(30'000, 'x');
    made::attach(root, "huge", kept(made::text_type(huge.size(), H5T_STR_NULLPAD)), huge.data());
    const std::string larger(3'000'000, 'x');
    const char* any = larger.c_str();
    made::attach(root, "larger", kept(made::text_type(H5T_VARIABLE, H5T_STR_NULLTERM)), static_cast<const void*>(&any));
    const hid_t none = H5Screate(H5S_NULL);
    H5Aclose(H5Acreate2(root, "none", H5T_STD_I32LE, none, H5P_DEFAULT, H5P_DEFAULT));
    H5Sclose(none);
  });
  const auto file = File::open(path_);
  EXPECT_EQ(words_of(file->attributes("/")), (Words{{"array", "an array of 3 elements"},
                                                    {"array type", "an array"},
                                                    {"compound", "a compound"},
                                                    {"colour", "a member of an enumeration"},
                                                    {"opaque", "opaque bytes"},
                                                    {"row", "a row of variable length"},
                                                    {"reference", "a reference"},
                                                    {"wide", "a number of 16 bytes"},
                                                    {"huge", "a text of more than 4096 bytes"},
                                                    {"larger", "a text of more than 4096 bytes"},
                                                    {"none", "nothing (a null data space)"}}));
  for (const Attribute& attribute : file->attributes("/").all) {
    EXPECT_TRUE(std::holds_alternative<std::monostate>(attribute.value)) << attribute.name;
    EXPECT_FALSE(number_of(attribute).has_value()) << attribute.name;
  }
  EXPECT_EQ(numbers_in(*file), (std::vector<std::int32_t>{1, 2, 3}));
}

TEST_F(LibraryFiles, OfMoreAttributesThanAnybodyReadsTheRestIsCounted) {
  for (const bool newest : {false, true}) {
    made::write_with_attributes(
        path_,
        [](hid_t root, hid_t set) {
          for (std::int64_t i = 0; i < 1500; ++i) made::attach(root, std::to_string(i), H5T_STD_I64LE, &i);
          const std::int64_t one = 1;
          made::attach(set, std::string(kMaxAttributeName, 'n'), H5T_STD_I64LE, &one);
          made::attach(set, std::string(kMaxAttributeName + 1, 'n'), H5T_STD_I64LE, &one);
        },
        newest);
    const auto file = File::open(path_);
    EXPECT_EQ(file->attributes("/").all.size(), kMaxAttributes);
    EXPECT_EQ(file->attributes("/").left_out, 500U);
    ASSERT_EQ(file->attributes("/a").all.size(), 1U);
    EXPECT_EQ(file->attributes("/a").all[0].name.size(), kMaxAttributeName);
    EXPECT_EQ(file->attributes("/a").left_out, 1U);
  }
}

TEST_F(LibraryFiles, DamagedAttributesLeaveTheDataReadable) {
  made::write_with_attributes(path_, [](hid_t root, hid_t) {
    const double rate = 240;
    made::attach(root, "rate of bins", H5T_IEEE_F64LE, &rate);
  });
  std::fstream stream(path_, std::ios::binary | std::ios::in | std::ios::out);
  const std::string bytes{std::istreambuf_iterator<char>(stream), {}};
  const std::size_t name = bytes.find("rate of bins");
  ASSERT_NE(name, std::string::npos);
  stream.clear();
  stream.seekp(static_cast<std::streamoff>(name) - 8);  // position of the version of the attribute's message
  stream.put('\x7F');
  stream.close();
  const auto file = File::open(path_);
  EXPECT_NE(file->attributes("/").failure, "");
  EXPECT_TRUE(file->attributes("/").all.empty());
  EXPECT_EQ(numbers_in(*file), (std::vector<std::int32_t>{1, 2, 3}));
}

}  // namespace
}  // namespace millrace::hdf5
