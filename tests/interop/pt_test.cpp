// Files of torch.save, with the real torch on the other side.
#include <gmock/gmock.h>

#include <cstring>

#include "millrace/base/error.h"
#include "millrace/base/json.h"
#include "millrace/format/pt.h"
#include "python.h"
#include "tests/support/refusal.h"

namespace millrace {
namespace {

using testing::HasSubstr;

std::string why_not() {
  const std::string python = interop::torch_python();
  if (python.empty()) return "no Python: set MILLRACE_PYTHON, or run ./dev test once, which makes .deps/venv";
  static const interop::PythonResult result = interop::run_python("import torch", {}, python);
  return result.status == 0 ? "" : "Python can't import torch: " + result.output;
}

std::string pattern(std::size_t size) {
  std::string bytes(size, '\0');
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 37 + size);
  return bytes;
}

std::string hex_of(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    text += kDigits[static_cast<unsigned char>(c) >> 4U];
    text += kDigits[static_cast<unsigned char>(c) & 0xFU];
  }
  return text;
}

TEST(PtInterop, TorchLoadsWhatWeWriteWithWeightsOnly) {
  if (const std::string why = why_not(); !why.empty()) GTEST_SKIP() << why;
  const interop::ScratchFolder folder("interop-pt");
  const std::filesystem::path path = folder.path() / "ours.pt";
  std::vector<Field> fields = {
      {"scalar", DType::f32, {}}, {"empty", DType::f32, {0, 3}}, {"layer.\xC3\xA9.weight", DType::f32, {70, 4}}};
  for (int i = 0; i <= static_cast<int>(DType::c128); ++i) {
    const auto dtype = static_cast<DType>(i);
    fields.push_back({std::string(name_of(dtype)), dtype, {2, 3}});
  }
  std::vector<std::string> bytes;
  for (const Field& field : fields)
    bytes.push_back(field.dtype == DType::boolean ? std::string("\1\0\1\0\0\1", 6) : pattern(field.bytes()));
  const auto file = Fs::real().create(path);
  format::write_pt(*file, fields, [&](std::size_t i) { return std::as_bytes(std::span(bytes[i])); });
  file->close();
  const interop::PythonResult python = interop::run_python(R"(
import json, sys, collections
import torch
state = torch.load(sys.argv[1], weights_only=True)
mapped = torch.load(sys.argv[1], weights_only=True, mmap=True)
assert type(state) is collections.OrderedDict
def raw(t):
    return t.contiguous().flatten().view(torch.uint8).numpy().tobytes().hex() if t.numel() else ""
print(json.dumps({name: [str(t.dtype), list(t.shape), raw(t), raw(mapped[name]) == raw(t)] for name, t in state.items()})))",
                                                           {path.string()}, interop::torch_python());
  ASSERT_EQ(python.status, 0) << python.output;
  const Json read = Json::parse(python.output.substr(python.output.find('{')));
  ASSERT_EQ(read.size(), fields.size());
  for (std::size_t i = 0; i < fields.size(); ++i) {
    ASSERT_TRUE(read.contains(fields[i].name)) << fields[i].name;
    EXPECT_EQ(read.at(fields[i].name)[1], Json(fields[i].shape)) << fields[i].name;
    EXPECT_EQ(read.at(fields[i].name)[2], hex_of(bytes[i])) << fields[i].name;
    EXPECT_EQ(read.at(fields[i].name)[3], true) << fields[i].name;
  }
  EXPECT_EQ(read.at("bf16")[0], "torch.bfloat16");
  EXPECT_EQ(read.at("u16")[0], "torch.uint16");
}

// Makes theirs.pt, one.pt, old.pt, bad.pt, object.pt, script.pt, module.pt in the folder, and prints what is in some of them.
constexpr const char* kSave = R"(
import json, os, sys
import torch
torch.manual_seed(3)
model = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3), torch.nn.BatchNorm2d(3), torch.nn.Flatten(), torch.nn.Linear(12, 4)).to(torch.float32)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.125)
model(torch.randn(5, 2, 4, 4)).square().sum().backward()
optimizer.step()
base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3, "best": 0.25, "note": "é", "views": [base.t(), base[1:3, ::2], base],
            "parameter": torch.nn.Parameter(torch.ones(2)), "half": torch.tensor([1.5], dtype=torch.bfloat16), "ids": torch.tensor([2**40, -1]),
            "words": torch.tensor([65535], dtype=torch.uint16), "flag": torch.tensor(True), "empty": torch.zeros(0, 3),
            "device": torch.device("cpu"), "size": torch.Size([2, 3]), "dtype": torch.float16, "seed": 2**63 + 5}, sys.argv[1] + "/theirs.pt")
torch.save(base, sys.argv[1] + "/one.pt")
torch.save(base, sys.argv[1] + "/old.pt", _use_new_zipfile_serialization=False)
class Bad:
    def __reduce__(self):
        return (os.system, ("touch " + sys.argv[1] + "/sentinel",))
torch.save({"w": base, "bad": Bad()}, sys.argv[1] + "/bad.pt")
class Config:
    def __init__(self):
        self.width, self.words = 8, {"a": 1, ".": 2}
torch.save({"w": base, "config": Config()}, sys.argv[1] + "/object.pt")
torch.jit.script(torch.nn.Linear(2, 2)).save(sys.argv[1] + "/script.pt")
torch.save(model, sys.argv[1] + "/module.pt")
def raw(t):
    return t.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes().hex()
print(json.dumps({"conv": raw(model[0].weight), "moment": raw(optimizer.state_dict()["state"][0]["exp_avg"]), "view": raw(base[1:3, ::2]), "turned": raw(base.t())})))";

TEST(PtInterop, WeReadWhatTorchSaves) {
  if (const std::string why = why_not(); !why.empty()) GTEST_SKIP() << why;
  const interop::ScratchFolder folder("interop-pt");
  const interop::PythonResult python = interop::run_python(kSave, {folder.path().string()}, interop::torch_python());
  ASSERT_EQ(python.status, 0) << python.output;
  const Json theirs = Json::parse(python.output.substr(python.output.find('{')));
  format::PtFile file(folder.path() / "theirs.pt");
  const auto hex = [&](const std::string& name, DType dtype, const Shape& shape) {
    const format::PtTensor* const tensor = file.find(name);
    if (tensor == nullptr || tensor->dtype != dtype || tensor->shape != shape) return std::string("not as saved");
    std::string bytes(tensor->bytes, '\0');
    file.read(*tensor, std::as_writable_bytes(std::span(bytes)));
    return hex_of(bytes);
  };
  EXPECT_EQ(hex("model.0.weight", DType::f32, {3, 2, 3, 3}), theirs["conv"]);
  EXPECT_EQ(hex("optimizer.state.0.exp_avg", DType::f32, {3, 2, 3, 3}), theirs["moment"]);
  EXPECT_EQ(hex("views.1", DType::f32, {2, 3}), theirs["view"]);
  EXPECT_EQ(hex("views.0", DType::f32, {6, 4}), theirs["turned"]);
  EXPECT_EQ(hex("model.1.num_batches_tracked", DType::i64, {}), "0100000000000000");
  EXPECT_EQ(hex("parameter", DType::f32, {2}), "0000803f0000803f");
  EXPECT_EQ(hex("half", DType::bf16, {1}), "c03f");
  EXPECT_EQ(hex("ids", DType::i64, {2}), "0000000000010000ffffffffffffffff");
  EXPECT_EQ(hex("words", DType::u16, {1}), "ffff");
  EXPECT_EQ(hex("flag", DType::boolean, {}), "01");
  EXPECT_EQ(hex("empty", DType::f32, {0, 3}), "");
  Json values;
  for (const format::PtValue& value : file.values()) values[value.name] = value.value;
  EXPECT_EQ(values["epoch"], 3);
  EXPECT_EQ(values["best"], 0.25);
  EXPECT_EQ(values["note"], "é");
  EXPECT_EQ(values["optimizer.param_groups.0.lr"], 0.125);
  EXPECT_EQ(values["device"], "cpu");
  EXPECT_EQ(values["dtype"], "torch.float16");
  EXPECT_EQ(values["seed"], 9223372036854775813U);

  const auto refusal = [&](const char* name) {
    return refusal_message<DataError>([&] { const format::PtFile other(folder.path() / name); }).what;
  };
  EXPECT_EQ(format::PtFile(folder.path() / "one.pt").tensors().at(0).shape, (Shape{4, 6}));
  EXPECT_THAT(refusal("old.pt"), HasSubstr("the format of torch before 1.6"));
  EXPECT_THAT(refusal("bad.pt"), HasSubstr("global \"posix.system\" is not allowed"));
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "sentinel"));
  const format::PtFile object(folder.path() / "object.pt");
  Json attributes;
  for (const format::PtValue& value : object.values()) attributes[value.name] = value.value;
  EXPECT_EQ(attributes["config.width"], 8);
  EXPECT_EQ(attributes["config.words.."], 2);
  EXPECT_EQ(object.tensors().size(), 1U);
  EXPECT_THAT(refusal("script.pt"), HasSubstr("TorchScript archive: it holds code"));
  EXPECT_THAT(refusal("module.pt"), HasSubstr("global \"torch.nn.modules.container.Sequential\" is not allowed"));
}

}  // namespace
}  // namespace millrace
