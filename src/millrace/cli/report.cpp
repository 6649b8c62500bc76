#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/fs.h"
#include "millrace/cli/shared/arguments.h"
#include "millrace/cli/shared/command.h"
#include "millrace/cli/shared/text.h"
#include "millrace/runs/report_page.h"

namespace millrace::cli {
namespace {

constexpr std::string_view kReportHelp =
    R"(Writes one HTML page of a run, or of several side by side: verdict, curves, where the time went, memory, pictures, plan, config. The
page needs no network and no script to be read. train leaves RUN/report.html when it ends; this writes it anew, also of a run that goes
on or died.

  --out FILE            where to; of one run RUN/report.html, of several ./report.html
)";

int run_report(const Invocation& call) {
  Arguments arguments(call.words);
  const auto out = arguments.value("out");
  std::vector<runs::RunStory> runs;
  while (const auto folder = arguments.positional()) runs.push_back(runs::read_story(*folder));
  arguments.finish("report");
  if (runs.empty())
    throw UsageError({"report needs the folder of a run", "millrace report RUN...", "millrace runs lists the runs below ./runs"});
  if (runs.size() == 1 && !out) {
    print(printable(runs::write_report(runs.front().folder).string()) + "\n");
    return 0;
  }
  const std::filesystem::path file = out.value_or("report.html");
  write_atomically(Fs::real(), file, runs::report_page(runs));
  print(printable(file.string()) + "\n");
  return 0;
}

}  // namespace

constinit const Command kReport = {
    .name = "report",
    .arguments = "RUN... [--out FILE]",
    .summary = "one page of a run, or of several side by side: verdict, curves, time, memory, pictures",
    .group = "Look at things",
    .help = kReportHelp,
    .run = run_report};

}  // namespace millrace::cli
