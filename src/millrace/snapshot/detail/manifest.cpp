#include "millrace/snapshot/detail/manifest.h"

#include <algorithm>
#include <cctype>
#include <span>
#include <utility>
#include <vector>

#include "millrace/base/hash.h"
#include "millrace/snapshot/detail/json_text.h"

namespace millrace::snapshot::detail {
namespace {

// "crc32c" is the first key in order of name, so the text always begins like this.
constexpr std::string_view kBegin = "{\n \"crc32c\": \"";
constexpr std::size_t kHexDigits = 8;

std::uint32_t crc_of(std::string_view text) { return crc32c(std::as_bytes(std::span(text.data(), text.size()))); }

std::uint32_t from_hex(const Json& value) {
  const auto& text = value.get_ref<const std::string&>();
  std::uint32_t number = 0;
  for (const char c : text) {
    const bool is_digit = c >= '0' && c <= '9';
    if (text.size() != kHexDigits || (!is_digit && (c < 'a' || c > 'f'))) throw std::out_of_range("not a checksum: " + text);
    number = number << 4U | static_cast<std::uint32_t>(is_digit ? c - '0' : c - 'a' + 10);
  }
  return number;
}

Manifest from_json(const Json& json) {
  Manifest manifest;
  if (const auto& format = json.at("format"); format != kFormat) {
    throw std::out_of_range("it has format " + format.dump() + ", but this program reads format " + std::to_string(kFormat));
  }
  manifest.step = json.at("step").get<std::int64_t>();
  for (const auto& [name, entry] : json.at("files").get_ref<const Json::object_t&>()) {
    if (!is_plain_name(name)) throw std::out_of_range("it lists a name that can't be the name of a file");
    FileRecord record;
    record.bytes = entry.at("bytes").get<std::uint64_t>();
    record.crc32c = from_hex(entry.at("crc32c"));
    if (entry.contains("tensors")) {
      record.header_crc32c = from_hex(entry.at("header_crc32c"));
      for (const auto& [tensor, crc] : entry.at("tensors").get_ref<const Json::object_t&>())
        record.tensors[tensor] = from_hex(crc);
    }
    manifest.files.emplace(name, std::move(record));
  }
  return manifest;
}

bool is_folder(const std::filesystem::path& path) {
  std::error_code code;
  return std::filesystem::is_directory(std::filesystem::symlink_status(path, code));
}

bool is_file(const std::filesystem::path& path) {
  std::error_code code;
  return std::filesystem::is_regular_file(std::filesystem::symlink_status(path, code));
}

}  // namespace

std::vector<std::string> files_of_snapshot(Fs& fs, const std::filesystem::path& folder, std::int64_t step) noexcept {
  try {
    std::error_code code;
    if (!is_folder(folder) || !is_file(folder / kManifestFile) ||
        std::filesystem::file_size(folder / kManifestFile, code) > kMostManifestBytes || code) {
      return {};
    }
    const ParsedManifest parsed = parse_manifest(fs.read_file(folder / kManifestFile));
    if (!parsed.problem.empty() || parsed.manifest.step != step) return {};
    std::vector<std::string> names;
    for (const auto& [name, record] : parsed.manifest.files) {
      if (!is_file(folder / name) || std::filesystem::file_size(folder / name, code) != record.bytes || code) return {};
      names.push_back(name);
    }
    names.emplace_back(kManifestFile);
    return names;
  } catch (const std::exception&) {  // a folder that can't be read does not count as Millrace's
    return {};
  }
}

bool is_our_snapshot(Fs& fs, const std::filesystem::path& folder, std::int64_t step) noexcept {
  const std::vector<std::string> names = files_of_snapshot(fs, folder, step);
  try {
    return !names.empty() && fs.list(folder).size() == names.size();
  } catch (const std::exception&) {
    return false;
  }
}

bool is_our_leftover(Fs& fs, const std::filesystem::path& folder) noexcept {
  try {
    if (!is_folder(folder)) return false;
    const std::vector<std::string> names = fs.list(folder);
    return std::all_of(names.begin(), names.end(), [&](const std::string& name) {
      const bool has_name = name == kManifestFile || name == kStateFile || (is_plain_name(name) && name.ends_with(kTensorSuffix));
      return has_name && is_file(folder / name);
    });
  } catch (const std::exception&) {
    return false;
  }
}

bool is_plain_name(std::string_view name) noexcept {
  constexpr std::size_t kLongest = 200;
  const auto is_plain = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.'; };
  return !name.empty() && name.size() <= kLongest && name.front() != '.' && std::all_of(name.begin(), name.end(), is_plain);
}

std::string hex(std::uint32_t value) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text(kHexDigits, '0');
  for (std::size_t i = kHexDigits; i-- > 0; value >>= 4U) text[i] = kDigits[value & 0xFU];
  return text;
}

std::string to_text(const Manifest& manifest) {
  Json files = Json::object();
  for (const auto& [name, record] : manifest.files) {
    Json& entry = files[name] = {{"bytes", record.bytes}, {"crc32c", hex(record.crc32c)}};
    if (!record.header_crc32c) continue;
    entry["header_crc32c"] = hex(*record.header_crc32c);
    entry["tensors"] = Json::object();
    for (const auto& [tensor, crc] : record.tensors) entry["tensors"][tensor] = hex(crc);
  }
  const Json json = {{"crc32c", hex(0)}, {"files", std::move(files)}, {"format", kFormat}, {"step", manifest.step}};
  std::string text = to_canonical(json, 1) + "\n";
  const std::uint32_t crc = crc_of(std::string_view(text).substr(kBegin.size() + kHexDigits));
  return text.replace(kBegin.size(), kHexDigits, hex(crc));
}

ParsedManifest parse_manifest(std::string_view text) {
  ParsedManifest result;
  const std::size_t rest = kBegin.size() + kHexDigits;
  if (text.size() < rest || text.substr(0, kBegin.size()) != kBegin ||
      text.substr(kBegin.size(), kHexDigits) != hex(crc_of(text.substr(rest)))) {
    result.problem = "its bytes changed after it was written (CRC32C differs)";
    return result;
  }
  try {
    const std::optional<Json> json = from_canonical(text);
    if (json)
      result.manifest = from_json(*json);
    else
      result.problem = "it is not JSON";
  } catch (const Json::exception& error) {
    result.problem = error.what();
  } catch (const std::out_of_range& error) {
    result.problem = error.what();
  }
  return result;
}

}  // namespace millrace::snapshot::detail
