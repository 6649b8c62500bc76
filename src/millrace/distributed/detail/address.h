// Addresses of this machine, and sockets that listen on one of them.
#pragma once

#include <string>

namespace millrace::distributed {

// The address of this machine from which `host` is reached: "127.0.0.1" if that is this machine by a loopback name.
// DistributedError for an unknown name.
[[nodiscard]] std::string address_towards(const std::string& host);

// A listening socket on `host`'s address, which must be this machine's; port 0 = any free port, returned in `port`. The caller
// closes it. DistributedError if the port is taken or the address is another machine's.
[[nodiscard]] int listen_on(const std::string& host, int& port);

}  // namespace millrace::distributed
