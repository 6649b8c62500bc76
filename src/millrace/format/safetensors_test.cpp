#include "millrace/format/safetensors.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <numeric>

#include "millrace/base/error.h"
#include "millrace/base/hash.h"
#include "millrace/base/philox.h"
#include "tests/support/refusal.h"

namespace millrace::format {
namespace {

namespace stdfs = std::filesystem;
using testing::HasSubstr;

std::uint32_t crc_of(const std::string& bytes) { return crc32c(std::as_bytes(std::span(bytes))); }

class SafetensorsTest : public testing::Test {
 protected:
  SafetensorsTest()
      : folder_(stdfs::temp_directory_path() / ("millrace-safetensors-" + std::to_string(::getpid()))),
        path_(folder_ / "t.safetensors") {
    stdfs::create_directories(folder_);
  }
  ~SafetensorsTest() override { stdfs::remove_all(folder_); }

  WrittenSafetensors write(const std::vector<Field>& fields, const std::vector<std::string>& bytes,
                           const Metadata& metadata = {}) {
    const auto file = Fs::real().create(path_);
    WrittenSafetensors written = write_safetensors(
        *file, fields, [&](std::size_t i) { return std::as_bytes(std::span(bytes[i])); }, metadata);
    file->close();
    return written;
  }
  void put(const std::string& text) {
    stdfs::remove(path_);  // otherwise ext4 writes a file to the disk at once when it is truncated and filled again
    std::ofstream(path_, std::ios::binary) << text;
  }
  // Writes a file with this header and this many bytes of data.
  void put_header(const std::string& json, std::size_t data_bytes) {
    std::string text;
    for (int i = 0; i < 8; ++i) text += static_cast<char>(json.size() >> (8 * i) & 0xFFU);
    put(text + json + std::string(data_bytes, 'x'));
  }
  [[nodiscard]] std::string text() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  [[nodiscard]] std::string refusal() const {
    return refusal_reason<DataError>([&] { const SafetensorsFile file(path_); }, path_.string());
  }
  static std::string read(const SafetensorsFile& file, std::string_view name) {
    const StoredTensor* tensor = file.find(name);
    if (tensor == nullptr) return "missing";
    std::string bytes(tensor->bytes, '\0');
    file.read(*tensor, std::as_writable_bytes(std::span(bytes)));
    return bytes;
  }

  stdfs::path folder_;
  stdfs::path path_;
};

TEST_F(SafetensorsTest, EveryDtypeComesBackWithItsBytes) {
  const std::vector<DType> dtypes = {DType::boolean, DType::u8,  DType::i8,  DType::i16,  DType::u16, DType::i32, DType::u32,
                                     DType::i64,     DType::u64, DType::f16, DType::bf16, DType::f32, DType::f64, DType::c64};
  std::vector<Field> fields;
  std::vector<std::string> bytes;
  for (const DType dtype : dtypes) {
    fields.push_back({std::string(name_of(dtype)), dtype, {3, 1}});
    bytes.emplace_back(3 * size_of(dtype), static_cast<char>('A' + fields.size()));
  }
  fields.push_back({"scalar \"\n\xC3\xA9", DType::f32, {}});
  bytes.emplace_back("abcd");
  fields.push_back({"empty", DType::f64, {2, 0}});
  bytes.emplace_back();
  const WrittenSafetensors written = write(fields, bytes, {{"made by", "a test"}});
  EXPECT_EQ(written.bytes, stdfs::file_size(path_));
  EXPECT_EQ(written.bytes, safetensors_bytes(fields, {{"made by", "a test"}}));
  EXPECT_EQ(written.crc32c, crc_of(text()));

  const SafetensorsFile file(path_);
  EXPECT_EQ(file.header_crc32c(), written.header_crc32c);
  EXPECT_EQ(file.metadata(), (Metadata{{"made by", "a test"}}));
  ASSERT_EQ(file.tensors().size(), fields.size());
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const StoredTensor* tensor = file.find(fields[i].name);
    ASSERT_NE(tensor, nullptr) << fields[i].name;
    EXPECT_EQ(tensor->dtype, fields[i].dtype);
    EXPECT_EQ(tensor->shape, fields[i].shape);
    EXPECT_EQ(tensor->offset % size_of(tensor->dtype), 0U) << "arrays must be aligned";
    EXPECT_EQ(read(file, fields[i].name), bytes[i]);
    EXPECT_EQ(written.tensor_crcs[i], crc_of(bytes[i]));
  }
  EXPECT_EQ(file.find("none"), nullptr);
}

TEST_F(SafetensorsTest, OrderOfTensorsDoesNotChangeTheFile) {
  write({{"b", DType::u8, {3}}, {"a", DType::f32, {1}}}, {"bbb", "aaaa"});
  const std::string first = text();
  write({{"a", DType::f32, {1}}, {"b", DType::u8, {3}}}, {"aaaa", "bbb"});
  EXPECT_EQ(text(), first);
  EXPECT_EQ((first.size() - 7) % 8, 0U);
  EXPECT_THAT(first, HasSubstr(R"({"a":{"data_offsets":[0,4],"dtype":"F32","shape":[1]},"b":{"data_offsets":[4,7])"));
}

TEST_F(SafetensorsTest, NoTensorsIsAFileToo) {
  write({}, {});
  EXPECT_EQ(SafetensorsFile(path_).tensors().size(), 0U);
}

TEST_F(SafetensorsTest, WriterNamesWhatItCannotStore) {
  const auto refused = [](const Field& field) {
    return refusal_message<DataError>([&] { static_cast<void>(safetensors_bytes(std::vector<Field>{field})); }).what;
  };
  EXPECT_EQ(refused({"w", DType::c128, {1}}), "tensor \"w\" can't be stored in a safetensors file: the format has no dtype c128");
  EXPECT_THAT(refused({"\xFF", DType::f32, {1}}), HasSubstr("not UTF-8"));
  EXPECT_THAT(refused({"__metadata__", DType::f32, {1}}), HasSubstr("reserved"));
  EXPECT_THAT(refused({"w", DType::f32, {-1}}), HasSubstr("shape [-1] is not possible"));
  EXPECT_THAT(refused({"w", DType::f64, {std::int64_t{1} << 61}}), HasSubstr("is not possible"));
  EXPECT_THROW(static_cast<void>(safetensors_bytes(std::vector<Field>(2, {"w", DType::f32, {1}}))), DataError);
}

TEST_F(SafetensorsTest, HostileHeadersAreRefusedWithAReason) {
  struct Case {
    const char* json;
    std::size_t data_bytes;
    const char* reason;
  };
  const std::string deep = "{\"a\":{\"shape\":" + std::string(1000000, '[');
  const std::string deeper = std::string(1000000, '{');
  const std::string wide = R"({"a":{"dtype":"U8","shape":[)" + [] {
    std::string ones = "1";
    for (int i = 0; i < 70; ++i) ones += ",1";
    return ones;
  }() + R"(],"data_offsets":[0,1]}})";
  const std::vector<Case> cases = {
      {"", 0, "does not begin with '{'"},
      {"[]", 0, "does not begin with '{'"},
      {" {}", 0, "does not begin with '{'"},
      {"{", 0, "not JSON"},
      {"{}x", 0, "not JSON"},
      {"{} {}", 0, "not JSON"},
      {"{\"a\xFF\":1}", 0, "not JSON"},
      {"{}", 1, "1 bytes follow the last tensor"},
      {R"({"a":5})", 0, R"(the entry of "a" has the number 5 in the wrong place)"},
      {R"({"a":null})", 0, "null in the wrong place"},
      {R"({"a":[]})", 0, "a list in the wrong place"},
      {R"({"a":{}})", 0, R"(tensor "a" lacks dtype)"},
      {R"({"a":{"dtype":"F32"}})", 0, R"(tensor "a" lacks shape)"},
      {R"({"a":{"dtype":"F32","shape":[1]}})", 4, R"(tensor "a" lacks data_offsets)"},
      {R"({"a":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}})", 4, R"(unknown dtype "F33")"},
      {R"({"a":{"dtype":5,"shape":[1],"data_offsets":[0,4]}})", 4, "the number 5"},
      {R"({"a":{"dtype":"F32","shape":"x","data_offsets":[0,4]}})", 4, "a text in the wrong place"},
      {R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "the number -1"},
      {R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4, "a number with a fraction"},
      {R"({"a":{"dtype":"F32","shape":[true],"data_offsets":[0,4]}})", 4, "a boolean"},
      {R"({"a":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}})", 4, "a list"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4, "has 1 data_offsets instead of 2"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,4]}})", 4, "the number 4"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, "ends before it begins"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})", 8, "needs 4 bytes, but its data_offsets span 8"},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", 0, "larger than any file"},
      {R"({"a":{"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]}})", 0, "larger than any file"},
      {R"({"a":{"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,0]}})", 0, "a size above 2^63"},
      {R"({"a":{"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,0]}})", 0, "a number with a fraction"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[18446744073709551615,18446744073709551615]}})", 1, "needs 1 bytes"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 3, "ends at data byte 4, but the file holds only 3"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[1,5]}})", 5, "leaves a hole"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})", 6,
       R"(tensor "b" begins at data byte 2, inside the tensor before it (expected 4))"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", 2,
       R"("a" occurs twice)"},
      {R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1, "has dtype twice"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1}})", 1, R"(unknown key "x")"},
      {R"({"__metadata__":{"k":1}})", 0, "the number 1"},
      {R"({"__metadata__":{"k":"a","k":"b"}})", 0, R"(metadata key "k" occurs twice)"},
      {R"({"__metadata__":[]})", 0, "a list"},
      {deep.c_str(), 0, "a list in the wrong place"},
      {deeper.c_str(), 0, "not JSON"},
      {wide.c_str(), 1, "more than 64 dimensions"},
  };
  for (const Case& c : cases) {
    put_header(c.json, c.data_bytes);
    EXPECT_THAT(refusal(), HasSubstr(c.reason)) << std::string(c.json).substr(0, 200);
  }
}

TEST_F(SafetensorsTest, ZeroSizesAndTrailingBlanksAreLegal) {
  put_header(R"({"a":{"dtype":"F32","shape":[0,5],"data_offsets":[0,0]},"b":{"data_offsets":[0,1],"dtype":"U8","shape":[]}}    )",
             1);
  const SafetensorsFile file(path_);
  EXPECT_EQ(read(file, "a"), "");
  EXPECT_EQ(read(file, "b"), "x");
}

TEST_F(SafetensorsTest, HostileLengthsAreRefused) {
  put("");
  EXPECT_THAT(refusal(), HasSubstr("0 bytes"));
  put("1234567");
  EXPECT_THAT(refusal(), HasSubstr("7 bytes"));
  for (const std::uint64_t length : {std::uint64_t{1}, std::uint64_t{200'000'000}, std::uint64_t{1} << 63U, ~std::uint64_t{0}}) {
    std::string head(8, '\0');
    std::memcpy(head.data(), &length, 8);
    put(head);
    EXPECT_THAT(refusal(), HasSubstr("announces a header of " + std::to_string(length) + " bytes")) << length;
  }
  put_header("", 0);
  EXPECT_THAT(refusal(), HasSubstr("does not begin"));
}

TEST_F(SafetensorsTest, WhatIsNotAFileIsRefused) {
  EXPECT_THAT(refusal(), HasSubstr("can't open the file: No such file"));
  stdfs::create_directory(path_);
  EXPECT_EQ(refusal(), "this is a folder, not a safetensors file");
  stdfs::remove(path_);
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(refusal(), "this is not a regular file");
}

TEST_F(SafetensorsTest, ShrinkingWhileOpenIsAnError) {
  write({{"a", DType::u8, {100}}}, {std::string(100, 'a')});
  const SafetensorsFile file(path_);
  stdfs::resize_file(path_, stdfs::file_size(path_) - 1);
  EXPECT_THROW(read(file, "a"), DataError);
}

// If a changed file is accepted, its layout must still make sense. Every truncated file must be rejected.
TEST_F(SafetensorsTest, MutantsNeverCrashAndTruncationsAreNeverAccepted) {
  const std::vector<Field> fields = {
      {"w", DType::f32, {4, 3}}, {"b", DType::bf16, {3}}, {"n", DType::i64, {}}, {"e", DType::u8, {0}}};
  write(fields, {std::string(48, 'w'), std::string(6, 'b'), std::string(8, 'n'), ""}, {{"k", "v"}});
  const std::string good = text();
  for (std::size_t size = 0; size < good.size(); ++size) {
    put(good.substr(0, size));
    EXPECT_NE(refusal(), "accepted") << "cut to " << size;
  }
  Philox random(20240501);
  int accepted = 0;
  for (int mutant = 0; mutant < 1000; ++mutant) {
    std::string bad = good;
    const std::uint64_t kind = random.below(4);
    const std::size_t at = random.below(bad.size());
    if (kind == 0) bad[at] = static_cast<char>(bad[at] ^ static_cast<char>(1U << random.below(8)));
    if (kind == 1) bad[at] = static_cast<char>(random());
    if (kind == 2) bad.insert(at, 1, static_cast<char>(random()));
    if (kind == 3)
      std::swap_ranges(bad.begin(), bad.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(16, at)),
                       bad.begin() + static_cast<std::ptrdiff_t>(at - std::min<std::size_t>(16, at)));
    put(bad);
    if (refusal() != "accepted") continue;
    ++accepted;
    const SafetensorsFile file(path_);
    std::uint64_t data = 0;
    for (const StoredTensor& tensor : file.tensors()) {
      EXPECT_LE(tensor.offset + tensor.bytes, file.bytes());
      EXPECT_EQ(tensor.bytes, static_cast<std::uint64_t>(*element_count(tensor.shape)) * size_of(tensor.dtype));
      EXPECT_EQ(read(file, tensor.name).size(), tensor.bytes);
      data += tensor.bytes;
    }
    EXPECT_LE(data, bad.size());
  }
  EXPECT_GT(accepted, 0) << "changes of data bytes can't be seen by the format";
  EXPECT_LT(accepted, 700);
}

}  // namespace
}  // namespace millrace::format
