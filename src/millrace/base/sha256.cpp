// This source is separate so that a program that only needs CRC32C links no OpenSSL. It calls OpenSSL's low-level functions
// although they are deprecated: with EVP the static library would bring in all of its ciphers and providers, 5 MB.
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

#include "millrace/base/error.h"
#include "millrace/base/hash.h"

namespace millrace {

void Sha256::Free::operator()(SHA256state_st* state) const noexcept { delete state; }

Sha256::Sha256() : state_(new SHA256_CTX) { MR_CHECK(::SHA256_Init(state_.get()) == 1, "OpenSSL has SHA-256"); }

void Sha256::update(std::span<const std::byte> bytes) {
  MR_CHECK(state_ != nullptr, "bytes can't be added after the digest was read");
  ::SHA256_Update(state_.get(), bytes.data(), bytes.size());
}

void Sha256::update(std::string_view text) { update(std::as_bytes(std::span(text.data(), text.size()))); }

std::array<std::uint8_t, 32> Sha256::digest() {
  MR_CHECK(state_ != nullptr, "a digest can be read only once");
  std::array<std::uint8_t, SHA256_DIGEST_LENGTH> result{};
  ::SHA256_Final(result.data(), state_.get());
  state_.reset();
  return result;
}

std::string Sha256::hex() {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : digest()) {
    text += kDigits[byte >> 4U];
    text += kDigits[byte & 15U];
  }
  return text;
}

}  // namespace millrace
