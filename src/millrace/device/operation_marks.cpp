#include "millrace/device/operation_marks.h"

#include <ATen/record_function.h>

#include <array>
#include <charconv>
#include <memory>
#include <string_view>

#include "millrace/base/doing.h"
#include "millrace/device/convolution_guard.h"

namespace millrace::device {
namespace {

class Shapes {
 public:
  void add(std::string_view text) noexcept {
    for (const char c : text) {
      if (used_ + 1 < text_.size()) text_[used_++] = c;
    }
  }
  void add(at::IntArrayRef sizes) noexcept {
    const char* separator = "[";
    for (const std::int64_t size : sizes) {
      add(std::string_view(separator));
      std::array<char, 24> digits{};
      const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), size).ptr;
      add(std::string_view(digits.data(), static_cast<std::size_t>(end - digits.data())));
      separator = ", ";
    }
    add(std::string_view(sizes.empty() ? "[]" : "]"));
  }
  [[nodiscard]] const char* text() const noexcept { return text_.data(); }

 private:
  std::array<char, 256> text_{};
  std::size_t used_ = 0;
};

void mark(const char* operation, const ConvolutionCall& call) noexcept {
  Shapes shapes;
  shapes.add(c10::toString(call.format));
  shapes.add(" ");
  shapes.add(call.input);
  shapes.add(" x ");
  shapes.add(call.weight);
  shapes.add(", stride ");
  shapes.add(call.stride);
  if (call.channels_last) shapes.add(", channels-last");
  doing_operation(operation, shapes.text());
}

// How deeply the running operation is nested. Only depth 0 is recorded, because a nested name would replace the shapes that
// mark() has recorded for a convolution.
thread_local int depth = 0;

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
  if (depth++ == 0) doing_operation(function.name(), "");
  return nullptr;
}

void end(const at::RecordFunction&, at::ObserverContext*) { --depth; }

}  // namespace

void mark_convolutions() noexcept { set_convolution_watcher(&mark); }

OperationMarks::OperationMarks()
    : handle_(at::addThreadLocalCallback(at::RecordFunctionCallback(&begin, &end).scopes({at::RecordScope::FUNCTION}))) {}

OperationMarks::~OperationMarks() { at::removeCallback(handle_); }

}  // namespace millrace::device
