#include "millrace/kernels/operation_span.h"

#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "millrace/kernels/kernels.h"

namespace millrace::kernels {
namespace {

thread_local std::vector<std::string> seen;

// Checks only the number of inputs. In Millrace's builds with assertions LibTorch, which is a release build, refuses inputs().
std::unique_ptr<at::ObserverContext> note(const at::RecordFunction& function) {
  seen.push_back(std::string(function.name()) + " " + std::to_string(function.num_inputs()));
  return nullptr;
}

class Watched {
 public:
  Watched()
      : handle_(
            at::addThreadLocalCallback(at::RecordFunctionCallback(&note).needsInputs(true).scopes({at::RecordScope::FUNCTION}))) {
    seen.clear();
  }
  ~Watched() { at::removeCallback(handle_); }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

 private:
  at::CallbackHandle handle_;
};

TEST(OperationSpan, NamesAKernelAndItsInputs) {
  const at::Tensor x = at::ones({4, 8});
  const Watched watched;
  { const OperationSpan span("millrace::some", x, at::Tensor()); }
  EXPECT_THAT(seen, testing::ElementsAre("millrace::some 2"));
}

TEST(OperationSpan, StandsAroundTheKernelsOfLayers) {
  const at::Tensor x = at::ones({4, 8});
  const Watched watched;
  static_cast<void>(gelu_dropout(x, {}));
  ASSERT_FALSE(seen.empty());
  EXPECT_EQ(seen.front(), "millrace::gelu_dropout 1") << "before the operations within it";
}

TEST(OperationSpan, IsNothingWithoutAProfiler) {
  seen.clear();
  { const OperationSpan span("millrace::some", at::ones({1})); }
  EXPECT_TRUE(seen.empty());
}

}  // namespace
}  // namespace millrace::kernels
