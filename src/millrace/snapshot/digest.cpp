#include "millrace/base/error.h"
#include "millrace/base/hash.h"
#include "millrace/core/scalar_type.h"
#include "millrace/snapshot/detail/json_text.h"
#include "millrace/snapshot/detail/tensors.h"
#include "millrace/snapshot/snapshot.h"

namespace millrace::snapshot {
namespace {

// Adds a word and a zero byte. The zero byte ends the word, so that different contents can't give the same stream.
void add_word(Sha256& hash, std::string_view word) {
  hash.update(word);
  hash.update(std::string_view("\0", 1));
}

}  // namespace

std::string digest(const Content& content) {
  Tensors all;
  for (const auto& [model, tensors] : content.models) {
    for (const auto& [name, tensor] : tensors) all.emplace("models/" + model + "/" + name, tensor);
  }
  Json parts = Json::object();
  for (const auto& [part, state] : content.parts) {
    parts[part] = state.json;
    for (const auto& [name, tensor] : state.tensors) all.emplace("parts/" + part + "/" + name, tensor);
  }
  Sha256 hash;
  for (const auto& [name, tensor] : all) {
    const std::optional<DType> dtype = dtype_of(tensor.scalar_type());
    MR_CHECK(dtype.has_value(), "the digest can't hold tensor " + name + ", whose type is unknown");
    const at::Tensor host = detail::on_host(tensor);
    add_word(hash, name);
    add_word(hash, name_of(*dtype));
    add_word(hash, to_text(host.sizes().vec()));
    hash.update(detail::bytes_of(host));
  }
  hash.update(detail::to_canonical(parts));
  return hash.hex();
}

}  // namespace millrace::snapshot
