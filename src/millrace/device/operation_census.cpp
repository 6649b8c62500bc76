#include "millrace/device/operation_census.h"

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "millrace/base/clock.h"

namespace millrace::device {
namespace {

constexpr std::array<std::string_view, 17> kMakers = {
    "aten::ones",     "aten::zeros",     "aten::full",       "aten::arange",        "aten::eye",          "aten::linspace",
    "aten::logspace", "aten::ones_like", "aten::zeros_like", "aten::full_like",     "aten::tril_indices", "aten::triu_indices",
    "aten::new_ones", "aten::new_zeros", "aten::new_full",   "aten::scalar_tensor", "aten::range"};
constexpr std::array<std::string_view, 8> kRandom = {
    "rand",    "bernoulli",   "dropout",     "normal",
    "uniform", "multinomial", "exponential", "millrace::"};  // some kernels of Millrace draw random numbers

bool is_maker(std::string_view name) { return std::ranges::find(kMakers, name) != kMakers.end(); }
bool may_draw(std::string_view name) {
  return std::ranges::any_of(kRandom, [&](std::string_view word) { return name.find(word) != std::string_view::npos; });
}

void add_tensors(const c10::IValue& value, std::vector<at::Tensor>& tensors) {
  if (value.isTensor()) {
    if (value.toTensor().defined() && value.toTensor().has_storage()) tensors.push_back(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorList().vec()) {
      if (tensor.defined() && tensor.has_storage()) tensors.push_back(tensor);
    }
  }
}

std::string size_text(const at::Tensor& tensor) {
  std::string text = " [";
  for (const std::int64_t size : tensor.sizes()) text += (text.size() == 2 ? "" : ", ") + std::to_string(size);
  return text + "]";
}

bool asks_for_a_value(std::string_view name) {
  return name == "aten::item" || name == "aten::_local_scalar_dense" || name == "aten::is_nonzero";
}

thread_local int expected_copies = 0, expected_reads = 0;

// The device from which an operation copies; nullopt if the operation is not a copy, or copies within one device.
std::optional<at::Device> copied_from(std::string_view name, const std::vector<at::Tensor>& inputs,
                                      const std::vector<at::Tensor>& outputs) {
  if (expected_copies > 0 || outputs.empty()) return std::nullopt;
  const bool into = name == "aten::copy_";
  if (!into && name != "aten::to" && name != "aten::_to_copy") return std::nullopt;
  const std::size_t source = into ? 1 : 0;
  if (inputs.size() <= source || inputs[source].device() == outputs.front().device()) return std::nullopt;
  return inputs[source].device();
}

// Follows constant tensors through a step. A storage stops being a constant when it receives a value that is not constant.
class Constants {
 public:
  void note(const at::RecordFunction& function, const std::vector<at::Tensor>& inputs, std::int64_t nanoseconds) {
    const std::string_view name = function.name();
    const bool asks = asks_for_a_value(name);
    if (asks && expected_reads > 0) return;
    ++census_.operations;
    census_.seconds += static_cast<double>(nanoseconds) * 1e-9;
    if (asks) ++census_.host_reads;
    std::vector<at::Tensor> outputs;
    for (const c10::IValue& value : function.outputs()) add_tensors(value, outputs);
    note_copy(name, inputs, outputs, nanoseconds);
    const auto is_known = [this](const at::Tensor& tensor) { return known_.contains(key_of(tensor)); };
    const bool constant = is_maker(name) || (!inputs.empty() && !may_draw(name) && std::ranges::all_of(inputs, is_known));
    for (const at::Tensor& tensor : outputs) {
      if (!constant) {
        known_.erase(key_of(tensor));
        continue;
      }
      Made& made = known_[key_of(tensor)];
      made.kept = tensor;
      made.nanoseconds += nanoseconds / static_cast<std::int64_t>(outputs.size());
      if (nanoseconds <= made.longest) continue;
      made.longest = nanoseconds;
      made.by = std::string(name) + size_text(tensor);
    }
  }

  OperationCensus result() {
    std::int64_t longest = -1;
    for (const auto& [key, made] : known_) {
      census_.rebuilt_seconds += static_cast<double>(made.nanoseconds) * 1e-9;
      if (made.longest > longest) census_.rebuilt_by = made.by;
      longest = std::max(longest, made.longest);
    }
    return census_;
  }

 private:
  struct Made {
    at::Tensor kept;  // this reference keeps the tensor's memory from being reused during the step
    std::int64_t nanoseconds = 0, longest = 0;
    std::string by;
  };
  void note_copy(std::string_view name, const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& outputs,
                 std::int64_t nanoseconds) {
    const auto from = copied_from(name, inputs, outputs);
    if (!from) return;
    ++census_.copies;
    census_.copied_seconds += static_cast<double>(nanoseconds) * 1e-9;
    const at::Tensor& made = outputs.front();
    if (made.numel() <= most_copied_) return;
    most_copied_ = made.numel();
    census_.copied_by = std::string(name) + size_text(made) + " from " + from->str() + " to " + made.device().str();
  }
  static const void* key_of(const at::Tensor& tensor) { return tensor.storage().unsafeGetStorageImpl(); }

  OperationCensus census_;
  std::int64_t most_copied_ = -1;  // elements of the largest copy so far; -1 = no copy yet
  std::map<const void*, Made> known_;
};

thread_local Constants* constants = nullptr;
thread_local int calls_deep = 0;

struct Began final : at::ObserverContext {
  std::vector<at::Tensor> inputs;  // kept until the operation ends, because only then its outputs are known
  std::int64_t at = 0;
};

std::unique_ptr<at::ObserverContext> operation_begins(const at::RecordFunction& function) {
  if (calls_deep++ > 0) return nullptr;
  auto began = std::make_unique<Began>();
  for (const c10::IValue& value : function.inputs()) add_tensors(value, began->inputs);
  began->at = steady_nanoseconds();
  return began;
}

void operation_ends(const at::RecordFunction& function, at::ObserverContext* context) {
  if (--calls_deep > 0 || context == nullptr || constants == nullptr) return;
  const auto& began = static_cast<const Began&>(*context);
  constants->note(function, began.inputs, steady_nanoseconds() - began.at);
}

}  // namespace

ExpectedCopies::ExpectedCopies() noexcept { ++expected_copies; }
ExpectedCopies::~ExpectedCopies() { --expected_copies; }

ExpectedReads::ExpectedReads() noexcept { ++expected_reads; }
ExpectedReads::~ExpectedReads() { --expected_reads; }

OperationCensus census_of(const std::function<void()>& step) {
  struct Listening {
    explicit Listening(Constants& to) {
      constants = &to;
      calls_deep = 0;
      handle = at::addThreadLocalCallback(at::RecordFunctionCallback(&operation_begins, &operation_ends)
                                              .needsInputs(true)
                                              .needsOutputs(true)
                                              .scopes({at::RecordScope::FUNCTION}));
    }
    ~Listening() {
      at::removeCallback(handle);
      constants = nullptr;
    }
    at::CallbackHandle handle;
  };
  Constants count;
  {
    const Listening listening(count);
    step();
  }
  return count.result();
}

}  // namespace millrace::device
