#include "millrace/base/fs.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "tests/support/fault_fs.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }

int errno_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const FsError& error) {
    return error.error_number();
  }
  return 0;
}

class Folder : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) / ("base_fs_" + std::to_string(::getpid()));
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path folder_;
  Fs& fs_ = Fs::real();
};

TEST_F(Folder, FilesAreWrittenAppendedAndListed) {
  fs_.create(folder_ / "b")->write(bytes_of("old, longer"));
  fs_.create(folder_ / "b")->write(bytes_of("one"));
  const auto file = fs_.append(folder_ / "b");
  file->write(bytes_of(" two"));
  file->sync();
  file->close();
  file->close();
  fs_.append(folder_ / "a");
  EXPECT_EQ(fs_.read_file(folder_ / "b"), "one two");
  EXPECT_THAT(fs_.list(folder_), ElementsAre("a", "b"));
  fs_.rename(folder_ / "b", folder_ / "a");
  EXPECT_EQ(fs_.read_file(folder_ / "a"), "one two");
  fs_.remove_all(folder_ / "a");
  fs_.remove_all(folder_ / "a");
  EXPECT_FALSE(fs_.exists(folder_ / "a"));
  EXPECT_GT(fs_.free_bytes(folder_), 0U);
}

TEST_F(Folder, ErrorsCarryErrnoAndPath) {
  EXPECT_EQ(errno_of([&] { static_cast<void>(fs_.read_file(folder_ / "none")); }), ENOENT);
  EXPECT_EQ(errno_of([&] { static_cast<void>(fs_.read_file(folder_)); }), EISDIR);
  EXPECT_EQ(errno_of([&] { fs_.create(folder_ / "none" / "x"); }), ENOENT);
  EXPECT_EQ(errno_of([&] { static_cast<void>(fs_.list(folder_ / "none")); }), ENOENT);
  EXPECT_EQ(errno_of([&] { fs_.rename(folder_ / "none", folder_ / "x"); }), ENOENT);
  EXPECT_EQ(errno_of([&] { fs_.sync_directory(folder_ / "none"); }), ENOENT);
  fs_.create(folder_ / "file");
  EXPECT_EQ(errno_of([&] { fs_.create_directories(folder_ / "file"); }), ENOTDIR);
  try {
    fs_.create(folder_ / "none" / "x");
    FAIL();
  } catch (const FsError& error) {
    EXPECT_EQ(error.path(), folder_ / "none" / "x");
    EXPECT_EQ(std::string(error.what()), "open " + error.path().string() + ": No such file or directory");
  }
}

TEST(Remedy, FitsTheReason) {
  EXPECT_THAT(remedy_for(EMFILE), HasSubstr("ulimit -n"));
  EXPECT_THAT(remedy_for(ENFILE), HasSubstr("fs.file-max"));
  EXPECT_THAT(remedy_for(EFBIG), HasSubstr("ulimit -f"));
  EXPECT_THAT(remedy_for(ENOSPC), HasSubstr("free space"));
  EXPECT_THAT(remedy_for(EDQUOT), HasSubstr("quota"));
  EXPECT_THAT(remedy_for(EACCES), HasSubstr("permissions"));
  EXPECT_EQ(remedy_for(EPERM), remedy_for(EACCES));
  EXPECT_THAT(remedy_for(EROFS), HasSubstr("read-only"));
  EXPECT_THAT(remedy_for(ENAMETOOLONG), HasSubstr("shorter"));
  EXPECT_THAT(remedy_for(ENOENT), HasSubstr("does not exist"));
  EXPECT_THAT(remedy_for(ENOTDIR), HasSubstr("does not exist"));
  EXPECT_THAT(remedy_for(EISDIR), HasSubstr("folder"));
  EXPECT_THAT(remedy_for(ELOOP), HasSubstr("symbolic link"));
  EXPECT_THAT(remedy_for(EIO), HasSubstr("disk"));
  EXPECT_EQ(remedy_for(EINVAL), "check the path and its permissions");
}

TEST_F(Folder, APipeInAFilesPlaceDoesNotHang) {
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(errno_of([&] { static_cast<void>(fs_.read_file(folder_ / "pipe")); }), EINVAL);
}

TEST_F(Folder, AtomicWritesLeaveNoTemporaryFile) {
  write_atomically(fs_, folder_ / "state", "first");
  write_atomically(fs_, folder_ / "state", "second");
  EXPECT_EQ(fs_.read_file(folder_ / "state"), "second");
  EXPECT_THAT(fs_.list(folder_), ElementsAre("state"));
}

TEST_F(Folder, ANewFileTakesNothingThatIsThere) {
  fs_.create(folder_ / "mine")->write(bytes_of("mine"));
  std::filesystem::create_symlink("mine", folder_ / "link");
  std::filesystem::create_symlink("nowhere", folder_ / "dangling");
  for (const char* name : {"mine", "link", "dangling"}) {
    EXPECT_EQ(errno_of([&] { fs_.create_new(folder_ / name); }), EEXIST) << name;
  }
  EXPECT_EQ(fs_.read_file(folder_ / "mine"), "mine");
  fs_.create_new(folder_ / "new")->write(bytes_of("new"));
  EXPECT_EQ(fs_.read_file(folder_ / "new"), "new");
}

// A dead process with the same ID may have left a temporary file, and another user may have placed a link under that name.
TEST_F(Folder, AtomicWritesTouchNoOtherFile) {
  fs_.create(folder_ / "victim")->write(bytes_of("mine"));
  std::filesystem::path next;
  {
    const AtomicFile probe(fs_, folder_ / "state");
    next = probe.temporary();
  }
  EXPECT_THAT(fs_.list(folder_), ElementsAre("victim"));
  const std::string stem = next.string().substr(0, next.string().rfind('.') + 1);
  const auto number = std::stoull(next.extension().string().substr(1));
  std::filesystem::create_symlink("victim", stem + std::to_string(number + 1));
  fs_.create(stem + std::to_string(number + 2))->write(bytes_of("left"));
  write_atomically(fs_, folder_ / "state", "new");
  EXPECT_EQ(fs_.read_file(folder_ / "state"), "new");
  EXPECT_EQ(fs_.read_file(folder_ / "victim"), "mine");
  EXPECT_EQ(fs_.read_file(stem + std::to_string(number + 2)), "left");
  EXPECT_EQ(fs_.list(folder_).size(), 4U);
}

TEST_F(Folder, WritersOfOneFileDoNotMeet) {
  AtomicFile first(fs_, folder_ / "state");
  AtomicFile second(fs_, folder_ / "state");
  first.file().write(bytes_of("first"));
  second.file().write(bytes_of("second"));
  second.finish();
  EXPECT_EQ(fs_.read_file(folder_ / "state"), "second");
  first.finish();
  EXPECT_EQ(fs_.read_file(folder_ / "state"), "first");
  EXPECT_THROW(write_atomically(fs_, folder_ / "state", [](WritableFile&) { throw std::runtime_error("no more"); }),
               std::runtime_error);
  EXPECT_EQ(fs_.read_file(folder_ / "state"), "first");
  EXPECT_THAT(fs_.list(folder_), ElementsAre("state"));
}

TEST_F(Folder, AtomicWritesAreWholeOrNotAtAllWhicheverCallFails) {
  FaultFs counter(fs_);
  write_atomically(counter, folder_ / "state", "new content");
  ASSERT_EQ(counter.calls(), 6);  // create, write, sync, close, rename, sync of the folder
  for (const bool keeps_failing : {false, true}) {
    for (std::int64_t k = 0; k < counter.calls(); ++k) {
      write_atomically(fs_, folder_ / "state", "old");
      FaultFs faulty(fs_, {.fail_at = k, .error_number = ENOSPC, .keeps_failing = keeps_failing, .tears_write = true});
      EXPECT_EQ(errno_of([&] { write_atomically(faulty, folder_ / "state", "new content"); }), ENOSPC);
      faulty.drop_unsynced();
      EXPECT_EQ(fs_.read_file(folder_ / "state"), k < 5 ? "old" : "new content") << k;
      if (!keeps_failing) {
        EXPECT_THAT(fs_.list(folder_), ElementsAre("state"));
      }
      fs_.remove_all(folder_);
      fs_.create_directories(folder_);
    }
  }
}

TEST_F(Folder, FaultFsFillsUp) {
  FaultFs full(fs_, {.capacity = 10});
  const auto file = full.create(folder_ / "a");
  file->write(bytes_of("12345678"));
  EXPECT_EQ(full.free_bytes(folder_), 2U);
  EXPECT_EQ(errno_of([&] { file->write(bytes_of("abcd")); }), ENOSPC);
  EXPECT_EQ(fs_.read_file(folder_ / "a"), "12345678ab");
}

TEST_F(Folder, FaultFsLosesWhatWasNotSynced) {
  FaultFs lossy(fs_);
  lossy.create_directories(folder_ / "new");
  const auto file = lossy.create(folder_ / "new" / "a");
  file->write(bytes_of("kept"));
  file->sync();
  file->write(bytes_of("lost"));
  file->close();
  lossy.append(folder_ / "new" / "a")->write(bytes_of("lost too"));
  lossy.create(folder_ / "new" / "b")->write(bytes_of("lost"));
  lossy.rename(folder_ / "new", folder_ / "final");
  lossy.drop_unsynced();
  EXPECT_EQ(fs_.read_file(folder_ / "final" / "a"), "kept");
  EXPECT_THAT(fs_.read_file(folder_ / "final" / "b"), IsEmpty());
  EXPECT_THAT(lossy.log(), ::testing::Contains(HasSubstr("rename ")));
}

}  // namespace
}  // namespace millrace
