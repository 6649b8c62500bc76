#include "millrace/data/sources/file_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/base/fs.h"
#include "millrace/format/npy.h"
#include "millrace/format/png.h"
#include "tests/support/refusal.h"
#include "tests/support/test_sources.h"

namespace millrace::data {
namespace {

using test::rows_of;
using testing::ElementsAre;
using testing::HasSubstr;

void put(const std::string& name, std::string_view bytes) {
  std::filesystem::create_directories(std::filesystem::path(name).parent_path());
  write_atomically(Fs::real(), name, bytes);
}

void put_npy(const std::string& name, const std::vector<float>& values) {
  std::filesystem::create_directories(std::filesystem::path(name).parent_path());
  const auto file = Fs::real().create(name);
  format::write_npy(*file, DType::f32, {static_cast<std::int64_t>(values.size())}, std::as_bytes(std::span(values)));
  file->close();
}

template <class T>
std::string little(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

// The bytes of a sound file with one channel and 16 bits.
std::string sound(std::uint32_t rate, std::initializer_list<std::int16_t> values) {
  std::string numbers;
  for (const std::int16_t value : values) numbers += little(value);
  return "RIFF" + little<std::uint32_t>(static_cast<std::uint32_t>(36 + numbers.size())) + "WAVEfmt " +
         little<std::uint32_t>(16) + little<std::uint16_t>(1) + little<std::uint16_t>(1) + little(rate) + little(2 * rate) +
         little<std::uint16_t>(2) + little<std::uint16_t>(16) + "data" + little(static_cast<std::uint32_t>(numbers.size())) +
         numbers;
}

TEST(FileSource, FoldersOfArraysAreSamplesWithLabels) {
  put_npy("arrays/owl/a.npy", {1, 2, 3});
  put_npy("arrays/wren/b.npy", {4, 5, 6});
  put_npy("arrays/wren/c.npy", {7, 8, 9});
  const FileSource source(labelled_files_in("arrays", {".npy"}), {.field = "wave"});
  EXPECT_EQ(source.size(), 3);
  EXPECT_THAT(source.fields(), ElementsAre(Field{"wave", DType::f32, {3}}, Field{"label", DType::i64, {}}));
  EXPECT_THAT(rows_of<float>(source, {2, 0}), ElementsAre(7, 8, 9, 1, 2, 3));
  EXPECT_THAT(rows_of<std::int64_t>(source, {2, 0}, 0, 1), ElementsAre(1, 0));
  EXPECT_EQ(source.describe(1), "arrays/wren/b.npy");
  EXPECT_EQ(source.keeps(), Keeps::rows);
  EXPECT_EQ(source.stamps().size(), 3U);
  EXPECT_EQ(source.read_as(), "3 files as the first: wave f32 [3]");
  EXPECT_THAT(source.value_names("label"), ElementsAre("owl", "wren"));
  EXPECT_THAT(source.value_names("wave"), testing::IsEmpty());
}

TEST(FileSource, OtherLabelsAreOtherDataAndOtherPlacesAreNot) {
  put_npy("one/a/x.npy", {1});
  put_npy("one/b/y.npy", {2});
  put_npy("two/a/x.npy", {1});
  put_npy("two/b/y.npy", {2});
  LabelledFiles files = labelled_files_in("one", {".npy"});
  const std::string before = FileSource(files).fingerprint();
  EXPECT_EQ(FileSource(labelled_files_in("two", {".npy"})).fingerprint(), before);
  files.labels = {1, 0};
  EXPECT_NE(FileSource(files).fingerprint(), before);
}

TEST(FileSource, ArraysOfAnNpzAreFieldsUnderTheirNames) {
  const std::vector<std::int64_t> ids = {3, 4};
  const std::vector<float> x = {0.5F};
  const auto file = Fs::real().create("s.npz");
  format::write_npz(*file, std::vector<format::NpzArray>{{{"ids", DType::i64, {2}}, std::as_bytes(std::span(ids))},
                                                         {{"x", DType::f32, {1}}, std::as_bytes(std::span(x))}});
  file->close();
  const FileSource source(std::vector<std::filesystem::path>{"s.npz"});
  EXPECT_THAT(source.fields(), ElementsAre(Field{"ids", DType::i64, {2}}, Field{"x", DType::f32, {1}}));
  EXPECT_THAT(rows_of<std::int64_t>(source, {0}), ElementsAre(3, 4));
  EXPECT_THAT(rows_of<float>(source, {0}, 0, 1), ElementsAre(0.5F));
}

// Two fields of one name: which of them a batch gives under it would be a matter of chance.
TEST(FileSource, AnArrayMayNotTakeTheNameOfTheFoldersLabel) {
  const std::vector<std::int64_t> label = {3};
  for (const char* folder : {"named/a", "named/b"}) {
    Fs::real().create_directories(folder);
    const auto file = Fs::real().create(std::string(folder) + "/s.npz");
    format::write_npz(*file, std::vector<format::NpzArray>{{{"label", DType::i64, {1}}, std::as_bytes(std::span(label))}});
    file->close();
  }
  EXPECT_EQ(refusal_reason<DataError>([] { const FileSource named(labelled_files_in("named", {".npz"})); }, "named/a/s.npz"),
            "the files have an array \"label\", and the name of the folder gives a field \"label\" too");
}

TEST(FileSource, SoundsAreFractionsAndPicturesHaveChannelsFirst) {
  put("sounds/a.wav", sound(8000, {16384, -32768}));
  const FileSource sounds(files_in("sounds", {".wav"}), {.field = "wave"});
  EXPECT_THAT(sounds.fields(), ElementsAre(Field{"wave", DType::f32, {1, 2}}));
  EXPECT_THAT(rows_of<float>(sounds, {0}), ElementsAre(0.5F, -1.0F));
  EXPECT_EQ(sounds.read_as(), "1 file: wave f32 [1,2], 8,000 Hz");

  std::vector<std::byte> pixels(2 * 1 * 3);
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::byte>(i);
  const auto png = format::encode_png({2, 1, Pixels::rgb}, pixels);
  put("pictures/a.png", {reinterpret_cast<const char*>(png.data()), png.size()});
  const FileSource pictures(files_in("pictures", {".png"}), {.field = "image"});
  EXPECT_THAT(pictures.fields(), ElementsAre(Field{"image", DType::u8, {3, 2, 1}}));
  EXPECT_THAT(rows_of<std::uint8_t>(pictures, {0}), ElementsAre(0, 3, 1, 4, 2, 5));
}

TEST(FileSource, AFileUnlikeTheFirstIsNamed) {
  put_npy("shapes/a.npy", {1, 2});
  put_npy("shapes/b.npy", {1, 2, 3});
  const FileSource shapes(files_in("shapes", {".npy"}));
  const Message message = refusal_message<DataError>([&] { (void)rows_of<float>(shapes, {1}); });
  EXPECT_EQ(message.what, "the file has x f32 [3], the first has x f32 [2]");
  EXPECT_EQ(message.where, "shapes/b.npy");
  EXPECT_EQ(message.next, "make all files alike, or leave this one out; the first is shapes/a.npy");
  put("rates/a.wav", sound(8000, {1}));
  put("rates/b.wav", sound(16000, {1}));
  const FileSource rates(files_in("rates", {".wav"}));
  EXPECT_EQ(refusal_reason<DataError>([&] { (void)rows_of<float>(rates, {1}); }, "rates/b.wav"),
            "the file has 16,000 Hz, the first has 8,000 Hz");
  put("cut/a.npy", "not an array");
  EXPECT_THAT(refusal<DataError>([] { const FileSource cut(files_in("cut", {".npy"})); }), HasSubstr("cut/a.npy"));
  put("other/a.mp3", "ID3");
  EXPECT_EQ(refusal_reason<DataError>([] { const FileSource other(files_in("other", {".mp3"})); }, "other/a.mp3"),
            "no reader for files that end in \".mp3\"");
}

}  // namespace
}  // namespace millrace::data
