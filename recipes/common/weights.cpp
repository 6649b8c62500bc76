#include "recipes/common/weights.h"

#include <system_error>

#include "millrace/base/field.h"
#include "millrace/base/fs.h"

namespace millrace::recipes {

bool finds_weights(const Context& context, const std::string& key, const std::string& path, bool in_snapshot) {
  if (path.empty()) return false;
  std::error_code ignored;
  if (!in_snapshot || std::filesystem::exists(path, ignored)) return true;
  context.note(key + " does not exist any more and is not used: " + path);
  return false;
}

Weights quiet_weights(const std::filesystem::path& from) {
  telemetry::Console quiet(telemetry::Console::Mode::quiet);
  return load_weights(Fs::real(), from, quiet);
}

Tensors tensors_of(const Weights& weights) {
  Tensors all;
  for (const auto& [model, tensors] : weights.models) {
    for (const auto& [name, value] : tensors) all[name] = value;
  }
  return all;
}

std::string shape_text(const at::Tensor& tensor) { return to_text(Shape(tensor.sizes().begin(), tensor.sizes().end())); }

}  // namespace millrace::recipes
