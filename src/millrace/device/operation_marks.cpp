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

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
  Shapes shapes;
  bool is_first = true;
  for (const c10::IValue& input : function.inputs()) {
    if (!input.isTensor() || !input.toTensor().defined()) continue;
    if (is_first) shapes.add(c10::toString(input.toTensor().scalar_type()));
    shapes.add(is_first ? " " : ", ");
    shapes.add(input.toTensor().sizes());
    is_first = false;
  }
  doing_operation(function.name(), shapes.text());
  return nullptr;
}

}  // namespace

void mark_convolutions() noexcept { set_convolution_watcher(&mark); }

OperationMarks::OperationMarks()
    : handle_(
          at::addThreadLocalCallback(at::RecordFunctionCallback(&begin).needsInputs(true).scopes({at::RecordScope::FUNCTION}))) {}

OperationMarks::~OperationMarks() { at::removeCallback(handle_); }

}  // namespace millrace::device
