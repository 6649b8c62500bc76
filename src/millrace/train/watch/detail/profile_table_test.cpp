#include "millrace/train/watch/detail/profile_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace {
namespace {

using testing::HasSubstr;
using testing::Not;

// A step of 100 us. The operation `outer` (60 us) contains mm (20 us) and, inside a span, mm (30 us). Another thread has an
// operation at the same time.
constexpr const char* kTrace = R"({"schemaVersion": 1, "deviceProperties": [{"name": "x"}], "traceEvents": [
  {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": "millrace"}},
  {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#4", "pid": 1, "tid": 7, "ts": 1000.0, "dur": 100.0, "args": {}},
  {"ph": "X", "cat": "user_annotation", "name": "forward", "pid": 1, "tid": 7, "ts": 1005.0, "dur": 90.0, "args": {}},
  {"ph": "X", "cat": "cpu_op", "name": "outer", "pid": 1, "tid": 7, "ts": 1010.0, "dur": 60.0,
   "args": {"Input Dims": [[8, 4], [], [[2], [3]]], "Input type": ["float"]}},
  {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 7, "ts": 1012.0, "dur": 20.0,
   "args": {"Input Dims": [[8, 4], [4, 2]]}},
  {"ph": "X", "cat": "user_annotation", "name": "recompute", "pid": 1, "tid": 7, "ts": 1033.0, "dur": 34.0, "args": {}},
  {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 7, "ts": 1034.0, "dur": 30.0,
   "args": {"Input Dims": [[8, 4], [4, 2]]}},
  {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 7, "ts": 1070.0, "dur": 5.0,
   "args": {"Input Dims": [[9, 4], [4, 2]]}},
  {"ph": "X", "cat": "cpu_op", "name": "aten::fill_", "pid": 1, "tid": 8, "ts": 1011.0, "dur": 40.0, "args": {}},
  {"ph": "s", "cat": "fwdbwd", "name": "fwdbwd", "id": 3, "pid": 1, "tid": 7, "ts": 1012.0}
]})";

TEST(ProfileTable, OwnTimesAreWhatTheOperationsWithinLeave) {
  const ProfileTable table = table_of_trace(kTrace);
  EXPECT_EQ(table.steps, 1);
  EXPECT_DOUBLE_EQ(table.steps_ms, 0.1);
  EXPECT_EQ(table.operations, 5);
  ASSERT_EQ(table.longest.size(), 4U) << "the calls of one shape are one row, spans are none";
  const ProfileRow& mm = table.longest[0];
  EXPECT_EQ(mm.name, "aten::mm");
  EXPECT_EQ(mm.shapes, "[[8,4],[4,2]]");
  EXPECT_EQ(mm.calls, 2);
  EXPECT_NEAR(mm.total_ms, 0.050, 1e-9);
  EXPECT_NEAR(mm.self_ms, 0.050, 1e-9);
  EXPECT_EQ(table.longest[1].name, "aten::fill_") << "of another thread: within nothing here";
  EXPECT_NEAR(table.longest[1].self_ms, 0.040, 1e-9);
  EXPECT_EQ(table.longest[2].name, "outer");
  EXPECT_NEAR(table.longest[2].total_ms, 0.060, 1e-9);
  EXPECT_NEAR(table.longest[2].self_ms, 0.010, 1e-9);
  EXPECT_EQ(table.longest[3].calls, 1);
  EXPECT_NEAR(table.operations_ms, 0.105, 1e-9);
  EXPECT_TRUE(table.device.empty());
  EXPECT_EQ(table_of_trace(kTrace, 2).longest.size(), 2U);
}

TEST(ProfileTable, AnOperationAloneWithinOneOfItsNameIsThatOne) {
  const ProfileTable table = table_of_trace(R"({"traceEvents": [
    {"ph": "X", "cat": "cpu_op", "name": "aten::sum", "pid": 1, "tid": 7, "ts": 0, "dur": 50, "args": {"Input Dims": [[8], []]}},
    {"ph": "X", "cat": "cpu_op", "name": "aten::sum", "pid": 1, "tid": 7, "ts": 5, "dur": 40, "args": {"Input Dims": [[8]]}},
    {"ph": "X", "cat": "cpu_op", "name": "aten::fill_", "pid": 1, "tid": 7, "ts": 10, "dur": 10, "args": {"Input Dims": [[8]]}}]})");
  ASSERT_EQ(table.longest.size(), 2U);
  EXPECT_EQ(table.longest[0].shapes, "[[8],[]]");
  EXPECT_EQ(table.longest[0].calls, 1);
  EXPECT_NEAR(table.longest[0].total_ms, 0.050, 1e-9);
  EXPECT_NEAR(table.longest[0].self_ms, 0.040, 1e-9);
}

TEST(ProfileTable, ReadsWell) {
  const std::string text = to_text(table_of_trace(kTrace));
  EXPECT_THAT(text, HasSubstr("1 step of 0.10 ms each with the recording; 5 operations, 105 % of the time\n"));
  EXPECT_THAT(text, HasSubstr("\naten::mm         2      0.05     0.05   50 %  [8,4] [4,2]\n"));
  EXPECT_THAT(text, HasSubstr("\nouter            1      0.06     0.01   10 %  [8,4] [[2],[3]]\n"));
  EXPECT_THAT(text, Not(HasSubstr("GPU")));
  EXPECT_FALSE(text.ends_with("\n"));
}

TEST(ProfileTable, HasTheKernelsOfAGpu) {
  const ProfileTable table = table_of_trace(R"({"traceEvents": [
    {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 7, "ts": 0, "dur": 1000},
    {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 7, "ts": 0, "dur": 10, "args": {}},
    {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": "stream 7", "ts": 5, "dur": 400, "args": {"stream": 7}},
    {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": "stream 8", "ts": 6, "dur": 100, "args": {"stream": 8}},
    {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD", "pid": 0, "tid": 7, "ts": 500, "dur": 30, "args": {}}]})");
  ASSERT_EQ(table.device.size(), 2U);
  EXPECT_EQ(table.device[0].name, "gemm");
  EXPECT_EQ(table.device[0].calls, 2);
  EXPECT_NEAR(table.device[0].total_ms, 0.5, 1e-9);
  EXPECT_EQ(table.device_work, 3);
  EXPECT_NEAR(table.longest.front().self_ms, 0.010, 1e-9) << "kernels are not within the operations of the host";
  EXPECT_THAT(to_text(table), HasSubstr("on the GPU: 3 kernels and copies, 0.53 ms"));
}

TEST(ProfileTable, RefusesWhatIsNoTrace) {
  EXPECT_THROW(static_cast<void>(table_of_trace("{")), std::exception);
  EXPECT_THROW(static_cast<void>(table_of_trace("{}")), std::exception);
}

TEST(ShortName, SaysWhoseBackwardItIs) {
  EXPECT_EQ(short_name("aten::mm"), "aten::mm");
  EXPECT_EQ(short_name("torch::autograd::CppNode<millrace::kernels::(anonymous namespace)::GeluFunction>"),
            "GeluFunction, backward");
  EXPECT_EQ(short_name("autograd::engine::evaluate_function: MmBackward0"), "MmBackward0 and sums of gradients");
}

}  // namespace
}  // namespace millrace
