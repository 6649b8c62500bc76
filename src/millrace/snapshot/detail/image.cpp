#include "millrace/snapshot/detail/image.h"

#include <ATen/ops/from_blob.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>
#include <sys/resource.h>

#include <cstdlib>
#include <new>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/core/scalar_type.h"
#include "millrace/device/errors.h"
#include "millrace/snapshot/detail/folders.h"
#include "millrace/snapshot/detail/json_text.h"
#include "millrace/snapshot/detail/manifest.h"
#include "millrace/snapshot/detail/tensors.h"
#include "millrace/system/process_limits.h"

namespace millrace::snapshot::detail {
namespace {

constexpr std::uint64_t kAlignment = 64;

std::uint64_t aligned(std::uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Returns why a tensor can't be written byte by byte; "" if it can.
std::string problem_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return "it is undefined";
  if (tensor.layout() != at::kStrided || tensor.is_nested()) return "it is not dense";
  if (tensor.is_meta()) return "it has no data (meta device)";
  if (!dtype_of(tensor.scalar_type())) return std::string("a file can't hold the type ") + c10::toString(tensor.scalar_type());
  return "";
}

// Returns the name and the fields of a file. `tensors` receives the tensors in the order of the fields.
ImageFile describe(const std::string& name, const Tensors& named, std::vector<at::Tensor>& tensors) {
  ImageFile file;
  file.name = name + kTensorSuffix;
  for (const auto& [tensor_name, tensor] : named) {
    if (const std::string problem = problem_of(tensor); !problem.empty()) {
      throw SnapshotError(
          {"tensor " + millrace::quoted(tensor_name) + " of " + file.name + " can't be stored: " + problem, "", ""});
    }
    file.fields.push_back({tensor_name, *dtype_of(tensor.scalar_type()), tensor.sizes().vec()});
    tensors.push_back(tensor);
  }
  file.bytes = format::safetensors_bytes(file.fields);
  return file;
}

std::string state_text(const Content& content) {
  Json models = Json::array();
  for (const auto& [name, tensors] : content.models) models.push_back(name);
  Json parts = Json::object();
  for (const auto& [name, part] : content.parts) parts[name] = {{"json", part.json}, {"has_tensors", !part.tensors.empty()}};
  return to_canonical({{"step", content.step},
                       {"models", std::move(models)},
                       {"parts", std::move(parts)},
                       {"config", content.config},
                       {"report", content.report}},
                      1) +
         "\n";
}

// Makes an image. `bytes_of` turns the tensors of a file into a function that yields their bytes.
Image make(const Content& content, const std::function<format::TensorBytes(std::vector<at::Tensor>)>& bytes_of) {
  Image image;
  image.step = content.step;
  const auto add = [&](const std::string& name, const Tensors& named) {
    if (!is_plain_name(name)) throw SnapshotError({millrace::quoted(name) + " can't be the name of a file", "", ""});
    for (const ImageFile& file : image.files) {
      if (file.name == name + kTensorSuffix) throw SnapshotError({"two parts have the name " + name, "", ""});
    }
    std::vector<at::Tensor> tensors;
    image.files.push_back(describe(name, named, tensors));
    image.files.back().bytes_of = bytes_of(std::move(tensors));
  };
  for (const auto& [name, tensors] : content.models) add(name, tensors);
  for (const auto& [name, part] : content.parts) {
    if (!part.tensors.empty()) add(name, part.tensors);
  }
  image.state = state_text(content);
  return image;
}

// Returns the total size in bytes of the tensors that can be stored; make() rejects any other tensor with an error that names
// it.
std::uint64_t bytes_of_all(const Content& content) {
  std::uint64_t bytes = 0;
  const auto add = [&](const Tensors& tensors) {
    for (const auto& [name, tensor] : tensors) bytes += problem_of(tensor).empty() ? aligned(tensor.nbytes()) : 0;
  };
  for (const auto& [name, tensors] : content.models) add(tensors);
  for (const auto& [name, part] : content.parts) add(part.tensors);
  return bytes;
}

// Returns the device of the first tensor that is not in host memory; the CPU if there is no such tensor.
c10::Device device_of(const Content& content) {
  const auto elsewhere = [](const Tensors& tensors) -> const at::Tensor* {
    for (const auto& [name, tensor] : tensors) {
      if (tensor.defined() && !tensor.is_meta() && !device::backend_of(tensor.device()).nature(0).in_host_memory) return &tensor;
    }
    return nullptr;
  };
  for (const auto& [name, tensors] : content.models) {
    if (const at::Tensor* const found = elsewhere(tensors)) return found->device();
  }
  for (const auto& [name, part] : content.parts) {
    if (const at::Tensor* const found = elsewhere(part.tensors)) return found->device();
  }
  return c10::Device(c10::kCPU);
}

// Copies a state into the memory of an image. After end() the state may change, because later work of the device waits for the
// copies.
class CopyScope {
 public:
  explicit CopyScope(std::unique_ptr<device::Copies> copies) : copies_(std::move(copies)) {
    if (copies_) copies_->hold_copies(*copies_->mark_work());
  }
  // After an error, waits for copies that may still write into memory that is about to be reused.
  ~CopyScope() {
    if (!copies_ || ended_) return;
    try {
      copies_->mark_copies()->wait();
    } catch (const std::exception&) {  // the device is lost, so its copies have ended
    }
  }
  CopyScope(const CopyScope&) = delete;
  CopyScope& operator=(const CopyScope&) = delete;

  [[nodiscard]] device::Copies* copies() const noexcept { return copies_.get(); }
  device::Copies::MarkPtr end() {
    if (!copies_) return nullptr;
    auto copied = copies_->mark_copies();
    copies_->hold_work(*copied);
    ended_ = true;
    return copied;
  }

 private:
  std::unique_ptr<device::Copies> copies_;
  bool ended_ = false;
};

}  // namespace

void FreeHost::operator()(std::byte* memory) const noexcept {
  if (locked_for != nullptr) locked_for->unpin(memory);
  std::free(memory);
}

std::byte* HostMemory::get(std::uint64_t bytes, device::Backend* copier) {
  if (bytes <= capacity_) return memory_.get();
  memory_.reset();  // the old block is freed first, because there may not be enough memory for both blocks
  capacity_ = 0;
  memory_ = {static_cast<std::byte*>(std::aligned_alloc(kAlignment, aligned(bytes))), FreeHost{}};
  if (memory_ == nullptr) throw std::bad_alloc();
  capacity_ = aligned(bytes);
  if (copier == nullptr || capacity_ > device::available_memory_bytes() / 4) return memory_.get();
  try {
    copier->pin(memory_.get(), capacity_);
    memory_.get_deleter().locked_for = copier;
  } catch (const DeviceError&) {  // without page-locking the copies wait for the device: slower, but equally correct
  }
  return memory_.get();
}

Image image_of(const Content& content) {
  return make(content, [](std::vector<at::Tensor> tensors) {
    // `host` keeps alive the bytes of the tensor that is being written.
    return [tensors = std::move(tensors), host = std::make_shared<at::Tensor>()](std::size_t i) {
      *host = on_host(tensors[i]);
      return std::span<const std::byte>(detail::bytes_of(*host));
    };
  });
}

Room room_for(const Content& content) { return {.bytes = bytes_of_all(content), .device = device_of(content)}; }

void Room::make_in(HostMemory& memory) const {
  if (device.is_cpu()) {
    memory.get(bytes);
    return;
  }
  const c10::DeviceGuard there(device);  // selects the device for which memory is locked
  memory.get(bytes, &device::backend_of(device));
}

Image image_in(HostMemory& memory, const Content& content) {
  const Room room = room_for(content);
  const c10::Device device = room.device;
  CopyScope scope(device::copies_of(device));
  device::Copies* const copier = scope.copies();
  room.make_in(memory);
  std::byte* next = memory.get(room.bytes);
  Image image = make(content, [&](const std::vector<at::Tensor>& tensors) {
    std::vector<std::span<const std::byte>> copies;
    copies.reserve(tensors.size());
    for (const at::Tensor& tensor : tensors) {
      const std::uint64_t bytes = tensor.nbytes();
      const at::Tensor to = at::from_blob(next, tensor.sizes(), at::TensorOptions().dtype(tensor.scalar_type()));
      if (copier != nullptr && tensor.device() == device) {
        copier->copy(to, tensor.detach());
      } else if (bytes > 0) {
        to.copy_(tensor.detach());
      }
      copies.emplace_back(next, bytes);
      next += aligned(bytes);
    }
    return [copies = std::move(copies)](std::size_t i) { return copies[i]; };
  });
  image.copied = scope.end();
  return image;
}

void saving(const std::filesystem::path& run, std::int64_t step, const std::function<void()>& stage) {
  const auto refuse = [&](std::string why, std::string next) {
    throw SnapshotError({"can't save the snapshot of step " + std::to_string(step) + ": " + std::move(why),
                         snapshots_of(run).string(), std::move(next)});
  };
  if (step < 0) refuse("steps begin at 0", "");
  try {
    stage();
  } catch (const SnapshotError& error) {
    refuse(error.message().what, error.message().next);
  } catch (const DataError& error) {
    refuse(error.message().what, "rename the tensor or store it in another type");
  } catch (const Json::exception& error) {
    refuse(std::string("its state is not valid JSON: ") + error.what(), "report this; texts in a state must be UTF-8");
  } catch (const c10::Error& error) {
    if (device::is_device_lost(error)) throw;  // a lost device is not the snapshot's fault
    refuse(std::string("a tensor can't be copied: ") + error.what_without_backtrace(), "check whether the device failed");
  } catch (const std::bad_alloc&) {
    const std::string limit = limit_of(RLIMIT_AS) ? " within the limit on address space (ulimit -v)" : "";
    refuse("there is no memory for a copy of the state" + limit, "write it without a copy: --off=async_snapshot");
  }
}

}  // namespace millrace::snapshot::detail
