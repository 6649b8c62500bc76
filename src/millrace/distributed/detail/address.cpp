#include "millrace/distributed/detail/address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "millrace/base/error.h"

namespace millrace::distributed {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Addresses addresses_of(const std::string& host, int port, int type) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = type;
  addrinfo* found = nullptr;
  const int code = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (code != 0) {
    throw DistributedError({"the machine of rank 0, " + host + ", is unknown here: " + ::gai_strerror(code),
                            "MASTER_ADDR, or --at of millrace launch", "give a name that this machine resolves, or an address"});
  }
  return {found, &::freeaddrinfo};
}

}  // namespace

std::string address_towards(const std::string& host) {
  // Nothing is sent: connect() of a datagram socket only chooses the route.
  const Addresses list = addresses_of(host, 9, SOCK_DGRAM);
  for (const addrinfo* each = list.get(); each != nullptr; each = each->ai_next) {
    const int socket = ::socket(each->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (socket < 0) continue;
    sockaddr_storage own{};
    socklen_t size = sizeof(own);
    const bool known = ::connect(socket, each->ai_addr, each->ai_addrlen) == 0 &&
                       ::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &size) == 0;
    ::close(socket);
    std::array<char, NI_MAXHOST> text{};
    if (known &&
        ::getnameinfo(reinterpret_cast<sockaddr*>(&own), size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) == 0)
      return text.data();
  }
  throw DistributedError({"this machine has no route to " + host, "MASTER_ADDR, or --at of millrace launch",
                          "look at the network: ip route get " + host});
}

int listen_on(const std::string& host, int& port) {
  const Addresses list = addresses_of(host, port, SOCK_STREAM);
  int error = EADDRNOTAVAIL;
  for (const addrinfo* each = list.get(); each != nullptr; each = each->ai_next) {
    const int socket = ::socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (socket < 0) continue;
    const int on = 1;  // allows a port that an earlier run has left in TIME_WAIT
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    sockaddr_storage own{};
    socklen_t size = sizeof(own);
    if (::bind(socket, each->ai_addr, each->ai_addrlen) == 0 && ::listen(socket, SOMAXCONN) == 0 &&
        ::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &size) == 0) {
      port = ntohs(own.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&own)->sin6_port
                                             : reinterpret_cast<sockaddr_in*>(&own)->sin_port);
      return socket;
    }
    error = errno;
    ::close(socket);
  }
  const std::string place = host + ":" + std::to_string(port);
  if (error == EADDRINUSE) {
    throw DistributedError({"port " + std::to_string(port) + " of " + host + " is taken by another program", place,
                            "choose another port with MASTER_PORT, or --at HOST:PORT of millrace launch; ss -ltnp shows which "
                            "program uses this port"});
  }
  if (error == EADDRNOTAVAIL) {
    throw DistributedError({host + " is not an address of this machine, where rank 0 runs", place,
                            "set MASTER_ADDR, or --at of millrace launch, to the machine of rank 0"});
  }
  throw DistributedError({"rank 0 can't listen on " + place + ": " + std::strerror(error), place, "choose another port"});
}

}  // namespace millrace::distributed
