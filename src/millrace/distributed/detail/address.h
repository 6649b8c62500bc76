// Addresses of this machine, and sockets that listen on one of them.
#pragma once

#include <string>

namespace millrace::distributed {

// Returns this machine's address on the route to `host`: "127.0.0.1" if `host` is a loopback name of this machine. Throws
// DistributedError if the name is unknown.
[[nodiscard]] std::string address_towards(const std::string& host);

// Returns a socket that listens on the address of `host`, which must be this machine's. `port` 0 = any free port, whose number
// is then stored in `port`. The caller closes the socket. Throws DistributedError if the port is taken or the address is another
// machine's.
[[nodiscard]] int listen_on(const std::string& host, int& port);

}  // namespace millrace::distributed
