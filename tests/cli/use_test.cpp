// The program's use of a trained model: predict, eval and export of a run without the recipe's name on the command line.
#include <gmock/gmock.h>

#include <memory>
#include <set>
#include <sstream>

#include "millrace/base/fs.h"
#include "millrace/base/json.h"
#include "millrace/format/npy.h"
#include "millrace/format/safetensors.h"
#include "process.h"

namespace millrace::test {
namespace {

namespace stdfs = std::filesystem;
using testing::HasSubstr;

std::vector<std::string> lines_in(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Each test has a copy of one run.
class Use : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    run_of_all_ = std::make_unique<Scratch>();
    const Result trained =
        run({MILLRACE_PROGRAM, "train", "language_model", "--preset=smoke", "--run=r", "--train.max_steps=3",
             "--train.validate_every=2", "--snapshot.every_steps=1", "--train.validate_batches=1"},
            {.folder = run_of_all_->path(), .environment = {{"XDG_CACHE_HOME", run_of_all_->path().string()}}});
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
  }
  static void TearDownTestSuite() { run_of_all_.reset(); }
  void SetUp() override {
    const auto all = stdfs::copy_options::recursive | stdfs::copy_options::copy_symlinks;
    stdfs::copy(run_of_all_->path(), root_.path(), all);
    ASSERT_TRUE(stdfs::exists(root_.path() / "r" / "summary.json"));
    const std::vector<std::int16_t> ids(35, 6);
    write_atomically(Fs::real(), root_.path() / "in.npy", [&](WritableFile& file) {
      format::write_npy(file, DType::i16, {5, 7}, std::as_bytes(std::span(ids)));
    });
  }
  [[nodiscard]] Result millrace(std::vector<std::string> words) const {
    words.insert(words.begin(), MILLRACE_PROGRAM);
    return run(words, {.folder = root_.path(), .environment = {{"XDG_CACHE_HOME", root_.path().string()}}});
  }
  Scratch root_;

 private:
  inline static std::unique_ptr<Scratch> run_of_all_;
};

// docs/files.md says in backticks what the files of a run hold; what it does not say must not be there.
TEST_F(Use, AFolderHoldsWhatThePageOfFilesSays) {
  const std::string page = read_text(MILLRACE_PAGE_OF_FILES);
  const auto is_told = [&](const std::string& word) { return page.find("`" + word + "`") != std::string::npos; };
  for (const auto& file : stdfs::directory_iterator(root_.path() / "r")) {
    const std::string name = file.path().filename().string();
    const bool told =
        is_told(name) || page.find("`" + name + "/") != std::string::npos || name.starts_with("events.out.tfevents.");
    EXPECT_TRUE(told) << name;
  }
  const Json summary = Json::parse(read_text(root_.path() / "r" / "summary.json"));
  for (const auto& [key, value] : summary.items()) EXPECT_TRUE(is_told(key) || key == "tokens_per_s") << "summary.json " << key;
  std::set<std::string> kinds;
  for (const std::string& text : lines_in(read_text(root_.path() / "r" / "log.jsonl"))) {
    const Json line = Json::parse(text);
    const auto kind = line.at("kind").get<std::string>();
    kinds.insert(kind);
    EXPECT_NE(page.find("| `" + kind + "` |"), std::string::npos) << kind;
    for (const auto& [key, value] : line.items())
      EXPECT_TRUE(is_told(key) || key == "tokens_per_s" || kind == "validation") << kind << ' ' << key;
  }
  EXPECT_GE(kinds.size(), 5U);
  // Keys of lines that this run does not write.
  for (const char* key : {"it_per_s", "peak_bytes", "metric_versions", "memory_rss", "memory_allocated", "host_ms"})
    EXPECT_TRUE(is_told(key)) << key;
  for (const auto& snapshot : stdfs::directory_iterator(root_.path() / "r" / "snapshots")) {
    for (const auto& file : stdfs::directory_iterator(snapshot.path()))
      EXPECT_TRUE(is_told(file.path().filename().string())) << file.path();
  }
}

TEST_F(Use, OfARunWhoseRecipeNobodyNames) {
  const Result predicted = millrace({"predict", "--from=r", "--input=in.npy", "--output=out.npy", "--batch-size=2"});
  ASSERT_EQ(predicted.exit_code, 0) << predicted.err;
  EXPECT_THAT(predicted.out, testing::ContainsRegex("wrote out.npy\n  logits  f32  \\[5,7,[0-9]+\\]\n"));
  EXPECT_EQ(format::NpyFile(root_.path() / "out.npy").layout().shape[0], 5);
  const Result eval = millrace({"eval", "--from", "r/snapshots", "--json"});
  EXPECT_EQ(eval.exit_code, 2);
  EXPECT_THAT(eval.err, HasSubstr("millrace eval needs the name of a recipe"));
  EXPECT_THAT(millrace({"eval", "--from", "nowhere"}).err, HasSubstr("there is no file or folder nowhere"));
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"eval", "--from", "."}, {"eval", "language_model", "--from", "."}, {"predict", "--from", "."}}) {
    const Result above = millrace(words);
    EXPECT_EQ(above.exit_code, 2);
    EXPECT_THAT(above.err, HasSubstr(". is a folder of runs"));
    EXPECT_THAT(above.err, HasSubstr("name a run: --from ./"));
  }
  EXPECT_EQ(millrace({"eval", "--from", "r", "--json"}).exit_code, 0);
  EXPECT_EQ(millrace({"eval", "language_model", "--from", "r", "--train.validate_batches=1"}).exit_code, 0);
  const Result unused = millrace({"eval", "--from", "r", "--optim.learning_rate=.1", "--epochs=3"});
  EXPECT_EQ(unused.exit_code, 2);
  EXPECT_THAT(unused.err, HasSubstr("key optim.learning_rate has no effect on millrace eval"));
  EXPECT_THAT(unused.err, HasSubstr("key train.epochs has no effect on millrace eval"));
  const Result kind = millrace({"predict", "--from=r", "--input=in.csv", "--output=out.npy"});
  EXPECT_EQ(kind.exit_code, 2);
  EXPECT_THAT(kind.err, HasSubstr("let its name end in .npy, .npz, .safetensors, .pt, .pth, .h5 or .hdf5"));
}

// The run kept no test data back; its text holds some all the same.
TEST_F(Use, EvalJudgesTheTestSplitAndDrawsWhereAsked) {
  const Result none = millrace({"eval", "--from=r", "--split=test"});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("the recipe has no test data"));
  const Result wrong = millrace({"eval", "--from=r", "--split=tests"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("there is no split \"tests\""));
  const Result tested =
      millrace({"eval", "--from=r", "--split=test", "--recipe.test_fraction=0.1", "--pictures=drawn", "--json"});
  ASSERT_EQ(tested.exit_code, 0) << tested.err;
  const Json report = Json::parse(tested.out);
  EXPECT_EQ(report["split"], "test");
  EXPECT_TRUE(report["metrics"].contains("test_loss")) << report;
  EXPECT_EQ(report["pictures"], Json({"drawn/loss_by_place.png", "drawn/token_losses.png"}));
  for (const Json& path : report["pictures"]) {
    const std::string bytes = read_text(root_.path() / path.get<std::string>());
    EXPECT_EQ(bytes.substr(1, 3), "PNG") << path;
  }
  EXPECT_THAT(millrace({"eval", "--from=r", "--pictures=drawn"}).out, HasSubstr("wrote drawn/token_losses.png\n"));
}

// A fit may take hours.
TEST(Fit, LooksAtItsFileFirst) {
  const Scratch scratch;
  std::filesystem::create_directory(scratch.path() / "taken");
  const Result result = run({MILLRACE_PROGRAM, "pca", "fit", "--preset=smoke", "--output=taken"}, {.folder = scratch.path()});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("taken is a folder\n  where    flag --output\n"));
  write_text(scratch.path() / "sky.h5", "no components");
  const Result other = run({MILLRACE_PROGRAM, "pca", "fit", "--preset=smoke", "--output=sky.h5"}, {.folder = scratch.path()});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("sky.h5 holds something else than components, and would be replaced"));
  EXPECT_EQ(read_text(scratch.path() / "sky.h5"), "no components");
}

// So may an evaluation.
TEST_F(Use, EvalLooksAtTheFolderOfPicturesFirst) {
  write_text(root_.path() / "taken", "x");
  const Result result = millrace({"eval", "--from=r", "--pictures=taken/in"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("FileError  "));
  EXPECT_THAT(result.out, testing::Not(HasSubstr("metric  "))) << "no table was made";
}

TEST_F(Use, PredictLeavesTheFilesThatItReads) {
  const std::string before = read_text(root_.path() / "in.npy");
  const Result input = millrace({"predict", "--from=r", "--input=in.npy", "--output=./in.npy"});
  EXPECT_EQ(input.exit_code, 2);
  EXPECT_THAT(input.err, HasSubstr("./in.npy is the input file, which the output would replace\n  where    flag --output\n"));
  EXPECT_EQ(read_text(root_.path() / "in.npy"), before);
}

// Names of files need not be UTF-8, but JSON is: their bytes are replaced, and nothing is left unwritten.
TEST_F(Use, AConfigWhoseNameIsNoUtf8CanBeTrained) {
  const std::string name = "caf\xE9.json";
  write_text(root_.path() / name, R"({"device": {"threads": 1}, "train": {"max_steps": 1}})");
  const Result trained = millrace({"train", "language_model", name, "--preset=smoke", "--run=latin"});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  for (const char* file : {"config.json", "plan.json", "summary.json"}) {
    const Json json = Json::parse(read_text(root_.path() / "latin" / file), nullptr, false);
    EXPECT_FALSE(json.is_discarded()) << file;
    EXPECT_THAT(json.dump(), HasSubstr("file caf\uFFFD.json:1")) << file;
  }
  const stdfs::path folder = root_.path() / "caf\xE9";
  stdfs::create_directory(folder);
  const Result there = run({MILLRACE_PROGRAM, "train", "language_model", "--preset=smoke", "--train.max_steps=1", "--run=r"},
                           {.folder = folder, .environment = {{"XDG_CACHE_HOME", root_.path().string()}}});
  EXPECT_EQ(there.exit_code, 0) << there.err;
  EXPECT_TRUE(Json::parse(read_text(folder / "r" / "run.json"), nullptr, false).is_object());
}

// The batches that a run would take next: after three steps the fourth, and the first to begin with.
TEST_F(Use, ShowTellsValuesSamplesAndDraws) {
  const auto batches = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"show", "language_model", "--json"});
    const Result shown = millrace(words);
    EXPECT_EQ(shown.exit_code, 0) << shown.err;
    return Json::parse(shown.out, nullptr, false);
  };
  const Json first = batches({"--preset=smoke", "--batches=4"});
  ASSERT_EQ(first.size(), 4U);
  EXPECT_EQ(first[0]["batch"], 0);
  EXPECT_EQ(first[0]["split"], "train");
  const Json next = batches({"--from=r", "--pictures=drawn"});
  ASSERT_EQ(next.size(), 1U);
  EXPECT_EQ(next[0], first[3]) << "as the network would have got it in a run without a stop";
  const Json& input = next[0]["fields"][0];
  EXPECT_EQ(input["name"], "input");
  EXPECT_EQ(input["dtype"], "i64");
  EXPECT_EQ(input["shape"][0], next[0]["rows"]);
  EXPECT_GE(input["least"].get<int>(), 0);
  EXPECT_EQ(input["nan"], 0);
  EXPECT_EQ(read_text(root_.path() / "drawn" / "batch-3-input.png").substr(1, 3), "PNG");
  const Result table = millrace({"show", "--from=r", "--split=validation"});
  EXPECT_THAT(table.out, testing::StartsWith("read as  UTF-8; "));
  EXPECT_THAT(table.out, HasSubstr("\n\nvalidation batch 0: "));
  EXPECT_THAT(table.out, HasSubstr("\n  row 0  sample 0"));
  EXPECT_EQ(millrace({"show", "--from=in.npy"}).exit_code, 2);
  const Result wrong = millrace({"show", "language_model", "--preset=smoke", "--split=tests"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("there is no split \"tests\""));
}

TEST_F(Use, MetricsStandInTheRecipesOrder) {
  const Json summary = Json::parse(read_text(root_.path() / "r" / "summary.json"));
  ASSERT_FALSE(summary["metrics_order"].empty());
  EXPECT_EQ(summary["metrics_order"][0], "val_loss");
  EXPECT_EQ(summary["metrics_order"].size(), summary["metrics"].size());
  const Result inspected = millrace({"inspect", "r"});
  EXPECT_THAT(inspected.out, testing::ContainsRegex("\n  val_loss +[0-9.]+  \\([0-9.]+ at the best step [23]\\)\n"));
  EXPECT_EQ(Json::parse(millrace({"inspect", "r", "--json"}).out)["metrics"][0]["name"], "val_loss");
  EXPECT_EQ(summary["best"]["metric"], "val_loss");
  EXPECT_EQ(summary["best"]["value"], summary["metrics"]["val_loss"]["best"]);
}

// Another process holds the run's lock, as one that trains does, and adds a line to its log.
TEST_F(Use, ThePageFollowsARun) {
  const std::string script = R"(
"$0" report r --follow >said & pid=$!
until_there() { for i in $(seq 600); do "$@" && return; sleep 0.1; done; }
page() {
  local port=$(sed -n 's|^http://127.0.0.1:\([0-9]*\)/.*|\1|p' said) path=$(sed -n 's|^http://[^/]*\(/.*\)|\1|p' said)
  exec 3<>/dev/tcp/127.0.0.1/$port && printf 'GET %s HTTP/1.1\r\nHost: localhost:%s\r\n\r\n' "$path" "$port" >&3 && cat <&3 >"$1"; exec 3<&-
}
until_there grep -q '^from another machine' said
page before
printf '%s\n' '{"kind":"step","time":99,"step":777,"loss":1.5}' >>r/log.jsonl
has_news() { page after; grep -q '777,1.5' after; }
until_there has_news
cp r/report.html during
kill -TERM $pid; wait $pid; echo "exit code $?")";
  const Result all =
      run({"/usr/bin/flock", "-x", "r/lock", "/bin/bash", "-c", script, MILLRACE_PROGRAM}, {.folder = root_.path()});
  EXPECT_THAT(all.out, HasSubstr("exit code 0")) << all.err;
  const auto text = [&](const char* name) { return read_text(root_.path() / name); };
  EXPECT_THAT(text("said"),
              testing::ContainsRegex("^r/report.html\nhttp://127.0.0.1:[0-9]+/[0-9a-f]+/\nfrom another machine: ssh -L "));
  EXPECT_THAT(text("before"), testing::AllOf(testing::StartsWith("HTTP/1.1 200"), HasSubstr("<body data-reload=\"5\">"),
                                             testing::Not(HasSubstr("777,1.5"))));
  EXPECT_THAT(text("after"), testing::AllOf(HasSubstr("<body data-reload=\"5\">"), HasSubstr("777,1.5")));
  EXPECT_THAT(text("during"), HasSubstr("777,1.5")) << "the file is kept up to date too";
  EXPECT_THAT(text("r/report.html"), testing::Not(HasSubstr("data-reload"))) << "nobody renews it any more";
  const Result port = millrace({"report", "r", "--port=80"});
  EXPECT_EQ(port.exit_code, 2);
  EXPECT_THAT(port.err, HasSubstr("--port is for --follow"));
}

TEST_F(Use, ExportCarriesWhatAPythonUserNeeds) {
  const Result exported = millrace({"export", "language_model", "--from=r", "--to=w.safetensors"});
  ASSERT_EQ(exported.exit_code, 0) << exported.err;
  EXPECT_THAT(exported.out, testing::ContainsRegex("best snapshot, step [23] of r \\(best by val_loss [0-9.]+; "));
  EXPECT_THAT(exported.out, HasSubstr("beside it: w.tokenizer.json"));
  const format::Metadata metadata = format::SafetensorsFile(root_.path() / "w.safetensors").metadata();
  EXPECT_EQ(metadata.at("format"), "pt");
  EXPECT_EQ(metadata.at("recipe"), "language_model");
  EXPECT_THAT(metadata.at("step"), testing::AnyOf("2", "3"));
  EXPECT_EQ(Json::parse(metadata.at("config"))["recipe"]["model_embd"], 64);
  EXPECT_EQ(Json::parse(read_text(root_.path() / "w.tokenizer.json"))["kind"], "basic");
  const Result inspected = millrace({"inspect", "w.safetensors"});
  EXPECT_EQ(inspected.exit_code, 0);
  EXPECT_THAT(inspected.out, HasSubstr("metadata recipe   language_model"));
  ASSERT_EQ(millrace({"export", "--from=r", "--to=p.pt"}).exit_code, 0);
  const Json about = Json::parse(read_text(root_.path() / "p.run.json"));
  EXPECT_EQ(about["recipe"], "language_model");
  EXPECT_EQ(std::to_string(about["step"].get<int>()), metadata.at("step"));
  EXPECT_EQ(about["config"]["recipe"]["model_embd"], 64);
  EXPECT_EQ(read_text(root_.path() / "p.tokenizer.json"), read_text(root_.path() / "w.tokenizer.json"));
  ASSERT_EQ(millrace({"export", "--from=w.safetensors", "--to=again.safetensors"}).exit_code, 0);
  EXPECT_EQ(format::SafetensorsFile(root_.path() / "again.safetensors").metadata(), metadata);
  const std::string text = (root_.path() / "runs/data/language_model-smoke").string();
  const Result weights =
      millrace({"predict", "--from=w.safetensors", "--preset=smoke", "--data", text, "--input=in.npy", "--output=out.npz"});
  EXPECT_EQ(weights.exit_code, 0) << weights.err;
}

// OpenMP reads its environment once, before main: the launcher says it for us, and others' words stand.
TEST_F(Use, ThreadsSpinBrieflyUnlessTheEnvironmentSaysOtherwise) {
  const auto plan = [&](std::vector<std::pair<std::string, std::string>> environment) {
    return run({MILLRACE_PROGRAM, "train", "language_model", "--preset=smoke", "--dry-run"},
               {.folder = root_.path(), .environment = std::move(environment)})
        .out;
  };
  EXPECT_THAT(plan({}), HasSubstr("threads spin briefly and then sleep"));
  EXPECT_THAT(plan({{"GOMP_SPINCOUNT", "700"}}), HasSubstr("threads wait as GOMP_SPINCOUNT=700 says"));
  EXPECT_THAT(plan({{"OMP_WAIT_POLICY", "active"}}), HasSubstr("threads wait as OMP_WAIT_POLICY=active says"));
}

// So does malloc.
TEST_F(Use, MallocAsksForLargePagesUnlessTheEnvironmentSaysOtherwise) {
  const auto pages = [&](std::vector<std::pair<std::string, std::string>> environment) {
    const Result result = run({MILLRACE_PROGRAM, "train", "language_model", "--preset=smoke", "--dry-run"},
                              {.folder = root_.path(), .environment = std::move(environment)});
    const std::size_t at = result.out.find("device.pages");
    return result.out.substr(at, result.out.find('\n', at) - at);
  };
  EXPECT_THAT(pages({}), testing::Not(HasSubstr("GLIBC_TUNABLES")));
  if (pages({}).find("malloc asks for such pages") == std::string::npos)
    GTEST_SKIP() << "the kernel here gives large pages to nobody, or to all";
  EXPECT_THAT(pages({{"GLIBC_TUNABLES", "glibc.malloc.check=0"}}),
              HasSubstr("glibc.malloc.check=0 does not ask for larger pages"));
}

// One word lowers our kernels and the libraries below, which read variables of their own; plan and --version say so.
TEST_F(Use, MillraceCpuLowersKernelsAndLibraries) {
  const auto say = [&](std::vector<std::string> words, std::vector<std::pair<std::string, std::string>> environment) {
    words.insert(words.begin(), MILLRACE_PROGRAM);
    return run(words, {.folder = root_.path(), .environment = std::move(environment)});
  };
  const std::string version = say({"--version"}, {{"MILLRACE_CPU", "portable"}, {"ATEN_CPU_CAPABILITY", "avx2"}}).out;
  EXPECT_THAT(version, HasSubstr("ATen uses DEFAULT, our kernels portable, as MILLRACE_CPU=portable says\n"));
  const Result plan = say({"train", "language_model", "--preset=smoke", "--dry-run"}, {{"MILLRACE_CPU", "portable"}});
  EXPECT_EQ(plan.exit_code, 0) << plan.err;
  EXPECT_THAT(plan.out, HasSubstr("kernels portable, ATen DEFAULT, as MILLRACE_CPU=portable says"));
  const Result refused = say({"--version"}, {{"MILLRACE_CPU", "avx3"}});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("ConfigError  there is no instruction set \"avx3\"\n  where    MILLRACE_CPU\n  next "));
}

}  // namespace
}  // namespace millrace::test
