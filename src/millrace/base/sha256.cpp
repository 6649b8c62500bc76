// A source of its own: a program that only needs CRC32C does not load OpenSSL.
#include <openssl/evp.h>

#include <new>

#include "millrace/base/error.h"
#include "millrace/base/hash.h"

namespace millrace {

void Sha256::Free::operator()(evp_md_ctx_st* context) const noexcept { ::EVP_MD_CTX_free(context); }

Sha256::Sha256() : context_(::EVP_MD_CTX_new()) {
  if (context_ == nullptr) throw std::bad_alloc();
  MR_CHECK(::EVP_DigestInit_ex(context_.get(), ::EVP_sha256(), nullptr) == 1, "OpenSSL has SHA-256");
}

void Sha256::update(std::span<const std::byte> bytes) {
  MR_CHECK(::EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1, "a hash that was read takes no more bytes");
}

void Sha256::update(std::string_view text) { update(std::as_bytes(std::span(text.data(), text.size()))); }

std::array<std::uint8_t, 32> Sha256::digest() {
  std::array<std::uint8_t, 32> result{};
  MR_CHECK(::EVP_DigestFinal_ex(context_.get(), result.data(), nullptr) == 1, "a hash is read once");
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
