// The certificate that the TLS listeners show: a configured one, or one that lockstepd makes for
// itself once and keeps. Who connects pins its fingerprint, so nobody has to issue it. Blocking;
// start-up only.
#pragma once

#include "job/base/clock.hpp"
#include "job/base/result.hpp"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

struct TlsContext;

struct Certificate {
    std::string certificate;  // PEM, the leaf first
    std::string key;          // PEM
    std::string fingerprint;  // "sha256:" and 64 hexadecimal characters
    UnixMillis not_after = 0;
};

// <directory>/{certificate,key}.pem, both 0600. Made when they are not there (P-256, ten years, for
// `names`: addresses and host names); kept as they are otherwise. corrupt: there, but not good.
Result<Certificate> keep_certificate(const std::filesystem::path& directory,
                                     const std::vector<std::string>& names, UnixMillis now);
// A configured certificate. invalid: which file and why: unreadable, not PEM, not a pair.
Result<Certificate> read_certificate(const std::filesystem::path& certificate,
                                     const std::filesystem::path& key);
// For HttpServer::listen().
Result<std::shared_ptr<TlsContext>> listener_tls(const Certificate& certificate);

// The same without files, valid from `from` to `to`.
Result<Certificate> make_certificate(const std::vector<std::string>& names, UnixMillis from,
                                     UnixMillis to);

}  // namespace lockstep
