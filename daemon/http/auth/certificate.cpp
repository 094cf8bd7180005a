#include "daemon/http/auth/certificate.hpp"

#include "daemon/http/http_limits.hpp"
#include "job/async/tls.hpp"
#include "job/base/files.hpp"

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <ctime>
#include <system_error>

namespace lockstep {
namespace {

constexpr UnixMillis kDay = 86'400'000;
constexpr UnixMillis kLife = 3650 * kDay;

template <auto kFree>
struct Free {
    template <class T>
    void operator()(T* object) const {
        kFree(object);
    }
};
using KeyPtr = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;
using X509Ptr = std::unique_ptr<X509, Free<X509_free>>;
using BioPtr = std::unique_ptr<BIO, Free<BIO_free_all>>;
using ExtensionPtr = std::unique_ptr<X509_EXTENSION, Free<X509_EXTENSION_free>>;
using NamesPtr = std::unique_ptr<GENERAL_NAMES, Free<GENERAL_NAMES_free>>;
using NumberPtr = std::unique_ptr<BIGNUM, Free<BN_free>>;
using TimePtr = std::unique_ptr<ASN1_TIME, Free<ASN1_TIME_free>>;

Error openssl(const std::string& what) {
    return Error{Errc::internal, what + ": " + tls_error()};
}

std::string text_of(BIO* bio) {
    char* data = nullptr;
    const long size = BIO_get_mem_data(bio, &data);
    return size > 0 ? std::string(data, static_cast<std::size_t>(size)) : std::string{};
}

X509Ptr parse_leaf(const std::string& pem) {
    const BioPtr in{BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()))};
    return X509Ptr{PEM_read_bio_X509(in.get(), nullptr, nullptr, nullptr)};
}

bool set_serial(X509* certificate) {
    // 127 random bits, positive (RFC 5280 §4.1.2.2).
    const NumberPtr number{BN_new()};
    return number && BN_rand(number.get(), 127, BN_RAND_TOP_ONE, BN_RAND_BOTTOM_ANY) == 1 &&
           BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate)) != nullptr;
}

bool add_extension(X509* certificate, int nid, const char* value) {
    const ExtensionPtr extension{X509V3_EXT_conf_nid(nullptr, nullptr, nid, value)};
    return extension && X509_add_ext(certificate, extension.get(), -1) == 1;
}

// As objects, not as OpenSSL's configuration language: a name cannot be anything but a name.
bool add_names(X509* certificate, const std::vector<std::string>& names) {
    const NamesPtr list{sk_GENERAL_NAME_new_null()};
    for (const std::string& name : names) {
        GENERAL_NAME* entry = GENERAL_NAME_new();
        if (!list || entry == nullptr || sk_GENERAL_NAME_push(list.get(), entry) == 0) {
            GENERAL_NAME_free(entry);
            return false;
        }
        if (ASN1_OCTET_STRING* address = a2i_IPADDRESS(name.c_str())) {
            GENERAL_NAME_set0_value(entry, GEN_IPADD, address);
            continue;
        }
        ASN1_IA5STRING* text = ASN1_IA5STRING_new();
        if (text == nullptr ||
            ASN1_STRING_set(text, name.data(), static_cast<int>(name.size())) != 1) {
            ASN1_IA5STRING_free(text);
            return false;
        }
        GENERAL_NAME_set0_value(entry, GEN_DNS, text);
    }
    return X509_add1_ext_i2d(certificate, NID_subject_alt_name, list.get(), 0, 0) == 1;
}

bool fill(X509* certificate, EVP_PKEY* key, const std::vector<std::string>& names, UnixMillis from,
          UnixMillis to) {
    X509_NAME* const subject = X509_get_subject_name(certificate);
    const auto* title = reinterpret_cast<const unsigned char*>("lockstepd");
    return X509_set_version(certificate, X509_VERSION_3) == 1 && set_serial(certificate) &&
           ASN1_TIME_set(X509_getm_notBefore(certificate), from / 1000) != nullptr &&
           ASN1_TIME_set(X509_getm_notAfter(certificate), to / 1000) != nullptr &&
           X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, title, -1, -1, 0) == 1 &&
           X509_set_issuer_name(certificate, subject) == 1 &&
           X509_set_pubkey(certificate, key) == 1 &&
           add_extension(certificate, NID_basic_constraints, "critical,CA:FALSE") &&
           add_extension(certificate, NID_key_usage, "critical,digitalSignature") &&
           add_extension(certificate, NID_ext_key_usage, "serverAuth") &&
           add_names(certificate, names) && X509_sign(certificate, key, EVP_sha256()) > 0;
}

UnixMillis millis_of(const ASN1_TIME* time) {
    const TimePtr epoch{ASN1_TIME_set(nullptr, 0)};
    int days = 0;
    int seconds = 0;
    if (!epoch || ASN1_TIME_diff(&days, &seconds, epoch.get(), time) != 1) {
        return 0;
    }
    return static_cast<UnixMillis>(days) * kDay + static_cast<UnixMillis>(seconds) * 1000;
}

Result<Certificate> examine(std::string certificate, std::string key) {
    // The listener's own checks: PEM, a pair.
    LOCKSTEP_TRY(server_tls(certificate, key));
    const X509Ptr leaf = parse_leaf(certificate);
    if (!leaf) {
        return fail(openssl("the certificate is not good"));
    }
    Certificate out;
    out.fingerprint = fingerprint_of(leaf.get());
    out.not_after = millis_of(X509_get0_notAfter(leaf.get()));
    out.certificate = std::move(certificate);
    out.key = std::move(key);
    return out;
}

}  // namespace

Result<Certificate> make_certificate(const std::vector<std::string>& names, UnixMillis from,
                                     UnixMillis to) {
    const KeyPtr key{EVP_EC_gen("P-256")};
    const X509Ptr certificate{X509_new()};
    if (!key || !certificate || !fill(certificate.get(), key.get(), names, from, to)) {
        return fail(openssl("cannot make a certificate"));
    }
    const BioPtr certificate_pem{BIO_new(BIO_s_mem())};
    const BioPtr key_pem{BIO_new(BIO_s_secmem())};
    if (PEM_write_bio_X509(certificate_pem.get(), certificate.get()) != 1 ||
        PEM_write_bio_PKCS8PrivateKey(key_pem.get(), key.get(), nullptr, nullptr, 0, nullptr,
                                      nullptr) != 1) {
        return fail(openssl("cannot write a certificate"));
    }
    return examine(text_of(certificate_pem.get()), text_of(key_pem.get()));
}

Result<Certificate> read_certificate(const std::filesystem::path& certificate,
                                     const std::filesystem::path& key) {
    auto certificate_pem = read_file(certificate, limits::kPemFileBytes);
    if (!certificate_pem) {
        return fail(Errc::invalid, certificate_pem.error().message);
    }
    auto key_pem = read_file(key, limits::kPemFileBytes);
    if (!key_pem) {
        return fail(Errc::invalid, key_pem.error().message);
    }
    auto out = examine(std::move(*certificate_pem), std::move(*key_pem));
    if (!out) {
        return fail(out.error().code,
                    certificate.string() + ", " + key.string() + ": " + out.error().message);
    }
    return out;
}

Result<Certificate> keep_certificate(const std::filesystem::path& directory,
                                     const std::vector<std::string>& names, UnixMillis now) {
    const auto certificate_file = directory / "certificate.pem";
    const auto key_file = directory / "key.pem";
    std::error_code ec;
    // The certificate is written last: without it the key was never used.
    if (std::filesystem::exists(certificate_file, ec) || ec) {
        auto kept = read_certificate(certificate_file, key_file);
        if (!kept) {
            return fail(Errc::corrupt, kept.error().message + "; without " + directory.string() +
                                           " a new one is made, which agents of running jobs "
                                           "learn from their attempt's file");
        }
        return kept;
    }
    auto made = make_certificate(names, now - kDay, now + kLife);
    if (!made) {
        return made;
    }
    LOCKSTEP_TRY(make_private_directories(directory));
    LOCKSTEP_TRY(write_file_atomic(key_file, made->key, 0600));
    LOCKSTEP_TRY(write_file_atomic(certificate_file, made->certificate, 0600));
    return made;
}

Result<std::shared_ptr<TlsContext>> listener_tls(const Certificate& certificate) {
    return server_tls(certificate.certificate, certificate.key);
}

}  // namespace lockstep
