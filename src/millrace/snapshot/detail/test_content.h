// Small snapshots for the tests of this folder; defined in test_content_test.cpp.
#pragma once

#include <filesystem>
#include <string>

#include "millrace/snapshot/snapshot.h"

namespace millrace::snapshot::detail {

[[nodiscard]] std::string text_of(const at::Tensor& tensor);  // returns the tensor's bytes
void expect_equal(const Tensors& a, const Tensors& b);
void expect_equal(const Content& a, const Content& b);

// Returns a state of a few hundred bytes: a model, an optimiser and a loader. The state differs for each step and value.
[[nodiscard]] Content small(std::int64_t step, double value = 0);

// Returns a folder for tests, in a file system in memory if there is one, because syncing thousands of files costs nothing
// there.
[[nodiscard]] std::filesystem::path scratch();

}  // namespace millrace::snapshot::detail
