#include "recipes/autoencoder_3d/codec.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/avg_pool3d.h>
#include <ATen/ops/empty.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include "millrace/base/error.h"
#include "millrace/core/host_values.h"
#include "millrace/data/files/nifti_writer.h"
#include "millrace/format/npy.h"
#include "recipes/autoencoder_3d/codec_commands.h"
#include "tests/support/refusal.h"

namespace millrace::recipes::autoencoder_3d {
namespace {

namespace stdfs = std::filesystem;
using testing::HasSubstr;

RecipeConfig tiny() {
  RecipeConfig recipe;
  recipe.channels = {8, 16, 16};
  recipe.attention_levels = {false, false, true};
  recipe.latent_channels = 3;
  recipe.num_res_blocks = 1;
  recipe.norm_num_groups = 4;
  recipe.with_decoder_nonlocal_attn = false;
  recipe.patch_size = {16, 16, 16};
  recipe.adv_weight = 0;
  return recipe;
}

class CodecTest : public testing::Test {
 protected:
  CodecTest() : folder_(stdfs::temp_directory_path() / ("millrace-codec-" + std::to_string(::getpid()))), gan_(tiny(), 3) {
    stdfs::create_directories(folder_);
    gan_.eval();
  }
  ~CodecTest() override { stdfs::remove_all(folder_); }
  VolumeCodec codec(VolumeCodec::Options options = {}) {
    options.weights = "a run";
    return {gan_.autoencoder(), tiny(), std::move(options)};
  }
  // Writes an i16 volume of 10 x 12 x 9 (depth first) with both transforms.
  stdfs::path write_volume() {
    data::NiftiHeader header;
    header.shape = {10, 12, 9};
    header.dtype = DType::i16;
    header.pixdim = {1, 2, 3, 4, 1, 1, 1, 1};
    header.affine = {{{2, 0, 0, -7}, {0, 3, 0, 5}, {0, 0, 4, 11}, {0, 0, 0, 1}}};
    header.sform_code = 2;
    header.qform_code = 1;
    header.qform = {0, 0, 0, -7, 5, 11};
    header.units = 2;
    const at::Tensor values = ((at::arange(10 * 12 * 9) * 37) % 1000 - 200).to(at::kShort);
    data::write_nifti(Fs::real(), folder_ / "sub-01.nii", header,
                      {static_cast<const std::byte*>(values.const_data_ptr()), values.nbytes()});
    return folder_ / "sub-01.nii";
  }
  static std::vector<float> values_of(const stdfs::path& path) {
    const data::NiftiFile file(path);
    std::vector<float> values(static_cast<std::size_t>(*element_count(file.header().shape)));
    file.read_scaled(values);
    return values;
  }

  stdfs::path folder_;
  VolumeGan gan_;
};

TEST_F(CodecTest, AVolumeKeepsItsShapePlaceAndValues) {
  const stdfs::path volume = write_volume(), latent = folder_ / "l.nii.gz", decoded = folder_ / "d.nii.gz";
  VolumeCodec both = codec();
  EXPECT_THAT(both.encode(Fs::real(), volume, latent), HasSubstr("10x12x9, values -200 to 79"));
  const data::NiftiFile coarse(latent);
  EXPECT_EQ(coarse.header().shape, (Shape{3, 3, 3, 3}));  // 10 and 9 are padded to 12, then divided by 4
  EXPECT_EQ(coarse.header().affine[0], (std::array<double, 4>{8, 0, 0, -4}));
  EXPECT_EQ(coarse.header().affine[2], (std::array<double, 4>{0, 0, 16, 17}));
  EXPECT_EQ(coarse.header().pixdim[1], 8);
  EXPECT_EQ(coarse.header().qform[3], -4);
  both.decode(Fs::real(), latent, decoded);
  const data::NiftiHeader before = data::NiftiFile(volume).header();
  const data::NiftiHeader after = data::NiftiFile(decoded).header();
  EXPECT_EQ(after.shape, before.shape);
  EXPECT_EQ(after.affine, before.affine);
  EXPECT_EQ(after.pixdim, before.pixdim);
  EXPECT_EQ(after.qform, before.qform);
  EXPECT_EQ(after.sform_code, before.sform_code);
  EXPECT_EQ(after.qform_code, before.qform_code);
  EXPECT_EQ(after.units, before.units);
  // The decoded volume must be the model's own result, scaled back to the range of the volume.
  const at::NoGradGuard no_grad;
  const std::vector<float> decoded_values = values_of(decoded);
  for (const float value : decoded_values) EXPECT_TRUE(value >= -200 && value <= 800) << value;
  at::Tensor z = at::empty({1, 3, 3, 3, 3}, at::kFloat);
  coarse.read_scaled({z.mutable_data_ptr<float>(), 81});
  const at::Tensor made = gan_.autoencoder().decode(z).clamp(0, 1)[0][0].narrow(0, 0, 10).narrow(2, 0, 9);
  const double high = [&] {
    const std::vector<std::byte> text = coarse.extension(coarse.header().extensions[0]);
    return record_of({reinterpret_cast<const char*>(text.data()), text.size()}, 1)->ranges[0][1];
  }();
  const std::vector<float> expected = host_values<float>(made * (high + 200) - 200);
  for (std::size_t i = 0; i < expected.size(); i += 17) EXPECT_NEAR(decoded_values[i], expected[i], 0.01);
}

TEST_F(CodecTest, ALatentWithoutARecordIsAGridOfItsOwn) {
  const stdfs::path volume = write_volume(), latent = folder_ / "l.nii";
  codec().encode(Fs::real(), volume, latent);
  const data::NiftiFile file(latent);
  std::vector<std::byte> voxels(file.header().voxel_bytes);
  file.read(voxels);
  data::write_nifti(Fs::real(), folder_ / "bare.nii", file.header(), voxels);
  EXPECT_THAT(codec().decode(Fs::real(), folder_ / "bare.nii", folder_ / "d.nii"),
              HasSubstr("the file has no record of the volume"));
  const data::NiftiHeader header = data::NiftiFile(folder_ / "d.nii").header();
  EXPECT_EQ(header.shape, (Shape{12, 12, 12}));
  EXPECT_EQ(header.affine, data::NiftiFile(volume).header().affine);
  for (const float value : values_of(folder_ / "d.nii")) ASSERT_TRUE(value >= 0 && value <= 1);
  for (const char* hostile :
       {"{", "[]", "{\"kind\":\"autoencoder_3d latent\"}", R"({"kind":"autoencoder_3d latent","shape":[1,1,-1],"ranges":"x"})"}) {
    const std::vector<std::string> comments = {hostile};
    data::write_nifti(Fs::real(), folder_ / "bare.nii", file.header(), voxels, comments);
    EXPECT_THAT(codec().decode(Fs::real(), folder_ / "bare.nii", folder_ / "d.nii"), HasSubstr("no record")) << hostile;
  }
  EXPECT_THAT(refusal_message<DataError>([&] { codec().decode(Fs::real(), volume, folder_ / "x.nii"); }).what,
              HasSubstr("an array of [10,12,9] is no latent volume of this model, which has 3 channels"));
}

TEST_F(CodecTest, ALabelHasTheRangeOfItsImageAndTheUserIsTold) {
  RecipeConfig denoising = tiny();
  denoising.target = Target::label;
  VolumeCodec both(gan_.autoencoder(), denoising, {.weights = "a run"});
  both.encode(Fs::real(), write_volume(), folder_ / "l.nii");
  EXPECT_THAT(both.decode(Fs::real(), folder_ / "l.nii", folder_ / "d.nii"),
              HasSubstr("the predicted values are scaled to the image's range, not to the label's"));
}

TEST_F(CodecTest, TwoChannelsOfOneVolumeAreSaid) {
  RecipeConfig pair = tiny();
  pair.image_channels = 2;
  VolumeGan gan(pair, 3);
  gan.eval();
  VolumeCodec both(gan.autoencoder(), pair, {.weights = "a run"});
  EXPECT_THAT(both.encode(Fs::real(), write_volume(), folder_ / "l.nii"),
              HasSubstr("the file has one volume, which serves as image and as label"));
}

TEST_F(CodecTest, AnNpzPairHasNoPlaceButADefaultOne) {
  std::vector<float> pair(2 * 8 * 8 * 8);
  for (std::size_t i = 0; i < pair.size(); ++i) pair[i] = static_cast<float>(i % 19);
  const Shape shape = {2, 8, 8, 8};
  write_atomically(Fs::real(), folder_ / "v.npz", [&](WritableFile& file) {
    const format::NpzArray array{{.name = "arr_0", .dtype = DType::f32, .shape = shape}, std::as_bytes(std::span(pair))};
    format::write_npz(file, {&array, 1});
  });
  codec().encode(Fs::real(), folder_ / "v.npz", folder_ / "l.nii.gz");
  EXPECT_EQ(data::NiftiFile(folder_ / "l.nii.gz").header().shape, (Shape{3, 2, 2, 2}));
  codec().decode(Fs::real(), folder_ / "l.nii.gz", folder_ / "d.nii.gz");
  EXPECT_EQ(data::NiftiFile(folder_ / "d.nii.gz").header().shape, (Shape{8, 8, 8}));
}

TEST_F(CodecTest, TilesAreBlendedIntoTheWhole) {
  const at::Tensor x = at::arange(20 * 24 * 36, at::kFloat).sin().view({1, 1, 20, 24, 36});
  const auto halved = [](const at::Tensor& part) { return at::avg_pool3d(part, {2, 2, 2}); };
  int passes = 0;
  const auto counted = [&](const at::Tensor& part) {
    ++passes;
    EXPECT_LE(part.size(4), 16);
    return halved(part);
  };
  const at::Tensor tiled = in_tiles(x, {.tile = 16, .overlap = 4, .grain = 2, .up = 1, .down = 2}, counted);
  EXPECT_EQ(passes, 2 * 2 * 3);
  EXPECT_TRUE(tiled.sub(halved(x)).abs().max().item<float>() < 1e-5);
  const auto doubled = [](const at::Tensor& part) {
    return part.repeat_interleave(2, 2).repeat_interleave(2, 3).repeat_interleave(2, 4);
  };
  const at::Tensor large = in_tiles(x, {.tile = 9, .overlap = 3, .grain = 1, .up = 2, .down = 1}, doubled);
  EXPECT_TRUE(large.sub(doubled(x)).abs().max().item<float>() < 1e-5);
}

TEST_F(CodecTest, WhatMemoryDoesNotHoldIsCutOrRefused) {
  const stdfs::path volume = write_volume();
  EXPECT_GT(pass_bytes(tiny(), 1000), 1000 * 8 * 4);
  // There is memory for a patch of 16 voxels, but not for the whole 12 x 12 x 12 volume: a volume within a patch is never cut.
  const Message refused =
      refusal_message<DataError>([&] { codec({.free = 1000}).encode(Fs::real(), volume, folder_ / "l.nii"); });
  EXPECT_THAT(refused.what, HasSubstr("half of the free memory is"));
  EXPECT_EQ(refused.where, volume.string());
  EXPECT_THAT(refused.next, HasSubstr("--tile"));
  EXPECT_FALSE(stdfs::exists(folder_ / "l.nii"));
  EXPECT_THAT(codec({.tile = 8}).encode(Fs::real(), volume, folder_ / "l.nii"), HasSubstr("in 8 tiles of 8 voxels, blended"));
  EXPECT_EQ(data::NiftiFile(folder_ / "l.nii").header().shape, (Shape{3, 3, 3, 3}));
  EXPECT_THAT(codec({.tile = 8}).decode(Fs::real(), folder_ / "l.nii", folder_ / "d.nii"), HasSubstr("in 8 tiles of 8 voxels"));
}

TEST(CodecCommands, SayWhatIsMissing) {
  const auto row = []() -> Entry { throw std::logic_error("not asked for"); };
  const auto reason = [&](const std::vector<std::string>& words) {
    return refusal_reason<UsageError>([&] { encode_command(row).run(words); });
  };
  EXPECT_EQ(reason({"a.nii", "--out", "d"}), "no run is named");
  EXPECT_EQ(reason({"autoencoder_3d", "a.nii", "--run", "r"}), "no output folder is given");
  EXPECT_EQ(reason({"--run=r", "--out=d"}), "no file is named");
  EXPECT_EQ(reason({"--run=r", "--out=d", "a/x.nii", "b/x.nii.gz"}),
            "a/x.nii and b/x.nii.gz would both become d/x.latent.nii.gz");
  EXPECT_EQ(reason({"--run=r", "--out=d", "x.nii", "--tile=big"}),
            "--tile is \"big\", which is not a whole number of at least 0");
  EXPECT_EQ(reason({"--run=r", "--out"}), "--out needs a value");
  EXPECT_EQ(reason({"--runs=r"}), "there is no option --runs");
}

}  // namespace
}  // namespace millrace::recipes::autoencoder_3d
