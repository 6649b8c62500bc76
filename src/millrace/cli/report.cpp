#include <algorithm>
#include <chrono>
#include <cstdio>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/fs.h"
#include "millrace/base/input_file.h"
#include "millrace/cli/shared/arguments.h"
#include "millrace/cli/shared/command.h"
#include "millrace/cli/shared/text.h"
#include "millrace/report/page_server.h"
#include "millrace/runs/report_page.h"
#include "millrace/system/signals.h"
#include "millrace/train/run_folder/run_files.h"

namespace millrace::cli {
namespace {

constexpr std::string_view kReportHelp =
    R"(Writes one HTML page of a run, or of several side by side: verdict, curves, where the time went, memory, pictures by step, plan,
config, and what differs between the configs of several runs. The page can be read without a network and without a script. Its
script adds other axes, a range of steps, smoothing, the values of a step in all diagrams, and the curves as SVG and CSV. train
writes RUN/report.html when it ends; this command writes the page again, also for a run that is still running or died.

  --out FILE            the file to write (default: RUN/report.html for one run, ./report.html for several); an existing file is
                        replaced only if it is a report
  --follow              keep the page up to date while the runs train: write it again when they log something, and serve it at an
                        address of this machine. The page reloads itself, also if it was opened as a file. Ctrl-C ends this
  --port N              the port of --follow; a free one by default. From another machine: ssh -L N:127.0.0.1:N HOST, then the same
                        address there
)";

using Clock = std::chrono::steady_clock;

constexpr int kReloadS = 5;

bool begins_as_a_page(const std::filesystem::path& file) {
  constexpr std::string_view kBegin = "<!doctype html>";
  try {
    const InputFile page(file);
    std::string begin(std::min<std::uint64_t>(page.size(), kBegin.size()), '\0');
    page.read(0, std::as_writable_bytes(std::span(begin)));
    return kBegin.starts_with(begin);
  } catch (const DataError&) {  // `file` is a folder or a device, or can't be read
    return false;
  }
}

// Throws UsageError if the page would replace something else, such as the log of a run or another program's report.html.
void refuse_other_file(const std::filesystem::path& file, const std::string& flag) {
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored) || begins_as_a_page(file)) return;
  throw UsageError({printable(file.string()) + " is not a report, and the page would replace it", flag,
                    "name another file with --out, or move that file away"});
}

// A text that is different each time a run has something new to show.
std::string state_of(const std::vector<std::filesystem::path>& folders) {
  std::string state;
  for (const auto& folder : folders) {
    for (const char* name : {run_files::kLog, run_files::kSummary, run_files::kPictures}) {
      std::error_code ignored;
      const auto size =
          std::filesystem::is_regular_file(folder / name, ignored) ? std::filesystem::file_size(folder / name, ignored) : 0;
      const auto written = std::filesystem::last_write_time(folder / name, ignored);
      state += std::to_string(size) + " " + std::to_string(written.time_since_epoch().count()) + "\n";
    }
    state += runs::Run(folder).is_running() ? "running\n" : "over\n";
  }
  return state;
}

std::string page_of(const std::vector<std::filesystem::path>& folders, int reload_s = 0) {
  std::vector<runs::RunStory> stories;
  stories.reserve(folders.size());
  for (const auto& folder : folders) stories.push_back(runs::read_story(folder));
  return runs::report_page(stories, reload_s);
}

bool any_is_running(const std::vector<std::filesystem::path>& folders) {
  return std::ranges::any_of(folders, [](const auto& folder) { return runs::Run(folder).is_running(); });
}

// Keeps the page up to date and serves it until a signal. Making pages takes at most a tenth of the time, however long the logs
// are.
int follow(const std::vector<std::filesystem::path>& folders, const std::filesystem::path& file, std::uint16_t port) {
  install_signal_handlers();
  report::PageServer server(port);
  std::string shown;
  Clock::time_point next = Clock::now();
  const auto stop = [] { return pending_signal() != 0; };
  while (!stop()) {
    std::string state = state_of(folders);
    if (state != shown && Clock::now() >= next) {
      const auto began = Clock::now();
      std::string page = page_of(folders, any_is_running(folders) ? kReloadS : 0);
      write_atomically(Fs::real(), file, page);
      server.set_page(std::move(page));
      if (shown.empty()) {
        const std::string port_text = std::to_string(server.port());
        std::string text = printable(file.string());
        text.append("\n").append(server.address()).append("\nfrom another machine: ssh -L ").append(port_text);
        text.append(":127.0.0.1:").append(port_text).append(" HOST; Ctrl-C ends it\n");
        print(text);
        std::fflush(stdout);
      }
      shown = std::move(state);
      next = Clock::now() + std::max<Clock::duration>(std::chrono::seconds(2), 9 * (Clock::now() - began));
    }
    server.serve(Clock::now() + std::chrono::seconds(1), stop);
  }
  write_atomically(Fs::real(), file, page_of(folders));  // without a reload time, because nothing new will come
  return 0;
}

int run_report(const Invocation& call) {
  Arguments arguments(call.words);
  const auto out = arguments.value("out");
  const bool follows = arguments.flag("follow");
  constexpr std::int64_t kMostPort = 65'535;
  const std::int64_t port = arguments.integer("port", 0, 0);
  std::vector<std::filesystem::path> folders;
  while (const auto folder = arguments.positional()) folders.emplace_back(*folder);
  arguments.finish("report");
  if (folders.empty())
    throw UsageError({"report needs the folder of a run", "millrace report RUN...",
                      "name a run; to list the runs below ./runs: millrace runs"});
  if (port > kMostPort || (port > 0 && !follows))
    throw UsageError({port > kMostPort ? std::to_string(port) + " is no port" : "--port is for --follow", "--port",
                      "give a number from 1 to 65535, with --follow"});
  if (out && out->empty()) throw UsageError({"--out is empty", "flag --out", "name the file to write: --out=FILE"});
  const std::filesystem::path file = out                   ? std::filesystem::path(*out)
                                     : folders.size() == 1 ? folders.front() / run_files::kReport
                                                           : std::filesystem::path("report.html");
  refuse_other_file(file, out ? "flag --out" : "millrace report");
  if (follows) return follow(folders, file, static_cast<std::uint16_t>(port));
  write_atomically(Fs::real(), file, page_of(folders));
  print(printable(file.string()) + "\n");
  return 0;
}

}  // namespace

constinit const Command kReport = {
    .name = "report",
    .arguments = "RUN... [--out FILE] [--follow] [--port N]",
    .summary = "one page of a run, or of several side by side: verdict, curves, time, memory, pictures",
    .group = "Look at things",
    .help = kReportHelp,
    .run = run_report};

}  // namespace millrace::cli
