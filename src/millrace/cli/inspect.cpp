#include "millrace/cli/inspect/inspect_report.h"
#include "millrace/cli/shared/arguments.h"
#include "millrace/cli/shared/command.h"
#include "millrace/cli/shared/text.h"

namespace millrace::cli {
namespace {

constexpr std::string_view kInspectHelp =
    R"(Shows the contents of a run folder, a snapshot folder or a file, and checks them: .safetensors, .pt, HDF5, .npy, .npz,
NIfTI (.nii, .nii.gz, .hdr, .img), .png, .jpg, .wav, token files, tables (.csv, .tsv), UTF-8 text. The kind of a file is found by its
content, and by its name only if the content does not show it. It prints what the readers take from the file: axes, units,
orientation and affine, clock, bits, separators, ends of lines, and what they skip. Exit code 1 if something is damaged, or is of
a kind that Millrace does not read, such as a pickle of other classes; a line says what it is.

  --values              for each array: the least, greatest and mean value, the standard deviation, the numbers of NaN and of
                        infinite values, and the number of different whole numbers. Least, greatest, mean and deviation cover the
                        finite values; for complex numbers, their magnitudes. The file is read in pieces of a few megabytes
  --json                as JSON
)";

int run_inspect(const Invocation& call) {
  Arguments arguments(call.words);
  const bool json = arguments.flag("json");
  const bool values = arguments.flag("values");
  const auto path = arguments.positional();
  arguments.finish("inspect");
  if (!path) throw UsageError({"millrace inspect needs a path", "millrace inspect", "write millrace inspect PATH"});
  const Report report = inspect_path(*path, values, call.recipes);
  json ? print_json(report.to_json(*path)) : print(report.to_text(*path));
  return report.problems.empty() && report.unread.empty() ? 0 : 1;
}

}  // namespace

constinit const Command kInspect = {.name = "inspect",
                                    .arguments = "PATH [--values] [--json]",
                                    .summary = "names, shapes, types and checks of a run, snapshot or file",
                                    .group = "Look at things",
                                    .help = kInspectHelp,
                                    .run = run_inspect};

}  // namespace millrace::cli
