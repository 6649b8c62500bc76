#include "computed.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/DeviceGuard.h>

#include "aliases.h"
#include "recorder.h"
#include "streams.h"

namespace millrace::standin {
namespace {

using Tensors = std::vector<at::Tensor>;

Tensors results_of(const std::string& name, const Tensors& inputs, const Compute& compute) {
  Tensors aliases;
  for (const at::Tensor& input : inputs) {
    used(input, false, name);
    aliases.push_back(alias_of(input));
  }
  return compute(aliases);
}

Tensors recorded(Recorder& open, const std::string& name, const Tensors& inputs, const Compute& compute) {
  const int device = inputs.at(0).get_device();
  Tensors results = on_scratch([&](Scratch& scratch) {
    Tensors aliases;
    for (const at::Tensor& input : inputs) aliases.push_back(scratch.of(input));
    return compute(aliases);
  });
  Tensors from;
  Tensors to;
  for (const at::Tensor& input : inputs) {
    if (input.defined()) open.needs(input.storage().data());
    from.push_back(frozen(input));
  }
  for (at::Tensor& result : results) {
    result = shaped_on_device(result, device);
    to.push_back(frozen(result));
  }
  open.add([=] {
    in_order(device);
    const at::AutoDispatchBelowADInplaceOrView below;
    const Tensors now = results_of(name, from, compute);
    for (std::size_t i = 0; i < to.size(); ++i) fill(to[i], now.at(i), name);
  });
  return results;
}

}  // namespace

std::vector<at::Tensor> computed(const std::string& name, const std::vector<at::Tensor>& inputs, const Compute& compute) {
  const int device = inputs.at(0).get_device();
  const c10::DeviceGuard guard(inputs[0].device());
  launch(device, name);
  const at::AutoDispatchBelowADInplaceOrView below;
  if (Recorder* const open = recorder(device)) return recorded(*open, name, inputs, compute);
  Tensors results = results_of(name, inputs, compute);
  for (at::Tensor& result : results) {
    result = on_device(result, device);
    used(result, true, name);
  }
  return results;
}

}  // namespace millrace::standin
