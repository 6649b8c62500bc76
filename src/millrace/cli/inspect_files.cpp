#include "millrace/cli/inspect_files.h"

#include <algorithm>
#include <span>
#include <type_traits>
#include <variant>
#include <vector>

#include "millrace/base/format.h"
#include "millrace/base/input_file.h"
#include "millrace/base/utf8.h"
#include "millrace/data/image.h"
#include "millrace/data/nifti.h"
#include "millrace/data/token_array.h"
#include "millrace/format/npy.h"
#include "millrace/format/pt.h"
#include "millrace/format/safetensors.h"
#include "millrace/hdf5/file.h"

namespace millrace::cli {
namespace {

namespace fs = std::filesystem;

template <const char*... kExtensions>
bool has_extension(const fs::path& path) {
  const std::string name = to_lower(path.filename().string());
  return (name.ends_with(kExtensions) || ...);
}

constexpr char kSafetensors[] = ".safetensors", kNpy[] = ".npy", kNpz[] = ".npz", kPng[] = ".png", kJpg[] = ".jpg",
               kJpeg[] = ".jpeg";
constexpr char kNii[] = ".nii", kNiiGz[] = ".nii.gz", kHdr[] = ".hdr", kHdrGz[] = ".hdr.gz", kImg[] = ".img",
               kImgGz[] = ".img.gz";
constexpr char kPt[] = ".pt", kPth[] = ".pth", kTokens[] = ".tokens";
constexpr char kH5[] = ".h5", kHdf5[] = ".hdf5", kUvh5[] = ".uvh5";

bool begins_with(const fs::path& path, std::string_view magic) {
  const InputFile file(path);
  std::string bytes(std::min<std::uint64_t>(file.size(), magic.size()), '\0');
  file.read(0, std::as_writable_bytes(std::span(bytes)));
  return bytes == magic;
}

bool is_npy(const fs::path& path) { return has_extension<kNpy>(path) || begins_with(path, "\x93NUMPY"); }
bool is_pt(const fs::path& path) { return has_extension<kPt, kPth>(path) || begins_with(path, "PK\3\4"); }
bool is_image(const fs::path& path) {
  return has_extension<kPng, kJpg, kJpeg>(path) || begins_with(path, "\x89PNG\r\n\x1a\n") || begins_with(path, "\xff\xd8\xff");
}
bool is_token_file(const fs::path& path) { return has_extension<kTokens>(path) || begins_with(path, "MRTOKENS"); }
bool is_hdf5(const fs::path& path) { return has_extension<kH5, kHdf5, kUvh5>(path) || begins_with(path, "\x89HDF\r\n\x1a\n"); }

void add_size(Report& report, const fs::path& path) {
  report.facts.emplace_back("size", human_bytes(static_cast<double>(fs::file_size(path))));
}

void describe_safetensors(const fs::path& path, Report& report) {
  add_tensors(report, path, "");
  const format::SafetensorsFile file(path);
  std::int64_t elements = 0;
  for (const auto& tensor : file.tensors()) elements += element_count(tensor.shape).value_or(0);
  report.facts = {{"tensors", std::to_string(file.tensors().size())},
                  {"elements", with_commas(elements)},
                  {"size", human_bytes(static_cast<double>(file.bytes()))}};
  for (const auto& [key, value] : file.metadata()) {
    report.facts.emplace_back("metadata " + key, value);
    report.details["metadata"][key] = value;
  }
  report.facts.emplace_back("check", "header, offsets and sizes agree; the file itself holds no checksum");
}

void describe_tokens(const fs::path& path, Report& report) {
  add_size(report, path);
  const auto tokens = data::TokenArray::open(path);
  const auto documents = static_cast<std::int64_t>(tokens->documents().size());
  report.facts.insert(report.facts.end(), {{"tokens", with_commas(tokens->size())},
                                           {"bytes per token", std::to_string(tokens->token_bytes())},
                                           {"vocabulary", with_commas(static_cast<std::int64_t>(tokens->vocab_size()))},
                                           {"documents", with_commas(documents)},
                                           {"fingerprint", tokens->fingerprint()},
                                           {"check", "CRC32C of every part agrees, every token is below the vocabulary's size"}});
  report.details = {{"tokens", tokens->size()}, {"token_bytes", tokens->token_bytes()}, {"vocab_size", tokens->vocab_size()},
                    {"documents", documents},   {"fingerprint", tokens->fingerprint()}, {"notes", tokens->notes()}};
}

void describe_npy(const fs::path& path, Report& report) {
  add_size(report, path);
  const format::NpyLayout layout = format::NpyFile(path).layout();
  report.facts.insert(report.facts.end(), {{"dtype", std::string(name_of(layout.dtype))},
                                           {"shape", to_text(layout.shape)},
                                           {"order", layout.fortran ? "Fortran" : "C"},
                                           {"bytes", layout.swapped ? "big-endian" : "little-endian"},
                                           {"check", "header and size agree; the file itself holds no checksum"}});
  report.details = {{"dtype", name_of(layout.dtype)}, {"shape", layout.shape}, {"fortran_order", layout.fortran}};
}

void describe_npz(const fs::path& path, Report& report) {
  add_size(report, path);
  report.table.push_back({"array", "dtype", "shape", "bytes"});
  const format::NpzFile file(path);
  report.details["arrays"] = Json::array();
  for (const format::NpzEntry& entry : file.entries()) {
    std::vector<std::byte> bytes(entry.layout.bytes);
    file.read(entry, bytes);
    report.table.push_back({entry.name, std::string(name_of(entry.layout.dtype)), to_text(entry.layout.shape),
                            with_commas(static_cast<std::int64_t>(entry.layout.bytes))});
    report.details["arrays"].push_back(
        {{"name", entry.name}, {"dtype", name_of(entry.layout.dtype)}, {"shape", entry.layout.shape}});
  }
  for (const auto& [name, reason] : file.unread()) {
    report.table.push_back({name, "-", "-", "not read: " + reason});
    report.details["unread_members"].push_back({{"name", name}, {"reason", reason}});
  }
  if (!file.unread().empty()) format::check_zip(path);
  report.facts.emplace_back("arrays", std::to_string(file.entries().size()));
  report.facts.emplace_back("check", "CRC-32 of every array agrees");
}

void describe_pt(const fs::path& path, Report& report) {
  add_size(report, path);
  report.table.push_back({"tensor", "dtype", "shape", "bytes"});
  format::PtFile file(path);
  for (const format::PtTensor& tensor : file.tensors()) {
    std::vector<std::byte> elements(tensor.bytes);
    file.read(tensor, elements);
    report.table.push_back({tensor.name, std::string(name_of(tensor.dtype)), to_text(tensor.shape),
                            with_commas(static_cast<std::int64_t>(tensor.bytes))});
    report.details["tensors"].push_back({{"name", tensor.name}, {"dtype", name_of(tensor.dtype)}, {"shape", tensor.shape}});
  }
  for (const format::PtValue& value : file.values()) report.details["values"][value.name] = value.value;
  report.facts.insert(report.facts.end(), {{"tensors", std::to_string(file.tensors().size())},
                                           {"other values", std::to_string(file.values().size())},
                                           {"check", "nothing but plain data in it; CRC-32 of every storage agrees"}});
}

void describe_nifti(const fs::path& path, Report& report) {
  add_size(report, path);
  const data::NiftiFile file(path);
  const data::NiftiHeader& header = file.header();
  std::vector<std::byte> voxels(header.voxel_bytes);
  file.read(voxels);
  std::string spacing;
  for (std::size_t i = 1; i <= header.shape.size(); ++i) spacing += (i == 1 ? "" : " x ") + significant(header.pixdim[i], 5);
  report.facts.insert(
      report.facts.end(),
      {{"version", std::to_string(header.version) + (header.swapped ? ", other byte order" : "")},
       {"dtype", std::string(name_of(header.dtype))},
       {"shape", to_text(header.shape) + " (slowest axis first)"},
       {"spacing", spacing + " (x first)"},
       {"value",
        header.scaled ? "stored * " + significant(header.slope, 6) + " + " + significant(header.intercept, 6) : "as stored"},
       {"description", quoted(header.description)},
       {"extensions", std::to_string(header.extensions.size())},
       {"check", "header and voxels agree; gzip data has its CRC-32"}});
  report.table.push_back({"affine", "x", "y", "z", "offset"});
  const char* const axes[] = {"x mm", "y mm", "z mm"};
  for (std::size_t row = 0; row < 3; ++row) {
    report.table.push_back({axes[row]});
    for (const double value : header.affine[row]) report.table.back().push_back(significant(value, 6));
  }
  report.details = {{"version", header.version}, {"dtype", name_of(header.dtype)}, {"shape", header.shape},
                    {"slope", header.slope},     {"intercept", header.intercept},  {"affine", header.affine}};
}

std::string words(const std::vector<std::string>& all) { return all.empty() ? "-" : joined(all, " "); }

Json attribute_json(const hdf5::Attribute& attribute) {
  Json json = {{"name", attribute.name}};
  if (!attribute.reason.empty()) json["not_read"] = attribute.reason;
  std::visit(
      [&json](const auto& value) {
        if constexpr (!std::is_same_v<std::decay_t<decltype(value)>, std::monostate>) json["value"] = value;
      },
      attribute.value);
  return json;
}

// Of the file, or of the data set of that name; into `details` too.
void add_attributes(Report& report, Json& details, const std::string& dataset, const hdf5::Attributes& attributes) {
  const std::string of = dataset.empty() ? "" : " of " + dataset;
  for (const hdf5::Attribute& attribute : attributes.all) {
    const bool is_read = !std::holds_alternative<std::monostate>(attribute.value);
    report.facts.emplace_back("attribute " + attribute.name + of, (is_read ? "" : "not read: ") + hdf5::value_text(attribute));
    details["attributes"].push_back(attribute_json(attribute));
  }
  if (attributes.left_out > 0) {
    report.facts.emplace_back("more attributes" + of, std::to_string(attributes.left_out) + ", which are not read");
    details["attributes_left_out"] = attributes.left_out;
  }
  if (!attributes.failure.empty()) {
    report.facts.emplace_back("attributes" + of, "not read: " + attributes.failure);
    details["attributes_not_read"] = attributes.failure;
  }
}

void describe_hdf5(const fs::path& path, Report& report) {
  add_size(report, path);
  const auto file = hdf5::File::open(path);
  report.facts.emplace_back("datasets", std::to_string(file->datasets().size()));
  add_attributes(report, report.details, "", file->attributes("/"));
  report.table.push_back({"dataset", "dtype", "shape", "chunks", "filters", "read by"});
  for (const hdf5::Dataset& dataset : file->datasets()) {
    const std::vector<std::string> filters = file->filters(dataset.name);
    report.table.push_back({dataset.name, std::string(name_of(dataset.dtype)), to_text(dataset.shape),
                            dataset.chunk.empty() ? "-" : to_text(dataset.chunk), words(filters),
                            dataset.through_child ? "the HDF5 library: " + dataset.reason : "millrace"});
    report.details["datasets"].push_back({{"name", dataset.name},
                                          {"dtype", name_of(dataset.dtype)},
                                          {"shape", dataset.shape},
                                          {"chunk", dataset.chunk},
                                          {"filters", filters},
                                          {"library_only", dataset.reason}});
    add_attributes(report, report.details["datasets"].back(), dataset.name, file->attributes(dataset.name));
  }
  for (const hdf5::Unreadable& dataset : file->unreadable()) {
    report.table.push_back({dataset.name, "-", "-", "-", "-", "nobody: " + dataset.reason});
    report.details["unreadable"].push_back({{"name", dataset.name}, {"reason", dataset.reason}});
  }
  report.facts.emplace_back("check", "structure and the first blocks of each dataset agree with the HDF5 library");
}

void describe_image(const fs::path& path, Report& report) {
  add_size(report, path);
  data::Image image(path);
  const data::PictureSize size = image.size();
  std::vector<std::byte> pixels(static_cast<std::size_t>(size.height * size.width) * static_cast<std::size_t>(size.stored));
  image.decode(size.stored, 1, {0, 0, size.height, size.width}, pixels);
  const std::string colours = size.stored == data::Pixels::gray ? "gray" : "colour";
  report.facts.insert(report.facts.end(), {{"pixels", std::to_string(size.width) + " x " + std::to_string(size.height)},
                                           {"channels", colours},
                                           {"check", "the whole picture decodes"}});
  const format::PictureSigns& signs = image.signs();
  if (signs.orientation != 1)
    report.facts.emplace_back("orientation",
                              std::to_string(signs.orientation) + " (EXIF, XMP): turned upright, as all readers here do");
  if (signs.alpha) report.facts.emplace_back("transparency", "dropped: colours are taken as they stand");
  if (signs.deep) report.facts.emplace_back("depth", "16 bits, of which the upper 8 are taken");
  report.details = {{"height", size.height}, {"width", size.width}, {"channels", colours}};
}

// The contents may be anybody's; the archive around them has checksums.
void check_archive(const fs::path& path, Report& report) {
  if (!begins_with(path, "PK\3\4")) return;
  try {
    format::check_zip(path);
    report.facts.emplace_back("check", "CRC-32 of every member agrees");
  } catch (const Error& error) {
    report.problems.push_back(error.message().what);
  }
}

constexpr FileFormat kFormats[] = {
    {"safetensors file", has_extension<kSafetensors>, describe_safetensors, safetensors_arrays},
    {"NumPy array", is_npy, describe_npy, npy_arrays},
    {"NumPy archive", has_extension<kNpz>, describe_npz, npz_arrays},
    {"PyTorch file", is_pt, describe_pt, pt_arrays, check_archive},
    {"NIfTI volume", has_extension<kNii, kNiiGz, kHdr, kHdrGz, kImg, kImgGz>, describe_nifti, nifti_arrays},
    {"image", is_image, describe_image, image_arrays},
    {"token file", is_token_file, describe_tokens, token_arrays},
    {"HDF5 file", is_hdf5, describe_hdf5, hdf5_arrays},
};

}  // namespace

std::span<const FileFormat> file_formats() { return kFormats; }

void add_tensors(Report& report, const fs::path& path, const std::string& prefix) {
  if (report.table.empty()) report.table.push_back({"tensor", "dtype", "shape", "bytes"});
  const format::SafetensorsFile file(path);
  Json& all = report.details["tensors"];
  for (const format::StoredTensor& tensor : file.tensors()) {
    report.table.push_back({prefix + tensor.name, std::string(name_of(tensor.dtype)), to_text(tensor.shape),
                            with_commas(static_cast<std::int64_t>(tensor.bytes))});
    all.push_back({{"file", path.filename().string()},
                   {"name", tensor.name},
                   {"dtype", name_of(tensor.dtype)},
                   {"shape", tensor.shape},
                   {"bytes", tensor.bytes}});
  }
}

}  // namespace millrace::cli
