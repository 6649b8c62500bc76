#include "millrace/cli/inspect/inspect_report.h"
#include "millrace/cli/shared/arguments.h"
#include "millrace/cli/shared/command.h"
#include "millrace/cli/shared/text.h"

namespace millrace::cli {
namespace {

constexpr std::string_view kInspectHelp =
    R"(Says what is in a run folder, a snapshot folder or a file, and checks it: .safetensors, .pt, HDF5, .npy, .npz, NIfTI
(.nii, .nii.gz, .hdr, .img), .png, .jpg, token files, tables (.csv, .tsv), UTF-8 text. What a file is its content says, where
it does, and not its name. Shown is what the file says of itself as the readers take it: axes, units, orientation and affine,
clock, bits, separators, ends of lines, what is passed over. Exit code 1 when something in it is damaged, or is of a kind that
Millrace does not read, such as a pickle of other classes; it says which.

  --values              of each array the least, greatest and mean value, the standard deviation, how many are NaN or infinite,
                        and how many whole numbers differ. Least to deviation are of the finite values; of complex numbers the
                        magnitudes are taken. The file is read in pieces of a few megabytes
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
