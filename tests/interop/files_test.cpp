// Safetensors files and TensorBoard events, against the packages that define them.
#include <gmock/gmock.h>

#include <cstring>
#include <limits>
#include <map>

#include "millrace/base/error.h"
#include "millrace/base/json.h"
#include "millrace/format/safetensors.h"
#include "millrace/telemetry/run_log.h"
#include "python.h"

namespace millrace {
namespace {

using interop::missing;
using interop::PythonResult;
using interop::run_python;

#define MR_NEEDS_PYTHON(packages) \
  if (const std::string why = missing(packages); !why.empty()) GTEST_SKIP() << why

std::string hex_of(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    text += kDigits[static_cast<unsigned char>(c) >> 4U];
    text += kDigits[static_cast<unsigned char>(c) & 0xFU];
  }
  return text;
}

// The bytes of one tensor that differ in every place.
std::string pattern(std::size_t size) {
  std::string bytes(size, '\0');
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 37 + size);
  return bytes;
}

TEST(SafetensorsInterop, ThePackageReadsEveryDtypeWeWrite) {
  MR_NEEDS_PYTHON("safetensors");
  const interop::ScratchFolder folder("interop");
  const std::filesystem::path path = folder.path() / "ours.safetensors";
  std::vector<Field> fields = {{"scalar", DType::f32, {}}, {"empty", DType::f32, {0, 3}}, {"\xC3\xA9 \"q\"", DType::u8, {3}}};
  for (const DType dtype : {DType::boolean, DType::u8, DType::i8, DType::i16, DType::u16, DType::i32, DType::u32, DType::i64,
                            DType::u64, DType::f16, DType::bf16, DType::f32, DType::f64, DType::c64}) {
    fields.push_back({std::string(name_of(dtype)), dtype, {2, 3}});
  }
  std::vector<std::string> bytes;
  bytes.reserve(fields.size());
  for (const Field& field : fields) bytes.push_back(pattern(field.bytes()));
  const auto file = Fs::real().create(path);
  format::write_safetensors(*file, fields, [&](std::size_t i) { return std::as_bytes(std::span(bytes[i])); }, {{"by", "us"}});
  file->close();

  const PythonResult python = run_python(R"(
import json, sys
from safetensors import deserialize, safe_open
with open(sys.argv[1], "rb") as f:
    entries = {name: [e["dtype"], list(e["shape"]), bytes(e["data"]).hex()] for name, e in deserialize(f.read())}
with safe_open(sys.argv[1], framework="np") as f:
    entries["__metadata__"] = f.metadata()
print(json.dumps(entries)))",
                                         {path.string()});
  ASSERT_EQ(python.status, 0) << python.output;
  const Json read = Json::parse(python.output);
  EXPECT_EQ(read.size(), fields.size() + 1);
  EXPECT_EQ(read.at("__metadata__"), Json({{"by", "us"}}));
  for (std::size_t i = 0; i < fields.size(); ++i) {
    ASSERT_TRUE(read.contains(fields[i].name)) << fields[i].name;
    EXPECT_EQ(read.at(fields[i].name)[1], Json(fields[i].shape)) << fields[i].name;
    EXPECT_EQ(read.at(fields[i].name)[2], hex_of(bytes[i])) << fields[i].name;
  }
}

TEST(SafetensorsInterop, NumPySeesTheValues) {
  MR_NEEDS_PYTHON("safetensors, numpy");
  const interop::ScratchFolder folder("interop");
  const std::filesystem::path path = folder.path() / "ours.safetensors";
  const std::vector<float> values = {1.5F, -2.0F, 0.25F, std::numeric_limits<float>::infinity(), -0.0F, 3e38F};
  const std::vector<Field> fields = {{"w", DType::f32, {2, 3}}};
  const auto file = Fs::real().create(path);
  format::write_safetensors(*file, fields, [&](std::size_t) { return std::as_bytes(std::span(values)); });
  file->close();
  const PythonResult python = run_python(R"(
import sys
from safetensors.numpy import load_file
w = load_file(sys.argv[1])["w"]
print(w.shape, w.dtype, [float(x).hex() for x in w.ravel()]))",
                                         {path.string()});
  EXPECT_EQ(python.status, 0);
  EXPECT_EQ(python.output,
            "(2, 3) float32 ['0x1.8000000000000p+0', '-0x1.0000000000000p+1', '0x1.0000000000000p-2', 'inf', '-0x0.0p+0', "
            "'0x1.c363cc0000000p+127']\n");
}

TEST(SafetensorsInterop, WeReadWhatThePackageWrites) {
  MR_NEEDS_PYTHON("safetensors, numpy");
  const interop::ScratchFolder folder("interop");
  const std::filesystem::path path = folder.path() / "theirs.safetensors";
  const PythonResult python = run_python(R"(
import sys
import numpy as np
from safetensors.numpy import save_file
save_file({"a": np.arange(6, dtype=np.float32).reshape(2, 3), "flags": np.array([True, False, True]),
           "ids": np.array([-1, 2**40], dtype=np.int64), "half": np.array([0.5], dtype=np.float16),
           "scalar": np.array(7, dtype=np.uint8), "none": np.zeros((0, 4), dtype=np.float64)},
          sys.argv[1], metadata={"origin": "numpy"}))",
                                         {path.string()});
  ASSERT_EQ(python.status, 0) << python.output;
  const format::SafetensorsFile file(path);
  EXPECT_EQ(file.metadata(), (format::Metadata{{"origin", "numpy"}}));
  ASSERT_EQ(file.tensors().size(), 6U);
  const auto bytes = [&](std::string_view name, DType dtype, const Shape& shape) {
    const format::StoredTensor* tensor = file.find(name);
    if (tensor == nullptr || tensor->dtype != dtype || tensor->shape != shape) return std::string("not as written");
    std::string result(tensor->bytes, '\0');
    file.read(*tensor, std::as_writable_bytes(std::span(result)));
    return result;
  };
  const auto raw = [](const auto& values) {
    return std::string(reinterpret_cast<const char*>(values.data()), sizeof(values[0]) * values.size());
  };
  EXPECT_EQ(bytes("a", DType::f32, {2, 3}), raw(std::vector<float>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(bytes("flags", DType::boolean, {3}), std::string("\1\0\1", 3));
  EXPECT_EQ(bytes("ids", DType::i64, {2}), raw(std::vector<std::int64_t>{-1, std::int64_t{1} << 40}));
  EXPECT_EQ(bytes("half", DType::f16, {1}), raw(std::vector<std::uint16_t>{0x3800}));
  EXPECT_EQ(bytes("scalar", DType::u8, {}), "\7");
  EXPECT_EQ(bytes("none", DType::f64, {0, 4}), "");
}

TEST(TensorBoardInterop, ThePackageReadsOurEvents) {
  MR_NEEDS_PYTHON("tensorboard");
  const interop::ScratchFolder folder("interop");
  {
    telemetry::EventWriter events(Fs::real(), folder.path(), [](const std::string& line) { ADD_FAILURE() << line; });
    for (const std::int64_t step : {std::int64_t{0}, std::int64_t{1}, std::int64_t{300}, std::int64_t{1} << 40}) {
      events.scalar("train/loss", step, 1.0 / static_cast<double>(step + 1));
    }
    events.scalar("bad \xFF tag", 1, std::numeric_limits<double>::quiet_NaN());
    events.flush();
    events.text("sample", 300, "To be, or not \xC3\xA9\nto be");
    events.image("val/picture", 7, 2, 3, "the bytes of a file");
  }
  const PythonResult python = run_python(R"(
import json, math, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util import tensor_util
events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "tensors": 0})
events.Reload()
tags = events.Tags()
texts = [(e.step, [t.decode() for t in tensor_util.make_ndarray(e.tensor_proto).tolist()]) for e in events.Tensors("sample")]
bad = [t for t in tags["scalars"] if t.startswith("bad")][0]
print(json.dumps({
    "version": events.file_version, "scalars": sorted(tags["scalars"]), "texts": texts,
    "images": [[e.step, e.height, e.width, e.encoded_image_string.decode()] for e in events.Images("val/picture")],
    "plugin": events.SummaryMetadata("sample").plugin_data.plugin_name,
    "nan": math.isnan(events.Scalars(bad)[0].value),
    "wall": all(e.wall_time > 1.6e9 for e in events.Scalars("train/loss")),
    "loss": [[e.step, e.value] for e in events.Scalars("train/loss")]})))",
                                         {folder.path().string()});
  ASSERT_EQ(python.status, 0) << python.output;
  const Json read =
      Json::parse(python.output.substr(python.output.find_last_of('\n', python.output.size() - 2) + 1), nullptr, false);
  ASSERT_TRUE(read.is_object()) << python.output;
  EXPECT_EQ(read.at("version"), 2.0);
  EXPECT_EQ(read.at("scalars"), Json({"bad \xEF\xBF\xBD tag", "train/loss"}));
  EXPECT_EQ(read.at("texts"), Json::parse(R"([[300,["To be, or not é\nto be"]]])"));
  EXPECT_EQ(read.at("plugin"), "text");
  EXPECT_EQ(read.at("images"), Json::parse(R"([[7,2,3,"the bytes of a file"]])"));
  EXPECT_EQ(read.at("nan"), true);
  EXPECT_EQ(read.at("wall"), true);
  ASSERT_EQ(read.at("loss").size(), 4U);
  EXPECT_EQ(read.at("loss")[0], Json({0, 1.0}));
  EXPECT_EQ(read.at("loss")[2][0], 300);
  EXPECT_FLOAT_EQ(read.at("loss")[2][1].get<float>(), 1.0F / 301);
  EXPECT_EQ(read.at("loss")[3][0], std::int64_t{1} << 40);
}

}  // namespace
}  // namespace millrace
