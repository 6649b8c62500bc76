#include "millrace/cli/inspect/tensor_file.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>

#include "millrace/base/error.h"
#include "millrace/base/fs.h"
#include "millrace/format/npy.h"
#include "tests/support/refusal.h"

namespace millrace::cli {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class TensorFileTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) /
            ("tensor_file_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }
  [[nodiscard]] std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(root_), fs::directory_iterator()));
  }

  fs::path root_;
};

Tensors rows(std::int64_t first, std::int64_t count) {
  const at::Tensor numbers = at::arange(first, first + count).to(at::kFloat);
  return {{"c", at::complex(numbers, -numbers).reshape({count, 1})},
          {"f", numbers.reshape({count, 1, 1}).expand({count, 2, 3}).contiguous()},
          {"i", at::arange(first, first + count)}};
}

TEST_F(TensorFileTest, RowsGoInAndOutOfEveryKind) {
  for (const char* name : {"a.safetensors", "a.pt", "a.pth", "a.npz", "a.h5", "A.HDF5"}) {
    const fs::path path = root_ / name;
    const TensorFormat format = tensor_format(path, "--output");
    TensorWriter writer(path, format);
    for (const auto& [first, count] : {std::pair(0, 4), std::pair(4, 4), std::pair(8, 1)}) writer.append(rows(first, count));
    const std::vector<Field> written = writer.finish();
    EXPECT_EQ(written[1], (Field{"f", DType::f32, {9, 2, 3}})) << name;
    const auto reader = open_tensors(path, format, "");
    const Tensors all = rows(0, 9);
    ASSERT_EQ(reader->fields().size(), all.size()) << name;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const at::Tensor& expected = all.at(reader->fields()[i].name);
      EXPECT_TRUE(at::equal(reader->read(i, 0, -1), expected)) << name;
      EXPECT_TRUE(at::equal(reader->read(i, 5, 3), expected.narrow(0, 5, 3))) << name;
    }
    EXPECT_EQ(files(), 1U) << "nothing stays beside " << name;
    fs::remove(path);
  }
}

TEST_F(TensorFileTest, AnArrayWithoutANameGetsTheOneGiven) {
  TensorWriter writer(root_ / "a.npy", TensorFormat::npy);
  writer.append({{"y", at::arange(6).reshape({3, 2})}});
  writer.append({{"y", at::arange(6, 8).reshape({1, 2})}});
  static_cast<void>(writer.finish());
  const auto reader = open_tensors(root_ / "a.npy", TensorFormat::npy, "x");
  EXPECT_EQ(reader->fields()[0], (Field{"x", DType::i64, {4, 2}}));
  EXPECT_TRUE(at::equal(reader->read(0, 1, 3), at::arange(2, 8).reshape({3, 2})));
}

TEST_F(TensorFileTest, CompressedAndDamagedArchives) {
  const at::Tensor x = at::arange(3000).to(at::kFloat).reshape({1000, 3});
  const std::span<const std::byte> bytes(static_cast<const std::byte*>(x.const_data_ptr()), x.nbytes());
  for (const bool deflated : {false, true}) {
    write_atomically(Fs::real(), root_ / "a.npz", [&](WritableFile& file) {
      format::write_npz(file, std::vector<format::NpzArray>{{{"x", DType::f32, {1000, 3}}, bytes}}, deflated);
    });
    EXPECT_TRUE(at::equal(open_tensors(root_ / "a.npz", TensorFormat::npz, "")->read(0, 990, 10), x.narrow(0, 990, 10)));
    std::string text = Fs::real().read_file(root_ / "a.npz");
    text[text.size() / 2] ^= 1;
    write_atomically(Fs::real(), root_ / "b.npz", text);
    EXPECT_THAT(refusal([&] { (void)open_tensors(root_ / "b.npz", TensorFormat::npz, "")->read(0, 0, 1); }), HasSubstr("x"))
        << deflated;
  }
}

TEST_F(TensorFileTest, RefusalsLeaveNothing) {
  EXPECT_EQ(refusal([&] { (void)tensor_format("in.txt", "--input"); }),
            "UsageError  can't tell from the name what kind of file \"in.txt\" is\n  where    flag --input\n"
            "  next     let its name end in .npy, .npz, .safetensors, .pt, .pth, .h5 or .hdf5");
  {
    TensorWriter writer(root_ / "a.npy", TensorFormat::npy);
    writer.append(rows(0, 2));
    EXPECT_THAT(refusal([&] { (void)writer.finish(); }), HasSubstr("a .npy file holds one array, and predict() gave 3"));
  }
  {
    TensorWriter writer(root_ / "a.npz", TensorFormat::npz);
    writer.append({{"y", at::ones({2, 3})}});
    EXPECT_THAT(refusal([&] { writer.append({{"y", at::ones({2, 4})}}); }), HasSubstr("output \"y\" of predict() has another"));
    EXPECT_THAT(refusal([&] { writer.append({{"z", at::ones({2, 3})}}); }), HasSubstr("has another name, type or shape"));
    EXPECT_THAT(refusal([&] { writer.append(rows(0, 2)); }), HasSubstr("other outputs than for the rows before"));
  }
  EXPECT_EQ(files(), 0U);
}

}  // namespace
}  // namespace millrace::cli
