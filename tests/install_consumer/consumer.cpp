// Uses a header and a library of the lowest floor, and one of each that needs LibTorch: both must be found and linked.
#include <cstdio>

#include "millrace/base/error.h"
#include "millrace/base/version.h"
#include "millrace/core/batch.h"

int main() {
  try {
    throw millrace::DataError({"nothing here", "consumer.cpp", "look elsewhere"});
  } catch (const millrace::Error& error) {
    std::printf("%.*s %s\n", static_cast<int>(millrace::kVersion.size()), millrace::kVersion.data(), error.what());
  }
}
