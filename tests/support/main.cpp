// main() of each test program that has no main() itself.
#include <gtest/gtest.h>

#include "tests/support/own_folder.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return millrace::test::run_all_tests();
}
