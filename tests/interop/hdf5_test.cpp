// HDF5 files of h5py, and real ones, read bit for bit as h5py reads them; ours read by h5py; files that must be refused.
#include <gmock/gmock.h>

#include <cstring>
#include <fstream>
#include <map>

#include "millrace/base/error.h"
#include "millrace/base/json.h"
#include "millrace/data/sources/hdf5_source.h"
#include "millrace/hdf5/file.h"
#include "python.h"
#include "tests/support/refusal.h"

namespace millrace {
namespace {

using hdf5::File;
using interop::missing;
using interop::run_python;
using testing::HasSubstr;

#define MR_NEEDS_PYTHON(packages) \
  if (const std::string why = missing(packages); !why.empty()) GTEST_SKIP() << why

// Prints, for each data set that is numbers, its name and the bytes h5py reads, in this machine's byte order and packed.
constexpr const char* kDump = R"(
import json, sys, zlib
import h5py, numpy as np
found = {}
def visit(name, item):
    if not isinstance(item, h5py.Dataset) or item.shape is None or h5py.check_string_dtype(item.dtype): return
    value = np.asarray(item[()])
    if value.dtype.kind not in "biufcV" : return
    value = np.ascontiguousarray(value.astype(value.dtype.newbyteorder("=")))
    found["/" + name] = [list(item.shape), value.nbytes, zlib.crc32(value.tobytes())]
with h5py.File(sys.argv[1], "r") as f: f.visititems(visit)
print(json.dumps(found)))";

std::uint32_t crc32(std::span<const std::byte> bytes) {
  std::uint32_t crc = ~0U;
  for (const std::byte byte : bytes) {
    crc ^= std::to_integer<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1U ^ (0xEDB88320U & (0U - (crc & 1U)));
  }
  return ~crc;
}

Json read_like_python(const hdf5::File& file) {
  Json found = Json::object();
  for (const hdf5::Dataset& dataset : file.datasets()) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(*element_count(dataset.shape)) * size_of(dataset.dtype));
    file.read(dataset.name, Shape(dataset.shape.size(), 0), dataset.shape, bytes);
    found[dataset.name] = {dataset.shape, bytes.size(), crc32(bytes)};
  }
  return found;
}

TEST(Hdf5Interop, RealFilesBitForBit) {
  MR_NEEDS_PYTHON("h5py, numpy");
  const std::filesystem::path folder = MILLRACE_SOURCE_DIR "/../shared/data/cosmology";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "the real files are not here: " << folder;
  for (const char* name : {"PyGSM_Jy_downselect.uvh5", "ps_planck2018_z1.0_linear.h5"}) {
    const auto python = run_python(kDump, {(folder / name).string()});
    ASSERT_EQ(python.status, 0) << python.output;
    const auto file = hdf5::File::open(folder / name);
    EXPECT_EQ(read_like_python(*file), Json::parse(python.output)) << name;
    for (const hdf5::Dataset& dataset : file->datasets()) EXPECT_FALSE(dataset.through_child) << dataset.name << dataset.reason;
  }
}

// One short text is no data set, but what it says is known.
TEST(Hdf5Interop, ShortTextsOfFixedAndOfAnyLength) {
  MR_NEEDS_PYTHON("h5py, numpy");
  const interop::ScratchFolder folder("interop-hdf5-text");
  const std::string path = (folder.path() / "text.h5").string();
  const auto made = run_python(R"(
import h5py, numpy as np, sys
with h5py.File(sys.argv[1], "w") as f:
    f["fixed"] = np.bytes_("Jy"); f["any"] = "kelvin µ"; f["padded"] = np.array([b"mK "], "S3")
    f["long"] = np.bytes_("x" * 2000); f["many"] = np.array([b"a", b"b"]); f["empty"] = ""
    f.create_dataset("space", data=np.array(b"sr  "), dtype=h5py.string_dtype("ascii", 4)))",
                               {path});
  ASSERT_EQ(made.status, 0) << made.output;
  std::map<std::string, std::string> found;
  const auto file = hdf5::File::open(path);
  for (const auto& [name, reason, text] : file->unreadable()) {
    EXPECT_EQ(reason, "text");
    found[name] = text;
  }
  const std::map<std::string, std::string> expected = {{"/fixed", "Jy"}, {"/any", "kelvin µ"}, {"/padded", "mK "}, {"/long", ""},
                                                       {"/many", ""},    {"/empty", ""},       {"/space", "sr  "}};
  EXPECT_EQ(found, expected);
}

// One line of names and values.
std::string words_of(const hdf5::Attributes& attributes) {
  std::string words;
  for (const hdf5::Attribute& attribute : attributes.all) words += attribute.name + ": " + hdf5::value_text(attribute) + "\n";
  return words;
}

TEST(Hdf5Interop, AttributesBothWays) {
  MR_NEEDS_PYTHON("h5py, numpy");
  const interop::ScratchFolder folder("interop-hdf5-attributes");
  const std::string theirs = (folder.path() / "theirs.h5").string();
  const auto made = run_python(R"(
import h5py, numpy as np, sys
with h5py.File(sys.argv[1], "w") as f:
    f["a"] = np.arange(3)
    f["a"].attrs["unit"] = "µV"
    f.attrs.update({"any": "allen_0216", "bytes": np.bytes_("Jy"), "rate": 240.0, "half": np.float16(0.5), "count": np.uint8(3), "sure": True,
                    "many": [1, 2], "none": h5py.Empty("f4"), "complex": 1 + 2j, "texts": ["a", "b"]}))",
                               {theirs});
  ASSERT_EQ(made.status, 0) << made.output;
  const auto file = hdf5::File::open(theirs);
  EXPECT_EQ(words_of(file->attributes("/")),
            "any: \"allen_0216\"\nbytes: \"Jy\"\ncomplex: a compound\ncount: 3\nhalf: 0.5\nmany: an array of 2 elements\n"
            "none: nothing (a null data space)\nrate: 240\nsure: true\ntexts: an array of 2 elements\n");
  EXPECT_EQ(words_of(file->attributes("/a")), "unit: \"µV\"\n");

  const std::string ours = (folder.path() / "ours.h5").string();
  const std::vector<hdf5::Attribute> attributes = {
      {"count", std::int64_t{-3}}, {"rate", 240.0}, {"session", std::string("allen_0216")}, {"sure", true}};
  hdf5::write_file(ours, {}, attributes);
  const auto read = run_python(
      R"(import h5py, sys; f = h5py.File(sys.argv[1]); print([v.item() if hasattr(v, "item") else v for _, v in sorted(f.attrs.items())]))",
      {ours});
  EXPECT_EQ(read.output, "[-3, 240.0, 'allen_0216', True]\n");
}

// netCDF packs numbers so. Nothing else in the file tells packed numbers from others.
TEST(Hdf5Interop, ASourceSaysWhichNumbersArePacked) {
  MR_NEEDS_PYTHON("h5py, numpy");
  const interop::ScratchFolder folder("interop-hdf5-packed");
  const std::filesystem::path path = folder.path() / "packed.h5";
  const auto made = run_python(R"(
import h5py, numpy as np, sys
with h5py.File(sys.argv[1], "w") as f:
    f["t"], f["plain"] = np.zeros((4, 2), "i2"), np.zeros((4, 2), "f4")
    f["t"].attrs.update(scale_factor=0.01, add_offset=0.0, _FillValue=np.array([-32767], "i2"))
    f["plain"].attrs.update(scale_factor=1.0, _FillValue=np.float32("nan")))",
                               {path.string()});
  ASSERT_EQ(made.status, 0) << made.output;
  const std::vector<std::filesystem::path> files = {path};
  const data::Hdf5Source source(files, {{"t", "/t"}, {"plain", "/plain"}}, data::Hdf5Samples::row);
  const std::string line =
      "numbers of /t in " + path.string() +
      " are read as stored, so apply in map() or prepare() what the attributes say: scale_factor 0.01, _FillValue -32767";
  EXPECT_THAT(source.packed(), testing::ElementsAre(line));
  EXPECT_EQ(source.read_as(), line) << "the plan of a run and millrace show have it";
  EXPECT_EQ(data::Hdf5Source(files, {{"plain", "/plain"}}, data::Hdf5Samples::row).read_as(), "");
}

// What only other programs write: byte orders, virtual, compact and sparse data sets, filters the fast path does not know.
constexpr const char* kMake = R"(
import sys
import h5py, numpy as np
rng = np.random.default_rng(0)
a = rng.integers(0, 100, (37, 21, 5))
with h5py.File(sys.argv[1], "w", libver=sys.argv[2], userblock_size=int(sys.argv[3])) as f:
    for t in ("?", "i1", "u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f2", "<f4", "<f8", "<c8", "<c16", ">i4", ">f8", ">c8"):
        for k, o in {"raw": {}, "gz": dict(compression=4, shuffle=True, chunks=(8, 8, 5)), "lzf": dict(compression="lzf", chunks=True),
                     "sum": dict(fletcher32=True, chunks=(37, 1, 5)), "one": dict(chunks=(1, 21, 5), maxshape=(None, 21, 5)),
                     "all": dict(compression=9, shuffle=True, fletcher32=True, chunks=(5, 5, 3), maxshape=(None, None, 5))}.items():
            f.create_dataset(f"{t}/{k}", data=a.astype(t), **o)
    f.create_dataset("scaled", data=a.astype("i4"), scaleoffset=7, chunks=(8, 8, 5))
    noise = rng.random((64, 64)).astype("f4")
    f.create_dataset("left out", data=noise, compression="lzf", chunks=(16, 16))   # lzf gives up: the mask says so
    sparse = f.create_dataset("sparse", (100, 100), "i2", chunks=(10, 10), fillvalue=-7, compression=1)
    sparse[15:25, 33] = 5
    f.create_dataset("never written", (4, 4), "f4", fillvalue=2.5)
    f.create_dataset("many", data=np.arange(3000.0), chunks=(3,))
    compact = h5py.h5p.create(h5py.h5p.DATASET_CREATE); compact.set_layout(h5py.h5d.COMPACT)
    h5py.h5d.create(f.id, b"compact", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((6,)), compact).write(
        h5py.h5s.ALL, h5py.h5s.ALL, np.arange(6, dtype="f4"))
    layout = h5py.VirtualLayout((37, 5), "i8")
    layout[:] = h5py.VirtualSource(".", "<i8/gz", (37, 21, 5))[:, 3, :]
    f.create_virtual_dataset("virtual", layout)
    f["soft"] = h5py.SoftLink("/<f4/gz"); f["text"] = "no numbers"; f["cycle/back"] = f["/"]
)";

TEST(Hdf5Interop, EverythingOtherProgramsWrite) {
  MR_NEEDS_PYTHON("h5py, numpy");
  const interop::ScratchFolder folder("interop-hdf5");
  for (const auto& [version, userblock] : {std::pair{"earliest", "0"}, {"earliest", "1024"}, {"v110", "0"}, {"v110", "512"}}) {
    const std::string path = (folder.path() / (std::string(version) + userblock)).string();
    const auto made = run_python(kMake, {path, version, userblock});
    ASSERT_EQ(made.status, 0) << made.output;
    const auto python = run_python(kDump, {path});
    ASSERT_EQ(python.status, 0) << python.output;
    const auto file = hdf5::File::open(path);
    EXPECT_EQ(read_like_python(*file), Json::parse(python.output)) << version << userblock;
    std::map<std::string, std::string> through;
    for (const auto& dataset : file->datasets()) {
      if (dataset.through_child && dataset.name[1] != '>') through[dataset.name] = dataset.reason;
      EXPECT_EQ(dataset.name[1] == '>', dataset.reason == "big-endian") << dataset.name << ' ' << dataset.reason;
    }
    EXPECT_EQ(through, (std::map<std::string, std::string>{
                           {"/compact", "compact layout"}, {"/scaled", "filter scaleoffset"}, {"/virtual", "virtual layout"}}));
    ASSERT_EQ(file->unreadable().size(), 1U);
    EXPECT_EQ(file->unreadable()[0].name + ": " + file->unreadable()[0].reason, "/text: text");
    const std::vector<std::string> soft = {"/soft"};
    const auto linked = hdf5::File::open(path, soft);
    EXPECT_EQ(read_like_python(*linked)["/soft"], read_like_python(*file)["/<f4/gz"]);
  }
}

TEST(Hdf5Interop, RefusesWhatLeavesTheFileOrCannotBeRead) {
  MR_NEEDS_PYTHON("h5py, numpy");
  const interop::ScratchFolder folder("interop-hdf5");
  const std::string path = (folder.path() / "hostile.h5").string();
  const auto made = run_python(R"(
import os, sys
import h5py, numpy as np
os.chdir(os.path.dirname(sys.argv[1]))
with h5py.File("other.h5", "w") as f: f["a"] = np.arange(4.0); f["g/b"] = np.arange(4.0)
with h5py.File(sys.argv[1], "w") as f:
    f["link"] = h5py.ExternalLink("other.h5", "/a"); f["group"] = h5py.ExternalLink("other.h5", "/g")
    layout = h5py.VirtualLayout((4,), "f8"); layout[:] = h5py.VirtualSource("other.h5", "a", (4,)); f.create_virtual_dataset("virtual", layout)
    layout = h5py.VirtualLayout((4,), "f8"); layout[:] = h5py.VirtualSource(".", "gone", (4,)); f.create_virtual_dataset("hollow", layout)
    f.create_dataset("external", (4,), "f8", external=[("raw.bin", 0, 32)])
    f.create_dataset("bomb", (2**38, 2**20), "f4", chunks=(1, 2**10), compression=1)
    f.create_dataset("measureless", (2**40, 2**40), "f4", chunks=(1, 2**10))
    f.create_dataset("ragged", (3,), dtype=h5py.vlen_dtype("i4"))
    p = h5py.h5p.create(h5py.h5p.DATASET_CREATE); p.set_chunk((4,)); p.set_filter(32001, h5py.h5z.FLAG_OPTIONAL, (1,))
    h5py.h5d.create(f.id, b"blosc", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((4,)), p)
    f["dangling"] = h5py.SoftLink("/nowhere"); f["round"] = h5py.SoftLink("/round"); f["null"] = h5py.Empty("f4")
f = h5py.File("open.h5", "w", libver="latest"); f["a"] = np.arange(4.0); f.swmr_mode = True; os._exit(0))",
                               {path});
  ASSERT_EQ(made.status, 0) << made.output;
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"/link", "/link is a link to another file"},
      {"/group/b", "/group is a link to another file"},
      {"/virtual", "a virtual data set of other files (other.h5)"},
      {"/hollow", "a virtual data set whose source gone is missing"},
      {"/external", "data in external files"},
      {"/measureless", "an impossible shape"},
      {"/ragged", "rows of variable length"},
      {"/blosc", "filter 32001"},
      {"/dangling", "dataset /dangling is missing"},
      {"/round", "dataset /round is missing"},
      {"/null", "no elements at all (a null data space)"},
  };
  for (const auto& [name, words] : cases) {
    const std::vector<std::string> wanted = {name};
    EXPECT_THAT(refusal([&] { static_cast<void>(hdf5::File::open(path, wanted)); }), HasSubstr(words)) << name;
  }
  std::map<std::string, std::string> reasons;
  const auto all = hdf5::File::open(path);
  for (const auto& dataset : all->unreadable()) reasons[dataset.name] = dataset.reason;
  EXPECT_EQ(reasons["/link"], "/link is a link to another file") << "named, so that a search for it can say why";
  EXPECT_EQ(reasons["/group"], "/group is a link to another file");
  EXPECT_EQ(reasons["/external"], "data in external files");
  EXPECT_THAT(refusal([&] { (void)all->dataset("/measureless"); }), HasSubstr("can't be read: an impossible shape"));
  const std::vector<std::string> bomb = {"/bomb"};
  const auto file = hdf5::File::open(path, bomb);  // its size is no lie: what is asked for is read
  EXPECT_EQ(file->dataset("/bomb").reason, "more than 4194304 chunks");
  std::vector<float> values(8, 1.0F);
  file->read("/bomb", Shape{1 << 30, 5}, Shape{2, 4}, std::as_writable_bytes(std::span(values)));
  EXPECT_THAT(values, testing::Each(0.0F));
  EXPECT_THAT(refusal([&] { static_cast<void>(hdf5::File::open(folder.path() / "open.h5")); }), HasSubstr("open for writing"));
}

TEST(Hdf5Interop, H5pyReadsWhatWeWrite) {
  MR_NEEDS_PYTHON("h5py, numpy");
  const interop::ScratchFolder folder("interop-hdf5");
  const std::string path = (folder.path() / "ours.h5").string();
  std::vector<std::string> bytes;
  std::vector<hdf5::Array> arrays;
  for (const DType dtype : {DType::boolean, DType::u8, DType::i8, DType::i16, DType::u16, DType::i32, DType::u32, DType::i64,
                            DType::u64, DType::f16, DType::f32, DType::f64, DType::c64, DType::c128}) {
    bytes.emplace_back(60 * size_of(dtype), '\0');
    for (std::size_t i = 0; i < bytes.back().size(); ++i) {
      bytes.back()[i] = static_cast<char>(dtype == DType::boolean ? i & 1U : i * 7 % 61);
    }
    for (const bool packed : {false, true}) {
      hdf5::Array array;
      array.name = "/g/" + std::string(name_of(dtype)) + (packed ? "/gz" : "/raw");
      array.dtype = dtype;
      array.shape = {6, 10};
      if (packed) array.chunk = {4, 3};
      array.deflate = packed ? 4 : 0;
      array.shuffle = packed;
      array.fletcher32 = packed;
      arrays.push_back(array);
    }
  }
  for (std::size_t i = 0; i < arrays.size(); ++i) arrays[i].bytes = std::as_bytes(std::span(bytes[i / 2]));
  hdf5::write_file(path, arrays);
  const auto python = run_python(kDump, {path});
  ASSERT_EQ(python.status, 0) << python.output;
  const Json read = Json::parse(python.output);
  EXPECT_EQ(read.size(), arrays.size());
  for (const hdf5::Array& array : arrays) EXPECT_EQ(read[array.name][2], crc32(array.bytes)) << array.name;
  const auto types = run_python(
      R"(import h5py, sys; f = h5py.File(sys.argv[1]); print([f["g/" + t + "/gz"].dtype.str for t in ("bool", "f16", "c64", "c128")]))",
      {path});
  EXPECT_EQ(types.output, "['|b1', '<f2', '<c8', '<c16']\n");
}

}  // namespace
}  // namespace millrace
