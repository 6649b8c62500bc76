#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/hash.h"
#include "millrace/base/json.h"
#include "millrace/base/utf8.h"
#include "millrace/format/detail/safetensors_header.h"
#include "millrace/format/safetensors.h"

namespace millrace::format {
namespace {

// Tensors are hashed and written in pieces of this many bytes, so that the second hash and the write find the bytes in the
// processor's cache.
constexpr std::size_t kPieceWritten = std::size_t{1} << 18U;

struct Layout {
  std::string head;                // the length, then the JSON with its padding
  std::vector<std::size_t> order;  // indices of the arrays in the order of the file
  std::uint64_t data_bytes = 0;
};

[[noreturn]] void refuse(const Field& tensor, const std::string& why) {
  throw DataError({"tensor " + millrace::quoted(tensor.name) + " can't be stored in a safetensors file: " + why, "", ""});
}

std::uint64_t checked_bytes(const Field& tensor) {
  if (first_invalid_utf8(tensor.name)) refuse(tensor, "its name is not UTF-8");
  if (tensor.name == "__metadata__") refuse(tensor, "this name is reserved");
  if (!safetensors_name(tensor.dtype)) refuse(tensor, "the format has no dtype " + std::string(name_of(tensor.dtype)));
  const std::optional<std::int64_t> count = element_count(tensor.shape);
  if (!count || *count > std::numeric_limits<std::int64_t>::max() / static_cast<std::int64_t>(size_of(tensor.dtype))) {
    refuse(tensor, "shape " + to_text(tensor.shape) + " is not possible");
  }
  return static_cast<std::uint64_t>(*count) * size_of(tensor.dtype);
}

Layout lay_out(std::span<const Field> tensors, const Metadata& metadata) {
  Layout layout;
  layout.order.resize(tensors.size());
  std::iota(layout.order.begin(), layout.order.end(), std::size_t{0});
  std::sort(layout.order.begin(), layout.order.end(), [&](std::size_t a, std::size_t b) {
    const std::size_t size_a = size_of(tensors[a].dtype);
    const std::size_t size_b = size_of(tensors[b].dtype);
    return size_a != size_b ? size_a > size_b : tensors[a].name < tensors[b].name;
  });
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  for (const std::size_t index : layout.order) {
    const Field& tensor = tensors[index];
    const std::uint64_t end = layout.data_bytes + checked_bytes(tensor);
    if (header.contains(tensor.name)) refuse(tensor, "the name occurs twice");
    header[tensor.name] = {
        {"dtype", *safetensors_name(tensor.dtype)}, {"shape", tensor.shape}, {"data_offsets", {layout.data_bytes, end}}};
    layout.data_bytes = end;
  }
  std::string text = header.dump(-1, ' ', false, Json::error_handler_t::replace);
  text.append((8 - text.size() % 8) % 8, ' ');
  if (text.size() > detail::kHeaderLimit) {
    throw DataError(
        {"the names of " + std::to_string(tensors.size()) + " tensors are too long for a safetensors header", "", ""});
  }
  for (std::size_t i = 0; i < detail::kLengthBytes; ++i) layout.head += static_cast<char>(text.size() >> (8 * i) & 0xFFU);
  layout.head += text;
  return layout;
}

}  // namespace

std::uint64_t safetensors_bytes(std::span<const Field> tensors, const Metadata& metadata) {
  const Layout layout = lay_out(tensors, metadata);
  return layout.head.size() + layout.data_bytes;
}

WrittenSafetensors write_safetensors(WritableFile& file, std::span<const Field> tensors, const TensorBytes& bytes_of,
                                     const Metadata& metadata) {
  const Layout layout = lay_out(tensors, metadata);
  const std::span<const std::byte> head = std::as_bytes(std::span(layout.head));
  file.write(head);
  WrittenSafetensors written;
  written.bytes = head.size() + layout.data_bytes;
  written.header_crc32c = written.crc32c = crc32c(head);
  written.tensor_crcs.resize(tensors.size());
  for (const std::size_t index : layout.order) {
    std::span<const std::byte> bytes = bytes_of(index);
    MR_CHECK(bytes.size() == checked_bytes(tensors[index]),
             "the writer got " + std::to_string(bytes.size()) + " bytes for tensor " + tensors[index].name);
    while (!bytes.empty()) {
      const std::span<const std::byte> piece = bytes.first(std::min(bytes.size(), kPieceWritten));
      written.tensor_crcs[index] = crc32c(piece, written.tensor_crcs[index]);
      written.crc32c = crc32c(piece, written.crc32c);
      file.write(piece);
      bytes = bytes.subspan(piece.size());
    }
  }
  return written;
}

}  // namespace millrace::format
