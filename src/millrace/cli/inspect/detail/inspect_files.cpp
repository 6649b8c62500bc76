#include "millrace/cli/inspect/detail/inspect_files.h"

#include <algorithm>
#include <array>
#include <span>
#include <type_traits>
#include <variant>
#include <vector>

#include "millrace/base/axis_text.h"
#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/input_file.h"
#include "millrace/base/text_encoding.h"
#include "millrace/base/utf8.h"
#include "millrace/data/files/image.h"
#include "millrace/data/files/nifti.h"
#include "millrace/data/files/nifti_words.h"
#include "millrace/data/files/text_tokens.h"
#include "millrace/data/files/token_array.h"
#include "millrace/data/sources/csv_source.h"
#include "millrace/format/deflate.h"
#include "millrace/format/npy.h"
#include "millrace/format/pt.h"
#include "millrace/format/safetensors.h"
#include "millrace/format/wav.h"
#include "millrace/hdf5/stored_axis.h"

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
constexpr char kCsv[] = ".csv", kTsv[] = ".tsv", kTxt[] = ".txt", kWav[] = ".wav";

// The first `count` bytes of a file, or all of them if it has fewer.
std::string first_bytes(const fs::path& path, std::uint64_t count) {
  const InputFile file(path);
  std::string bytes(std::min(file.size(), count), '\0');
  file.read(0, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}
bool begins_with(const fs::path& path, std::string_view magic) { return first_bytes(path, magic.size()) == magic; }

bool holds_safetensors(const fs::path& path) {
  const InputFile file(path);
  std::array<unsigned char, 9> start{};
  if (file.size() < start.size()) return false;
  file.read(0, std::as_writable_bytes(std::span(start)));
  std::uint64_t header = 0;
  for (std::size_t i = 8; i-- > 0;) header = header << 8U | start[i];
  return start[8] == '{' && header <= file.size() - 8;
}
bool holds_npy(const fs::path& path) { return format::is_npy(first_bytes(path, 6)); }
// The names of the members of a .npz or .pt archive, which show the archive's kind. Empty if the end of the archive is missing.
std::vector<std::string> members_of(const fs::path& path) {
  if (!begins_with(path, "PK\3\4")) return {};
  try {
    return format::zip_names(path);
  } catch (const DataError&) {
    return {};
  }
}
bool holds_npz(const fs::path& path) {
  return std::ranges::any_of(members_of(path), [](const std::string& name) { return name.ends_with(".npy"); });
}
bool holds_pt(const fs::path& path) {
  const auto is_pickle = [](const std::string& name) { return name == "data.pkl" || name.ends_with("/data.pkl"); };
  return std::ranges::any_of(members_of(path), is_pickle) || (begins_with(path, "PK\3\4") && !has_extension<kNpz>(path));
}
bool holds_image(const fs::path& path) { return begins_with(path, "\x89PNG\r\n\x1a\n") || begins_with(path, "\xff\xd8\xff"); }
bool holds_sound(const fs::path& path) {
  const std::string start = first_bytes(path, 12);
  return start.size() == 12 && start.starts_with("RIFF") && start.ends_with("WAVE");
}
bool holds_tokens(const fs::path& path) { return begins_with(path, "MRTOKENS"); }
bool holds_hdf5(const fs::path& path) { return begins_with(path, "\x89HDF\r\n\x1a\n"); }
bool holds_nothing_known(const fs::path&) { return false; }

void add_size(Report& report, const fs::path& path) {
  report.facts.emplace_back("size", human_bytes(static_cast<double>(fs::file_size(path))));
}

// Reports the bytes that readers skip; other programs skip them too.
void add_passed_over(Report& report, const format::PassedOver& bytes, const std::string& what) {
  std::vector<std::string> parts;
  const auto add = [&parts](std::uint64_t count, const std::string& place) {
    if (count > 0)
      parts.push_back(with_commas(static_cast<std::int64_t>(count)) + (count == 1 ? " byte behind " : " bytes behind ") + place);
  };
  add(bytes.inside, what);
  add(bytes.behind, bytes.is_packed ? "the compressed data" : what);
  if (!parts.empty()) report.facts.emplace_back("passed over", joined(parts, " and "));
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
  report.facts.insert(report.facts.end(),
                      {{"tokens", with_commas(tokens->size())},
                       {"bytes per token", std::to_string(tokens->token_bytes())},
                       {"vocabulary", with_commas(static_cast<std::int64_t>(tokens->vocab_size()))},
                       {"documents", with_commas(documents)},
                       {"fingerprint", tokens->fingerprint()},
                       {"check", "CRC32C of every part agrees, and every token is below the vocabulary's size"}});
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
  add_passed_over(report, {.behind = fs::file_size(path) - layout.header_bytes - layout.bytes}, "the elements");
  report.details = {{"dtype", name_of(layout.dtype)}, {"shape", layout.shape}, {"fortran_order", layout.fortran}};
}

void describe_npz(const fs::path& path, Report& report) {
  add_size(report, path);
  report.table.push_back({"array", "dtype", "shape", "order", "bytes"});
  const format::NpzFile file(path);
  report.details["arrays"] = Json::array();
  for (const format::NpzEntry& entry : file.entries()) {
    std::vector<std::byte> bytes(entry.layout.bytes);
    file.read(entry, bytes);
    report.table.push_back({entry.name, std::string(name_of(entry.layout.dtype)), to_text(entry.layout.shape),
                            std::string(entry.layout.fortran ? "Fortran" : "C") + (entry.layout.swapped ? ", big-endian" : ""),
                            with_commas(static_cast<std::int64_t>(entry.layout.bytes))});
    report.details["arrays"].push_back(
        {{"name", entry.name}, {"dtype", name_of(entry.layout.dtype)}, {"shape", entry.layout.shape}});
  }
  for (const auto& [name, reason] : file.unread()) {
    report.table.push_back({name, "-", "-", "-", "not read: " + reason});
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
                                           {"check", "the file contains only plain data; CRC-32 of every storage agrees"}});
}

// A text about the fourth axis, such as "; 100 volumes, 2 s apart".
std::string series_text(const data::NiftiHeader& header) {
  const std::size_t axes = header.shape.size();
  if (axes < 4 || header.shape[axes - 4] < 2) return "";
  const std::string unit = data::time_unit(header);
  return "; " + with_commas(header.shape[axes - 4]) + " volumes, " + significant(header.pixdim[4], 5) +
         (unit.empty() ? " apart, without a unit" : " " + unit + " apart");
}

void describe_nifti(const fs::path& path, Report& report) {
  add_size(report, path);
  const data::NiftiFile file(path);
  const data::NiftiHeader& header = file.header();
  std::vector<std::byte> voxels(header.voxel_bytes);
  format::PassedOver passed_over;
  file.read(voxels, &passed_over);
  report.facts.insert(
      report.facts.end(),
      {{"version", std::to_string(header.version) + (header.swapped ? ", other byte order" : "")},
       {"dtype", std::string(name_of(header.dtype))},
       {"shape", to_text(header.shape) + " (slowest axis first)"},
       {"voxel", data::voxel_text(header) + " (x first)" + series_text(header)},
       {"orientation", data::orientation_of(header) + " by " + data::form_of(header)},
       {"value",
        header.scaled ? "stored * " + significant(header.slope, 6) + " + " + significant(header.intercept, 6) : "as stored"},
       {"description", quoted(header.description)},
       {"extensions", std::to_string(header.extensions.size())},
       {"check", "header and voxels agree; gzip data is checked by its CRC-32"}});
  add_passed_over(report, passed_over, "the voxels");
  report.table.push_back({"affine", "x", "y", "z", "offset"});
  const std::string unit = data::length_unit(header);
  for (std::size_t row = 0; row < 3; ++row) {
    constexpr std::array kAxes = {"x", "y", "z"};
    report.table.push_back({kAxes[row] + (unit.empty() ? "" : " " + unit)});
    for (const double value : header.affine[row]) report.table.back().push_back(significant(value, 6));
  }
  report.details = {{"version", header.version}, {"dtype", name_of(header.dtype)}, {"shape", header.shape},
                    {"slope", header.slope},     {"intercept", header.intercept},  {"affine", header.affine}};
  report.details["orientation"] = data::orientation_of(header);
  report.details["form"] = data::form_of(header);
  report.details["unit"] = unit;
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

// Adds attributes to the report and to `details`: the attributes of the data set `dataset`, or those of the file if `dataset` is
// "".
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
  for (const hdf5::StoredAxis& axis : hdf5::axes_of(*file)) {
    report.facts.emplace_back("axis " + axis.name, with_commas(std::ssize(axis.values)) + " numbers, " +
                                                       axis_text(axis.values, axis.unit) +
                                                       (axis.unit.empty() ? ", no unit said" : ""));
    report.details["axes"].push_back(
        {{"name", axis.name}, {"first", axis.values.front()}, {"last", axis.values.back()}, {"unit", axis.unit}});
  }
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
    report.table.push_back({dataset.name, "-", "-", "-", "-",
                            "nobody: " + dataset.reason + (dataset.text.empty() ? "" : " " + quoted(dataset.text))});
    report.details["unreadable"].push_back({{"name", dataset.name}, {"reason", dataset.reason}});
  }
  report.facts.emplace_back("check",
                            "Millrace and the HDF5 library read the same structure and the same first blocks of each dataset");
}

void describe_image(const fs::path& path, Report& report) {
  add_size(report, path);
  data::Image image(path);
  const data::PictureSize size = image.size();
  std::vector<std::byte> pixels(static_cast<std::size_t>(size.height * size.width) * static_cast<std::size_t>(size.stored));
  image.decode(size.stored, 1, {0, 0, size.height, size.width}, pixels);
  const std::string colours = size.stored == data::Pixels::gray ? "gray" : "colour";
  const format::PictureSigns& signs = image.signs();
  report.facts.insert(report.facts.end(), {{"pixels", std::to_string(size.width) + " x " + std::to_string(size.height)},
                                           {"channels", colours},
                                           {"stored as", format::stored_text(signs)},
                                           {"check", "the whole picture decodes"}});
  if (signs.orientation != 1)
    report.facts.emplace_back(
        "orientation", std::to_string(signs.orientation) + " (EXIF, XMP): Millrace rotates the picture upright when it reads it");
  report.details = {{"height", size.height},           {"width", size.width}, {"channels", colours},
                    {"stored_as", signs.colour},       {"bits", signs.bits},  {"transparency", signs.alpha},
                    {"orientation", signs.orientation}};
}

void describe_sound(const fs::path& path, Report& report) {
  add_size(report, path);
  const format::WavFile file(path);
  const format::WavLayout& layout = file.layout();
  const double seconds = static_cast<double>(layout.frames) / static_cast<double>(layout.rate);
  report.facts.insert(
      report.facts.end(),
      {{"channels", std::to_string(layout.channels)},
       {"rate", with_commas(layout.rate) + " Hz"},
       {"samples", with_commas(layout.frames) + " in each channel, " + significant(seconds, 5) + " s"},
       {"stored as", std::string(layout.is_float ? "floats" : "PCM") + " of " + std::to_string(layout.bits) + " bits"},
       {"check", "header and size agree; the file itself holds no checksum"}});
  report.details = {{"channels", layout.channels},
                    {"rate", layout.rate},
                    {"samples", layout.frames},
                    {"bits", layout.bits},
                    {"is_float", layout.is_float}};
}

void describe_table(const fs::path& path, Report& report) {
  add_size(report, path);
  const data::TableSeen seen = data::look_at_table(path);
  report.facts.emplace_back("read as", data::read_as(seen));
  report.table.push_back({"column", "holds"});
  for (std::size_t i = 0; i < seen.columns.size(); ++i) {
    report.table.push_back({seen.columns[i], seen.holds[i]});
    report.details["columns"].push_back({{"name", seen.columns[i]}, {"holds", seen.holds[i]}});
  }
  report.details["rows"] = seen.rows;
  report.details["separator"] = std::string(1, seen.separator);
}

void describe_text(const fs::path& path, Report& report) {
  add_size(report, path);
  const data::TextSeen seen = data::look_at_text(path);
  report.facts.emplace_back("read as", data::read_as(seen));
  report.details = {{"characters", seen.characters},
                    {"line_feeds", seen.line_feeds},
                    {"cr_lf", seen.both},
                    {"lone_cr", seen.lone_returns},
                    {"marks", seen.marks}};
}

bool holds_text(const fs::path& path) {
  const InputFile file(path);
  std::string start(std::min<std::uint64_t>(file.size(), std::uint64_t{1} << 16U), '\0');
  file.read(0, std::as_writable_bytes(std::span(start)));
  if (start.empty() || other_than_text(start, path)) return false;
  const auto bad = first_byte_of_no_text(start);
  return !bad ||
         // a character that the end of `start` cuts off is not an error
         (start[*bad] != '\0' && *bad + 4 > start.size() && start.size() < file.size());
}

// Checks the checksums of an archive, whatever its members are.
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
    {"safetensors file", holds_safetensors, has_extension<kSafetensors>, describe_safetensors, safetensors_arrays},
    {"NumPy array", holds_npy, has_extension<kNpy>, describe_npy, npy_arrays},
    {"NumPy archive", holds_npz, has_extension<kNpz>, describe_npz, npz_arrays},
    {"PyTorch file", holds_pt, has_extension<kPt, kPth>, describe_pt, pt_arrays, check_archive},
    {"image", holds_image, has_extension<kPng, kJpg, kJpeg>, describe_image, image_arrays},
    {"sound", holds_sound, has_extension<kWav>, describe_sound, sound_arrays},
    {"token file", holds_tokens, has_extension<kTokens>, describe_tokens, token_arrays},
    {"HDF5 file", holds_hdf5, has_extension<kH5, kHdf5, kUvh5>, describe_hdf5, hdf5_arrays},
    {"NIfTI volume", data::is_nifti, has_extension<kNii, kNiiGz, kHdr, kHdrGz, kImg, kImgGz>, describe_nifti, nifti_arrays},
    {"table", holds_nothing_known, has_extension<kCsv, kTsv>, describe_table, nullptr},
    {"text", holds_nothing_known, has_extension<kTxt>, describe_text, nullptr},
};
constexpr FileFormat kText = {"text", holds_text, holds_nothing_known, describe_text, nullptr};

}  // namespace

const FileFormat* format_of(const fs::path& path) {
  for (const FileFormat& format : kFormats)
    if (format.holds(path)) return &format;
  for (const FileFormat& format : kFormats)
    if (format.is_named(path)) return &format;
  return kText.holds(path) ? &kText : nullptr;
}

void add_recipes(Report& report, const fs::path& path, std::span<const Entry> recipes) {
  if (report.kind != "HDF5 file" || std::ranges::none_of(recipes, [](const Entry& entry) { return entry.read_as != nullptr; }))
    return;
  const auto file = hdf5::File::open(path);
  for (const Entry& entry : recipes) {
    if (!entry.read_as) continue;
    std::string text;
    try {
      text = entry.read_as(*file);
    } catch (const DataError& error) {
      text = "refused: " + error.message().what;
    }
    if (text.empty()) continue;
    report.facts.emplace_back("read by " + entry.name + " as", text);
    report.details["read_as"][entry.name] = text;
  }
}

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
