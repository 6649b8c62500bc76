// Where a test program runs that somebody starts by hand.
#pragma once

namespace millrace::test {

// RUN_ALL_TESTS(), once, after InitGoogleTest(), which takes paths in flags as seen from the folder before. Tests write into the
// current folder. ctest starts each program below the build's scratch/, and there it stays. Started from anywhere else it moves
// into a new folder, which is removed at the end; where a test failed it is kept, and named. A copy of the program that a death
// test starts moves into the folder of the one that started it. SIGINT and SIGQUIT end a test, also in a shell's background job.
[[nodiscard]] int run_all_tests();

}  // namespace millrace::test
