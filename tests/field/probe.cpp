// millrace_field_probe RAW < REQUESTS: reads a line of JSON per file, {"kind": "npy", "path": …}; prints a line per file, its
// content or the error, and writes the numbers to RAW. The readers are the program's own.
#include "probe.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <iostream>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/data/files/image.h"
#include "millrace/data/files/nifti.h"
#include "millrace/data/files/text_tokens.h"
#include "millrace/data/sources/csv_source.h"
#include "millrace/format/npy.h"
#include "millrace/format/pt.h"
#include "millrace/format/safetensors.h"
#include "millrace/hdf5/file.h"

namespace millrace::field {
namespace {

using Bytes = std::vector<std::byte>;

// What two ways of reading one thing give must be the same; the test sees it as an error that no reader throws.
void require_same(bool same, const std::string& what) {
  if (!same) throw InternalError({what, "", ""});
}

void read_npy(const Json& request, Answer& answer) {
  const format::NpyFile file(request.at("path").get<std::string>());
  const format::NpyLayout& layout = file.layout();
  Bytes whole(layout.bytes);
  file.read(whole);
  if (!layout.shape.empty() && layout.shape[0] > 0) {
    const std::int64_t rows = layout.shape[0], first = rows / 3;
    const std::size_t row = layout.bytes / static_cast<std::size_t>(rows);
    Bytes part(row * static_cast<std::size_t>(rows - first));
    file.read_rows(first, rows - first, part);
    require_same(std::ranges::equal(part, std::span(whole).subspan(row * static_cast<std::size_t>(first))), "rows differ");
  }
  answer.put("", layout.dtype, layout.shape, whole);
}

void read_npz(const Json& request, Answer& answer) {
  const format::NpzFile file(request.at("path").get<std::string>());
  for (const format::NpzEntry& entry : file.entries()) {
    Bytes bytes(entry.layout.bytes);
    file.read(entry, bytes);
    answer.put(entry.name, entry.layout.dtype, entry.layout.shape, bytes);
  }
  for (const auto& [name, why] : file.unread()) answer.say(name, why);
}

void read_safetensors(const Json& request, Answer& answer) {
  const format::SafetensorsFile file(request.at("path").get<std::string>());
  for (const format::StoredTensor& tensor : file.tensors()) {
    Bytes bytes(tensor.bytes);
    file.read(tensor, bytes);
    answer.put(tensor.name, tensor.dtype, tensor.shape, bytes);
  }
}

void read_pt(const Json& request, Answer& answer) {
  format::PtFile file(request.at("path").get<std::string>());
  for (const format::PtTensor& tensor : file.tensors()) {
    Bytes bytes(tensor.bytes);
    file.read(tensor, bytes);
    Bytes part(tensor.bytes / 2);
    file.read_part(tensor, tensor.bytes - part.size(), part);
    require_same(std::ranges::equal(part, std::span(bytes).last(part.size())), "parts differ");
    answer.put(tensor.name, tensor.dtype, tensor.shape, bytes);
  }
}

void read_nifti(const Json& request, Answer& answer) {
  const data::NiftiFile file(request.at("path").get<std::string>());
  const data::NiftiHeader& header = file.header();
  Bytes stored(header.voxel_bytes);
  file.read(stored);
  answer.put("stored", header.dtype, header.shape, stored);
  Json affine = Json::array();
  for (const auto& row : header.affine) affine.push_back(row);
  answer.say("affine", affine);
  if (header.dtype == DType::c64 || header.dtype == DType::c128) return;
  std::vector<float> scaled(header.voxel_bytes / size_of(header.dtype));
  file.read_scaled(scaled);
  answer.put("scaled", DType::f32, header.shape, std::as_bytes(std::span(scaled)));
  if (scaled.empty()) return;
  Shape last, one(header.shape.size(), 1);
  for (const std::int64_t size : header.shape) last.push_back(size - 1);
  std::vector<float> voxel(1);
  file.read_scaled(last, one, voxel);
  const auto whole = std::as_bytes(std::span(scaled));
  require_same(std::ranges::equal(std::as_bytes(std::span(voxel)), whole.last(sizeof(float))), "a block differs");
}

// Both kinds of pixels, whole and in part.
void read_picture(const Json& request, Answer& answer) {
  const std::string path = request.at("path");
  for (const auto& [name, pixels] : {std::pair{"rgb", data::Pixels::rgb}, {"gray", data::Pixels::gray}}) {
    const auto channels = static_cast<std::int64_t>(pixels);
    data::Image image(path);
    const data::PictureSize size = image.size();
    Bytes whole(static_cast<std::size_t>(size.height * size.width * channels));
    image.decode(pixels, 1, {0, 0, size.height, size.width}, whole);
    answer.put(name, DType::u8, {size.height, size.width, channels}, whole);
    const data::PicturePart part = {size.height / 3, size.width / 2, size.height - size.height / 3, size.width - size.width / 2};
    Bytes block(static_cast<std::size_t>(part.height * part.width * channels));
    data::Image(path).decode(pixels, 1, part, block);
    const auto row = static_cast<std::size_t>(part.width * channels);
    for (std::int64_t y = 0; y < part.height; ++y) {
      const std::size_t at = static_cast<std::size_t>(((part.top + y) * size.width + part.left) * channels);
      require_same(std::memcmp(block.data() + static_cast<std::size_t>(y) * row, whole.data() + at, row) == 0, "a part differs");
    }
    answer.say("orientation", image.signs().orientation);
    answer.say("alpha", image.signs().alpha);
    answer.say("deep", image.signs().bits == 16);
  }
}

// The block from a third of each axis to its end is cut out of the whole for comparison.
void require_same_block(const hdf5::File& file, const hdf5::Dataset& set, const Bytes& whole) {
  Shape offset, count;
  for (const std::int64_t size : set.shape) {
    offset.push_back(size / 3);
    count.push_back(size - size / 3);
  }
  const auto elements = static_cast<std::size_t>(*element_count(count));
  const std::size_t bytes = size_of(set.dtype);
  Bytes block(elements * bytes);
  file.read(set.name, offset, count, block);
  for (std::size_t i = 0; i < elements; ++i) {
    std::size_t rest = i, at = 0, stride = 1;
    for (std::size_t d = count.size(); d-- > 0;) {
      const auto along = static_cast<std::size_t>(count[d]);
      at += (static_cast<std::size_t>(offset[d]) + rest % along) * stride;
      rest /= along;
      stride *= static_cast<std::size_t>(set.shape[d]);
    }
    require_same(std::memcmp(block.data() + i * bytes, whole.data() + at * bytes, bytes) == 0,
                 "a block of " + set.name + " differs");
  }
}

void read_hdf5(const Json& request, Answer& answer) {
  const auto file = hdf5::File::open(request.at("path").get<std::string>());
  for (const hdf5::Dataset& set : file->datasets()) {
    Bytes bytes(static_cast<std::size_t>(*element_count(set.shape)) * size_of(set.dtype));
    file->read(set.name, Shape(set.shape.size(), 0), set.shape, bytes);
    require_same_block(*file, set, bytes);
    answer.put(set.name, set.dtype, set.shape, bytes);
  }
  for (const hdf5::Unreadable& set : file->unreadable()) answer.say(set.name, {set.reason, set.text});
}

void read_table(const Json& request, Answer& answer) {
  std::vector<data::CsvField> fields;
  for (const Json& column : request.at("columns")) {
    fields.push_back({.name = column.at(0), .columns = {}, .dtype = column.at(1) == "i64" ? DType::i64 : DType::f32});
  }
  const data::CsvSource source(request.at("path").get<std::string>(), fields);
  std::vector<std::int64_t> indices(static_cast<std::size_t>(source.size()));
  std::iota(indices.begin(), indices.end(), 0);
  std::vector<Bytes> columns;
  for (const Field& field : source.fields()) columns.emplace_back(field.bytes() * indices.size());
  std::vector<std::byte*> to;
  to.reserve(columns.size());
  for (Bytes& column : columns) to.push_back(column.data());
  source.read(indices, {to}, data::ReadRandom(0, 0, indices));
  for (std::size_t i = 0; i < fields.size(); ++i) answer.put(fields[i].name, fields[i].dtype, {source.size()}, columns[i]);
}

void read_text(const Json& request, Answer& answer) {
  const data::TextTokens text =
      data::tokens_of_text({.sources = {request.at("path").get<std::string>()},
                            .kind = request.at("bytes").get<bool>() ? data::TokenizerKind::bytes : data::TokenizerKind::basic});
  const data::TokenArray& tokens = *text.tokens;
  Bytes ids(static_cast<std::size_t>(tokens.size()) * tokens.token_bytes());
  tokens.read(0, tokens.size(), ids.data());
  answer.put("ids", tokens.token_bytes() == 2 ? DType::u16 : DType::u32, {tokens.size()}, ids);
  std::vector<std::uint32_t> characters;
  for (const char32_t character : text.tokenizer->characters()) characters.push_back(character);
  answer.put_list<std::uint32_t>("characters", DType::u32, characters);
  answer.say("notices", text.notices);
}

using Reader = std::function<void(const Json&, Answer&)>;

Json answer_to(const Json& request, std::ofstream& raw) {
  static const std::map<std::string, Reader> kReaders = {
      {"npy", read_npy},        {"npz", read_npz},     {"safetensors", read_safetensors},
      {"pt", read_pt},          {"nifti", read_nifti}, {"picture", read_picture},
      {"h5", read_hdf5},        {"table", read_table}, {"text", read_text},
      {"sky", read_sky},        {"uvh5", read_uvh5},   {"labels", read_labels},
      {"weights", read_weights}};
  Answer answer(raw);
  try {
    kReaders.at(request.at("kind"))(request, answer);
    return answer.json();
  } catch (const InternalError& error) {
    return {{"fault", error.what()}};
  } catch (const Error& error) {
    return {{"refused",
             {{"kind", error.kind()},
              {"what", error.message().what},
              {"where", error.message().where},
              {"next", error.message().next}}}};
  }
}

}  // namespace
}  // namespace millrace::field

int main(int count, char** words) {
  if (count != 2) return 2;
  std::ofstream raw(words[1], std::ios::binary);
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << millrace::field::answer_to(millrace::Json::parse(line), raw)
                     .dump(-1, ' ', true, millrace::Json::error_handler_t::replace)
              << '\n';
  }
  return raw.flush() ? 0 : 1;
}
