#include "recipes/autoencoder_3d/volume_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "recipes/autoencoder_3d/detail/test_volumes.h"

namespace millrace::recipes::autoencoder_3d {
namespace {

using namespace test;
using testing::ElementsAre;
using testing::HasSubstr;

class VolumeFileTest : public VolumeTest {};

TEST_F(VolumeFileTest, EveryRealDtypeGivesItsValues) {
  const Shape shape = {2, 3, 4, 5};
  std::vector<float> low(60);
  std::vector<float> high(60);
  std::iota(low.begin(), low.end(), 0.0F);
  std::iota(high.begin(), high.end(), 60.0F);
  const auto check = [&](auto type, DType dtype) {
    std::vector<decltype(type)> values(120);
    std::iota(values.begin(), values.end(), decltype(type)(0));
    const stdfs::path path = npz("a.npz", dtype, shape, values);
    EXPECT_EQ(whole(path, 0), low) << name_of(dtype);
    EXPECT_EQ(whole(path, 1), high) << name_of(dtype);
    const VolumeFile file = open_volume_file(path);
    EXPECT_EQ(kept_bytes(file), 60 * std::min<std::size_t>(size_of(dtype), 4)) << name_of(dtype);
  };
  check(std::uint8_t(), DType::u8);
  check(std::int8_t(), DType::i8);
  check(std::int16_t(), DType::i16);
  check(std::uint16_t(), DType::u16);
  check(std::int32_t(), DType::i32);
  check(std::int64_t(), DType::i64);
  check(float(), DType::f32);
  check(double(), DType::f64);
  std::vector<std::uint16_t> halves = {0x3C00, 0xC000, 0x7BFF, 0x0001, 0x8000, 0x0400, 0x3555, 0xFBFF};
  EXPECT_EQ(whole(npz("h.npz", DType::f16, {2, 1, 1, 4}, halves)), (std::vector<float>{1, -2, 65504, 0x1p-24F}));
  EXPECT_EQ(whole(folder_ / "h.npz", 1), (std::vector<float>{-0.0F, 0x1p-14F, 0.333251953125F, -65504}));
}

TEST_F(VolumeFileTest, TheArrayIsFoundByItsName) {
  const auto values = counted<float>(16);
  const auto entry_of = [&](const std::vector<std::string>& names) {
    std::vector<format::NpzArray> arrays;
    for (const std::string& name : names) arrays.push_back({{name, DType::f32, {2, 2, 2, 2}}, std::as_bytes(std::span(values))});
    write_atomically(Fs::real(), folder_ / "n.npz", [&](WritableFile& file) { format::write_npz(file, arrays); });
    return open_volume_file(folder_ / "n.npz").entry;
  };
  EXPECT_EQ(entry_of({"a", "arr_0", "arr0"}), "arr0");
  EXPECT_EQ(entry_of({"a", "arr_0"}), "arr_0");
  EXPECT_EQ(entry_of({"volume", "z"}), "volume");
}

TEST_F(VolumeFileTest, BigEndianAndPackedNiftiAreEqualToPlain) {
  const auto values = counted<std::int16_t>(std::size_t{4} * 5 * 6 * 3);
  Nifti maker{.dim = {4, 5, 6, 3}, .slope = 0.5F, .intercept = -3, .voxel = {1, 2, 2.5F}};
  const stdfs::path plain = write("a.nii", maker.file(values));
  const stdfs::path packed = write("b.nii.gz", gz(maker.file(values)));
  maker.swapped = true;
  const stdfs::path swapped = write("c.nii", maker.file(values));
  const VolumeFile file = open_volume_file(plain);
  EXPECT_EQ(file.shape, (Shape{6, 5, 4}));
  EXPECT_EQ(file.volumes, 2) << "of three the first two";
  EXPECT_THAT(file.spacing, ElementsAre(2.5, 2, 1));
  for (std::size_t key = 0; key < 2; ++key) {
    const std::vector<float> expected = whole(plain, key);
    EXPECT_EQ(expected[7], static_cast<float>(values[key * 120 + 7]) * 0.5F - 3);
    EXPECT_EQ(whole(packed, key), expected);
    EXPECT_EQ(whole(swapped, key), expected);
  }
  EXPECT_EQ(open_volume_file(swapped).spacing, file.spacing);
}

TEST_F(VolumeFileTest, VoxelSizesAreInMillimetresWhateverTheUnitOfTheHeader) {
  constexpr std::size_t kUnits = 123;  // offset of xyzt_units
  const auto spacing_of = [&](char unit, float size) {
    std::string file = Nifti{.dim = {4, 5, 6}, .voxel = {size, size, size}}.file(counted<std::int16_t>(std::size_t{4} * 5 * 6));
    file[kUnits] = unit;
    return open_volume_file(write("u.nii", file)).spacing;
  };
  for (const auto& [unit, size] : {std::pair{'\0', 2.0F}, {'\1', 0.002F}, {'\2', 2.0F}, {'\3', 2000.0F}})
    EXPECT_THAT(spacing_of(unit, size), testing::Each(testing::DoubleNear(2, 1e-6))) << int(unit);
}

TEST_F(VolumeFileTest, BadFilesAreNamedBeforeTheFirstStep) {
  const auto values = counted<float>(16 * 16 * 16);
  const auto what_of = [&] {
    const Message message = refusal_message<DataError>([&] { (void)open(); });
    for (const auto& entry : stdfs::directory_iterator(folder_)) stdfs::remove_all(entry.path());
    return message.what;
  };
  const auto first = [&](std::size_t count) {
    return std::vector<float>(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(count));
  };
  Message message = refusal_message<DataError>([&] { (void)open(); });
  EXPECT_EQ(message.what, "the folder holds no file *.npz, no file *.nii, no file *.nii.gz");
  EXPECT_THAT(message.next, HasSubstr("millrace make-data autoencoder_3d"));
  npz("p012.npz", DType::f32, {16, 16, 16}, values);
  message = refusal_message<DataError>([&] { (void)open(); });
  EXPECT_EQ(message.what, "entry arr_0 is [16,16,16], expected [2,D,H,W]");
  EXPECT_EQ(message.where, (folder_ / "p012.npz").string());
  EXPECT_EQ(message.next,
            "save with numpy.savez(path, array), where array is (2,D,H,W): first the low-count image, then the high-count label");
  EXPECT_EQ(what_of(), message.what);
  npz("p.npz", DType::f32, {3, 4, 4, 4}, first(192), "arr0");
  EXPECT_EQ(what_of(), "entry arr0 is [3,4,4,4], expected [2,D,H,W]");
  npz("p.npz", DType::f32, {2, 0, 4, 4}, std::vector<float>());
  EXPECT_EQ(what_of(), "entry arr_0 is [2,0,4,4], expected [2,D,H,W]");
  npz("p.npz", DType::c64, {2, 4, 4, 4}, first(256));
  EXPECT_EQ(what_of(), "the values are c64, but a volume must have real numbers");
  write("a.nii", Nifti{.dim = {16, 16}}.file(first(256)));
  EXPECT_EQ(what_of(), "the volume is [16,16] (slowest axis first), expected three axes, or a series of two volumes");
  write("a.nii", Nifti{.dim = {2, 2, 2, 2, 2}}.file(first(32)));
  EXPECT_EQ(what_of(), "the volume is [2,2,2,2,2] (slowest axis first), expected three axes, or a series of two volumes");
  write("a.nii", Nifti{.dim = {4, 4, 4}, .slope = 1e36F}.file(counted<std::int16_t>(64)));
  EXPECT_EQ(what_of(), "scl_slope and scl_inter give values outside the range of f32");
  write("a.nii", Nifti{.dim = {16, 16, 16}}.file(first(100)));
  message = refusal_message<DataError>([&] { (void)open(); });
  EXPECT_THAT(message.what, HasSubstr("16736")) << "the bytes that the header promises";
  EXPECT_THAT(message.what, HasSubstr("752")) << "those there are";
  stdfs::remove(folder_ / "a.nii");
  pair("train/a.npz", {8, 8, 8});
  pair("val/b.npz", {8, 3, 8});
  EXPECT_EQ(what_of(), "the volume is [8,3,8], but the smallest crop that the network can halve is 4 along each axis");
}

TEST_F(VolumeFileTest, BadValuesAreNamedWhenTheyAreRead) {
  auto values = counted<float>(2 * 8 * 8 * 12);
  values[3 * 96 + 1 * 12 + 9] = std::numeric_limits<float>::quiet_NaN();
  npz("a.npz", DType::f32, {2, 8, 8, 12}, values);
  values[5] = -std::numeric_limits<float>::infinity();
  write("b.nii", Nifti{.dim = {12, 8, 8, 2}}.file(values));
  write("c.nii", Nifti{.dim = {12, 8, 8, 2}, .slope = 1e38F}.file(counted<float>(2 * 8 * 8 * 12)));
  auto doubles = counted<double>(2 * 8 * 8 * 12);
  doubles[768] = 1e300;
  npz("d.npz", DType::f64, {2, 8, 8, 12}, doubles);
  const std::string packed = gz(Nifti{.dim = {12, 8, 8, 2}}.file(values));
  write("e.nii.gz", packed.substr(0, packed.size() / 2));
  recipe_.target = Target::label;
  std::vector<VolumeFile> files;
  for (const char* name : {"a.npz", "b.nii", "c.nii", "d.npz"}) files.push_back(open_volume_file(folder_ / name));
  const auto source = volume_source(files, Split::train, recipe_);
  const auto what_of = [&](std::int64_t index) { return refusal_message<DataError>([&] { (void)read(*source, {index}); }).what; };
  EXPECT_EQ(what_of(0), "arr_0[0,3,1,9] is nan");
  EXPECT_EQ(what_of(1), "voxel [0,0,0,5] is -inf");
  EXPECT_EQ(what_of(2), "voxel [0,0,0,4] is inf");
  EXPECT_EQ(what_of(3), "arr_0[1,0,0,0] is inf");
  const Message damaged = refusal_message<DataError>([&] { (void)whole(folder_ / "e.nii.gz"); });
  EXPECT_THAT(damaged.what + damaged.where, HasSubstr("e.nii.gz"));
  npz("a.npz", DType::f32, {2, 8, 8, 11}, std::vector<float>(1408));
  EXPECT_EQ(what_of(0), "the file changed while it was in use");
}

TEST_F(VolumeFileTest, DamagedFilesAreRefusedOrRead) {
  const auto values = counted<std::int16_t>(std::size_t{2} * 6 * 7 * 8);
  const std::string plain = Nifti{.dim = {8, 7, 6, 2}, .slope = 2}.file(values);
  npz("good.npz", DType::i16, {2, 6, 7, 8}, values);
  std::ifstream packed(folder_ / "good.npz", std::ios::binary);
  const std::string archive{std::istreambuf_iterator<char>(packed), {}};
  recipe_.target = Target::label;
  recipe_.scale_on = ScaleOn::volume;
  Philox draws(17);
  int refused = 0;
  for (const auto& [name, good] : {std::pair("m.nii", plain), {"m.nii.gz", gz(plain)}, {"m.npz", archive}}) {
    for (int mutant = 0; mutant < 400; ++mutant) {
      std::string bytes = good;
      const std::size_t head = std::min<std::size_t>(bytes.size(), 400);
      for (std::uint64_t flips = 1 + draws.below(4); flips > 0; --flips)
        bytes[draws.below(draws.below(2) == 0 ? head : bytes.size())] = static_cast<char>(draws() & 0xFFU);
      if (draws.below(4) == 0) bytes.resize(draws.below(bytes.size()));
      const stdfs::path path = write(name, bytes);
      try {
        const auto source = volume_source({open_volume_file(path)}, Split::train, recipe_);
        if (source->part_bytes(0) < (std::size_t{1} << 24)) (void)read(*source, {0});
      } catch (const DataError&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 300);
}

}  // namespace
}  // namespace millrace::recipes::autoencoder_3d
