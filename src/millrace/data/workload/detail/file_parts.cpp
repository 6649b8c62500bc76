#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/data/files/folder.h"
#include "millrace/data/sources/csv_source.h"
#include "millrace/data/sources/hdf5_source.h"
#include "millrace/data/sources/image_source.h"
#include "millrace/data/sources/nifti_source.h"
#include "millrace/data/sources/npy_source.h"
#include "millrace/data/workload/detail/parts.h"

namespace millrace::data::detail {
namespace {

namespace fs = std::filesystem;
using config::field;

constexpr std::string_view kFilesHelp = "Files, folders, or patterns such as *.h5.";

struct Hdf5Keys {
  std::vector<std::string> files;
  std::map<std::string, std::string> datasets;
  bool rows = true;
  std::map<std::string, std::vector<std::vector<std::int64_t>>> keep;
  static consteval auto fields() {
    using C = Hdf5Keys;
    return std::tuple{
        field<&C::files>(kFilesHelp).not_empty(), field<&C::datasets>("Names of fields, each with its data set."),
        field<&C::rows>("True: each index of the first axis is a sample; false: each file is one."),
        field<&C::keep>(
            "For each field, the ranges [begin, end] of its last axes that are read; end -1: to the end of the axis.")};
  }
};

SourcePtr open_hdf5(const Part& part) {
  const auto keys = keys_of<Hdf5Keys>(part);
  if (keys.datasets.empty()) refuse_part(part, "no data set is named", "give datasets, such as {\"x\": \"/x\"}");
  std::vector<Hdf5Field> fields;
  for (const auto& [name, dataset] : keys.datasets) fields.push_back({.name = name, .dataset = dataset});
  for (const auto& [name, ranges] : keys.keep) {
    const auto kept = std::ranges::find(fields, name, &Hdf5Field::name);
    if (kept == fields.end())
      refuse_part(part, "\"keep\" has " + quoted(name) + ", which is not a field", "use a name from \"datasets\"");
    for (const std::vector<std::int64_t>& range : ranges) {
      if (range.size() != 2) refuse_part(part, "a range of " + quoted(name) + " in \"keep\" is not a pair", "write [begin, end]");
      kept->keep.push_back({.begin = range[0], .end = range[1]});
    }
  }
  auto source = std::make_shared<Hdf5Source>(files_of(part, keys.files, {".h5", ".hdf5"}), fields,
                                             keys.rows ? Hdf5Samples::row : Hdf5Samples::file);
  if (part.input.notices != nullptr) std::ranges::copy(source->packed(), std::back_inserter(*part.input.notices));
  return source;
}

struct NiftiKeys {
  std::vector<std::string> files;
  std::string name = "volume";
  std::vector<std::int64_t> crop;
  bool random = true;
  bool as_float = false;
  static consteval auto fields() {
    using C = NiftiKeys;
    return std::tuple{field<&C::files>(kFilesHelp).not_empty(), field<&C::name>("Name of the field."),
                      field<&C::crop>("Size of the block of each volume, slowest axis first. Empty: the whole volume.").min(1),
                      field<&C::random>("True: the block's place is drawn anew at each read; false: the centre."),
                      field<&C::as_float>("True: 32-bit floats, scaled as the header says; false: the stored numbers.")};
  }
};

SourcePtr open_nifti(const Part& part) {
  auto keys = keys_of<NiftiKeys>(part);
  return std::make_shared<NiftiSource>(
      files_of(part, keys.files, {".nii", ".nii.gz"}),
      NiftiSamples{
          .field = std::move(keys.name), .patch = std::move(keys.crop), .random = keys.random, .as_float = keys.as_float});
}

struct ImagesKeys {
  std::vector<std::string> files;
  std::string labelled;
  std::string name = "image";
  std::vector<std::int64_t> crop = {224, 224};
  Pixels pixels = Pixels::rgb;
  bool random = true;
  bool flip = false;
  bool reduce = false;
  bool normalise = false;
  std::vector<double> mean = {0.485, 0.456, 0.406};
  std::vector<double> deviation = {0.229, 0.224, 0.225};
  static consteval auto fields() {
    using C = ImagesKeys;
    return std::tuple{
        field<&C::files>(kFilesHelp),
        field<&C::labelled>("Instead of files: a folder with a subfolder for each class; adds the field \"label\"."),
        field<&C::name>("Name of the field."),
        field<&C::crop>("Height and width.").min(1).size(2),
        field<&C::pixels>("Channels."),
        field<&C::random>("True: the crop's place is drawn anew at each read; false: the centre."),
        field<&C::flip>("Half of the reads are flipped left to right."),
        field<&C::reduce>("A JPEG may be decoded at 1/2, 1/4 or 1/8 of its size if the crop still fits."),
        field<&C::normalise>("True: 32-bit floats, (value - mean) / deviation, channels first; false: bytes, channels last."),
        field<&C::mean>("Mean of each channel, for values from 0 to 1.").size(1, 3),
        field<&C::deviation>("Standard deviation of each channel.").above(0).size(1, 3)};
  }
};

std::array<float, 3> three(const std::vector<double>& values) {
  std::array<float, 3> all{};
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<float>(values[std::min(i, values.size() - 1)]);
  return all;
}

SourcePtr open_images(const Part& part) {
  const auto keys = keys_of<ImagesKeys>(part);
  const ImageSamples samples{.field = keys.name,
                             .height = keys.crop[0],
                             .width = keys.crop[1],
                             .pixels = keys.pixels,
                             .random_crop = keys.random,
                             .random_flip = keys.flip,
                             .reduce = keys.reduce,
                             .normalise = keys.normalise,
                             .mean = three(keys.mean),
                             .deviation = three(keys.deviation)};
  if (keys.labelled.empty()) {
    return std::make_shared<ImageSource>(files_of(part, keys.files, {".png", ".jpg", ".jpeg"}), samples);
  }
  if (!keys.files.empty()) refuse_part(part, "\"files\" and \"labelled\" are both given", "give only one of them");
  LabelledFiles labelled = labelled_files_in(part.input.folder / keys.labelled);
  if (part.input.notices != nullptr) std::ranges::move(labelled.notices, std::back_inserter(*part.input.notices));
  return std::make_shared<ImageSource>(std::move(labelled), samples);
}

struct NpyKeys {
  std::map<std::string, std::string> arrays;
  static consteval auto fields() {
    return std::tuple{field<&NpyKeys::arrays>("Names of fields, each with its .npy file.").required()};
  }
};

SourcePtr open_npy(const Part& part) {
  std::vector<NpyField> fields;
  for (const auto& [name, file] : keys_of<NpyKeys>(part).arrays) fields.push_back({name, part.input.folder / file});
  if (fields.empty()) refuse_part(part, "no array is named", "give arrays, such as {\"x\": \"x.npy\"}");
  return std::make_shared<NpySource>(std::move(fields));
}

struct NpzKeys {
  std::vector<std::string> files;
  std::vector<std::string> names;
  static consteval auto fields() {
    return std::tuple{field<&NpzKeys::files>(kFilesHelp).not_empty(), field<&NpzKeys::names>("Names of the arrays; empty: all.")};
  }
};

SourcePtr open_npz(const Part& part) {
  const auto keys = keys_of<NpzKeys>(part);
  return std::make_shared<NpzSource>(files_of(part, keys.files, {".npz"}), keys.names);
}

struct CsvKeys {
  std::string file;
  std::map<std::string, std::vector<std::string>> columns;
  std::vector<std::string> whole;
  static consteval auto fields() {
    using C = CsvKeys;
    return std::tuple{field<&C::file>("The table; its first row names the columns.").required(),
                      field<&C::columns>(
                          "Names of fields, each with its columns; empty: the column with the field's name, as a single number."),
                      field<&C::whole>("Names of the fields that are 64-bit integers; all other fields are 32-bit floats.")};
  }
};

SourcePtr open_csv(const Part& part) {
  const auto keys = keys_of<CsvKeys>(part);
  std::vector<CsvField> fields;
  for (const auto& [name, columns] : keys.columns) {
    const bool is_whole = std::ranges::count(keys.whole, name) > 0;
    fields.push_back({.name = name, .columns = columns, .dtype = is_whole ? DType::i64 : DType::f32});
  }
  for (const std::string& name : keys.whole) {
    if (!keys.columns.contains(name))
      refuse_part(part, "\"whole\" has " + quoted(name) + ", which is not a field", "use a name from \"columns\"");
  }
  if (fields.empty()) refuse_part(part, "no field is named", "give columns, such as {\"x\": [\"speed\", \"angle\"]}");
  return std::make_shared<CsvSource>(part.input.folder / keys.file, fields);
}

constexpr std::array kFileKinds = {
    PartKind{"hdf5", "data sets of HDF5 files", [] { return config::schema_of<Hdf5Keys>(); }, open_hdf5},
    PartKind{"nifti", "volumes, or blocks of them", [] { return config::schema_of<NiftiKeys>(); }, open_nifti},
    PartKind{"images", "crops of JPEG and PNG files", [] { return config::schema_of<ImagesKeys>(); }, open_images},
    PartKind{"npy", "rows of .npy files", [] { return config::schema_of<NpyKeys>(); }, open_npy},
    PartKind{"npz", "a sample is an .npz file", [] { return config::schema_of<NpzKeys>(); }, open_npz},
    PartKind{"csv", "rows of a table", [] { return config::schema_of<CsvKeys>(); }, open_csv},
};

}  // namespace

std::span<const PartKind> file_kinds() { return kFileKinds; }

std::vector<fs::path> files_of(const Part& part, const std::vector<std::string>& names, const std::vector<std::string>& endings) {
  std::vector<fs::path> found;
  for (const std::string& name : names) {
    const fs::path path = part.input.folder / name;
    std::error_code none;
    if (path.filename().string().find_first_of("*?[") == std::string::npos || fs::exists(path, none)) {
      if (!fs::is_directory(path, none)) {
        found.push_back(path);
      } else {
        std::ranges::copy(files_in(path, endings, part.input.notices), std::back_inserter(found));
      }
      continue;
    }
    const std::size_t before = found.size();
    for (const auto& entry : fs::directory_iterator(path.parent_path().empty() ? "." : path.parent_path(), none)) {
      if (::fnmatch(path.filename().c_str(), entry.path().filename().c_str(), FNM_PERIOD) == 0) found.push_back(entry.path());
    }
    if (found.size() == before) {
      throw DataError({.what = "no file matches " + quoted(path.string()),
                       .where = part.place + ".files",
                       .next = "check the folder and the pattern; only the last part of a path may be a pattern"});
    }
    std::sort(found.begin() + static_cast<std::ptrdiff_t>(before), found.end());
  }
  if (found.empty()) refuse_part(part, "no file is named", "give files or a pattern");
  std::vector<std::string_view> sorted;
  sorted.reserve(found.size());
  for (const fs::path& path : found) sorted.emplace_back(path.native());
  std::ranges::sort(sorted);
  const auto repeated = static_cast<std::int64_t>(sorted.end() - std::unique(sorted.begin(), sorted.end()));
  if (repeated > 0 && part.input.notices != nullptr) {
    part.input.notices->push_back(
        with_commas(repeated) + " of " + with_commas(std::ssize(found)) +
        " files are named twice, for example by a pattern and by name, so their samples come more than once");
  }
  return found;
}

}  // namespace millrace::data::detail
