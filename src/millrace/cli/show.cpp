#include <ATen/core/Tensor.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "millrace/base/format.h"
#include "millrace/base/fs.h"
#include "millrace/cli/inspect/field_picture.h"
#include "millrace/cli/inspect/value_table.h"
#include "millrace/cli/shared/command.h"
#include "millrace/cli/shared/recipe_help.h"
#include "millrace/cli/shared/take_run.h"
#include "millrace/cli/shared/text.h"
#include "millrace/cli/shared/trained.h"
#include "millrace/core/scalar_type.h"
#include "millrace/format/png.h"
#include "millrace/train/assembly/weights.h"
#include "millrace/train/run/preview.h"

namespace millrace::cli {
namespace {

constexpr std::string_view kShowHelp =
    R"(Shows batches as the network sees them: the samples that a run would begin with, after the loader, its augmentation and
the recipe's prepare(). It prints how the data was understood (axes, units, orientation, clock, encoding), then the values of
each field and the origin of each sample. It trains nothing and writes no run.

  FILE, --config FILE, --preset, --data, --off, --section.key=VALUE   as in train
  --from RUN            use the config of a run or a snapshot, and show the batches on which it would train next
  --split WORD          train, or validation
  --batches N           number of successive batches (default 1)
  --pictures FOLDER     write a picture of each field: FOLDER/batch-0-FIELD.png
  --json                as JSON

RECIPE may be left out: a run knows its recipe. A warning names each field that has NaN or infinite values, and the first
sample with such a value.
)";

constexpr std::int64_t kDescribed = 4;  // the origins of at most this many samples are printed below a table

struct Shown {
  std::filesystem::path output;  // "" = draw no pictures
  bool json = false;
  telemetry::Console* console = nullptr;
  Json all = Json::array();
  std::int64_t without_picture = 0;
  bool described = false;  // true: the data's own description was printed
};

std::span<const std::byte> values_of(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

std::string safe_name(std::string name) {
  std::ranges::replace_if(
      name, [](char c) { return c == '/' || static_cast<unsigned char>(c) < ' '; }, '_');
  return name;
}

// The row of the first value that is not finite.
std::int64_t first_bad_row(DType dtype, const at::Tensor& tensor) {
  const std::int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  const std::size_t row_bytes = tensor.nbytes() / static_cast<std::size_t>(std::max<std::int64_t>(rows, 1));
  for (std::int64_t row = 0; row < rows; ++row) {
    const ValueSummary one = summary_of(dtype, values_of(tensor).subspan(static_cast<std::size_t>(row) * row_bytes, row_bytes));
    if (one.nans + one.infinities > 0) return row;
  }
  return 0;
}

class ShownGroup {
 public:
  ShownGroup(Shown& shown, const Batch& batch, const Group& group, const data::Dataset* dataset, const Facts& facts)
      : shown_(shown), batch_(batch), group_(group), dataset_(dataset), facts_(facts) {}

  void show() {
    std::vector<Json> values;
    for (const auto& [name, tensor] : group_.fields) {
      const at::Tensor here = tensor.detach().to(at::kCPU).contiguous();
      const std::optional<DType> dtype = dtype_of(here.scalar_type());
      if (!dtype) {
        shown_.console->warning("field " + quoted(name) + " has a type that tables can't show");
        continue;
      }
      const ValueSummary summary = summary_of(*dtype, values_of(here));
      values.push_back(value_json(name, here.sizes().vec(), summary));
      if (summary.finite() < summary.count) warn(name, summary, first_bad_row(*dtype, here));
      if (!shown_.output.empty()) draw(name, here);
    }
    print_values(values);
  }

 private:
  [[nodiscard]] std::string of_group() const { return group_.name.empty() ? "" : " of data set " + quoted(group_.name); }

  // Prints a warning such as: field "image" of training batch 0 of epoch 0 has 3 NaN and 1 infinite of 4,096 values, the first in
  // row 5: sample 17.
  void warn(const std::string& name, const ValueSummary& summary, std::int64_t row) {
    std::string what = summary.nans > 0 ? with_commas(summary.nans) + " NaN" : "";
    if (summary.infinities > 0) what += (what.empty() ? "" : " and ") + with_commas(summary.infinities) + " infinite";
    shown_.console->warning("field " + quoted(name) + of_group() + " of " + to_text(batch_.origin()) + " has " + what + " of " +
                            with_commas(summary.count) + " values, the first in row " + std::to_string(row) + ": " +
                            name_of_row(group_, dataset_, row));
  }

  // The name of each row's sample, followed by the row's single whole numbers, which help to tell samples apart: "sample 17,
  // label 3".
  [[nodiscard]] std::vector<std::string> names_of_rows() const {
    std::vector<std::string> names;
    for (std::int64_t row = 0; row < group_.rows(); ++row) {
      const bool has_index = row < static_cast<std::int64_t>(group_.indices.size());
      names.push_back(has_index ? "sample " + std::to_string(group_.indices[static_cast<std::size_t>(row)])
                                : "row " + std::to_string(row));
      for (const auto& [name, tensor] : group_.fields) {
        if (has_word(tensor, row)) names.back() += ", " + name + " " + word_of(name, tensor[row].item<std::int64_t>());
      }
    }
    return names;
  }

  // The name of a value of a field, such as the name of a label's class. The number itself, if the value has no name.
  [[nodiscard]] std::string word_of(const std::string& field, std::int64_t value) const {
    const auto words = facts_.fields.find(field);
    const bool has_name = words != facts_.fields.end() && value >= 0 && value < std::ssize(words->second.names);
    return has_name ? printable(words->second.names[static_cast<std::size_t>(value)]) : std::to_string(value);
  }

  // The name of the row's sample, followed by the values that have names: "sample 17 (photos/owl/3.png), label owl".
  [[nodiscard]] std::string described(std::int64_t row) const {
    std::string text = name_of_row(group_, dataset_, row);
    for (const auto& [name, words] : facts_.fields) {
      const auto field = group_.fields.find(name);
      if (words.names.empty() || field == group_.fields.end() || !has_word(field->second, row)) continue;
      const auto value = field->second[row].item<std::int64_t>();
      if (const std::string word = word_of(name, value); word != std::to_string(value))
        text.append(", ").append(name).append(" ").append(word);
    }
    return text;
  }

  static bool has_word(const at::Tensor& tensor, std::int64_t row) {
    return tensor.dim() == 1 && tensor.size(0) > row && !tensor.is_floating_point() && !tensor.is_complex();
  }

  void draw(const std::string& name, const at::Tensor& values) {
    const std::string number = "batch-" + std::to_string(batch_.origin().index);
    const std::string field = (group_.name.empty() ? "" : group_.name + "-") + name;
    SeenField seen{.name = safe_name(number + "-" + field),
                   .title = field + ", " + to_text(batch_.origin()),
                   .values = values,
                   .samples = names_of_rows(),
                   .description = facts_.read_as};
    if (const auto words = facts_.fields.find(name); words != facts_.fields.end()) seen.words = words->second;
    if (values.dim() > 0 && values.size(0) != group_.rows()) {  // a value that belongs to the whole batch, not to its rows
      seen.samples.clear();
      for (std::int64_t i = 0; i < values.size(0); ++i) seen.samples.push_back("row " + std::to_string(i));
    }
    const std::optional<Picture> picture = picture_of(seen);
    if (!picture) {
      ++shown_.without_picture;
      return;
    }
    format::write_png(Fs::real(), shown_.output / (picture->name + ".png"),
                      {picture->height, picture->width, format::Pixels::rgb}, std::as_bytes(std::span(picture->rgb)));
  }

  void print_values(const std::vector<Json>& values) {
    const std::int64_t rows = group_.rows();
    if (shown_.json) {
      Json samples = Json::array();
      for (std::int64_t row = 0; row < std::min(rows, kDescribed); ++row) samples.push_back(described(row));
      shown_.all.push_back({{"split", batch_.split() == Split::train ? "train" : "validation"},
                            {"epoch", batch_.epoch()},
                            {"batch", batch_.origin().index},
                            {"data_set", group_.name},
                            {"read_as", facts_.read_as},
                            {"rows", rows},
                            {"positions", group_.positions},
                            {"indices", group_.indices},
                            {"samples", std::move(samples)},
                            {"fields", values}});
      return;
    }
    std::string text = to_text(batch_.origin()) + (group_.name.empty() ? "" : ", data set " + group_.name) + ": " +
                       with_commas(rows) + (rows == 1 ? " row" : " rows") + "\n" + table(value_rows("field", values));
    for (std::int64_t row = 0; row < std::min(rows, kDescribed); ++row)
      text += "  row " + std::to_string(row) + "  " + described(row) + "\n";
    if (rows > kDescribed) text += "  and " + with_commas(rows - kDescribed) + " more rows\n";
    print(text + "\n");
  }

  Shown& shown_;
  const Batch& batch_;
  const Group& group_;
  const data::Dataset* dataset_;
  const Facts& facts_;
};

// Takes --from and adds the config of that run to the words.
std::filesystem::path take_from(Arguments& arguments) {
  const auto from = arguments.value("from");
  if (!from) return {};
  const std::filesystem::path run = run_folder_of(Fs::real(), *from);
  if (run.empty() || !std::filesystem::is_directory(run)) {
    throw UsageError({*from + " is neither a run folder nor a snapshot of a run", "flag --from",
                      "name a run or one of its snapshots, or leave out --from for the recipe's own config; to list the runs "
                      "below ./runs: millrace runs"});
  }
  arguments.add("--run=" + run.string());
  return *from;
}

int run_show(const Invocation& call) {
  Arguments arguments(call.words);
  const Entry& entry = take_recipe_of_run(arguments, call.recipes, "show");
  Shown shown;
  shown.json = arguments.flag("json");
  Preview preview{.batches = arguments.integer("batches", 1, 1), .from = take_from(arguments)};
  const std::string split = arguments.value("split").value_or("train");
  if (split != "train" && split != "validation")
    throw UsageError({"there is no split " + quoted(split), "flag --split", "write train or validation"});
  preview.split = split == "train" ? Split::train : Split::validation;
  if (const auto output = arguments.value("pictures")) shown.output = *output;
  telemetry::Console console(telemetry::Console::Mode::automatic, 2);
  shown.console = &console;
  const RunRequest request = take_run(entry, arguments, console);
  if (!shown.output.empty()) Fs::real().create_directories(shown.output);
  preview_batches(request, preview, [&](const Batch& batch, std::span<const data::Dataset> datasets, const Facts& facts) {
    if (!shown.json && !facts.read_as.empty() && !std::exchange(shown.described, true))
      print("read as  " + printable(facts.read_as) + "\n\n");
    for (std::size_t g = 0; g < batch.groups().size(); ++g)
      ShownGroup(shown, batch, batch.groups()[g], g < datasets.size() ? &datasets[g] : nullptr, facts).show();
  });
  if (shown.json) {
    print_json(shown.all);
    return 0;
  }
  print(std::string(kValueNote) + "\n");
  if (shown.output.empty()) return 0;
  print("pictures in " + shown.output.string() +
        (shown.without_picture == 0
             ? ""
             : "; fields without a picture (no finite values, or too many axes): " + with_commas(shown.without_picture)) +
        "\n");
  return 0;
}

std::string show_help(const Invocation& call) { return picture_rule() + recipe_help(call); }

}  // namespace

constinit const Command kShow = {
    .name = "show",
    .arguments =
        "RECIPE [FILE]... [--from RUN] [--split WORD] [--batches N] [--pictures FOLDER] [--section.key=VALUE]... [--json]",
    .summary = "the next batches as the network sees them: values, samples, pictures",
    .group = "Look at things",
    .help = kShowHelp,
    .run = run_show,
    .more_help = show_help};

}  // namespace millrace::cli
