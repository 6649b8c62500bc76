#include "millrace/cli/inspect/inspect_report.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <limits>

#include "millrace/base/error.h"
#include "millrace/base/fs.h"
#include "millrace/data/files/token_array.h"
#include "millrace/format/npy.h"
#include "millrace/format/png.h"
#include "millrace/hdf5/file.h"
#include "millrace/runs/run_row.h"
#include "millrace/snapshot/snapshot.h"

namespace millrace::cli {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class InspectTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ =
        fs::path(testing::TempDir()) / ("inspect_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(root_);
    fs::create_directories(root_ / "toy");
  }
  void TearDown() override { fs::remove_all(root_); }

  fs::path make_run(const std::string& name, std::int64_t steps) {
    const fs::path run = root_ / "mine" / name;
    fs::create_directories(run);
    for (std::int64_t step = 10; step <= steps; step += 10) {
      snapshot::Content content;
      content.step = step;
      content.models["model"] = {{"weight", at::arange(6).to(at::kFloat).reshape({2, 3})}};
      content.parts["loader"].json = {{"epoch", 1}};
      snapshot::save(Fs::real(), run, content);
    }
    write(run / "log.jsonl", "{\"kind\":\"start\",\"recipe\":\"toy\"}\n{\"kind\":\"step\",\"step\":" + std::to_string(steps + 2) +
                                 ",\"loss\":0.5}\n{\"kind\":\"st");
    return run;
  }
  static void write(const fs::path& file, const std::string& text) { std::ofstream(file, std::ios::binary) << text; }
  static void flip_a_bit(const fs::path& file) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(-3, std::ios::end);
    const char byte = static_cast<char>(stream.get() ^ 4);
    stream.seekp(-3, std::ios::end);
    stream.put(byte);
  }

  fs::path root_;
};

TEST_F(InspectTest, SnapshotWholeAndDamaged) {
  const fs::path run = make_run("a", 20);
  const fs::path snapshot = snapshot::list(Fs::real(), run).back().path;
  Report report = inspect_path(snapshot);
  EXPECT_THAT(report.problems, IsEmpty());
  EXPECT_EQ(report.kind, "snapshot");
  const std::string text = report.to_text("S");
  EXPECT_THAT(text, HasSubstr("snapshot S\n"));
  EXPECT_THAT(text, testing::ContainsRegex("model/weight +f32 +\\[2,3\\] +24\n"));
  EXPECT_EQ(report.to_json("S")["step"], 20);
  flip_a_bit(snapshot / "model.safetensors");
  report = inspect_path(snapshot);
  ASSERT_EQ(report.problems.size(), 1U);
  EXPECT_THAT(report.problems[0], HasSubstr("weight"));
  EXPECT_FALSE(report.to_json("S")["whole"].get<bool>());
}

TEST_F(InspectTest, RunListsItsSnapshots) {
  const fs::path run = make_run("a", 30);
  flip_a_bit(snapshot::list(Fs::real(), run)[1].path / "model.safetensors");
  const Report report = inspect_path(run);
  EXPECT_EQ(report.kind, "run");
  EXPECT_EQ(report.problems.size(), 1U);
  EXPECT_THAT(report.to_text(run), testing::ContainsRegex("step-00000020 +20 +[^ ]+ [kM]?B +damaged\n"));
  EXPECT_THAT(report.to_text(run), testing::ContainsRegex("step-00000030 +30 +[^ ]+ [kM]?B +whole\n"));
}

TEST_F(InspectTest, ARunsOwnFilesAreCheckedToo) {
  const fs::path run = make_run("cut", 10);
  write(run / "config.json", "{}");
  EXPECT_THAT(inspect_path(run).problems, IsEmpty()) << "the last line of the log may be cut";
  write(run / "summary.json", R"({"recipe": "to)");
  write(run / "log.jsonl", "{\"kind\":\"start\"}\n{\"kind\":\"st\n{\"kind\":\"start\"}\n");
  const Report report = inspect_path(run);
  EXPECT_THAT(report.problems,
              ElementsAre("the file holds no JSON, so it counts as missing (" + (run / "summary.json").string() + ")"));
  EXPECT_THAT(report.to_text(run), testing::ContainsRegex("  log +1 of 3 lines can't be read\n"));
}

TEST_F(InspectTest, SafetensorsFile) {
  const fs::path file = root_ / "w.safetensors";
  snapshot::write_tensors(Fs::real(), file, {{"a", at::arange(4)}});
  EXPECT_THAT(inspect_path(file).to_text(file), testing::ContainsRegex("a +i64 +\\[4\\] +32\n"));
  fs::resize_file(file, fs::file_size(file) - 1);
  EXPECT_EQ(inspect_path(file).problems.size(), 1U);
  write(file, "");
  EXPECT_EQ(inspect_path(file).problems.size(), 1U);
}

TEST_F(InspectTest, TokenFile) {
  const fs::path file = root_ / "corpus.tokens";
  data::TokenFileWriter writer(Fs::real(), file, 50);
  writer.begin_document();
  writer.append(std::vector<std::uint32_t>{1, 2, 49});
  writer.finish({{"fingerprint", "f00d"}});
  const std::string whole = inspect_path(file).to_text(file);
  EXPECT_THAT(whole, HasSubstr("f00d"));
  const Report report = inspect_path(file);
  EXPECT_THAT(report.problems, IsEmpty());
  EXPECT_EQ(report.details["tokens"], 3);
  EXPECT_EQ(report.details["vocab_size"], 50);
  flip_a_bit(file);
  EXPECT_EQ(inspect_path(file).problems.size(), 1U);
}

TEST_F(InspectTest, ArraysVolumesAndPictures) {
  const auto text_of = [](const fs::path& file) { return inspect_path(file).to_text(file); };
  const std::string values(24, '\1');
  const auto bytes = std::as_bytes(std::span(values));
  const auto npy = Fs::real().create(root_ / "a.npy");
  format::write_npy(*npy, DType::f32, {2, 3}, bytes);
  npy->close();
  EXPECT_THAT(text_of(root_ / "a.npy"), testing::ContainsRegex("NumPy array .*a.npy\n(.*\n)*  shape +\\[2,3\\]\n"));
  const auto npz = Fs::real().create(root_ / "a.npz");
  format::write_npz(*npz, std::vector<format::NpzArray>{{{"x", DType::f32, {2, 3}}, bytes}});
  npz->close();
  EXPECT_THAT(text_of(root_ / "a.npz"), testing::ContainsRegex("x +f32 +\\[2,3\\] +C +24\n"));
  format::write_png(Fs::real(), root_ / "a.png", {2, 4, format::Pixels::rgb}, bytes);
  EXPECT_THAT(text_of(root_ / "a.png"), testing::ContainsRegex("pixels +4 x 2\n"));
  for (const char* name : {"a.npy", "a.npz", "a.png"}) {
    EXPECT_THAT(inspect_path(root_ / name).problems, IsEmpty()) << name;
    fs::resize_file(root_ / name, fs::file_size(root_ / name) - 1);
    EXPECT_EQ(inspect_path(root_ / name).problems.size(), 1U) << name;
  }
  write(root_ / "a.nii", "no volume");
  EXPECT_THAT(inspect_path(root_ / "a.nii").problems[0], HasSubstr("not a NIfTI file, or cut off: 9 bytes"));
}

TEST_F(InspectTest, Hdf5File) {
  const fs::path file = root_ / "sky.h5";
  const std::vector<float> values(24, 1.5F);
  hdf5::Array vis{.name = "/vis", .dtype = DType::f32, .shape = {4, 6}, .bytes = std::as_bytes(std::span(values))};
  vis.chunk = {2, 6};
  vis.deflate = 4;
  vis.shuffle = true;
  const std::vector<hdf5::Attribute> attributes = {{"session", std::string("allen\n0216")}, {"source_rate", 240.0}};
  hdf5::write_file(file, std::span(&vis, 1), attributes);
  const Report report = inspect_path(file);
  EXPECT_THAT(report.problems, IsEmpty());
  EXPECT_THAT(report.facts, testing::IsSupersetOf({testing::Pair("attribute session", "\"allen\\n0216\""),
                                                   testing::Pair("attribute source_rate", "240")}));
  EXPECT_EQ(report.details["attributes"][0], Json({{"name", "session"}, {"value", "allen\n0216"}}));
  EXPECT_EQ(report.details["attributes"][1], Json({{"name", "source_rate"}, {"value", 240.0}}));
  EXPECT_FALSE(report.details["datasets"][0].contains("attributes"));
  EXPECT_THAT(report.to_text(file), testing::ContainsRegex("/vis +f32 +\\[4,6\\] +\\[2,6\\] +shuffle deflate +millrace\n"));
  EXPECT_EQ(report.details["datasets"][0]["filters"], Json({"shuffle", "deflate"}));
  fs::resize_file(file, fs::file_size(file) - 1);
  EXPECT_THAT(inspect_path(file).problems, testing::ElementsAre(HasSubstr("truncated file")));
}

TEST_F(InspectTest, ADamagedFileOfAKnownKindIsNeverUnknown) {
  const std::vector<std::byte> bytes(600, std::byte{1});
  snapshot::write_tensors(Fs::real(), root_ / "a.safetensors", {{"a", at::arange(400)}});
  snapshot::write_tensors(Fs::real(), root_ / "a.pt", {{"a", at::arange(400)}});
  write_atomically(Fs::real(), root_ / "a.npy", [&](WritableFile& file) { format::write_npy(file, DType::f32, {150}, bytes); });
  write_atomically(Fs::real(), root_ / "a.npz", [&](WritableFile& file) {
    format::write_npz(file, std::vector<format::NpzArray>{{{"x", DType::f32, {150}}, bytes}});
  });
  format::write_png(Fs::real(), root_ / "a.png", {10, 20, format::Pixels::rgb}, bytes);
  hdf5::write_file(root_ / "a.h5", std::vector<hdf5::Array>{{.name = "/x", .dtype = DType::f32, .shape = {150}, .bytes = bytes}});
  data::TokenFileWriter tokens(Fs::real(), root_ / "a.tokens", 50);
  tokens.append(std::vector<std::uint32_t>(300, 7));
  tokens.finish({{"fingerprint", "f00d"}});
  const std::map<std::string, std::size_t> magic = {{"a.safetensors", 0}, {"a.pt", 4}, {"a.npy", 6},   {"a.npz", 4},
                                                    {"a.png", 8},         {"a.h5", 8}, {"a.tokens", 8}};
  for (const auto& [name, begin] : magic) {
    const std::string whole = Fs::real().read_file(root_ / name);
    EXPECT_THAT(inspect_path(root_ / name).problems, IsEmpty()) << name;
    const std::string bad = "bad" + fs::path(name).extension().string();
    for (const std::string& text :
         {whole.substr(0, begin), whole.substr(0, 10), whole.substr(0, whole.size() / 2),
          whole.substr(0, begin) + std::string(whole.size(), '\xA5'), std::string(200, '\xA5'), std::string()}) {
      write(root_ / bad, text);
      EXPECT_EQ(inspect_path(root_ / bad).problems.size(), 1U) << name << ' ' << text.size();
      if (begin == 0 || text.size() < begin || text.substr(0, begin) != whole.substr(0, begin)) continue;
      write(root_ / "nameless", text);
      EXPECT_EQ(inspect_path(root_ / "nameless").problems.size(), 1U) << name << ' ' << text.size();
    }
    fs::rename(root_ / bad, root_ / ("A" + fs::path(name).extension().string()));
  }
  write(root_ / "photo", "\xFF\xD8\xFF\xE0 cut");
  EXPECT_EQ(inspect_path(root_ / "photo").problems.size(), 1U);
  for (const char* name : {"a.nii", "a.nii.gz", "a.jpg", "a.hdf5", "A.NII", "B.H5"}) {
    write(root_ / name, "no such thing");
    EXPECT_EQ(inspect_path(root_ / name).problems.size(), 1U) << name;
  }
}

// The report on an intact file of another program must name its content and no damage. If such a file is damaged, the report must
// say so.
TEST_F(InspectTest, AnIntactFileOfAnotherKindIsNotDamaged) {
  const auto expect_unread = [&](const std::string& name, const std::string& bytes, const std::string& holds) {
    write(root_ / name, bytes);
    const Report report = inspect_path(root_ / name);
    EXPECT_THAT(report.problems, IsEmpty()) << name;
    ASSERT_EQ(report.unread.size(), 1U) << name;
    EXPECT_THAT(report.unread[0], HasSubstr(holds)) << name;
    EXPECT_EQ(report.to_json(name)["whole"], true);
    EXPECT_THAT(report.to_text(name), HasSubstr("not a kind that Millrace reads: "));
  };
  const auto npy = [](const std::string& descr, std::size_t bytes) {
    std::string header = "{'descr': " + descr + ", 'fortran_order': False, 'shape': (2,), }";
    header.resize(117, ' ');
    return std::string("\x93NUMPY\x01\x00v\x00", 10) + header + "\n" + std::string(bytes, '\0');
  };
  expect_unread("text.npy", npy("'<U2'", 16), "\"<U2\"");
  expect_unread("dates.npy", npy("'<M8[ns]'", 16), "\"<M8[ns]\"");
  expect_unread("records.npy", npy("[('a', '<f4')]", 8), "records");
  expect_unread("objects.npy", npy("'|O'", 30), "Python objects");
  const std::string header = R"({"a":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2]}})";
  expect_unread("eight.safetensors", static_cast<char>(header.size()) + std::string(7, '\0') + header + "ab", "F8_E4M3");
  expect_unread("plain.pt", "\x80\x04\x95.", "plain Python pickle");
  expect_unread("old.pt", "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", "of torch before 1.6");
  write(root_ / "odd.npy", npy("'<Q4'", 8));
  EXPECT_EQ(inspect_path(root_ / "odd.npy").problems.size(), 1U) << "no dtype of NumPy's";
  // A zip archive of another program is intact as long as its checksums are right.
  write_atomically(Fs::real(), root_ / "zip.pt", [&](WritableFile& file) {
    format::write_npz(file, std::vector<format::NpzArray>{{{"x", DType::u8, {4}}, std::vector<std::byte>(4)}});
  });
  EXPECT_EQ(inspect_path(root_ / "zip.pt").kind, "NumPy archive") << "its members tell, not its name";
  std::string bytes = Fs::real().read_file(root_ / "zip.pt");
  for (std::size_t at = bytes.find("x.npy"); at != std::string::npos; at = bytes.find("x.npy")) bytes.replace(at, 5, "x.bin");
  write(root_ / "zip.pt", bytes);
  EXPECT_THAT(inspect_path(root_ / "zip.pt").problems, IsEmpty());
  EXPECT_THAT(inspect_path(root_ / "zip.pt").to_text("zip.pt"), HasSubstr("CRC-32 of every member agrees"));
  bytes[bytes.find("NUMPY") + 20] ^= 1;
  write(root_ / "zip.pt", bytes);
  ASSERT_EQ(inspect_path(root_ / "zip.pt").problems.size(), 1U);
  EXPECT_THAT(inspect_path(root_ / "zip.pt").problems[0], HasSubstr("CRC-32 differs"));
}

TEST_F(InspectTest, ASoundSaysWhatItsReadersTake) {
  const auto little = [](std::uint32_t value, std::size_t bytes) {
    std::string text;
    for (std::size_t i = 0; i < bytes; ++i) text += static_cast<char>(static_cast<unsigned char>(value >> (8 * i)));
    return text;
  };
  const auto sound = [&](std::uint32_t code, const std::string& numbers) {
    const std::string rest = "WAVEfmt " + little(16, 4) + little(code, 2) + little(2, 2) + little(4, 4) + little(16, 4) +
                             little(4, 2) + little(16, 2) + "data" + little(static_cast<std::uint32_t>(numbers.size()), 4) +
                             numbers;
    return "RIFF" + little(static_cast<std::uint32_t>(rest.size()), 4) + rest;
  };
  const fs::path file = root_ / "voice";  // without an extension, because the content decides
  write(file, sound(1, little(0x4000, 2) + little(0xc000, 2) + little(0, 2) + little(0, 2)));
  Report report = inspect_path(file, /*values=*/true);
  EXPECT_EQ(report.kind, "sound");
  EXPECT_THAT(report.problems, IsEmpty());
  EXPECT_EQ(report.details["samples"], 2);
  EXPECT_EQ(report.details["values"][0]["shape"], Json({2, 2}));
  EXPECT_EQ(report.details["values"][0]["greatest"], 0.5);
  const std::string text = report.to_text("voice");
  for (const char* fact : {"channels +2\n", "rate +4 Hz\n", "samples +2 in each channel, 0\\.5 s\n", "stored as +PCM of 16"})
    EXPECT_THAT(text, testing::ContainsRegex(fact));
  write(file, sound(1, "") + "LIST" + little(0, 4));
  EXPECT_THAT(inspect_path(file).to_text("voice"), testing::ContainsRegex("samples +0 in each channel, 0 s\n"));
  write(file, sound(7, "abcd"));
  EXPECT_EQ(inspect_path(file).unread.size(), 1U) << "mu-law is whole, but not read";
  write(root_ / "cut.wav", "RIFF");
  EXPECT_EQ(inspect_path(root_ / "cut.wav").problems.size(), 1U);
}

TEST_F(InspectTest, ValuesOfEveryKindOfFile) {
  std::vector<float> values(6'000'000, 1.0F);  // so large that it is read in several pieces
  values[3] = -2.5F;
  values[5'999'999] = 7.25F;
  values[1'500'000] = std::numeric_limits<float>::quiet_NaN();
  const auto bytes = std::as_bytes(std::span(values));
  const Shape shape = {3, 1000, 2000};
  const at::Tensor tensor = at::tensor(values).reshape({3, 1000, 2000});
  snapshot::write_tensors(Fs::real(), root_ / "a.safetensors", {{"x", tensor}});
  snapshot::write_tensors(Fs::real(), root_ / "a.pt", {{"x", tensor}});
  write_atomically(Fs::real(), root_ / "a.npy", [&](WritableFile& file) { format::write_npy(file, DType::f32, shape, bytes); });
  for (const bool deflated : {false, true}) {
    write_atomically(Fs::real(), root_ / (deflated ? "packed.npz" : "a.npz"), [&](WritableFile& file) {
      format::write_npz(file, std::vector<format::NpzArray>{{{"x", DType::f32, shape}, bytes}}, deflated);
    });
  }
  hdf5::write_file(
      root_ / "a.h5",
      std::vector<hdf5::Array>{{.name = "/x", .dtype = DType::f32, .shape = shape, .bytes = bytes},
                               {.name = "/y", .dtype = DType::f32, .shape = shape, .bytes = bytes, .chunk = {2, 300, 700}}});
  for (const char* name : {"a.safetensors", "a.pt", "a.npy", "a.npz", "packed.npz", "a.h5"}) {
    const Report report = inspect_path(root_ / name, /*values=*/true);
    EXPECT_THAT(report.problems, IsEmpty()) << name;
    for (const Json& array : report.details["values"]) {
      EXPECT_EQ(array["count"], 6'000'000) << name;
      EXPECT_EQ(array["least"], -2.5) << name;
      EXPECT_EQ(array["greatest"], 7.25) << name;
      EXPECT_EQ(array["nan"], 1) << name;
      EXPECT_NEAR(array["mean"].get<double>(), 1 + (6.25 - 3.5) / 5'999'999, 1e-12) << name;
    }
    EXPECT_THAT(report.table[0], testing::Contains("deviation")) << name;
  }
  format::write_png(Fs::real(), root_ / "a.png", {1, 2, format::Pixels::gray},
                    std::vector<std::byte>{std::byte{3}, std::byte{9}});
  EXPECT_EQ(inspect_path(root_ / "a.png", true).details["values"][0]["greatest"], 9);
  data::TokenFileWriter tokens(Fs::real(), root_ / "a.tokens", 50);
  tokens.append(std::vector<std::uint32_t>{4, 9, 4});
  tokens.finish({{"fingerprint", "f00d"}});
  EXPECT_EQ(inspect_path(root_ / "a.tokens", true).details["values"][0]["different"], 2);
  const fs::path run = make_run("one", 10);
  EXPECT_EQ(inspect_path(run / "snapshots/step-00000010", true).details["values"][0]["greatest"], 5.0);
  EXPECT_THROW(static_cast<void>(inspect_path(run, true)), UsageError);
}

// A file that can't be read, or a pipe instead of a file, must not be reported as damaged.
TEST_F(InspectTest, WhatCannotBeReadIsNotCalledDamaged) {
  ASSERT_EQ(::mkfifo((root_ / "pipe.png").c_str(), 0600), 0);
  ASSERT_EQ(::mkfifo((root_ / "pipe").c_str(), 0600), 0);
  EXPECT_THROW(static_cast<void>(inspect_path(root_ / "pipe.png")), DataError);
  EXPECT_THROW(static_cast<void>(inspect_path(root_ / "pipe")), DataError);
  fs::create_symlink("loop", root_ / "loop");
  EXPECT_THROW(static_cast<void>(inspect_path(root_ / "loop")), FsError);
  write(root_ / "secret.npy", "x");
  fs::permissions(root_ / "secret.npy", fs::perms::none);
  if (::access((root_ / "secret.npy").c_str(), R_OK) == 0) GTEST_SKIP() << "this user may read everything";
  EXPECT_THROW(static_cast<void>(inspect_path(root_ / "secret.npy")), DataError);
}

TEST_F(InspectTest, StrangeThingsAmongSnapshotsAreNoSteps) {
  const fs::path run = make_run("a", 10);
  fs::create_symlink("step-00000500", run / "snapshots/step-00000500");
  fs::create_directories(run / "snapshots/step-00000099");
  write(run / "snapshots/step-00000098", "a file");
  EXPECT_EQ(runs::row_of(runs::Run(run)).step, 12);
  const Report report = inspect_path(run);
  EXPECT_EQ(report.problems.size(), 3U);
  const std::string text = report.to_text(run);
  EXPECT_THAT(text, testing::ContainsRegex("step-00000010 +10 +[^ ]+ [kM]?B +whole\n"));
  for (const char* name : {"98 +98", "99 +99", "500 +500"})
    EXPECT_THAT(text, testing::ContainsRegex(std::string(name) + " +0 B +damaged\n"));
}

TEST_F(InspectTest, OneOddFolderIsOneRow) {
  make_run("whole", 10);
  const fs::path odd = make_run("odd", 0);
  write(odd / "snapshots", "a file");
  const fs::path piped = root_ / "mine/piped";
  fs::create_directories(piped / "snapshots");
  for (const char* name : {"summary.json", "log.jsonl", "lock"}) ASSERT_EQ(::mkfifo((piped / name).c_str(), 0600), 0);
  fs::create_symlink("loop", root_ / "mine/loop");
  write(make_run("huge", 0) / "summary.json", R"({"steps": 1e300, "recipe": "a\u001b[2J", "exit_reason": "error"})");
  const fs::path closed = make_run("closed", 10);
  const fs::path inside = make_run("inside", 10) / "snapshots";
  const fs::path shut = make_run("shut", 10);
  fs::permissions(closed, fs::perms::none);
  fs::permissions(inside, fs::perms::none);
  fs::permissions(shut / "log.jsonl", fs::perms::none);
  std::map<std::string, runs::RunRow> rows;
  for (const runs::RunRow& row : runs::find_runs(root_)) rows[row.folder.filename()] = row;
  const Report report = inspect_path(odd), report_of_shut = inspect_path(shut);
  const bool may_all = ::access(closed.c_str(), R_OK) == 0;
  fs::permissions(closed, fs::perms::owner_all);
  fs::permissions(inside, fs::perms::owner_all);
  ASSERT_EQ(rows.size(), 7U);
  EXPECT_EQ(rows["whole"].state, "died");
  EXPECT_THAT(rows["odd"].state, testing::AllOf(testing::StartsWith("unreadable: "), HasSubstr("Not a directory")));
  EXPECT_EQ(rows["odd"].step, 2);
  EXPECT_EQ(rows["piped"].state, "new");
  EXPECT_EQ(rows["huge"].step, 1'000'000'000'000'000);
  EXPECT_THAT(report.problems, ElementsAre(HasSubstr("Not a directory")));
  if (may_all) GTEST_SKIP() << "this user may look into every folder";
  EXPECT_THAT(rows["closed"].state, HasSubstr("unreadable: Permission denied"));
  EXPECT_THAT(rows["inside"].state, HasSubstr("Permission denied"));
  EXPECT_EQ(rows["shut"].state, "unreadable: log.jsonl: Permission denied");
  EXPECT_THAT(report_of_shut.problems, ElementsAre(HasSubstr("the log can't be opened")));
}

TEST_F(InspectTest, NamesCannotSteerTheTerminal) {
  const fs::path run = make_run("a\n\x1b[2Jb", 10);
  const std::string text = inspect_path(run).to_text(run);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_THAT(text, HasSubstr("/a\\n\\x1b[2Jb\"\n"));
  const fs::path file = root_ / "w.safetensors";
  snapshot::write_tensors(Fs::real(), file, {{"a\x1b[2J", at::arange(4)}});
  EXPECT_THAT(inspect_path(file).to_text(file), testing::ContainsRegex("\"a\\\\x1b\\[2J\" +i64"));
}

TEST_F(InspectTest, SaysWhenItCannotTell) {
  EXPECT_THROW(static_cast<void>(inspect_path(root_ / "gone")), UsageError);
  EXPECT_THROW(static_cast<void>(inspect_path(root_)), UsageError);
  write(root_ / "notes", std::string("\0hello", 6));
  EXPECT_THROW(static_cast<void>(inspect_path(root_ / "notes")), UsageError);
}

TEST_F(InspectTest, BranchesAreRowsOfTheirOwn) {
  const fs::path run = make_run("a", 10);
  make_run("a/branches/step-00000030", 30);
  write(run / "branches/notes.txt", "mine");
  std::vector<std::string> names;
  for (const runs::RunRow& row : runs::find_runs(root_)) names.push_back(row.folder.lexically_relative(root_ / "mine").string());
  EXPECT_THAT(names, testing::UnorderedElementsAre("a", "a/branches/step-00000030"));
  EXPECT_THAT(inspect_path(run).to_text(run), testing::ContainsRegex("branch +[^ ]+a/branches/step-00000030, step 32"));
}

TEST_F(InspectTest, RunsAreFoundWithTheirState) {
  constexpr const char* kEnded = "{\"kind\":\"start\"}\n{\"kind\":\"step\",\"step\":22,\"loss\":0.5}\n{\"kind\":\"end\"}\n";
  write(make_run("stopped", 20) / "log.jsonl", kEnded);
  make_run("killed", 20);
  write(make_run("done", 10) / "summary.json",
        R"({"recipe": "toy", "steps": 15, "loss": {"first": 2.0, "last": 0.25}, "exit_reason": "max_steps"})");
  write(make_run("failed", 10) / "summary.json", R"({"exit_reason": "error"})");
  const fs::path signalled = make_run("signalled", 10);
  write(signalled / "summary.json", R"({"exit_reason": "signal", "recipe": "toy"})");
  write(signalled / "log.jsonl", kEnded);
  // The run was extended and then killed, so the summary is that of the shorter run.
  write(make_run("extended", 20) / "summary.json", R"({"steps": 15, "exit_reason": "max_steps"})");
  write(make_run("cut", 0) / "summary.json", "{\"recipe\": \"to");
  const fs::path running = make_run("running", 10);
  const int lock = ::open((running / "lock").c_str(), O_RDWR | O_CREAT, 0644);
  ASSERT_EQ(::flock(lock, LOCK_EX | LOCK_NB), 0);
  std::map<std::string, runs::RunRow> rows;
  for (const runs::RunRow& row : runs::find_runs(root_)) rows[row.folder.filename()] = row;
  ::close(lock);
  ASSERT_EQ(rows.size(), 8U);
  EXPECT_EQ(rows["extended"].state, "died");
  EXPECT_EQ(rows["stopped"].state, "stopped");
  EXPECT_EQ(rows["killed"].state, "died");
  EXPECT_EQ(rows["killed"].step, 22);
  EXPECT_EQ(rows["killed"].loss, 0.5);
  EXPECT_EQ(rows["killed"].recipe, "toy");
  EXPECT_EQ(rows["done"].state, "done: max_steps");
  EXPECT_EQ(rows["done"].step, 15);
  EXPECT_EQ(rows["done"].loss, 0.25);
  EXPECT_EQ(rows["failed"].state, "failed");
  EXPECT_EQ(rows["signalled"].state, "stopped");
  EXPECT_EQ(rows["cut"].state, "new");
  EXPECT_EQ(rows["running"].state, "running");
  EXPECT_EQ(rows["running"].when.size(), 19U);
  EXPECT_THAT(runs::find_runs(root_ / "gone"), IsEmpty());
}

}  // namespace
}  // namespace millrace::cli
