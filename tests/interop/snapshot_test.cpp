// A snapshot's files, read without Millrace.
#include <ATen/ops/arange.h>
#include <gmock/gmock.h>

#include "millrace/snapshot/snapshot.h"
#include "python.h"

namespace millrace {
namespace {

TEST(SnapshotInterop, PythonReadsWeightsAndState) {
  if (const std::string why = interop::missing("safetensors, numpy"); !why.empty()) GTEST_SKIP() << why;
  const interop::ScratchFolder folder("interop-snapshot");
  snapshot::Content content;
  content.step = 12;
  content.models["model"] = {{"layer.weight", at::arange(6).to(at::kFloat).reshape({2, 3}).t()}};
  content.parts["loader"].json = {{"epoch", 3}};
  const std::filesystem::path path = snapshot::save(Fs::real(), folder.path(), content);
  const interop::PythonResult python = interop::run_python(R"(
import json, os, sys
from safetensors.numpy import load_file
weight = load_file(sys.argv[1] + "/model.safetensors")["layer.weight"]
state = json.load(open(sys.argv[1] + "/state.json"))
manifest = json.load(open(sys.argv[1] + "/manifest.json"))
sizes = all(os.path.getsize(os.path.join(sys.argv[1], f)) == e["bytes"] for f, e in manifest["files"].items())
print(weight.tolist(), state["step"], state["parts"]["loader"]["json"], sorted(manifest["files"]), sizes))",
                                                           {path.string()});
  EXPECT_EQ(python.status, 0);
  EXPECT_EQ(python.output, "[[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]] 12 {'epoch': 3} ['model.safetensors', 'state.json'] True\n");
}

}  // namespace
}  // namespace millrace
