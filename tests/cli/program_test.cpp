// The program as a child process: texts, exit codes, refusals. Golden texts are in golden/; MILLRACE_UPDATE_GOLDEN=1 writes them.
#include <gmock/gmock.h>

#include <cstdlib>

#include "millrace/base/fs.h"
#include "millrace/base/json.h"
#include "millrace/format/safetensors.h"
#include "process.h"

namespace millrace::test {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;
using testing::StartsWith;

Result millrace(std::vector<std::string> words, const Options& options = {}) {
  words.insert(words.begin(), MILLRACE_PROGRAM);
  return run(words, options);
}

void expect_golden(const std::string& name, const std::string& text) {
  const std::filesystem::path file = std::filesystem::path(MILLRACE_SOURCE_DIR) / "tests/cli/golden" / name;
  if (std::getenv("MILLRACE_UPDATE_GOLDEN") != nullptr) {
    write_text(file, text);
  }
  EXPECT_EQ(text, read_text(file)) << "if the new text is right: MILLRACE_UPDATE_GOLDEN=1 millrace_program_test writes " << name;
}

const std::vector<std::string> kCommands = {"train", "predict", "eval",  "export",    "import", "inspect", "show",    "runs",
                                            "list",  "config",  "bench", "make-data", "new",    "doctor",  "compare", "tune"};

TEST(Help, Top) {
  const Result result = millrace({"--help"});
  EXPECT_EQ(result.exit_code, 0);
  expect_golden("help.txt", result.out);
  EXPECT_EQ(millrace({}).out, result.out);
}

TEST(Help, Train) { expect_golden("help_train.txt", millrace({"train", "--help"}).out); }

TEST(Help, TrainRecipeListsEveryKey) {
  const Result result = millrace({"train", "language-model", "--help"});
  EXPECT_EQ(result.exit_code, 0);
  expect_golden("help_train_language_model.txt", result.out);
  EXPECT_EQ(millrace({"help", "train", "language_model"}).out, result.out);
}

TEST(Help, OfEveryCommand) {
  for (const auto& command : kCommands) {
    const Result result = millrace({command, "--help"});
    EXPECT_EQ(result.exit_code, 0) << command;
    EXPECT_THAT(result.out, StartsWith("usage: millrace " + command + " ")) << command;
    EXPECT_EQ(result.err, "") << command;
  }
  EXPECT_EQ(millrace({"make_data", "--help"}).exit_code, 0);
}

TEST(Help, OfARecipesOwnCommand) { EXPECT_EQ(millrace({"generate", "--help"}).exit_code, 0); }

TEST(Version, FiveLines) {
  const Result result = millrace({"--version"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, MatchesRegex("Millrace 0\\.1\\.0\nLibTorch 2\\.[0-9]+\\.[0-9]+\ncompiler [^\n]+\nCPU      [^\n]+, "
                                       "[0-9]+ cores?, ATen uses [A-Z0-9_]+, our kernels [a-z0-9_]+[^\n]*\nGPU      [^\n]+\n"));
}

// With a GPU or without: what the machine is, and exit code 0 unless a run could not even begin.
TEST(Doctor, SaysWhatTheMachineIs) {
  const Result result = millrace({"doctor"});
  EXPECT_EQ(result.exit_code, 0) << result.out;
  for (const char* row : {"Millrace ", "CPU ", "instructions ", "cores ", "memory ", "GPU ", "current folder ", "cache folder "})
    EXPECT_THAT(result.out, HasSubstr(row));
  for (const char* row : {"matrix product ", "3-d convolution ", "clock ", "others ", "open files ", "libraries ", "GPU driver ",
                          "shared memory ", "ranks ", "2 processes add up ", "ports "})
    EXPECT_THAT(result.out, HasSubstr(row));
  EXPECT_EQ(millrace({"doctor", "cosmology"}).exit_code, 2);
}

// As JSON. A library that stands for the driver's is found as the real one would be.
TEST(Doctor, SaysWhatTheGpusDriverTells) {
  const Json report =
      Json::parse(millrace({"doctor", "--json"},
                           {.environment = {{"LD_LIBRARY_PATH", FAKE_NVML_FOLDER}, {"CUDA_DEVICE_ORDER", "FASTEST_FIRST"}}})
                      .out);
  for (const auto& [row, level] : report["levels"].items()) {
    EXPECT_THAT(level.get<std::string>(), testing::AnyOf("pass", "warn")) << row;
    EXPECT_TRUE(report["machine"].contains(row));
  }
  for (const Json& finding : report["findings"]) EXPECT_EQ(report["levels"][finding["row"].get<std::string>()], "warn");
  EXPECT_TRUE(report["findings"].is_array());
  EXPECT_THAT(report["machine"]["GPU"].get<std::string>(), testing::Not(testing::IsEmpty()));
  const bool has_cuda = !report["machine"]["GPU"].get<std::string>().starts_with("none is used");
  EXPECT_THAT(report["machine"]["GPU driver"].get<std::string>(),
              MatchesRegex(has_cuda ? "550.54.15" : "550.54.15; GPUs have the numbers of nvidia-smi, .*PCI_BUS_ID is set"));
  EXPECT_THAT(report["machine"]["GPU 0"].get<std::string>(),
              MatchesRegex("NVIDIA Test 80GB, capability 9.0, 12 GB of 80 GB used, busy 37 %, 1980 of 1980 MHz, 41 C"));
  EXPECT_THAT(report["machine"]["GPU 1"].get<std::string>(), HasSubstr("held back by power limit, heat (hardware)"));
  EXPECT_EQ(report["levels"]["GPU 1"], "warn");
  const Json hidden = Json::parse(
      millrace({"doctor", "--json"}, {.environment = {{"LD_LIBRARY_PATH", FAKE_NVML_FOLDER}, {"CUDA_VISIBLE_DEVICES", "GPU-b"}}})
          .out);
  EXPECT_EQ(hidden["machine"]["GPU driver"], "550.54.15; CUDA_VISIBLE_DEVICES=GPU-b");
  EXPECT_THAT(hidden["machine"]["GPU 0"].get<std::string>(), HasSubstr("NVIDIA Test 40GB"));
  EXPECT_FALSE(hidden["machine"].contains("GPU 1"));
}

TEST(List, RecipesAndSwitches) {
  expect_golden("list.txt", millrace({"list"}).out);
  expect_golden("list_switches.txt", millrace({"list", "--switches"}).out);
  EXPECT_EQ(Json::parse(millrace({"list", "--json"}).out)[3]["name"], "language_model");
  EXPECT_TRUE(Json::parse(millrace({"list", "--switches", "--json"}).out).is_array());
}

TEST(Errors, UnknownWords) {
  const auto error = [](std::vector<std::string> words) {
    const Result result = millrace(std::move(words));
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_EQ(result.out, "");
    return result.err;
  };
  expect_golden("errors.txt", error({"trian", "language_model"}) + error({"frobnicate"}) + error({"train"}) +
                                  error({"train", "langage_model"}) + error({"list", "--swiches"}) + error({"bench"}) +
                                  error({"bench", "step", "language_model", "--shape=cpu-smal", "--steps=0"}) +
                                  error({"eval", "language_model"}) + error({"predict", "language_model", "--input=x"}) +
                                  error({"inspect"}) + error({"config", "language_model"}) + error({"inspect", "gone"}));
}

TEST(Errors, ElevenMistakesElevenMessages) {
  const Scratch scratch;
  write_text(scratch.path() / "wrong.json",
             "{\n  // eleven mistakes of different kinds, six of them here\n  \"optim\": {\n    \"learing_rate\": 1e-3,\n"
             "    \"weight_decay\": -1,\n    \"schedule\": \"cosin\",\n    \"betas\": [0.9],\n    \"eps\": \"small\",\n"
             "    \"eps\": 1e-8\n  }\n}\n");
  Options options{.folder = scratch.path()};
  options.environment = {{"MILLRACE_TRAIN__EPOCHS", "ten"}};
  const Result result = millrace(
      {"train", "language_model", "wrong.json", "--preset=smal", "--train.max_steps=1.5", "--off=autocats", "--data"}, options);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.out, "");
  expect_golden("eleven_mistakes.txt", result.err);
  std::size_t places = 0;
  for (std::size_t at = 0; (at = result.err.find("where ", at)) != std::string::npos; ++at) ++places;
  EXPECT_EQ(places, 11U);
  EXPECT_FALSE(std::filesystem::exists(scratch.path() / "runs"));
}

TEST(Errors, WhatNoValueTellsAloneIsSaidBeforeAnythingIsMade) {
  const Scratch scratch;
  const Result result =
      millrace({"train", "language_model", "--preset=smoke", "--memory.budget=lots", "--train.epochs=0", "--train.max_steps=0"},
               {.folder = scratch.path()});
  EXPECT_EQ(result.exit_code, 2);
  expect_golden("contradictions.txt", result.err);
  EXPECT_FALSE(std::filesystem::exists(scratch.path() / "runs"));
}

TEST(Config, ExplainSaysWhereValuesCameFrom) {
  const Scratch scratch;
  const Result result =
      millrace({"config", "explain", "language_model", "--preset=smoke", "--json", "--train.seed=5"}, {.folder = scratch.path()});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json json = Json::parse(result.out);
  EXPECT_EQ(json["values"]["train"]["seed"], 5);
  EXPECT_EQ(json["origins"]["train.seed"], "flag --train.seed");
}

TEST(Config, ExplainSpeaksOfItself) {
  const Result none = millrace({"config", "explain"});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("millrace config explain needs the name of a recipe"));
  EXPECT_THAT(millrace({"config", "explain", "cosmolgy"}).err, HasSubstr("where    millrace config explain"));
}

TEST(Reference, IsUpToDate) {
  EXPECT_EQ(millrace({"docs", "config"}).out, read_text(std::filesystem::path(MILLRACE_SOURCE_DIR) / "docs/reference/config.md"))
      << "./dev docs writes it";
}

TEST(Output, ThatCannotBeWrittenIsAFailure) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no full device here";
  const Result result = millrace({"list"}, {.out_file = "/dev/full"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("could not be written"));
}

// The program, as "$0", started by a line of a shell.
Result through_shell(const std::string& line, const Options& options) {
  return run({"/bin/sh", "-c", line, MILLRACE_PROGRAM}, options);
}

void write_weights(const std::filesystem::path& file, std::int64_t count) {
  write_atomically(Fs::real(), file, [&](WritableFile& out) {
    const std::vector<Field> fields = {{"w", DType::u8, {count}}};
    const std::vector<std::byte> bytes(static_cast<std::size_t>(count));
    format::write_safetensors(out, fields, [&](std::size_t) { return std::span<const std::byte>(bytes); });
  });
}

TEST(Output, ThatIsTheResultMustArrive) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no full device here";
  const Scratch scratch;
  const Options full{.folder = scratch.path(), .out_file = "/dev/full"};
  for (const std::vector<std::string>& words : {std::vector<std::string>{"config", "explain", "language_model", "--preset=smoke"},
                                                {"train", "language_model", "--preset=smoke", "--dry-run"},
                                                {"runs"}}) {
    const Result result = millrace(words, full);
    EXPECT_EQ(result.exit_code, 1) << words[0];
    EXPECT_THAT(result.err, HasSubstr("FileError  the output could not be written\n  next     ")) << words[0];
  }
  EXPECT_EQ(through_shell("\"$0\" list >&-", {.folder = scratch.path()}).exit_code, 1);
}

TEST(Output, ThatIsClosedOrFullDoesNotStopARunNorLandInItsFiles) {
  const Scratch scratch;
  const std::string train =
      "\"$0\" train language_model --preset=smoke --device.threads=1 --precision.dtype=fp32 --train.max_steps=1 --run ";
  for (const char* closed : {">&-", ">&- 2>&- <&-"}) {
    EXPECT_EQ(through_shell(train + "a --fresh " + closed, {.folder = scratch.path()}).exit_code, 0) << closed;
    // The numbers of processes, and nothing of what the run says.
    EXPECT_EQ(read_text(scratch.path() / "a/lock").find_first_not_of("0123456789\n"), std::string::npos) << closed;
    EXPECT_THAT(read_text(scratch.path() / "a/summary.json"), HasSubstr("\"exit_reason\"")) << closed;
  }
  if (!std::filesystem::exists("/dev/full")) return;
  EXPECT_EQ(through_shell(train + "b >/dev/full", {.folder = scratch.path()}).exit_code, 0);
}

TEST(Start, WithoutACurrentFolder) {
  const Scratch scratch;
  std::filesystem::create_directory(scratch.path() / "gone");
  const Result result = through_shell("rmdir ../gone && exec \"$0\" list", {.folder = scratch.path() / "gone"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("FileError  the current folder was deleted\n"));
  EXPECT_THAT(result.err, HasSubstr("  next     change to a folder that exists (cd) and try again\n"));
}

TEST(Import, WritesItsFileWholeOrNotAtAll) {
  const Scratch scratch;
  const Options here{.folder = scratch.path()};
  write_weights(scratch.path() / "w.safetensors", 5000);
  write_text(scratch.path() / "victim", "mine");
  write_text(scratch.path() / "x.pt.part", "mine too");
  std::filesystem::create_symlink("victim", scratch.path() / "y.pt.part");
  for (const char* to : {"x.pt", "y.pt"}) {
    const Result result = millrace({"import", "w.safetensors", "--to", to}, here);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_TRUE(std::filesystem::is_regular_file(std::filesystem::symlink_status(scratch.path() / to)));
  }
  EXPECT_EQ(read_text(scratch.path() / "victim"), "mine");
  EXPECT_EQ(read_text(scratch.path() / "x.pt.part"), "mine too");
  const Result limited = through_shell("ulimit -f 2; \"$0\" import w.safetensors --to z.pt", here);
  EXPECT_EQ(limited.exit_code, 1);
  EXPECT_THAT(limited.err, HasSubstr("ulimit -f"));
  EXPECT_EQ(Fs::real().list(scratch.path()).size(), 6U);
}

TEST(Import, LeavesTheFileThatItReads) {
  const Scratch scratch;
  write_weights(scratch.path() / "w.safetensors", 3);
  const std::string before = read_text(scratch.path() / "w.safetensors");
  const std::vector<std::vector<std::string>> commands = {{"import", "w.safetensors", "--to", "./w.safetensors"},
                                                          {"export", "--from", "w.safetensors", "--to=w.safetensors"}};
  for (const std::vector<std::string>& words : commands) {
    const Result result = millrace(words, {.folder = scratch.path()});
    EXPECT_EQ(result.exit_code, 2) << words[0];
    EXPECT_THAT(result.err, HasSubstr("w.safetensors is the input file, which the output would replace\n")) << words[0];
  }
  EXPECT_EQ(read_text(scratch.path() / "w.safetensors"), before);
}

TEST(Report, ReplacesNothingButAReport) {
  const Scratch scratch;
  const Options here{.folder = scratch.path()};
  const std::string log = "{\"kind\":\"start\",\"step\":0}\n", other = "<!DOCTYPE html><p>of another program";
  for (const char* folder : {"a", "b"}) {
    std::filesystem::create_directory(scratch.path() / folder);
    write_text(scratch.path() / folder / "log.jsonl", log);
  }
  write_text(scratch.path() / "report.html", other);
  write_text(scratch.path() / "empty.html", "");
  const std::vector<std::vector<std::string>> refused = {
      {"report", "a", "--out=a/log.jsonl"}, {"report", "a", "--out", "b"}, {"report", "a", "b"}};
  for (const std::vector<std::string>& words : refused) {
    const Result result = millrace(words, here);
    EXPECT_EQ(result.exit_code, 2) << words.back();
    EXPECT_THAT(result.err, HasSubstr(" is not a report, and the page would replace it")) << words.back();
  }
  EXPECT_THAT(millrace({"report", "a", "--out="}, here).err, HasSubstr("UsageError  --out is empty\n"));
  EXPECT_EQ(read_text(scratch.path() / "a" / "log.jsonl"), log);
  EXPECT_EQ(read_text(scratch.path() / "report.html"), other);
  for (const char* out : {"new.html", "new.html", "empty.html"}) {
    const Result result = millrace({"report", "a", "--out", out}, here);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(read_text(scratch.path() / out), HasSubstr("</html>"));
  }
}

TEST(Launch, RefusesWhatIsNoOptionAndNumbersThatAreTooLarge) {
  const Result dash = millrace({"launch", "-", "x"});
  EXPECT_EQ(dash.exit_code, 2);
  EXPECT_THAT(dash.err, HasSubstr("launch knows no option -\n"));
  const Result many = millrace({"launch", "--nproc=100000", "--slurm=job", "train", "language_model"});
  EXPECT_EQ(many.exit_code, 2);
  EXPECT_THAT(many.err, HasSubstr("--nproc is \"100000\", not a number from 1 to 4096\n"));
}

TEST(Inspect, ExitCodeSaysWhetherAFileIsWhole) {
  const Scratch scratch;
  const std::filesystem::path file = scratch.path() / "w.safetensors";
  write_weights(file, 3);
  EXPECT_EQ(millrace({"inspect", file.string()}).exit_code, 0);
  EXPECT_EQ(Json::parse(millrace({"inspect", file.string(), "--json"}).out)["tensors"][0]["shape"], Json{3});
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  const Result damaged = millrace({"inspect", file.string()});
  EXPECT_EQ(damaged.exit_code, 1);
  EXPECT_THAT(damaged.out, HasSubstr("problem: "));
}

TEST(Bench, AblateComparesARowInWholeRuns) {
  const Scratch scratch;
  Options options{.folder = scratch.path()};
  options.environment = {{"XDG_CACHE_HOME", scratch.path().string()}};
  const Result result = millrace({"bench", "--ablate", "language_model", "--preset", "smoke", "--rows=fused_loss,device-skip",
                                  "--rounds=1", "--steps=3", "--json"},
                                 options);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json rows = Json::parse(result.out).at("rows");
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].at("row"), "device_skip");
  EXPECT_EQ(rows[0].at("equality"), "to the bit");
  EXPECT_EQ(rows[1].at("row"), "fused_loss");
  EXPECT_LE(rows[1].at("loss_apart").get<double>(), 1e-4);
  for (const Json& row : rows) {
    EXPECT_TRUE(row.at("equal").get<bool>());
    EXPECT_GT(row.at("on_ms").get<double>(), 0);
    EXPECT_GT(row.at("off_ms").get<double>(), 0);
  }
  const Result failed = millrace({"bench", "ablate", "language_model", "--sources=missing.txt", "--rounds=1"}, options);
  EXPECT_EQ(failed.exit_code, 2);
  EXPECT_THAT(failed.err, HasSubstr("missing.txt"));
}

TEST(Runs, EmptyFolder) {
  const Scratch scratch;
  EXPECT_EQ(millrace({"runs"}, {.folder = scratch.path()}).out, "no runs below runs\n");
  write_text(scratch.path() / "run.json", "{}");
  EXPECT_THAT(millrace({"runs", "--root=."}, {.folder = scratch.path()}).out, HasSubstr("no runs below .: it is a run itself"));
  EXPECT_EQ(millrace({"runs", "--json"}, {.folder = scratch.path()}).out, "[]\n");
}

TEST(Runs, SayWhichFolderIsMissing) {
  const Scratch scratch;
  write_text(scratch.path() / "file", "x");
  for (const char* root : {"gone", "file"}) {
    const Result result = millrace({"runs", "--root", root}, {.folder = scratch.path()});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err, StartsWith("UsageError  " + std::string(root)));
    EXPECT_THAT(result.err, HasSubstr("\n  where    flag --root\n  next     name the folder"));
  }
  std::filesystem::create_directories(scratch.path() / "runs/toy/a\n\x1b[2J/snapshots");
  const Result result = millrace({"runs"}, {.folder = scratch.path()});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("\"runs/toy/a\\n\\x1b[2J\"  toy"));
}

TEST(Runs, ColumnsAndOrder) {
  const Scratch scratch;
  for (const auto& [name, ms] : {std::pair{"slow", 20.0}, std::pair{"fast", 5.0}}) {
    std::filesystem::create_directories(scratch.path() / "runs/toy" / name);
    write_text(scratch.path() / "runs/toy" / name / "run.json", "{}");
    const Json summary = {{"recipe", "toy"},
                          {"steps", 10},
                          {"exit_reason", "max_steps"},
                          {"step_ms", {{"p50", ms}}},
                          {"tokens_per_s", 1000 / ms},
                          {"findings", {{{"id", "x"}}}},
                          {"bound_by", "forward"}};
    write_text(scratch.path() / "runs/toy" / name / "summary.json", summary.dump());
  }
  const Options here{.folder = scratch.path()};
  EXPECT_EQ(millrace({"runs", "--sort=step_ms", "--columns=run,step_ms,rate,findings,bound_by"}, here).out,
            "run            step_ms           rate  findings  bound_by\n"
            "runs/toy/fast      5.0   200 tokens/s         1  forward\n"
            "runs/toy/slow     20.0  50.0 tokens/s         1  forward\n");
  const Json json = Json::parse(millrace({"runs", "--sort=-step_ms", "--json"}, here).out);
  ASSERT_EQ(json.size(), 2U);
  EXPECT_EQ(json[0]["step_ms"], 20.0);
  EXPECT_EQ(json[0]["rate_unit"], "tokens");
  EXPECT_EQ(json[1]["findings"], 1);
  const Result wrong = millrace({"runs", "--sort=stepms"}, here);
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, testing::AllOf(HasSubstr("no column \"stepms\""), HasSubstr("flag --sort"), HasSubstr("did you mean")));
}

// Two runs of the real program, as a user compares them.
TEST(Compare, TwoRuns) {
  const Scratch scratch;
  const Options here{.folder = scratch.path()};
  const auto train = [&](const std::string& name, const std::string& steps, const std::string& rate) {
    const Result result =
        millrace({"train", "language_model", "--preset=smoke", "--run=" + name, "--train.max_steps=" + steps, "--log.every=2",
                  "--data.workers=0", "--precision.dtype=fp32", "--optim.learning_rate=" + rate},
                 here);
    ASSERT_EQ(result.exit_code, 0) << result.err;
  };
  train("a", "6", "1e-3");
  train("b", "4", "1e-2");
  const Result result = millrace({"compare", "a", "b"}, here);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, testing::AllOf(HasSubstr("optim.learning_rate"), HasSubstr("machine and versions: the same"),
                                         HasSubstr("data: the same"), HasSubstr("at an equal step")));
  const Json json = Json::parse(millrace({"compare", "a", "b", "--json"}, here).out);
  std::vector<std::string> keys;
  for (const Json& each : json["config"]) keys.push_back(each["key"]);
  EXPECT_THAT(keys, testing::ElementsAre("optim.learning_rate", "train.max_steps"));
  EXPECT_EQ(json["at_step"]["step"], 4);
  EXPECT_FALSE(json["data"]["differs"].get<bool>());
  double sum = 0;
  for (const Json& account : json["accounts"]) sum += account["a"].get<double>();
  EXPECT_NEAR(sum, json["loop"]["a"].get<double>(), 1e-9);
}

TEST(Compare, SurvivesAnyRunFolder) {
  const Scratch scratch;
  const Options here{.folder = scratch.path()};
  const std::string deep(300'000, '[');
  const std::vector<std::string> logs = {"", "\xff\xfe\n{\"kind\"", "{\"kind\": \"start\", \"plan\": " + deep + "\n",
                                         "{\"kind\": \"start\", \"plan\": [[1]], \"step\": 1e308}\n{\"kind\": \"step\", "
                                         "\"step\": -1e308, \"time\": 1e308, \"loss\": \"nan\", \"accounts\": {\"x\": 1e308}}\n"};
  for (std::size_t i = 0; i < logs.size(); ++i) {
    const std::string name = std::to_string(i);
    std::filesystem::create_directories(scratch.path() / name);
    write_text(scratch.path() / name / "log.jsonl", logs[i]);
    write_text(scratch.path() / name / "config.json", i % 2 == 0 ? deep : "{\"values\": {\"a\": {\"\xff\": [1e308]}}}");
    write_text(scratch.path() / name / "summary.json", i % 2 == 0 ? "{\"findings\": " + deep : "[]");
  }
  for (std::size_t i = 0; i < logs.size(); ++i) {
    for (const char* format : {"--json", "--no-json"}) {
      const Result result = millrace({"compare", std::to_string(i), std::to_string((i + 1) % logs.size()), format}, here);
      EXPECT_EQ(result.exit_code, 0) << i << " " << result.err;
    }
    EXPECT_EQ(millrace({"doctor", std::to_string(i)}, here).exit_code, 0);
  }
  EXPECT_EQ(millrace({"runs", "--root=."}, here).exit_code, 0);
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"compare"}, {"compare", "0"}, {"compare", "0", "gone"}}) {
    const Result result = millrace(words, here);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err, HasSubstr("\n  next     "));
  }
}

TEST(MakeData, SameSeedSameBytesAndNoMixing) {
  const Scratch scratch;
  const Options here{.folder = scratch.path()};
  const auto make = [&](const std::string& out, const std::string& seed) {
    return millrace({"make-data", "language_model", "--preset=smoke", "--out", out, "--seed", seed}, here);
  };
  ASSERT_EQ(make("a", "1").exit_code, 0);
  ASSERT_EQ(make("b", "1").exit_code, 0);
  ASSERT_EQ(make("c", "2").exit_code, 0);
  bool differs = false;
  for (const auto& file : std::filesystem::directory_iterator(scratch.path() / "a")) {
    const auto name = file.path().filename();
    EXPECT_EQ(read_text(file.path()), read_text(scratch.path() / "b" / name)) << name;
    differs = differs || read_text(file.path()) != read_text(scratch.path() / "c" / name);
  }
  EXPECT_TRUE(differs);
  EXPECT_THAT(make("d e", "1").out, HasSubstr(" --data 'd e'\n")) << "a command to copy";
  const Result again = make("a", "1");
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_THAT(again.err, HasSubstr("the folder a is not empty"));
}

TEST(MakeData, AFailureLeavesNothing) {
  const Scratch scratch;
  const Result result = millrace({"make-data", "language_model", "--preset=test", "--out=a"}, {.folder = scratch.path()});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("preset test is meant for your own text and has no sample text"));
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
}

TEST(New, RefusesBadNamesAndTakenFolders) {
  const Scratch scratch;
  const Options here{.folder = scratch.path()};
  for (const char* name : {"Toy", "../toy", ""}) {
    const Result result = millrace({"new", name}, here);
    EXPECT_EQ(result.exit_code, 2) << name;
    EXPECT_THAT(result.err, HasSubstr("can't be the name of a recipe")) << name;
  }
  EXPECT_THAT(millrace({"new", "language_model"}, here).err, HasSubstr("there is a recipe language_model already"));
  EXPECT_EQ(millrace({"new", "toy"}, here).exit_code, 0);
  const Result again = millrace({"new", "toy"}, here);
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_THAT(again.err, HasSubstr("the folder toy exists already"));
}

}  // namespace
}  // namespace millrace::test
