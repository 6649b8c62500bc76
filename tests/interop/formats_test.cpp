// NumPy files, NIfTI volumes and pictures, bit for bit as NumPy, nibabel and Pillow read and write them.
#include <gmock/gmock.h>

#include <algorithm>

#include "millrace/base/hash.h"
#include "millrace/base/json.h"
#include "millrace/data/files/image.h"
#include "millrace/data/files/image_resize.h"
#include "millrace/data/files/nifti.h"
#include "millrace/data/files/nifti_writer.h"
#include "millrace/format/npy.h"
#include "millrace/format/png.h"
#include "python.h"

namespace millrace {
namespace {

namespace stdfs = std::filesystem;
using interop::missing;
using interop::PythonResult;
using interop::run_python;

const stdfs::path kShared = stdfs::path(MILLRACE_SOURCE_DIR) / ".." / "shared" / "data";

#define MR_NEEDS_PYTHON(packages) \
  if (const std::string why = missing(packages); !why.empty()) GTEST_SKIP() << why

std::string hash_of(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.hex();
}

// The last line of what Python says, as JSON: {file: {...}}.
Json from_python(const std::string& code, const std::vector<std::string>& arguments) {
  const PythonResult python = run_python(code, arguments);
  EXPECT_EQ(python.status, 0) << python.output;
  const std::size_t line =
      python.output.size() < 2 ? std::string::npos : python.output.find_last_of('\n', python.output.size() - 2);
  return Json::parse(python.output.substr(line == std::string::npos ? 0 : line + 1), nullptr, false);
}

std::vector<std::string> files_in(const stdfs::path& folder, const std::vector<std::string>& suffixes) {
  std::vector<std::string> files;
  if (!stdfs::exists(folder)) return files;
  for (const auto& entry : stdfs::directory_iterator(folder)) {
    for (const std::string& suffix : suffixes) {
      if (entry.path().string().ends_with(suffix)) files.push_back(entry.path().string());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

constexpr const char* kDescribeNpy = R"(
import hashlib, json, sys
import numpy as np
found = {}
def add(name, a):
    a = np.ascontiguousarray(a.astype(a.dtype.newbyteorder("=")))
    found[name] = {"shape": list(np.shape(a)) if a.size != 1 else None, "hash": hashlib.sha256(a.tobytes()).hexdigest()}
for path in sys.argv[1:]:
    data = np.load(path)
    if path.endswith(".npz"):
        for key in data: add(path + ":" + key, data[key])
    else:
        add(path, data)
print(json.dumps(found)))";

void expect_as_numpy(const std::vector<std::string>& files) {
  const Json theirs = from_python(kDescribeNpy, files);
  std::size_t arrays = 0;
  const auto compare = [&](const std::string& name, const Shape& shape, std::span<const std::byte> bytes) {
    ++arrays;
    ASSERT_TRUE(theirs.contains(name)) << name;
    if (!theirs[name]["shape"].is_null()) {
      EXPECT_EQ(theirs[name]["shape"], Json(shape)) << name;
    }
    EXPECT_EQ(theirs[name]["hash"], hash_of(bytes)) << name;
  };
  for (const std::string& path : files) {
    if (path.ends_with(".npz")) {
      const format::NpzFile file(path);
      for (const format::NpzEntry& entry : file.entries()) {
        std::vector<std::byte> bytes(entry.layout.bytes);
        file.read(entry, bytes);
        compare(path + ":" + entry.name, entry.layout.shape, bytes);
      }
    } else {
      const format::NpyFile file(path);
      std::vector<std::byte> bytes(file.layout().bytes);
      file.read(bytes);
      compare(path, file.layout().shape, bytes);
    }
  }
  EXPECT_EQ(theirs.size(), arrays);
}

TEST(NumpyInterop, RealArraysAreEqual) {
  MR_NEEDS_PYTHON("numpy");
  const std::vector<std::string> files = files_in(kShared / "neural", {".npy"});
  if (files.empty()) GTEST_SKIP() << "no real arrays in ../shared/data/neural";
  expect_as_numpy(files);
}

TEST(NumpyInterop, WeReadWhatNumPyWrites) {
  MR_NEEDS_PYTHON("numpy");
  const interop::ScratchFolder folder("numpy");
  const PythonResult python = run_python(R"(
import sys
import numpy as np
out = sys.argv[1] + "/"
rng = np.random.default_rng(3)
types = ["?", "u1", "i1", "<u2", ">i2", "<u4", ">i4", "<i8", ">u8", "<f2", "<f4", ">f4", "<f8", ">f8", "<c8", ">c16"]
arrays = {t.strip("<>?") + ("b" if ">" in t else "l") + str(i): (rng.standard_normal((3, 4, 5)) * 50).astype(t) for i, t in enumerate(types)}
for name, a in arrays.items():
    np.save(out + name + ".npy", a)
    np.save(out + name + "-fortran.npy", np.asfortranarray(a))
np.save(out + "scalar.npy", np.float32(7))
np.save(out + "empty.npy", np.zeros((0, 3), np.int16))
for version in ((1, 0), (2, 0), (3, 0)):
    with open(out + "version%d.npy" % version[0], "wb") as f: np.lib.format.write_array(f, np.arange(5), version=version)
np.savez(out + "stored.npz", **arrays)
np.savez_compressed(out + "deflated.npz", **arrays))",
                                         {folder.path().string()});
  ASSERT_EQ(python.status, 0) << python.output;
  const std::vector<std::string> files = files_in(folder.path(), {".npy", ".npz"});
  EXPECT_EQ(files.size(), 16U * 2 + 2 + 3 + 2);
  expect_as_numpy(files);
}

TEST(NumpyInterop, NumPyReadsWhatWeWrite) {
  MR_NEEDS_PYTHON("numpy");
  const interop::ScratchFolder folder("numpy");
  std::vector<std::byte> values(2 * 3 * 16);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::byte>(i * 5 % 120);
  std::vector<format::NpzArray> arrays;
  for (const DType dtype : {DType::boolean, DType::u8, DType::i8, DType::i16, DType::u16, DType::i32, DType::u32, DType::i64,
                            DType::u64, DType::f16, DType::f32, DType::f64, DType::c64, DType::c128}) {
    const Field field{std::string(name_of(dtype)), dtype, {2, 3}};
    const std::span<const std::byte> bytes = std::span(values).first(field.bytes());
    const auto file = Fs::real().create(folder.path() / (field.name + ".npy"));
    format::write_npy(*file, dtype, field.shape, bytes);
    file->close();
    arrays.push_back({field, bytes});
  }
  for (const bool deflated : {false, true}) {
    const auto file = Fs::real().create(folder.path() / (deflated ? "deflated.npz" : "stored.npz"));
    format::write_npz(*file, arrays, deflated);
    file->close();
  }
  const std::vector<std::string> files = files_in(folder.path(), {".npy", ".npz"});
  EXPECT_EQ(files.size(), 16U);
  expect_as_numpy(files);
}

constexpr const char* kDescribeNifti = R"(
import hashlib, json, sys
import nibabel as nib
import numpy as np
found = {}
for path in sys.argv[1:]:
    image = nib.load(path)
    stored = np.asarray(image.dataobj.get_unscaled())
    stored = stored.astype(stored.dtype.newbyteorder("="))
    scaled = image.get_fdata().astype(np.float32) if stored.dtype.kind != "c" else np.zeros(0, np.float32)
    found[path] = {"shape": list(image.shape[::-1]), "stored": hashlib.sha256(stored.tobytes(order="F")).hexdigest(),
                   "scaled": hashlib.sha256(scaled.tobytes(order="F")).hexdigest(), "affine": image.affine.tolist()}
print(json.dumps(found)))";

void expect_as_nibabel(const std::vector<std::string>& files) {
  const Json theirs = from_python(kDescribeNifti, files);
  for (const std::string& path : files) {
    const data::NiftiFile file(path);
    const data::NiftiHeader& header = file.header();
    EXPECT_EQ(theirs[path]["shape"], Json(header.shape)) << path;
    std::vector<std::byte> stored(header.voxel_bytes);
    file.read(stored);
    EXPECT_EQ(theirs[path]["stored"], hash_of(stored)) << path;
    std::vector<float> scaled;
    if (header.dtype != DType::c64 && header.dtype != DType::c128) {
      scaled.resize(header.voxel_bytes / size_of(header.dtype));
      file.read_scaled(scaled);
    }
    EXPECT_EQ(theirs[path]["scaled"], hash_of(std::as_bytes(std::span(scaled)))) << path;
    for (std::size_t row = 0; row < 4; ++row) {
      for (std::size_t column = 0; column < 4; ++column) {
        EXPECT_NEAR(theirs[path]["affine"][row][column].get<double>(), header.affine[row][column], 1e-5) << path;
      }
    }
  }
}

TEST(NibabelInterop, RealVolumesAreEqual) {
  MR_NEEDS_PYTHON("nibabel, numpy");
  const std::vector<std::string> files = files_in(kShared / "volumes", {".nii", ".nii.gz"});
  if (files.empty()) GTEST_SKIP() << "no real volumes in ../shared/data/volumes";
  expect_as_nibabel(files);
}

TEST(NibabelInterop, WeReadWhatNibabelWrites) {
  MR_NEEDS_PYTHON("nibabel, numpy");
  const interop::ScratchFolder folder("nibabel");
  const PythonResult python = run_python(R"(
import sys
import nibabel as nib
import numpy as np
out = sys.argv[1] + "/"
rng = np.random.default_rng(4)
turn = nib.eulerangles.euler2mat(0.3, -0.2, 0.1)
affine = np.eye(4)
affine[:3, :3] = turn * [2.0, 2.5, 3.0]
affine[:3, 3] = [-30, 20, 11]
for i, t in enumerate(["u1", "i1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8", "c8", "c16"]):
    values = (rng.standard_normal((7, 6, 5, 2)[: 3 + i % 2]) * 60).astype(t)
    for version, image_class in ((1, nib.Nifti1Image), (2, nib.Nifti2Image)):
        for order in "<>":
            header = image_class.header_class(endianness=order)
            image = image_class(values, affine, header=header, dtype=values.dtype)
            image.header.set_data_dtype(values.dtype)
            if t[0] != "c" and i % 3 == 0: image.header.set_slope_inter(0.37, -4.25)
            if i % 2: image.set_sform(None); image.set_qform(affine, 1)
            image.header.extensions.append(nib.nifti1.Nifti1Extension("comment", b"some words"))
            nib.save(image, out + "%s-%d-%s.nii%s" % (t, version, "lb"["<>".index(order)], ".gz" if i % 2 == version % 2 else ""))
nib.save(nib.Nifti1Pair(np.arange(24, dtype=np.int16).reshape(2, 3, 4), affine), out + "pair.img"))",
                                         {folder.path().string()});
  ASSERT_EQ(python.status, 0) << python.output;
  const std::vector<std::string> files = files_in(folder.path(), {".nii", ".nii.gz", ".hdr"});
  EXPECT_EQ(files.size(), 12U * 4 + 1);
  expect_as_nibabel(files);
}

TEST(NibabelInterop, NibabelReadsWhatWeWriteAndItsPlaceIsTheSame) {
  MR_NEEDS_PYTHON("nibabel, numpy");
  const interop::ScratchFolder folder("nibabel_copies");
  const stdfs::path made = folder.path() / "made.nii";
  const PythonResult python = run_python(R"(
import sys
import nibabel as nib
import numpy as np
image = nib.Nifti1Image(np.arange(120, dtype=np.float32).reshape(4, 5, 6), None)
affine = np.eye(4)
affine[:3, :3] = nib.eulerangles.euler2mat(0.3, -0.2, 0.1) * [2.0, 2.5, -3.0]
affine[:3, 3] = [-30, 20, 11]
image.set_qform(affine, 1)
image.set_sform(affine * 1.5, 3)
image.header.set_xyzt_units(3, 16)
nib.save(image, sys.argv[1]))",
                                         {made.string()});
  ASSERT_EQ(python.status, 0) << python.output;
  std::vector<std::string> sources = files_in(kShared / "volumes", {".nii", ".nii.gz"});
  sources.push_back(made.string());
  std::vector<std::string> copies, pairs;
  const std::vector<std::string> comments = {"{\"some\":\"words\"}"};
  for (const std::string& source : sources) {
    const data::NiftiFile file(source);
    std::vector<std::byte> voxels(file.header().voxel_bytes);
    file.read(voxels);
    for (const char* suffix : {".nii", ".nii.gz"}) {
      copies.push_back((folder.path() / ("copy" + std::to_string(copies.size()) + suffix)).string());
      data::write_nifti(Fs::real(), copies.back(), file.header(), voxels, comments);
      pairs.insert(pairs.end(), {source, copies.back()});
    }
  }
  expect_as_nibabel(copies);
  const PythonResult same = run_python(R"(
import sys
import nibabel as nib
import numpy as np
for source, copy in zip(sys.argv[1::2], sys.argv[2::2]):
    a, b = nib.load(source), nib.load(copy)
    for x, y in zip(a.header.get_qform(coded=True) + a.header.get_sform(coded=True),
                    b.header.get_qform(coded=True) + b.header.get_sform(coded=True)):
        assert np.array_equal(x, y), (source, x, y)
    assert np.array_equal(a.header.get_zooms(), b.header.get_zooms()), source
    assert a.header.get_xyzt_units() == b.header.get_xyzt_units(), source
    assert np.array_equal(a.get_fdata(), b.get_fdata()), source
    assert b.header.extensions[0].get_code() == 6, source
    content = b.header.extensions[0].get_content()
    assert (content if isinstance(content, str) else content.decode()).rstrip("\0") == '{"some":"words"}', content)",
                                       pairs);
  EXPECT_EQ(same.status, 0) << same.output;
}

constexpr const char* kDescribeImages = R"(
import hashlib, json, sys
from PIL import Image
found = {}
for path in sys.argv[1:]:
    with Image.open(path) as image:
        found[path] = {"size": [image.height, image.width], "rgb": hashlib.sha256(image.convert("RGB").tobytes()).hexdigest()}
        if not path.endswith(".jpg"): found[path]["gray"] = hashlib.sha256(image.convert("RGB").convert("L").tobytes()).hexdigest()
    if path.endswith(".jpg"):
        for scale in (2, 4, 8):
            with Image.open(path) as image:
                image.draft("RGB", (image.width // scale, image.height // scale))
                found[path]["rgb%d" % scale] = hashlib.sha256(image.convert("RGB").tobytes()).hexdigest()
print(json.dumps(found)))";

std::string decoded(const std::string& path, data::Pixels pixels, int reduction) {
  data::Image image(path);
  const data::PictureSize size = format::reduced(image.size(), reduction);
  std::vector<std::byte> bytes(static_cast<std::size_t>(size.height * size.width) * static_cast<std::size_t>(pixels));
  image.decode(pixels, reduction, {0, 0, size.height, size.width}, bytes);
  return hash_of(bytes);
}

void expect_as_pillow(const std::vector<std::string>& files) {
  const Json theirs = from_python(kDescribeImages, files);
  for (const std::string& path : files) {
    const data::PictureSize size = data::Image(path).size();
    EXPECT_EQ(theirs[path]["size"], Json({size.height, size.width})) << path;
    EXPECT_EQ(theirs[path]["rgb"], decoded(path, data::Pixels::rgb, 1)) << path;
    if (!path.ends_with(".jpg")) {
      EXPECT_EQ(theirs[path]["gray"], decoded(path, data::Pixels::gray, 1)) << path;
      continue;
    }
    for (const int reduction : {2, 4, 8}) {
      EXPECT_EQ(theirs[path]["rgb" + std::to_string(reduction)], decoded(path, data::Pixels::rgb, reduction))
          << path << " 1/" << reduction;
    }
  }
}

TEST(PillowInterop, RealPicturesAreEqual) {
  MR_NEEDS_PYTHON("PIL");
  const std::vector<std::string> files = files_in(kShared / "images", {".png"});
  if (files.empty()) GTEST_SKIP() << "no real pictures in ../shared/data/images";
  expect_as_pillow(files);
}

TEST(PillowInterop, WeReadWhatPillowWrites) {
  MR_NEEDS_PYTHON("PIL, numpy");
  const interop::ScratchFolder folder("pillow");
  const PythonResult python = run_python(R"(
import sys
import numpy as np
from PIL import Image
out = sys.argv[1] + "/"
rng = np.random.default_rng(5)
y, x = np.mgrid[:93, :141]
base = (np.stack([x * 2, y * 3, x + y], -1) + rng.integers(0, 30, (93, 141, 3))) % 256
image = Image.fromarray(base.astype(np.uint8))
for mode in ("RGB", "L", "P", "1", "LA", "RGBA"):
    other = image.convert(mode)
    if mode[-1] == "A": other.putalpha(image.convert("L"))
    other.save(out + mode + ".png")
for bits in (1, 2, 4):
    image.convert("RGB").quantize(2 ** bits).save(out + "palette%d.png" % bits, bits=bits)
for i, sampling in enumerate(("4:4:4", "4:2:2", "4:2:0")):
    image.save(out + "baseline%d.jpg" % i, quality=87, subsampling=sampling)
    image.save(out + "progressive%d.jpg" % i, quality=71, subsampling=sampling, progressive=True)
image.convert("L").save(out + "gray.jpg"))",
                                         {folder.path().string()});
  ASSERT_EQ(python.status, 0) << python.output;
  const std::vector<std::string> files = files_in(folder.path(), {".png", ".jpg"});
  EXPECT_EQ(files.size(), 9U + 7U);
  expect_as_pillow(files);
}

TEST(PillowInterop, PillowReadsWhatWeWrite) {
  MR_NEEDS_PYTHON("PIL");
  const interop::ScratchFolder folder("pillow");
  for (const auto pixels : {data::Pixels::rgb, data::Pixels::gray}) {
    const data::PictureSize size{.height = 37, .width = 53, .stored = pixels};
    std::vector<std::byte> values(static_cast<std::size_t>(37 * 53) * static_cast<std::size_t>(pixels));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::byte>(i * 7 % 251);
    format::write_png(Fs::real(), folder.path() / (pixels == data::Pixels::rgb ? "rgb.png" : "gray.png"), size, values);
  }
  expect_as_pillow(files_in(folder.path(), {".png"}));
}

// Short side to `side`, middle: of an image larger, smaller, high, broad and of odd sides.
TEST(PillowInterop, ClipsTransformIsEqualToTheBit) {
  MR_NEEDS_PYTHON("PIL, numpy");
  const interop::ScratchFolder folder("pillow");
  constexpr std::int64_t kSide = 48;
  const PythonResult python = run_python(R"(
import sys
import numpy as np
from PIL import Image
out, side = sys.argv[1] + "/", int(sys.argv[2])
rng = np.random.default_rng(5)
for height, width in ((93, 141), (141, 93), (64, 64), (31, 20), (48, 48), (200, 49), (61, 47), (480, 641)):
    values = rng.integers(0, 256, (height, width, 3)) if height < 100 else rng.integers(0, 2, (height, width, 3)) * 255
    image = Image.fromarray(values.astype(np.uint8))
    image.save(out + "%dx%d.png" % (height, width))
    short, long = min(width, height), max(width, height)
    far = int(side * long / short)
    size = (side, far) if height > width else (far, side)
    # From version 13 on Pillow takes columns first where that saves work, as for high images; before, always rows.
    small = image.resize((size[0], height), Image.BICUBIC).resize(size, Image.BICUBIC)
    assert height > width or image.resize(size, Image.BICUBIC).tobytes() == small.tobytes()
    top, left = (small.height - side) // 2, (small.width - side) // 2
    open(out + "%dx%d.rgb" % (height, width), "wb").write(small.crop((left, top, left + side, top + side)).tobytes()))",
                                         {folder.path().string(), std::to_string(kSide)});
  ASSERT_EQ(python.status, 0) << python.output;
  const std::vector<std::string> files = files_in(folder.path(), {".png"});
  ASSERT_EQ(files.size(), 8U);
  for (const std::string& path : files) {
    data::Image image(path);
    const data::PictureSize size = image.size();
    const data::ClipCrop crop = data::clip_crop(size, kSide);
    const data::PicturePart seen = data::seen_by(crop, size);
    std::vector<std::byte> pixels(static_cast<std::size_t>(seen.height * seen.width * 3)), out(kSide * kSide * 3);
    image.decode(data::Pixels::rgb, 1, seen, pixels);
    data::resize_bicubic(size, seen, pixels, data::Pixels::rgb, crop.height, crop.width, crop.middle, out);
    const std::string theirs = Fs::real().read_file(std::filesystem::path(path).replace_extension(".rgb"));
    ASSERT_EQ(theirs.size(), out.size());
    EXPECT_TRUE(std::equal(out.begin(), out.end(), std::as_bytes(std::span(theirs)).begin())) << path;
  }
}

}  // namespace
}  // namespace millrace
