#include "millrace/base/process.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "millrace/base/crash.h"

namespace millrace {

void prepare_process() {
  // In order, so that each open gets the number that is free.
  for (int number = STDIN_FILENO; number <= STDERR_FILENO; ++number) {
    if (::fcntl(number, F_GETFD) != -1) continue;
    ::open("/dev/null", number == STDIN_FILENO ? O_WRONLY : O_RDONLY);  // the wrong way round: its use is an error, as it was
  }
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGXFSZ, &ignore, nullptr);
  install_crash_line();
}

}  // namespace millrace
