// Groups values of one rank so that they travel to the other ranks together.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace millrace::distributed {

// Some megabytes of values, each aligned for any type.
struct Parcel {
  std::vector<std::size_t> values;
  std::vector<std::int64_t> begins;
  std::int64_t bytes = 0;

  void pack(const std::vector<at::Tensor>& from, const at::Tensor& flat) const {
    for (std::size_t i = 0; i < values.size(); ++i) part(flat, i, from[values[i]]).copy_(from[values[i]].detach());
  }
  void unpack(const at::Tensor& flat, const std::vector<at::Tensor>& into) const {
    for (std::size_t i = 0; i < values.size(); ++i) into[values[i]].detach().copy_(part(flat, i, into[values[i]]));
  }

 private:
  [[nodiscard]] at::Tensor part(const at::Tensor& flat, std::size_t i, const at::Tensor& value) const {
    return flat.narrow(0, begins[i], static_cast<std::int64_t>(value.nbytes())).view(value.scalar_type()).view(value.sizes());
  }
};

// The parcels of the values that `owner` owns, in the order of the values. Values without bytes belong to no parcel.
inline std::vector<Parcel> parcels_of(const std::vector<at::Tensor>& values, const std::vector<int>& owners, int owner) {
  constexpr std::int64_t kParcel = 16 << 20, kAligned = 64;  // bytes
  std::vector<Parcel> parcels;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto bytes = static_cast<std::int64_t>(values[i].nbytes());
    if (owners[i] != owner || bytes == 0) continue;
    if (parcels.empty() || parcels.back().bytes + bytes > kParcel) parcels.emplace_back();
    Parcel& parcel = parcels.back();
    parcel.values.push_back(i);
    parcel.begins.push_back(parcel.bytes);
    parcel.bytes += (bytes + kAligned - 1) / kAligned * kAligned;
  }
  return parcels;
}

}  // namespace millrace::distributed
