#include "millrace/train/step/shapes_seen.h"

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

namespace millrace {
namespace {

Batch batch_of(std::int64_t rows, std::int64_t width) {
  return Batch(Tensors{{"x", at::zeros({rows, width, 3})}, {"y", at::zeros({rows})}});
}

TEST(ShapesSeen, RowsDoNotMakeAShape) {
  ShapesSeen seen;
  for (const std::int64_t rows : {4, 4, 2}) seen.see(batch_of(rows, 5));
  EXPECT_EQ(seen.batches(), 3);
  EXPECT_EQ(seen.shapes(), 1);
  seen.see(batch_of(4, 6));
  seen.see(batch_of(4, 5));
  EXPECT_EQ(seen.shapes(), 2);
  EXPECT_EQ(seen.latest(), "x [*, 6, 3]");
}

}  // namespace
}  // namespace millrace
