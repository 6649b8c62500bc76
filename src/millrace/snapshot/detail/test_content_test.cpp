#include <ATen/ops/full.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "millrace/snapshot/detail/tensors.h"
#include "millrace/snapshot/detail/test_content.h"

namespace millrace::snapshot::detail {

std::string text_of(const at::Tensor& tensor) {
  const at::Tensor host = on_host(tensor);
  const std::span<std::byte> bytes = bytes_of(host);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void expect_equal(const Tensors& a, const Tensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) {
    ASSERT_TRUE(b.contains(name)) << name;
    const at::Tensor& other = b.find(name)->second;
    EXPECT_EQ(tensor.scalar_type(), other.scalar_type()) << name;
    EXPECT_EQ(tensor.sizes(), other.sizes()) << name;
    EXPECT_EQ(text_of(tensor), text_of(other)) << name;
  }
}

void expect_equal(const Content& a, const Content& b) {
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.config, b.config);
  ASSERT_EQ(a.models.size(), b.models.size());
  for (const auto& [name, tensors] : a.models) expect_equal(tensors, b.models.at(name));
  ASSERT_EQ(a.parts.size(), b.parts.size());
  for (const auto& [name, part] : a.parts) {
    expect_equal(part.tensors, b.parts.at(name).tensors);
    EXPECT_EQ(part.json, b.parts.at(name).json) << name;
  }
  EXPECT_EQ(digest(a), digest(b));
}

Content small(std::int64_t step, double value) {
  Content content;
  content.step = step;
  content.models["model"] = {{"weight", at::full({5, 3}, static_cast<double>(step) + value)},
                             {"bias", at::full({3}, static_cast<double>(step), at::kBFloat16)}};
  content.parts["optimizer"] = {{{"moment", at::full({5, 3}, 0.5)}}, {{"steps", step}}};
  content.parts["loader"] = {{}, {{"epoch", 1}, {"next", 17}}};
  content.config = {{"seed", 7}};
  return content;
}

// Uses a file system in memory if there is one, because syncing thousands of files costs nothing there.
std::filesystem::path scratch() {
  const std::filesystem::path memory = "/dev/shm";
  return ::access(memory.c_str(), W_OK) == 0 ? memory : std::filesystem::temp_directory_path();
}

}  // namespace millrace::snapshot::detail
