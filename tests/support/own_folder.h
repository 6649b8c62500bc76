// The working folder of a test program that is started by hand.
#pragma once

namespace millrace::test {

// Calls RUN_ALL_TESTS() once, after InitGoogleTest(), which reads paths in flags relative to the original folder. Tests write
// into the current folder. ctest starts each program below the build's scratch/, where it stays. A program that is started from
// another folder moves into a new folder, which is removed at the end; if a test failed, the folder is kept, and its path
// printed. A copy of the program that a death test starts moves into the folder of its parent. SIGINT and SIGQUIT end a test,
// also in a shell's background job.
[[nodiscard]] int run_all_tests();

}  // namespace millrace::test
