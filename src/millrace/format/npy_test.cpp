#include "millrace/format/npy.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <numeric>

#include "millrace/base/byte_order.h"
#include "millrace/base/error.h"
#include "millrace/base/input_file.h"
#include "millrace/format/deflate.h"
#include "millrace/format/detail/test_bytes.h"
#include "tests/support/refusal.h"

namespace millrace::format {
namespace {

namespace stdfs = std::filesystem;
using detail::bytes_of;
using detail::raw;
using testing::HasSubstr;
using testing::StartsWith;

class NpyTest : public testing::Test {
 protected:
  NpyTest() : folder_(stdfs::temp_directory_path() / ("millrace-npy-" + std::to_string(::getpid()))), path_(folder_ / "a.npy") {
    stdfs::create_directories(folder_);
  }
  ~NpyTest() override { stdfs::remove_all(folder_); }

  void put(const std::string& text) {
    stdfs::remove(path_);
    std::ofstream(path_, std::ios::binary) << text;
  }
  [[nodiscard]] std::string text() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // Text of a .npy file with this version, header and elements.
  static std::string npy(const std::string& header, const std::string& elements, char version = 1) {
    std::string result = "\x93NUMPY";
    result += {version, '\0'};
    for (std::size_t i = 0; i < (version == 1 ? 2 : 4); ++i) result += static_cast<char>(header.size() >> (8 * i) & 0xFFU);
    return result + header + elements;
  }
  static std::string header(const std::string& descr, const std::string& shape, const std::string& order = "False") {
    return "{'descr': " + descr + ", 'fortran_order': " + order + ", 'shape': " + shape + ", }\n";
  }
  template <class File>
  [[nodiscard]] std::string refusal() const {
    return refusal_reason<DataError>(
        [&] {
          const File file(path_);
          if constexpr (std::is_same_v<File, NpzFile>) {
            for (const NpzEntry& entry : file.entries()) {
              std::vector<std::byte> out(entry.layout.bytes);
              file.read(entry, out);
            }
          }
        },
        path_.string());
  }
  [[nodiscard]] std::string read() const {
    const NpyFile file(path_);
    std::string out(file.layout().bytes, '\0');
    file.read(std::as_writable_bytes(std::span(out)));
    return out;
  }

  stdfs::path folder_;
  stdfs::path path_;
};

TEST_F(NpyTest, EveryDtypeComesBackWithItsBytes) {
  for (const DType dtype : {DType::boolean, DType::u8, DType::i8, DType::i16, DType::u16, DType::i32, DType::u32, DType::i64,
                            DType::u64, DType::f16, DType::f32, DType::f64, DType::c64, DType::c128}) {
    std::string bytes(6 * size_of(dtype), '\0');
    std::iota(bytes.begin(), bytes.end(), '\1');
    const auto file = Fs::real().create(path_);
    write_npy(*file, dtype, {3, 1, 2}, bytes_of(bytes));
    file->close();
    const NpyFile back(path_);
    EXPECT_EQ(back.layout().dtype, dtype);
    EXPECT_EQ(back.layout().shape, (Shape{3, 1, 2}));
    EXPECT_EQ(back.layout().header_bytes % 64, 0U);
    EXPECT_EQ(read(), bytes);
    std::string row(2 * size_of(dtype), '\0');
    back.read_rows(1, 1, std::as_writable_bytes(std::span(row)));
    EXPECT_EQ(row, bytes.substr(row.size(), row.size()));
  }
}

TEST_F(NpyTest, IsKnownByItsFirstSixBytes) {
  for (const char version : {'\1', '\2', '\3'}) EXPECT_TRUE(is_npy(npy("", "", version)));
  EXPECT_TRUE(is_npy("\x93NUMPY"));
  for (const char* other : {"", "\x93NUMP", "NUMPY", " \x93NUMPY"}) EXPECT_FALSE(is_npy(other)) << other;
}

TEST_F(NpyTest, TheHeaderIsThatOfNumPy) {
  const auto file = Fs::real().create(path_);
  write_npy(*file, DType::f32, {2}, bytes_of(std::string(8, 'x')));
  file->close();
  EXPECT_THAT(text(), StartsWith(std::string("\x93NUMPY\1\0v\0{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }  ", 69)));
  EXPECT_EQ(text().size(), 128U + 8U);
}

TEST_F(NpyTest, ScalarsAndEmptyArraysAreArraysToo) {
  put(npy(header("'<i2'", "()"), "ab"));
  EXPECT_EQ(read(), "ab");
  put(npy(header("'<i2'", "(0, 7)"), ""));
  EXPECT_EQ(read(), "");
  put(npy(header("'<i2'", "(7, 0)", "True"), ""));
  EXPECT_EQ(read(), "");
  NpyFile(path_).read_rows(3, 2, {});
}

TEST_F(NpyTest, BigEndianNumbersAreSwapped) {
  put(npy(header("'>u2'", "(2,)"), "abcd"));
  EXPECT_EQ(read(), "badc");
  put(npy(header("'>c8'", "(1,)"), "abcdefgh"));
  EXPECT_EQ(read(), "dcbahgfe");
  put(npy(header("'>u1'", "(2,)"), "ab"));
  EXPECT_EQ(read(), "ab");
}

TEST_F(NpyTest, FortranOrderIsTurned) {
  // The element in row r and column c is 10 r + c. In the file the first axis is the fastest.
  const std::string stored = raw<std::uint16_t>({0, 10, 20, 1, 11, 21});
  put(npy(header("'<u2'", "(3, 2)", "True"), stored));
  EXPECT_EQ(read(), raw<std::uint16_t>({0, 1, 10, 11, 20, 21}));
  std::string rows(8, '\0');
  NpyFile(path_).read_rows(1, 2, std::as_writable_bytes(std::span(rows)));
  EXPECT_EQ(rows, raw<std::uint16_t>({10, 11, 20, 21}));
  put(npy(header("'<u2'", "(6,)", "True"), stored));
  EXPECT_EQ(read(), stored);
}

TEST_F(NpyTest, AllVersionsAndSpellingsAreRead) {
  put(npy(header("\"<i1\"", "( 2 , )"), "ab", 2));
  EXPECT_EQ(read(), "ab");
  put(npy("{'shape':(1L,2L),'descr':'|i1','fortran_order':False}", "ab", 3));
  EXPECT_EQ(read(), "ab");
}

TEST_F(NpyTest, HostileFilesAreRefusedWithAReason) {
  struct Case {
    std::string file;
    const char* reason;
  };
  const std::string good = header("'<f4'", "(2,)");
  std::string huge_header = npy(good, "12345678", 2);
  huge_header.replace(8, 4, "\xFF\xFF\xFF\xFF");
  const Case cases[] = {
      {"", "does not begin with"},
      {"x", "does not begin with"},
      {"\x93NUMPY", "cut off inside its header"},
      {npy(good, "12345678", 9), "version 9.0 of the format is unknown"},
      {npy(good, "12345678", 2).substr(0, 11), "cut off inside its header"},
      {npy(good, "12345678").substr(0, 30), "the header alone has"},
      {huge_header, "the header announces 4294967295 bytes"},
      {npy(good, "1234567"), "has 8 bytes, but 7 follow the header: the array was cut off"},
      {npy(good, "123456789"), "has 8 bytes, but 9 follow the header"},
      {npy(good, ""), "8 bytes, but 0 follow"},
      {npy(header("'|O'", "(2,)"), "12345678"), "Python objects (dtype \"|O\"), which are never loaded"},
      {npy(header("'O'", "(2,)"), "12345678"), "Python objects"},
      {npy(header("[('a', '<f4')]", "(2,)"), "12345678"), "records (a structured dtype)"},
      {npy(header("'<V8'", "(1,)"), "12345678"), "the dtype \"<V8\""},
      {npy(header("'<U2'", "(1,)"), "12345678"), "which Millrace does not read; it reads bool, integers"},
      {npy(header("'<f16'", "(1,)"), "12345678"), "the dtype"},
      {npy(header("''", "(1,)"), "12345678"), "the dtype \"\""},
      {npy(header("'f4'", "(2,)"), "12345678"), "the dtype \"f4\""},
      {npy(header("'<f4'", "(-2,)"), "12345678"), "negative size"},
      {npy(header("'<f4'", "(99999999999999999999,)"), "12345678"), "above 2^63"},
      {npy(header("'<f4'", "(4611686018427387904, 4611686018427387904)"), "12345678"), "larger than any file"},
      {npy(header("'<f4'", "(9223372036854775807,)"), "12345678"), "larger than any file"},
      {npy(header("'<f4'", "(2.0,)"), "12345678"), "expected ',' or ')', found \".0,)"},
      {npy(header("'<f4'", "(np.int64(2),)"), "12345678"), "expected a whole number in the shape, found \"np.int64(2)"},
      {npy(header("'<f4'", "(2)"), "12345678"), "not a tuple"},
      {npy(header("'<f4'", "[2]"), "12345678"), "'(' of the shape"},
      {npy(header(
               "'<f4'", "(" +
                            [] {
                              std::string s;
                              for (int i = 0; i < 65; ++i) s += "1,";
                              return s;
                            }() +
                            ")"),
           "1234"),
       "64 dimensions"},
      {npy(header("'<f4'", "(2,)", "0"), "12345678"), "expected True or False"},
      {npy("{'descr': '<f4', 'shape': (2,)}", "12345678"), "lacks \"fortran_order\""},
      {npy("{'descr': '<f4', 'descr': '<f4'}", "12345678"), "has \"descr\" twice"},
      {npy("{'descr': '<f4', 'more': 1}", "12345678"), "unknown key \"more\""},
      {npy("{'descr': '<f4", "12345678"), "expected the dtype"},
      {npy("{'descr'", "12345678"), "expected ':', found its end"},
      {npy(good + "x", "12345678"), "expected the end of the header"},
      {npy("", "12345678"), "expected '{'"},
      {npy("{", "12345678"), "the name of a key"},
      {npy(std::string(60000, '{'), ""), "the name of a key"},
  };
  for (const Case& c : cases) {
    put(c.file);
    EXPECT_THAT(refusal<NpyFile>(), HasSubstr(c.reason));
  }
}

TEST_F(NpyTest, EveryTruncationOfAFileIsRefused) {
  const std::string whole = npy(header("'<f4'", "(2,)"), "12345678");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    put(whole.substr(0, size));
    EXPECT_NE(refusal<NpyFile>(), "accepted") << size;
  }
}

TEST_F(NpyTest, ThingsThatAreNoFilesAreRefused) {
  EXPECT_THROW(NpyFile{folder_}, DataError);
  EXPECT_THROW(NpyFile{folder_ / "none"}, DataError);
  EXPECT_THROW(NpzFile{folder_}, DataError);
}

TEST_F(NpyTest, AFileThatShrinksIsNoticed) {
  put(npy(header("'<f4'", "(2,)"), "12345678"));
  const NpyFile file(path_);
  stdfs::resize_file(path_, stdfs::file_size(path_) - 3);
  std::array<std::byte, 8> out{};
  EXPECT_THROW(file.read(out), DataError);
}

TEST_F(NpyTest, WriterNamesWhatItCannotStore) {
  const auto refused = [&](DType dtype, const Shape& shape, std::size_t bytes) {
    const auto file = Fs::real().create(path_);
    return refusal_message<DataError>([&] { write_npy(*file, dtype, shape, bytes_of(std::string(bytes, 'x'))); }).what;
  };
  EXPECT_EQ(refused(DType::bf16, {1}, 2), "an array of bf16 can't be stored: NumPy has no such dtype");
  EXPECT_EQ(refused(DType::f32, {2}, 4), "an array of shape [2] and dtype f32 does not have 4 bytes");
  EXPECT_THAT(refused(DType::f32, {-1}, 4), HasSubstr("shape [-1]"));
}

class NpzTest : public NpyTest {
 protected:
  void write(bool deflated) {
    const std::vector<NpzArray> arrays = {{{"b", DType::f64, {}}, bytes_of(scalar_)},
                                          {{"a", DType::u16, {300, 2}}, bytes_of(long_)}};
    const auto file = Fs::real().create(path_);
    write_npz(*file, arrays, deflated);
    file->close();
  }
  [[nodiscard]] std::string read(std::string_view name) const {
    const NpzFile file(path_);
    const NpzEntry* entry = file.find(name);
    if (entry == nullptr) return "missing";
    std::string out(entry->layout.bytes, '\0');
    file.read(*entry, std::as_writable_bytes(std::span(out)));
    return out;
  }
  std::string scalar_ = "12345678";
  std::string long_ = std::string(600, 'y') + std::string(600, 'z');
};

TEST_F(NpzTest, StoredAndDeflatedMembersComeBack) {
  for (const bool deflated : {false, true}) {
    write(deflated);
    const NpzFile file(path_);
    ASSERT_EQ(file.entries().size(), 2U);
    EXPECT_EQ(file.entries()[0].name, "a");
    EXPECT_EQ(file.entries()[0].layout.shape, (Shape{300, 2}));
    EXPECT_EQ(file.entries()[0].layout.dtype, DType::u16);
    EXPECT_EQ(file.entries()[0].deflated, deflated);
    EXPECT_EQ(read("a"), long_);
    EXPECT_EQ(read("b"), scalar_);
    EXPECT_EQ(file.find("c"), nullptr);
    EXPECT_EQ(stdfs::file_size(path_) < 1200, deflated);
  }
}

TEST_F(NpzTest, EveryTruncationAndEveryFlippedBitIsNoticedOrHarmless) {
  for (const bool deflated : {false, true}) {
    write(deflated);
    const std::string whole = text();
    for (std::size_t size = 0; size < whole.size(); ++size) {
      put(whole.substr(0, size));
      ASSERT_NE(refusal<NpzFile>(), "accepted") << size;
    }
    for (std::size_t at = 0; at < whole.size(); ++at) {
      std::string flipped = whole;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << (at % 8)));
      put(flipped);
      if (refusal<NpzFile>() != "accepted") continue;
      ASSERT_EQ(read("a"), long_) << at;
      ASSERT_EQ(read("b"), scalar_) << at;
    }
  }
}

TEST_F(NpzTest, HostileArchivesAreRefusedWithAReason) {
  write(true);
  const std::string whole = text();
  const std::size_t entry = whole.find("PK\1\2");
  const auto changed = [&](std::size_t at, const std::string& bytes) {
    put(std::string(whole).replace(at, bytes.size(), bytes));
    return refusal<NpzFile>();
  };
  EXPECT_EQ(changed(whole.size() - 1, "\1"),
            "there is no list of members at the end: this is not a zip archive, or it was cut off");
  EXPECT_EQ(changed(entry + 8, "\1"), "member \"b.npy\" is encrypted");
  EXPECT_EQ(changed(entry + 10, "\14"), "member \"b.npy\" is compressed by the unknown method 12");
  EXPECT_THAT(changed(entry + 16, "\1\2\3\4"), HasSubstr("array \"b\" is damaged: its CRC-32 differs"));
  EXPECT_THAT(changed(entry + 46, "c"), HasSubstr("the header of member \"c.npy\" is not at byte"));
  EXPECT_THAT(changed(entry + 50, "x"), HasSubstr(" is not at byte"));
  // Position of the zip64 record, which follows the name: size, compressed size, offset.
  const std::size_t sizes = entry + 46 + 5 + 4;
  EXPECT_THAT(changed(sizes, std::string("\0\0\0\0\1\0\0\0", 8)), HasSubstr("can't hold so many"));
  EXPECT_THAT(changed(sizes, "\x10"), HasSubstr("member \"b.npy\":"));
  EXPECT_THAT(changed(sizes + 8, "\xFF\xFF"), HasSubstr("does not fit before the list of members"));
  EXPECT_THAT(changed(sizes + 16, "\xFF\xFF"), HasSubstr("begins at byte 65535"));
  EXPECT_THAT(changed(sizes - 2, "\1"), HasSubstr("lacks its zip64 sizes"));
}

TEST_F(NpzTest, NamesOccurOnce) {
  const std::vector<NpzArray> arrays(2, {{"a", DType::f64, {}}, bytes_of(scalar_)});
  const auto file = Fs::real().create(path_);
  EXPECT_THROW(write_npz(*file, arrays), DataError);
}

TEST(Deflate, StreamsThatLieAreRefused) {
  const std::string text(10000, 'a');
  const std::vector<std::byte> raw_stream = deflate(DeflateFrame::raw, bytes_of(text));
  std::string out(text.size(), '\0');
  const auto into = [&](std::size_t size) { return std::as_writable_bytes(std::span(out)).first(size); };
  EXPECT_EQ(inflate(raw_stream, into(10000)), "");
  EXPECT_EQ(out, text);
  EXPECT_EQ(inflate(raw_stream, into(9999)), "the compressed data holds more than the 9999 bytes that are announced");
  out += 'x';
  EXPECT_EQ(inflate(raw_stream, into(10001)), "the compressed data holds less than the 10001 bytes that are announced");
  EXPECT_EQ(inflate(std::span(raw_stream).first(5), into(10000)), "the compressed data is damaged or cut off");
}

TEST(Deflate, GzipMembersFollowEachOther) {
  const std::string text = "some text, some text, some text";
  std::vector<std::byte> both = deflate(DeflateFrame::gzip, bytes_of(text.substr(0, 10)));
  const std::size_t second = both.size();
  const std::vector<std::byte> rest = deflate(DeflateFrame::gzip, bytes_of(text.substr(10)));
  both.insert(both.end(), rest.begin(), rest.end());
  std::string out(text.size(), '\0');
  const std::span<std::byte> into = std::as_writable_bytes(std::span(out));
  EXPECT_EQ(gunzip(both, into), "");
  EXPECT_EQ(out, text);
  std::size_t written = 0;
  EXPECT_EQ(inflate_head(DeflateFrame::gzip, both, into.first(15), written), "");
  EXPECT_EQ(written, 15U);
  EXPECT_EQ(out.substr(0, 15), text.substr(0, 15));
  EXPECT_EQ(gunzip(std::span(both).first(second), into), "the compressed data holds less than the 31 bytes that are announced");
  for (const std::size_t wanted : {30U, 9U}) {
    std::fill(out.begin(), out.end(), '.');
    EXPECT_EQ(gunzip(both, into.first(wanted)), "") << "more than is wanted";
    EXPECT_EQ(out, text.substr(0, wanted) + std::string(31 - wanted, '.'));
  }
  both.push_back(std::byte{7});
  both.push_back(std::byte{0});
  EXPECT_EQ(gunzip(both, into), "") << "padding";
  EXPECT_EQ(out, text);
  both.resize(both.size() - 2);
  EXPECT_THAT(gunzip(std::span(both).first(both.size() - 1), into.first(10)), HasSubstr("damaged or cut off"));
  both.back() ^= std::byte{1};
  EXPECT_THAT(gunzip(both, into), HasSubstr("damaged or cut off"));
  EXPECT_THAT(gunzip(both, into.first(30)), HasSubstr("damaged or cut off"));
}

TEST(ByteOrder, NumbersOfEachSizeAreSwapped) {
  const auto swapped = [](DType dtype, std::string text) {
    swap_bytes(dtype, std::as_writable_bytes(std::span(text)));
    return text;
  };
  EXPECT_EQ(swapped(DType::u8, "abcd"), "abcd");
  EXPECT_EQ(swapped(DType::f16, "abcd"), "badc");
  EXPECT_EQ(swapped(DType::f32, "abcd"), "dcba");
  EXPECT_EQ(swapped(DType::c64, "abcdefgh"), "dcbahgfe");
  EXPECT_EQ(swapped(DType::c128, "abcdefghABCDEFGH"), "hgfedcbaHGFEDCBA");
}

}  // namespace
}  // namespace millrace::format
