// Tests of the sources that read a sample from each file, and of rows of .npy files.
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <numeric>

#include "millrace/base/error.h"
#include "millrace/base/fs.h"
#include "millrace/data/cache/cached_source.h"
#include "millrace/data/files/nifti.h"
#include "millrace/data/loader/loader.h"
#include "millrace/data/sources/image_source.h"
#include "millrace/data/sources/nifti_source.h"
#include "millrace/data/sources/npy_source.h"
#include "millrace/format/deflate.h"
#include "millrace/format/png.h"
#include "tests/support/nifti_maker.h"
#include "tests/support/refusal.h"
#include "tests/support/test_sources.h"
#include "tests/support/test_support.h"

namespace millrace::data {
namespace {

namespace stdfs = std::filesystem;
using test::rows_of;
using test::text_of;
using testing::ElementsAre;
using testing::HasSubstr;

class FileSourcesTest : public testing::Test {
 protected:
  FileSourcesTest() : folder_(stdfs::temp_directory_path() / ("millrace-sources-" + std::to_string(::getpid()))) {
    stdfs::create_directories(folder_);
  }
  ~FileSourcesTest() override { stdfs::remove_all(folder_); }

  stdfs::path put(const std::string& name, const std::string& bytes) {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return folder_ / name;
  }
  // A volume of 6 x 5 x 4 voxels (x, y, z) whose values count up from `first`.
  stdfs::path volume(const std::string& name, std::int16_t first, std::vector<std::int64_t> dim = {6, 5, 4}) {
    std::vector<std::int16_t> values(static_cast<std::size_t>(*element_count(dim)));
    std::iota(values.begin(), values.end(), first);
    const std::string bytes = test::NiftiMaker{.dim = std::move(dim), .slope = 2}.file(values);
    return put(name, name.ends_with(".gz") ? text_of(format::deflate(format::DeflateFrame::gzip, std::as_bytes(std::span(bytes))))
                                           : bytes);
  }
  template <class T>
  stdfs::path npy(const std::string& name, const Shape& shape, const std::vector<T>& values, DType dtype) {
    const auto file = Fs::real().create(folder_ / name);
    format::write_npy(*file, dtype, shape, std::as_bytes(std::span(values)));
    file->close();
    return folder_ / name;
  }
  stdfs::path png(const std::string& name, std::int64_t height, std::int64_t width) {
    std::vector<std::byte> pixels(static_cast<std::size_t>(height * width * 3));
    for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::byte>(i);
    return put(name, text_of(format::encode_png({height, width, Pixels::rgb}, pixels)));
  }

  stdfs::path folder_;
};

TEST_F(FileSourcesTest, NiftiVolumesAreSamples) {
  const NiftiSource source({volume("a.nii", 0), volume("b.nii.gz", 1000)}, {});
  EXPECT_EQ(source.size(), 2);
  EXPECT_EQ(source.fields()[0], (Field{"volume", DType::i16, {4, 5, 6}}));
  const std::vector<std::int16_t> both = rows_of<std::int16_t>(source, {1, 0});
  EXPECT_EQ(both[0], 1000);
  EXPECT_EQ(both[120], 0);
  EXPECT_EQ(both[239], 119);
  const NiftiSource scaled({volume("a.nii", 0)}, {.field = "mri", .as_float = true});
  EXPECT_EQ(scaled.fields()[0], (Field{"mri", DType::f32, {4, 5, 6}}));
  EXPECT_EQ(rows_of<float>(scaled, {0})[119], 238.0F);
}

// Mixed directions, and numbers without their scale, were learned without a word.
TEST_F(FileSourcesTest, NiftiHeadersThatDisagreeAreSaid) {
  const stdfs::path a = volume("a.nii", 0);
  const std::vector<std::int16_t> values(120);
  const stdfs::path b =
      put("b.nii", test::NiftiMaker{.dim = {6, 5, 4}, .sform = 1, .srow = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0}}.file(values));
  const auto words = [](std::vector<stdfs::path> files, bool as_float) {
    return NiftiSource(std::move(files), {.as_float = as_float}).read_as();
  };
  const std::string scale = "; numbers as stored, without the header's scale (slope 2, intercept 0 in a.nii)";
  EXPECT_EQ(words({a}, false), words({a}, true) + scale);
  EXPECT_THAT(words({a}, true), testing::Not(HasSubstr(";")));
  EXPECT_THAT(words({a, b, a}, true),
              HasSubstr("; 1 of 3 files looked at has another orientation (RAS in b.nii); all files are read as stored"));
  EXPECT_EQ(words({a, b, a}, false), words({a, b, a}, true) + scale);
}

// A run went on with other voxels when only the second file of a pair had changed.
TEST_F(FileSourcesTest, BothFilesOfAPairCount) {
  std::vector<std::int16_t> values(120, 1);
  const stdfs::path header = put("p.hdr", test::NiftiMaker{.dim = {6, 5, 4}, .pair = true}.header());
  const auto print = [&] { return NiftiSource({header}, {}).fingerprint(); };
  const stdfs::path voxels = put("p.img", test::NiftiMaker::voxels(values, false));
  const std::string before = print();
  EXPECT_EQ(print(), before);
  values.back() = 2;
  EXPECT_EQ(put("p.img", test::NiftiMaker::voxels(values, false)), voxels);
  EXPECT_NE(print(), before);
  EXPECT_NE(NiftiSource({voxels}, {}).fingerprint(), print());
}

TEST_F(FileSourcesTest, NiftiPatchesAreDrawnFromTheReadsStream) {
  const std::vector<stdfs::path> files = {volume("a.nii", 0), volume("b.nii.gz", 0), volume("c.nii", 0, {9, 9, 9})};
  const NiftiSource source(files, {.patch = {2, 3, 4}});
  std::vector<std::int16_t> corners;
  for (std::uint64_t epoch = 0; epoch < 40; ++epoch) {
    const std::vector<std::int16_t> patch = rows_of<std::int16_t>(source, {0}, epoch);
    ASSERT_EQ(patch.size(), 24U);
    for (std::size_t i = 0; i < 24; ++i) {
      ASSERT_EQ(patch[i], patch[0] + static_cast<int>(i % 4 + i / 4 % 3 * 6 + i / 12 * 30));
    }
    EXPECT_EQ(patch, rows_of<std::int16_t>(source, {1}, epoch)) << "plain and packed draw alike";
    corners.push_back(patch[0]);
  }
  std::sort(corners.begin(), corners.end());
  EXPECT_GT(std::unique(corners.begin(), corners.end()) - corners.begin(), 15) << "of 3 * 3 * 3 places";
  EXPECT_EQ(rows_of<std::int16_t>(NiftiSource(files, {.patch = {2, 3, 4}, .random = false}), {2})[0], 3 * 81 + 3 * 9 + 2);
}

TEST_F(FileSourcesTest, VolumesFromTheCacheGiveTheSamePatches) {
  const std::vector<stdfs::path> files = {volume("a.nii", 0), volume("b.nii.gz", 5), volume("c.nii", 7, {9, 9, 9})};
  for (const NiftiSamples& samples : {NiftiSamples{.patch = {2, 3, 4}}, NiftiSamples{.patch = {2, 3, 4}, .random = false},
                                      NiftiSamples{.patch = {3, 2, 2}, .as_float = true}}) {
    const auto source = std::make_shared<NiftiSource>(files, samples);
    ASSERT_EQ(source->part_bytes(2) - source->part_bytes(0), (729U - 120U) * 2U) << "the type they are stored in";
    const auto cache = std::make_shared<SampleCache>(cache_payload(*source));
    const CachedSource cached(source, cache);
    for (std::uint64_t epoch = 0; epoch < 5; ++epoch) {
      EXPECT_EQ(rows_of<std::uint8_t>(cached, {2, 0, 1, 0}, epoch), rows_of<std::uint8_t>(*source, {2, 0, 1, 0}, epoch));
    }
    EXPECT_EQ(cache->counters().misses, 3U);
    EXPECT_EQ(cache->counters().hits, 17U);
  }
}

// A damaged file, under each policy for bad samples.
TEST_F(FileSourcesTest, ATruncatedVolumeIsDealtWithAsThePolicySays) {
  std::vector<stdfs::path> files;
  for (int i = 0; i < 8; ++i) files.push_back(volume("v" + std::to_string(i) + ".nii.gz", 100 * i));
  stdfs::resize_file(files[3], stdfs::file_size(files[3]) / 2);
  const auto source = std::make_shared<NiftiSource>(files, NiftiSamples{});
  for (const bool kept : {false, true}) {
    for (const int readers : {0, 2}) {
      const auto loader_of = [&](BadSamples policy) {
        LoaderOptions options;
        options.batch_size = 2;
        options.readers = readers;
        options.bad_samples = policy;
        options.max_bad_fraction = 0.2;
        Pipeline pipeline = single(source);
        if (kept) use_cache(pipeline, std::make_shared<SampleCache>(cache_payload(*source)));
        return std::make_unique<Loader>(std::move(pipeline), options);
      };
      const auto ids_of = [](Loader& loader) {
        std::vector<std::int64_t> ids;
        while (auto batch = loader.next()) {
          for (std::size_t row = 0; row < batch->groups[0].indices.size(); ++row) {
            std::int16_t first = 0;
            std::memcpy(&first, batch->groups[0].data[0] + row * 240, sizeof first);
            EXPECT_EQ(first, 100 * batch->groups[0].indices[row]);
            ids.push_back(batch->groups[0].indices[row]);
          }
        }
        return ids;
      };
      try {
        const auto loader = loader_of(BadSamples::fail);
        (void)ids_of(*loader);
        FAIL();
      } catch (const DataError& error) {
        EXPECT_THAT(error.what(), HasSubstr("v3.nii.gz"));
        EXPECT_THAT(error.what(), HasSubstr("batch 1 of epoch 0"));
      }
      const auto skips = loader_of(BadSamples::skip);
      EXPECT_THAT(ids_of(*skips), testing::ElementsAre(0, 1, 2, 4, 5, 6, 7));
      EXPECT_EQ(skips->counters().bad_samples, 1U);
      for (const BadSamples policy : {BadSamples::substitute, BadSamples::quarantine}) {
        const auto replaces = loader_of(policy);
        const std::vector<std::int64_t> ids = ids_of(*replaces);
        EXPECT_EQ(ids.size(), 8U);
        EXPECT_THAT(ids, testing::Not(testing::Contains(3)));
        EXPECT_EQ(replaces->counters().bad_samples, 1U);
        const bool listed = replaces->state()["quarantine"].dump() == "[[0,3]]";
        EXPECT_EQ(listed, policy == BadSamples::quarantine);
      }
    }
  }
}

TEST_F(FileSourcesTest, NiftiFilesThatDoNotFitAreNamed) {
  const std::vector<stdfs::path> files = {volume("a.nii", 0), volume("b.nii", 0, {6, 5, 3})};
  EXPECT_EQ(refusal_reason([&] { static_cast<void>(rows_of<std::int16_t>(NiftiSource(files, {}), {1})); }),
            "the volume is [3,5,6] i16, samples are [4,5,6] i16");
  EXPECT_EQ(refusal_reason([&] {
              NiftiSource(files, {.patch = {5, 1, 1}});
            }),
            "a patch of [5,1,1] does not fit into a volume of [4,5,6]");
  EXPECT_EQ(refusal_reason([&] {
              static_cast<void>(rows_of<std::int16_t>(NiftiSource(files, {.patch = {4, 5, 6}}), {1}));
            }),
            "the volume is [3,5,6] i16, samples are [4,5,6] i16");
  EXPECT_EQ(refusal_reason([&] { NiftiSource({}, {}); }), "the list of volumes is empty");
  EXPECT_THAT(refusal_reason([&] { NiftiSource({folder_ / "none"}, {}); }), HasSubstr("can't be opened"));
}

TEST_F(FileSourcesTest, FingerprintsTellFilesAndOptionsApart) {
  const stdfs::path a = volume("a.nii", 0);
  const auto print = [&](const NiftiSamples& samples) { return NiftiSource({a}, samples).fingerprint(); };
  const std::string before = print({});
  EXPECT_EQ(before, print({}));
  EXPECT_NE(before, print({.as_float = true}));
  EXPECT_NE(print({.patch = {4, 5, 6}}), before);
  EXPECT_NE(print({.patch = {1, 1, 1}}), print({.patch = {1, 1, 1}, .random = false}));
  EXPECT_EQ(before, "nifti 1 file i16 whole [4,5,6]") << "what is in the file, stamps() says";
  const std::vector<FileStamp> stamps = NiftiSource({a}, {}).stamps();
  stdfs::last_write_time(a, stdfs::last_write_time(a) - std::chrono::hours(1));
  EXPECT_EQ(NiftiSource({a}, {}).stamps(), stamps);
  volume("a.nii", 1);
  EXPECT_NE(NiftiSource({a}, {}).stamps().at(0).digest, stamps.at(0).digest);
}

TEST_F(FileSourcesTest, NpyRowsAreSamples) {
  std::vector<float> x(30);
  std::iota(x.begin(), x.end(), 0.0F);
  const NpySource source({{"x", npy<float>("x.npy", {10, 3}, x, DType::f32)},
                          {"y", npy<std::int64_t>("y.npy", {10}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, DType::i64)}});
  EXPECT_EQ(source.size(), 10);
  EXPECT_EQ(source.fields()[0], (Field{"x", DType::f32, {3}}));
  EXPECT_EQ(source.fields()[1], (Field{"y", DType::i64, {}}));
  EXPECT_THAT(rows_of<float>(source, {9, 2, 3}), ElementsAre(27, 28, 29, 6, 7, 8, 9, 10, 11));
  EXPECT_THAT(rows_of<std::int64_t>(source, {9, 2, 3}, 0, 1), ElementsAre(9, 2, 3));
  EXPECT_GT(source.samples_per_ticket(), 1000);
}

TEST_F(FileSourcesTest, NpyInFortranOrderGivesTheSameRows) {
  const std::string header = "{'descr': '|u1', 'fortran_order': True, 'shape': (3, 2)}";
  const NpySource source(
      {{"x", put("f.npy", std::string("\x93NUMPY\1\0", 8) + static_cast<char>(header.size()) + '\0' + header + "abcdef")}});
  EXPECT_THAT(rows_of<char>(source, {1, 0, 2}), ElementsAre('b', 'e', 'a', 'd', 'c', 'f'));
}

TEST_F(FileSourcesTest, NpyArraysThatDoNotFitAreNamed) {
  const stdfs::path two = npy<float>("two.npy", {2}, {1, 2}, DType::f32);
  const stdfs::path one = npy<float>("one.npy", {1}, {1}, DType::f32);
  const stdfs::path scalar = npy<float>("scalar.npy", {}, {1}, DType::f32);
  EXPECT_EQ(refusal_reason([&] { NpySource({{"a", two}, {"b", one}}); }), "the array has 1 rows, the first one has 2");
  EXPECT_EQ(refusal_reason([&] { NpySource({{"a", scalar}}); }), "the array is a single number");
  EXPECT_EQ(refusal_reason([&] { NpySource({}); }), "the list of arrays is empty");
}

TEST_F(FileSourcesTest, NpzFilesAreSamples) {
  const auto npz = [&](const std::string& name, const std::string& a, const Shape& shape) {
    const auto file = Fs::real().create(folder_ / name);
    const std::vector<format::NpzArray> arrays = {{{"image", DType::u8, shape}, std::as_bytes(std::span(a))},
                                                  {{"label", DType::u8, {}}, std::as_bytes(std::span(a)).first(1)}};
    format::write_npz(*file, arrays, true);
    file->close();
    return folder_ / name;
  };
  const std::vector<stdfs::path> files = {npz("0.npz", "abcd", {2, 2}), npz("1.npz", "efgh", {2, 2}), npz("2.npz", "ijkl", {4})};
  const NpzSource source(files);
  EXPECT_EQ(source.fields().size(), 2U);
  EXPECT_THAT(rows_of<char>(source, {1, 0}), ElementsAre('e', 'f', 'g', 'h', 'a', 'b', 'c', 'd'));
  EXPECT_THAT(rows_of<char>(source, {1, 0}, 0, 1), ElementsAre('e', 'a'));
  EXPECT_EQ(refusal_reason([&] { static_cast<void>(rows_of<char>(source, {2})); }),
            "array \"image\" is [4] u8, the first file has [2,2] u8");
  EXPECT_THAT(rows_of<char>(NpzSource(files, {"label"}), {2}), ElementsAre('i'));
  EXPECT_EQ(refusal_reason([&] { NpzSource(files, {"mask"}); }), "the file has no array \"mask\"");
}

TEST_F(FileSourcesTest, ImageCropsAreBytesOrPlanes) {
  const stdfs::path path = png("a.png", 6, 8);  // the byte at (y, x, c) is 24 y + 3 x + c
  const ImageSource bytes({path}, {.height = 2, .width = 3, .random_crop = false, .normalise = false});
  EXPECT_EQ(bytes.fields()[0], (Field{"image", DType::u8, {2, 3, 3}}));
  EXPECT_THAT(rows_of<std::uint8_t>(bytes, {0}),
              ElementsAre(54, 55, 56, 57, 58, 59, 60, 61, 62, 78, 79, 80, 81, 82, 83, 84, 85, 86));
  const ImageSource planes({path},
                           {.height = 1, .width = 2, .random_crop = false, .mean = {0.5F, 0, 0}, .deviation = {0.25F, 1, 2}});
  EXPECT_EQ(planes.fields()[0], (Field{"image", DType::f32, {3, 1, 2}}));
  EXPECT_THAT(rows_of<float>(planes, {0}), ElementsAre((57 / 255.0F - 0.5F) / 0.25F, (60 / 255.0F - 0.5F) / 0.25F, 58 / 255.0F,
                                                       61 / 255.0F, 59 / 255.0F / 2, 62 / 255.0F / 2));
}

TEST_F(FileSourcesTest, CentredImagesAreTakenByALoader) {
  const ImageSamples centred{.height = 2, .width = 3, .random_crop = false, .normalise = false};
  Loader loader(single(std::make_shared<ImageSource>(std::vector{png("a.png", 6, 8), png("b.png", 6, 8)}, centred)),
                {.batch_size = 2});
  const std::optional<HostBatch> batch = loader.next();
  ASSERT_TRUE(batch.has_value());
  EXPECT_EQ(static_cast<int>(batch->groups[0].data[0][18]), 54);  // of the second image: the first value is that of the crop
}

TEST_F(FileSourcesTest, ImageCropsAndFlipsAreDrawnFromTheReadsStream) {
  const stdfs::path path = png("a.png", 6, 8);
  const ImageSamples options{.height = 2, .width = 3, .random_flip = true, .normalise = false};
  const ImageSource source({path}, options);
  ImageSamples as_floats = options;
  as_floats.normalise = true;
  const ImageSource planes({path}, as_floats);
  std::vector<int> places;
  int flips = 0;
  for (std::uint64_t epoch = 0; epoch < 400; ++epoch) {
    const std::vector<std::uint8_t> crop = rows_of<std::uint8_t>(source, {0}, epoch);
    ASSERT_EQ(rows_of<float>(planes, {0}, epoch)[0], static_cast<float>(crop[0]) / 255.0F) << "both forms draw alike";
    const bool flip = crop[3] < crop[0];
    const int corner = flip ? crop[6] : crop[0];
    for (int i = 0; i < 18; ++i) {
      const int x = flip ? 2 - i / 3 % 3 : i / 3 % 3;
      ASSERT_EQ(crop[static_cast<std::size_t>(i)], corner + i / 9 * 24 + x * 3 + i % 3);
    }
    places.push_back(corner);
    flips += flip ? 1 : 0;
  }
  std::sort(places.begin(), places.end());
  EXPECT_EQ(std::unique(places.begin(), places.end()) - places.begin(), 5 * 6) << "each place is drawn";
  EXPECT_THAT(flips, testing::AllOf(testing::Gt(150), testing::Lt(250)));
}

TEST_F(FileSourcesTest, JpegsAreReducedWhenTheCropAllowsIt) {
  const stdfs::path path = stdfs::path(MILLRACE_SOURCE_DIR) / "tests/pictures/colour.jpg";  // 48 x 64 pixels
  EXPECT_EQ(Image(path).size(), (PictureSize{48, 64, Pixels::rgb}));
  EXPECT_EQ(Image(path.parent_path() / "gray.jpg").size().stored, Pixels::gray);
  const ImageSamples options{.height = 24, .width = 32, .random_crop = false, .reduce = true, .normalise = false};
  std::vector<std::byte> half(24 * 32 * 3);
  Image(path).decode(Pixels::rgb, 2, {0, 0, 24, 32}, half);
  const std::vector<std::uint8_t> crop = rows_of<std::uint8_t>(ImageSource({path}, options), {0});
  EXPECT_EQ(std::memcmp(crop.data(), half.data(), half.size()), 0);
  ImageSamples wider = options;
  wider.width = 33;
  std::vector<std::byte> middle(24 * 33 * 3);
  Image(path).decode(Pixels::rgb, 1, {12, 15, 24, 33}, middle);
  const std::vector<std::uint8_t> full = rows_of<std::uint8_t>(ImageSource({path}, wider), {0});
  EXPECT_EQ(std::memcmp(full.data(), middle.data(), middle.size()), 0);
}

TEST_F(FileSourcesTest, ImagesThatDoNotFitAreNamed) {
  const stdfs::path small = png("small.png", 4, 4);
  EXPECT_EQ(refusal_reason([&] { static_cast<void>(rows_of<std::uint8_t>(ImageSource({small}, {.normalise = false}), {0})); }),
            "the image has 4 x 4 pixels, the crop needs 224 x 224");
  EXPECT_EQ(refusal_reason([&] { static_cast<void>(Image(put("x.txt", "hello"))); }), "neither a PNG nor a JPEG file");
  EXPECT_EQ(refusal_reason([&] { ImageSource({small}, {.height = 0}); }), "the crop is 0 x 224 pixels");
  EXPECT_EQ(refusal_reason([&] {
              ImageSource({small}, {.deviation = {1, 0, 1}});
            }),
            "the crop is 224 x 224 pixels, and a deviation is 0 or negative");
}

}  // namespace
}  // namespace millrace::data
