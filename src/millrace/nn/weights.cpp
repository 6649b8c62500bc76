#include "millrace/nn/weights.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <span>

#include "millrace/base/error.h"
#include "millrace/base/field.h"
#include "millrace/base/format.h"
#include "millrace/base/hash.h"
#include "millrace/core/scalar_type.h"
#include "millrace/format/pt.h"
#include "millrace/format/safetensors.h"

namespace millrace::nn {
namespace {

constexpr std::size_t kListed = 8;  // names that a message lists before "and N more"

// A tensor of the file, with the name under which it is looked for.
struct Stored {
  std::string name;
  std::string in_file;
  DType dtype = DType::f32;
  Shape shape;
};

class WeightsFile {
 public:
  explicit WeightsFile(const std::filesystem::path& path) {
    if (std::filesystem::is_directory(path)) {
      throw DataError({path.string() + " is a folder, but weights are read from a file", path.string(),
                       "if it is the folder of a run, write its weights to a file: millrace export --from " + path.string() +
                           " --to weights.safetensors"});
    }
    const auto list = [this](const auto& tensors) {
      for (const auto& tensor : tensors) tensors_.push_back({tensor.name, tensor.name, tensor.dtype, tensor.shape});
    };
    const std::string ending = path.extension().string();
    if (ending == ".pt" || ending == ".pth" || format::looks_like_pt(path)) {
      list(pt_.emplace(path).tensors());
    } else {
      list(safetensors_.emplace(path).tensors());
    }
  }

  [[nodiscard]] const std::vector<Stored>& tensors() const { return tensors_; }

  [[nodiscard]] at::Tensor read(const Stored& tensor) {
    at::Tensor value = at::empty(tensor.shape, at::TensorOptions().dtype(scalar_type_of(tensor.dtype)));
    const std::span<std::byte> bytes(static_cast<std::byte*>(value.mutable_data_ptr()), value.nbytes());
    pt_ ? pt_->read(*pt_->find(tensor.in_file), bytes) : safetensors_->read(*safetensors_->find(tensor.in_file), bytes);
    return value;
  }

 private:
  std::optional<format::PtFile> pt_;
  std::optional<format::SafetensorsFile> safetensors_;
  std::vector<Stored> tensors_;
};

// The tensors whose names begin with `prefix`, with the prefix removed.
std::vector<Stored> below(const std::vector<Stored>& all, const std::string& prefix, bool by_plain) {
  std::vector<Stored> taken;
  for (Stored tensor : all) {
    const std::string name = by_plain ? plain_name(tensor.name) : tensor.name;
    if (!name.starts_with(prefix)) continue;
    tensor.name = name.substr(prefix.size());
    taken.push_back(std::move(tensor));
  }
  return taken;
}

// The first parts of the names, for a message: "features.", "head.".
std::string beginnings(const std::vector<Stored>& all) {
  std::set<std::string> found;
  for (const Stored& tensor : all) found.insert(tensor.name.substr(0, std::min(tensor.name.find('.') + 1, tensor.name.size())));
  const std::vector<std::string> words(found.begin(), found.end());
  const std::span<const std::string> shown(words.data(), std::min(words.size(), kListed));
  return joined(shown, ", ", [](const std::string& word) { return quoted(word); }) + (shown.size() < words.size() ? ", …" : "");
}

std::vector<Stored> chosen(const std::vector<Stored>& tensors, const std::filesystem::path& path, const LoadOptions& options) {
  std::vector<Stored> all = tensors;
  for (const char* part : {"model_state_dict.", "state_dict."}) {
    std::vector<Stored> inside = below(all, part, /*by_plain=*/false);
    if (!inside.empty()) all = std::move(inside);
  }
  if (options.prefix.empty()) return all;
  std::vector<Stored> taken = below(all, options.prefix, /*by_plain=*/false);
  if (taken.empty()) taken = below(all, options.prefix, /*by_plain=*/true);
  if (!taken.empty()) return taken;
  throw DataError({"no tensor of the file has a name that begins with " + quoted(options.prefix), path.string(),
                   "choose another prefix; the names begin with " + beginnings(all)});
}

std::string renamed(const std::string& name, const std::map<std::string, std::string>& rename) {
  const std::pair<const std::string, std::string>* longest = nullptr;
  for (const auto& words : rename) {
    if (name.starts_with(words.first) && (longest == nullptr || words.first.size() > longest->first.size())) longest = &words;
  }
  return longest == nullptr ? name : longest->second + name.substr(longest->first.size());
}

struct Wanted {
  at::Tensor value;
  const Stored* stored = nullptr;
};

using Names = std::map<std::string, Wanted>;

Names names_of(const torch::nn::Module& module) {
  Names wanted;
  for (const auto& item : module.named_parameters()) wanted[item.key()].value = item.value();
  for (const auto& item : module.named_buffers()) wanted[item.key()].value = item.value();
  return wanted;
}

// For each tensor of the module, sets Wanted::stored to the tensor of the file from which it is loaded. Returns the tensors of
// the file that the module does not have.
std::vector<const Stored*> match(Names& wanted, const std::vector<Stored>& all) {
  std::vector<const Stored*> others;
  for (const Stored& tensor : all) {
    const auto found = wanted.find(tensor.name);
    // If `rename` gives two tensors the same name, the second counts as unexpected.
    const bool is_other = found == wanted.end() || found->second.stored != nullptr;
    is_other ? others.push_back(&tensor) : static_cast<void>(found->second.stored = &tensor);
  }
  std::multimap<std::string, Wanted*> missing;
  for (auto& [name, want] : wanted) {
    if (want.stored == nullptr) missing.emplace(plain_name(name), &want);
  }
  std::map<std::string, std::vector<const Stored*>> by_plain;
  for (const Stored* tensor : others) by_plain[plain_name(tensor->name)].push_back(tensor);
  for (const auto& [name, tensors] : by_plain) {
    if (tensors.size() == 1 && missing.count(name) == 1) missing.find(name)->second->stored = tensors[0];
  }
  std::erase_if(others, [&](const Stored* tensor) {
    return std::ranges::any_of(wanted, [tensor](const auto& item) { return item.second.stored == tensor; });
  });
  return others;
}

std::string shape_text(const at::Tensor& value) { return to_text(Shape(value.sizes().begin(), value.sizes().end())); }

std::string type_of(const at::Tensor& value) {
  const auto dtype = dtype_of(value.scalar_type());
  return std::string(dtype ? name_of(*dtype) : "another type");
}

// Says why a tensor can't be copied; "" if it can.
std::string unlike(const Stored& stored, const at::Tensor& value) {
  const at::ScalarType type = scalar_type_of(stored.dtype);
  if (!std::ranges::equal(stored.shape, value.sizes())) return to_text(stored.shape) + " in the file and " + shape_text(value);
  const bool is_alike = at::isFloatingType(type) == at::isFloatingType(value.scalar_type()) &&
                        at::isComplexType(type) == at::isComplexType(value.scalar_type());
  return is_alike ? "" : std::string(name_of(stored.dtype)) + " in the file and " + type_of(value);
}

struct Problems {
  std::vector<std::string> missing, unexpected, unlike, lines;
  // Beginnings of a missing name and of the nearest name in the file, up to the point from which they agree.
  std::string before, after;

  // Finds the two beginnings of names that `rename` would need to map one name to the other.
  void suggest(std::string in_file, std::string in_module) {
    if (!before.empty() || in_file.empty()) return;
    while (!in_file.empty() && !in_module.empty() && in_file.back() == in_module.back() && in_file.back() != '.') {
      in_file.pop_back();
      in_module.pop_back();
    }
    before = std::move(in_file);
    after = std::move(in_module);
  }
};

Problems problems_of(const Names& wanted, const std::vector<const Stored*>& others) {
  Problems problems;
  std::vector<std::string> names;
  for (const Stored* tensor : others) names.push_back(tensor->name);
  for (const auto& [name, want] : wanted) {
    if (want.stored == nullptr) {
      const std::string near = nearest(name, names.data(), names.data() + names.size());
      problems.missing.push_back(name);
      problems.lines.push_back(quoted(name) + " " + shape_text(want.value) + " is missing" +
                               (near.empty() ? "" : "; the nearest name of the file is " + quoted(near)));
      problems.suggest(near, name);
    } else if (const std::string text = unlike(*want.stored, want.value); !text.empty()) {
      problems.unlike.push_back(name);
      problems.lines.push_back(quoted(name) + " is " + text + " in the module");
    }
  }
  for (const Stored* tensor : others) {
    problems.unexpected.push_back(tensor->in_file);
    problems.lines.push_back(quoted(tensor->in_file) + " " + to_text(tensor->shape) + " is not part of the module");
  }
  return problems;
}

[[noreturn]] void refuse(const Problems& problems, const std::filesystem::path& path, std::size_t taken) {
  std::vector<std::string> counts;
  const auto count = [&](const std::vector<std::string>& names, const char* what) {
    if (!names.empty()) counts.push_back(std::to_string(names.size()) + what);
  };
  count(problems.missing, " missing");
  count(problems.unexpected, " unexpected");
  count(problems.unlike, " of another shape or type");
  std::string what = "the weights of the file do not fit the module: " + joined(counts, ", ");
  for (std::size_t i = 0; i < std::min(problems.lines.size(), kListed); ++i) what += "\n" + problems.lines[i];
  if (problems.lines.size() > kListed) what += "\nand " + std::to_string(problems.lines.size() - kListed) + " more";
  std::string next = "see the file's names and shapes: millrace inspect " + path.string();
  if (!problems.unlike.empty()) {
    next = "make the module with the file's sizes and types: millrace inspect " + path.string() + " lists them";
  } else if (!problems.before.empty()) {
    next = "map the names to the module's with .rename = {{" + quoted(problems.before) + ", " + quoted(problems.after) + "}}";
  } else if (taken > 0) {
    next = problems.missing.empty() ? "ignore unexpected tensors with .strict = false, or choose a part with .prefix"
                                    : "keep the module's values for missing tensors with .strict = false";
  }
  throw DataError({std::move(what), path.string(), std::move(next)});
}

// Describes what load_weights() did with names and number formats.
std::vector<std::string> notice_of(const Names& wanted, const Problems& problems) {
  std::set<std::string> words;
  std::map<std::pair<std::string, std::string>, std::int64_t> converted;
  for (const auto& [name, want] : wanted) {
    if (want.stored == nullptr) continue;
    const std::string& given = want.stored->name;
    if (given != name) words.insert(given.ends_with(name) ? given.substr(0, given.size() - name.size()) : given);
    const std::pair<std::string, std::string> types(name_of(want.stored->dtype), type_of(want.value));
    if (types.first != types.second) ++converted[types];
  }
  std::vector<std::string> notices;
  if (!words.empty())
    notices.push_back("these parts of the file's weight names are ignored (wrappers such as torch.compile add them): " +
                      joined(words, ", ", [](const std::string& word) { return quoted(word); }));
  for (const auto& [types, count] : converted)
    notices.push_back(std::to_string(count) + (count == 1 ? " tensor" : " tensors") + " of " + types.first + " became " +
                      types.second);
  if (!problems.missing.empty())
    notices.push_back(std::to_string(problems.missing.size()) + " weights are not in the file and keep their values");
  if (!problems.unexpected.empty())
    notices.push_back(std::to_string(problems.unexpected.size()) +
                      " tensors in the file are ignored, because the module does not have them");
  return notices;
}

}  // namespace

std::string plain_name(std::string_view name) {
  constexpr std::array<std::string_view, 2> anywhere = {"_orig_mod.", "module."};
  constexpr std::array<std::string_view, 5> in_front = {"state_dict.", "model_state_dict.", "model.", "_orig_mod.", "module."};
  for (bool again = true; again;) {
    again = false;
    for (const std::string_view word : in_front) {
      if (!name.starts_with(word)) continue;
      name.remove_prefix(word.size());
      again = true;
    }
  }
  std::string rest(name);
  for (const std::string_view word : anywhere) {
    const std::string inside = "." + std::string(word);
    for (std::size_t at = rest.find(inside); at != std::string::npos; at = rest.find(inside)) rest.erase(at + 1, word.size());
  }
  return rest;
}

LoadedWeights load_weights(torch::nn::Module& module, const std::filesystem::path& file, const LoadOptions& options) {
  WeightsFile weights(file);
  std::vector<Stored> all = chosen(weights.tensors(), file, options);
  for (Stored& tensor : all) tensor.name = renamed(tensor.name, options.rename);
  Names wanted = names_of(module);
  Problems problems = problems_of(wanted, match(wanted, all));
  const auto taken =
      static_cast<std::size_t>(std::ranges::count_if(wanted, [](const auto& item) { return item.second.stored != nullptr; }));
  const bool is_gap = !problems.missing.empty() || !problems.unexpected.empty();
  if (!problems.unlike.empty() || (is_gap && (options.strict || taken == 0))) refuse(problems, file, taken);
  const at::NoGradGuard no_grad;
  for (auto& [name, want] : wanted) {
    if (want.stored != nullptr) want.value.copy_(weights.read(*want.stored));
  }
  LoadedWeights loaded{.taken = taken, .missing = {}, .unexpected = {}, .notices = notice_of(wanted, problems)};
  loaded.missing = std::move(problems.missing);
  loaded.unexpected = std::move(problems.unexpected);
  return loaded;
}

std::vector<std::string> FrozenPart::load_file(torch::nn::Module& module) {
  std::vector<std::string> notices = load_weights(module, file_, options_).notices;
  Sha256 hash;
  for (const auto& [name, want] : names_of(module)) {
    const at::Tensor host = want.value.detach().to(at::kCPU).contiguous();
    hash.update(name + " " + type_of(host) + shape_text(host) + "\n");
    hash.update(std::as_bytes(std::span(static_cast<const char*>(host.const_data_ptr()), host.nbytes())));
  }
  identity_ = hash.hex();
  return notices;
}

std::vector<NamedPart> frozen_parts(torch::nn::Module& model) {
  std::vector<NamedPart> parts;
  std::set<const void*> seen;
  for (const auto& item : model.named_modules("", /*include_self=*/false)) {
    auto* const part = dynamic_cast<FrozenPart*>(item.value().get());
    if (part != nullptr && seen.insert(part).second) parts.push_back({item.key(), part, item.value().get()});
  }
  return parts;
}

}  // namespace millrace::nn
