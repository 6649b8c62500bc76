// Every operation on a stand-in device without a separate entry (entries.cpp): LibTorch's kernel for the CPU, on aliases.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "accounts.h"
#include "aliases.h"
#include "entries.h"
#include "generator.h"
#include "known_results.h"
#include "operations.h"
#include "recorder.h"
#include "streams.h"

namespace millrace::standin {
namespace {

struct Pair {
  at::Tensor tensor;
  at::Tensor alias;
  bool written = false;
};

// One call: its arguments made into aliases, its results into tensors of the device.
class Call {
 public:
  Call(const c10::OperatorHandle& op, torch::jit::Stack* stack)
      : op_(op),
        stack_(stack),
        schema_(op.schema()),
        begin_(stack->size() - schema_.arguments().size()),
        key_(computes_nothing() && op.hasKernelForDispatchKey(c10::DispatchKey::Meta) ? c10::DispatchKey::Meta
                                                                                      : c10::DispatchKey::CPU) {}

  void run() {
    find_device();
    const std::string& name = op_.operator_name().name;
    launch(device_, name);
    open_ = recorder(device_);
    if (lists_operations()) note_operands();
    if (is_read_back()) {
      count(Count::read_backs, name);
      wait(current_stream(device_), name);
    } else if (computes_nothing()) {
      call_ = name_of_call(schema_, *stack_);
      if (!call_.empty() && answer_known(call_, stack_, schema_.arguments().size(), device_)) return finish();
      given_.assign(stack_->begin() + static_cast<std::ptrdiff_t>(begin_), stack_->end());
    }
    const c10::DeviceGuard guard(c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device_)));
    if (records()) return record();
    call_kernel();
    for (const Pair& pair : pairs_)
      if (pair.written) follow(pair.tensor, pair.alias);
    give_back();
    if (!call_.empty()) remember(call_, given_, *stack_, schema_.returns().size());
    if (computes_nothing()) leave_blank();
    finish();
  }

  // A call of a replay; `targets` has the tensor for each result that is new memory, and one that is not defined for each other.
  void run_again(const std::vector<at::Tensor>& targets) {
    const std::string& name = op_.operator_name().name;
    find_device();
    in_order(device_);
    call_kernel();
    std::size_t next = 0;
    for_each_result([&](const at::Tensor& result) { fill(targets.at(next++), result, name); });
    end_of_step(name);
  }

 private:
  // A mask for an index is made into numbers first, and the host has to know how many; index() has the tag for its masks alone.
  [[nodiscard]] bool is_read_back() {
    const std::string& name = op_.operator_name().name;
    const bool tagged = op_.hasTag(at::Tag::data_dependent_output) || op_.hasTag(at::Tag::dynamic_output_shape);
    const bool puts = name == "aten::_index_put_impl_";
    if (name != "aten::index" && !(puts && open_ != nullptr)) return tagged;
    const c10::IValue& indices = stack_->at(begin_ + 1);
    if (puts && stack_->at(begin_ + 2).toTensor().numel() == 1 && stack_->at(begin_ + 2).toTensor().is_cpu()) return false;
    bool has_mask = false;
    for (const c10::IValue& each : indices.toListRef())
      if (each.isTensor() && each.toTensor().defined())
        has_mask |= each.toTensor().scalar_type() == at::kBool || each.toTensor().scalar_type() == at::kByte;
    return has_mask;
  }

  void call_kernel() {
    for (std::size_t i = 0; i < schema_.arguments().size(); ++i) replace(stack_->at(begin_ + i), schema_.arguments()[i]);
    if (scratch_ == nullptr)
      for (const Pair& pair : pairs_) used(pair.tensor, pair.written, op_.operator_name().name);
    const at::AutoDispatchBelowADInplaceOrView below;
    op_.redispatchBoxed(c10::DispatchKeySet(key_), stack_);
  }

  [[nodiscard]] bool records() const { return open_ != nullptr && !computes_nothing(); }

  // The kernel shows the shapes of its results on a scratch; each replay calls it on what was given now.
  void record() {
    given_.assign(stack_->begin() + static_cast<std::ptrdiff_t>(begin_), stack_->end());
    torch::jit::Stack arguments = frozen_arguments();
    on_scratch([&](Scratch& scratch) {
      scratch_ = &scratch;
      pairs_.clear();
      stack_->resize(begin_);
      stack_->insert(stack_->end(), given_.begin(), given_.end());
      call_kernel();
      scratch_ = nullptr;
    });
    bool grew = false;
    bool does_something = schema_.returns().empty();
    for (const Pair& pair : pairs_) {
      if (!pair.written) continue;
      const void* const before = pair.tensor.storage().data();
      follow(pair.tensor, pair.alias, true);
      grew |= pair.tensor.storage().data() != before;
      does_something = true;
    }
    if (grew) arguments = frozen_arguments();
    give_back();
    for (const at::Tensor& target : targets_) does_something |= target.defined();
    if (does_something) {
      open_->add([op = op_, arguments, targets = targets_] {
        torch::jit::Stack stack = arguments;
        Call(op, &stack).run_again(targets);
      });
    }
    finish();
  }

  // What was given, for a replay: tensors as they are now, each once.
  torch::jit::Stack frozen_arguments() {
    std::map<const c10::TensorImpl*, at::Tensor> known;
    const auto freeze = [&](const at::Tensor& tensor) {
      if (!tensor.defined()) return tensor;
      at::Tensor& as_now = known[tensor.unsafeGetTensorImpl()];
      if (!as_now.defined()) as_now = frozen(tensor);
      if (tensor.is_cuda()) open_->needs(tensor.storage().data());
      return as_now;
    };
    torch::jit::Stack all;
    for (const c10::IValue& value : given_) all.push_back(mapped(value, freeze));
    return all;
  }

  // A view moves nothing: what it gives is memory that was there.
  void note_operands() {
    for (std::size_t i = 0; i < schema_.arguments().size(); ++i) {
      const auto* const info = schema_.arguments()[i].alias_info();
      (void)mapped(stack_->at(begin_ + i), [&](const at::Tensor& tensor) {
        if (!tensor.defined() || !tensor.is_cuda()) return tensor;
        storages_.insert(tensor.storage().unsafeGetStorageImpl());
        Operand operand = operand_of(tensor, info != nullptr && info->isWrite());
        operand.read = true;
        for (Operand& known : operands_)
          if (known.begin == operand.begin && known.bytes == operand.bytes) {
            known.written |= operand.written;
            return tensor;
          }
        operands_.push_back(operand);
        return tensor;
      });
    }
  }

  void list() {
    bool writes = std::any_of(operands_.begin(), operands_.end(), [](const Operand& each) { return each.written; });
    for_each_result([&](const at::Tensor& result) {
      if (!result.defined() || !result.is_cuda() || storages_.contains(result.storage().unsafeGetStorageImpl())) return;
      operands_.push_back(operand_of(result, true));
      writes = true;
    });
    if (writes) list_operation(op_.operator_name().name, operands_);
  }

  void finish() {
    const std::string& name = op_.operator_name().name;
    if (lists_operations()) list();
    if (open_ == nullptr) return end_of_step(name);
    open_->launches(name);
    for (const c10::Argument& argument : schema_.arguments())
      if (is_generator(argument)) open_->draws();
  }

  // All tensors of a device are on one, and those of the CPU are numbers: as a kernel on a GPU wants it.
  void find_device() {
    std::optional<at::Tensor> stray;
    device_ = -1;
    for_each_tensor([&](const at::Tensor& tensor) {
      if (!tensor.defined()) return;
      if (!tensor.is_cuda()) {
        if (tensor.dim() > 0) stray = tensor;
        return;
      }
      if (device_ >= 0 && device_ != tensor.get_device()) stray = tensor;
      device_ = tensor.get_device();
    });
    if (device_ < 0) device_ = current_device();
    // index() takes indices on the CPU and copies them; so the copy is counted.
    const std::string& name = op_.operator_name().name;
    if (stray && name.find("index") != std::string::npos && stray->is_cpu()) {
      count(Count::to_device, name + " with indices on the CPU");
      count(Count::pageable_copies, name + " with indices on the CPU");
      wait(current_stream(device_), name);
      stray.reset();
    }
    TORCH_CHECK(!stray, "Expected all tensors to be on the same device, but found at least two devices, cuda:", device_, " and ",
                stray->device(), "! (", name, ")");
  }

  template <typename F>
  void for_each_tensor(F&& each) {
    for (std::size_t i = begin_; i < stack_->size(); ++i) {
      const c10::IValue& value = stack_->at(i);
      if (value.isTensor()) {
        each(value.toTensor());
      } else if (value.isTensorList()) {
        for (const at::Tensor& tensor : value.toTensorVector()) each(tensor);
      } else if (value.isList() && is_optional_tensors(value)) {
        for (const c10::IValue& entry : value.toListRef())
          if (entry.isTensor()) each(entry.toTensor());
      }
    }
  }

  static bool is_optional_tensors(const c10::IValue& value) {
    return value.type()->isSubtypeOf(*c10::ListType::create(c10::OptionalType::ofTensor()));
  }

  at::Tensor alias(const at::Tensor& tensor, bool written) {
    if (!tensor.defined() || !tensor.is_cuda()) return tensor;
    // One alias for one tensor, and one storage for all aliases of a storage: a kernel may compare.
    for (Pair& pair : pairs_)
      if (pair.tensor.is_same(tensor)) {
        pair.written |= written;
        return pair.alias;
      }
    const at::Tensor made = scratch_ != nullptr              ? scratch_->of(tensor)
                            : key_ == c10::DispatchKey::Meta ? shape_of(tensor)
                                                             : alias_of(tensor);
    pairs_.push_back({tensor, made, written});
    return made;
  }

  // The value with `change` in place of each of its tensors; one that has none is returned as it is.
  template <typename F>
  static c10::IValue mapped(const c10::IValue& value, F&& change) {
    if (value.isTensor()) return change(value.toTensor());
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(change(tensor));
      return list;
    }
    if (!value.isList() || !is_optional_tensors(value)) return value;
    c10::List<std::optional<at::Tensor>> list;
    for (const c10::IValue& entry : value.toListRef())
      list.push_back(entry.isTensor() ? std::optional(change(entry.toTensor())) : std::nullopt);
    return list;
  }

  void replace(c10::IValue& value, const c10::Argument& argument) {
    const bool written = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
    value = mapped(value, [&](const at::Tensor& tensor) { return alias(tensor, written); });
    if (value.isDevice()) {
      value = c10::Device(key_ == c10::DispatchKey::Meta ? c10::kMeta : c10::kCPU);
    } else if (is_generator(argument) && key_ == c10::DispatchKey::CPU) {
      if (scratch_ == nullptr) count(Count::draws, op_.operator_name().name);
      value = draw(value.isNone() ? default_generator(device_) : value.toGenerator());
    }
  }

  template <typename F>
  void for_each_result(F&& each) const {
    for (std::size_t i = stack_->size() - schema_.returns().size(); i < stack_->size(); ++i)
      (void)mapped(stack_->at(i), [&](const at::Tensor& tensor) { return each(tensor), tensor; });
  }

  void leave_blank() {
    if (key_ == c10::DispatchKey::Meta) return;
    for (const Pair& pair : pairs_)
      if (pair.written) blank(pair.tensor);
    for_each_result(&blank);
  }

  static bool is_generator(const c10::Argument& argument) {
    return argument.type()->isSubtypeOf(*c10::OptionalType::create(c10::GeneratorType::get()));
  }

  at::Tensor original(const at::Tensor& result) {
    if (!result.defined() || result.is_cuda()) return result;
    for (const Pair& pair : pairs_)
      if (pair.alias.is_same(result)) return pair.tensor;
    for (const Pair& pair : pairs_)
      if (result.has_storage() && pair.alias.storage().is_alias_of(result.storage())) return view_of(pair.tensor, result);
    if (records()) {
      const at::Tensor made = shaped_on_device(result, device_);
      targets_.back() = frozen(made);
      return made;
    }
    const at::Tensor made = on_device(result, device_);
    used(made, true, op_.operator_name().name);
    return made;
  }

  void give_back() {
    for (std::size_t i = stack_->size() - schema_.returns().size(); i < stack_->size(); ++i)
      stack_->at(i) = mapped(stack_->at(i), [&](const at::Tensor& result) {
        targets_.emplace_back();
        return original(result);
      });
  }

  const c10::OperatorHandle& op_;
  torch::jit::Stack* stack_;
  const c10::FunctionSchema& schema_;
  std::size_t begin_;
  c10::DispatchKey key_;
  int device_ = -1;
  std::vector<Pair> pairs_;
  std::string call_;  // of a call that may be known next time
  std::vector<c10::IValue> given_;
  std::vector<Operand> operands_;
  std::set<const c10::StorageImpl*> storages_;  // of the arguments
  Recorder* open_ = nullptr;                    // takes the call in
  Scratch* scratch_ = nullptr;                  // while the kernel shows shapes
  std::vector<at::Tensor> targets_;             // in a recording: run_again()
};

void fall_back(const c10::OperatorHandle& op, torch::jit::Stack* stack) { Call(op, stack).run(); }

// LibTorch composes these of others where a device has no kernel of its own; a GPU has one for each that the CPU has one for.
std::vector<c10::OperatorName> composed_elsewhere() {
  std::vector<c10::OperatorName> names;
  const std::vector<std::string>& own = names_of_entries();
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (!name.name.starts_with("aten::")) continue;
    const auto op = c10::Dispatcher::singleton().findOp(name);
    if (!op || !op->hasSchema()) continue;
    using Key = c10::DispatchKey;
    // Of lists the CPU has a loop over operations, a GPU one kernel.
    const bool of_lists = name.name.starts_with("aten::_foreach_");
    const bool composed = op->hasKernelForDispatchKey(Key::CompositeExplicitAutograd) ||
                          op->hasKernelForDispatchKey(Key::CompositeExplicitAutogradNonFunctional) ||
                          op->hasKernelForDispatchKey(Key::CompositeImplicitAutograd);
    const std::string full = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
    if (composed && (of_lists || op->hasKernelForDispatchKey(Key::CPU)) && !op->hasKernelForDispatchKey(Key::CUDA) &&
        std::find(own.begin(), own.end(), full.substr(6)) == own.end())
      names.push_back(name);
  }
  return names;
}

TORCH_LIBRARY_IMPL(_, CUDA, library) { library.fallback(torch::CppFunction::makeFromBoxedFunction<&fall_back>()); }

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  for (const c10::OperatorName& name : composed_elsewhere()) {
    const std::string full = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
    library.impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&fall_back>());
  }
}

}  // namespace

bool is_update(const std::string& name) { return name.starts_with("aten::_fused_adam") || name.starts_with("aten::_fused_sgd"); }

void end_of_step(const std::string& name) {
  static thread_local bool was_update = false;
  const bool update = is_update(name);
  if (update && !was_update) {
    mark_step();
    list_end_of_step();
  }
  was_update = update;
}

}  // namespace millrace::standin
