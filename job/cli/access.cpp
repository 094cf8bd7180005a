#include "job/cli/access.hpp"

#include "job/async/http_client.hpp"
#include "job/base/files.hpp"
#include "job/base/text.hpp"
#include "job/cli/cli_limits.hpp"
#include "job/cli/daemon_start.hpp"

#include <CLI/Config.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

namespace lockstep::cli {
namespace {

// Of the system's lockstepd, where there is one: only root makes a folder there.
constexpr const char* kServiceData = "/var/lib/lockstep";

std::string variable_of(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
}

std::string home_path(const char* variable, const char* fallback) {
    const std::string base = variable_of(variable);
    return base.empty() ? variable_of("HOME") + fallback : base;
}

Result<std::string> read_token(const std::string& path) {
    std::error_code ec;
    if (std::filesystem::is_directory(path, ec)) {
        return fail(Errc::invalid, "token file " + path + " is a folder");
    }
    auto text = read_file(path, limits::kSettingBytes);
    if (!text) {
        Error why = std::move(text).error().in("token file " + path);
        // A name that is wrong is a wrong argument; not_found is for jobs.
        why.code = why.code == Errc::not_found ? Errc::invalid : why.code;
        return fail(std::move(why));
    }
    // Another token in its place would be somebody else's rights.
    return trim(*text).empty() ? fail(Errc::invalid, "token file " + path + " is empty")
                               : Result<std::string>{std::string(trim(*text))};
}

// "" = none was given.
Result<std::string> find_fingerprint(const Options& options, const std::string& configured,
                                     bool own) {
    if (!options.fingerprint.empty()) {
        return parse_fingerprint(options.fingerprint);
    }
    if (!configured.empty()) {
        return parse_fingerprint(configured);
    }
    const auto kept = read_file(data_directory(options) + "/fingerprint", limits::kSettingBytes);
    return own && kept ? parse_fingerprint(*kept) : std::string{};
}

// The same host, port and scheme; the loopback has many names.
bool same_address(const std::string& one, const std::string& other) {
    const auto a = parse_endpoint(one);
    const auto b = parse_endpoint(other);
    const bool near = is_loopback(one) && is_loopback(other);
    return a && b && a->tls == b->tls && a->port == b->port && (near || a->host == b->host);
}

// The data directory's token is for its lockstepd: how to reach that and nobody else at
// `access.url`.
Status reach_own(const std::string& data, Access& access) {
    const auto kept = read_file(data + "/url", limits::kSettingBytes);
    const std::string own = kept ? std::string{trim(*kept)} : "";
    if (!daemon_holds(data)) {
        // Whoever listens at its address by now is somebody else.
        return fail(Errc::unavailable, "no lockstepd runs with the data directory " + data +
                                           ": start it with lockstepd, or with lockstep run; "
                                           "another one: --url, LOCKSTEP_URL, lockstep login");
    }
    if (!own.empty() && !same_address(own, access.url)) {
        return fail(Errc::denied,
                    "the token in " + data + " is for the lockstepd at " + own + ", not for " +
                        access.url +
                        ": give the other's token with --token-file or LOCKSTEP_TOKEN");
    }
    std::error_code ec;
    if (!access.fingerprint.empty()) {
        return {};  // a server with another certificate is sent nothing
    }
    if (std::filesystem::exists(data + "/lockstepd.sock", ec)) {
        access.socket = data + "/lockstepd.sock";
    } else if (own.empty()) {
        return fail(Errc::unavailable, "the lockstepd of " + data + " does not listen yet");
    }
    return {};
}

// The address is the data directory's, and any token may be for its lockstepd. What nobody else
// could answer, or this user cannot tell, is left to the certificate and to who listens there.
bool only_its_own(const std::string& data, const Access& access) {
    const bool closed =
        ::access((data + "/lock").c_str(), R_OK | W_OK) != 0 && (errno == EACCES || errno == EROFS);
    return !closed && !access.url.starts_with("https://");
}

// The service users whose lockstepd somebody on this machine may mean.
std::vector<uid_t> service_users(const std::string& data) {
    std::vector<uid_t> out;
    for (const std::string& folder : {data, std::string{kServiceData}}) {
        struct stat info{};
        if (::stat(folder.c_str(), &info) == 0) {
            out.push_back(info.st_uid);
        }
    }
    return out;
}

// A setting's number of a user.
Result<uid_t> read_user(const std::string& value) {
    const auto number = to_int(value);
    if (!number || *number < 0 || *number >= 4'294'967'295) {
        return fail(Errc::invalid, "listener: not a user's number: " + printable(value));
    }
    return static_cast<uid_t>(*number);
}

}  // namespace

std::string data_directory(const Options& options) {
    return options.data_dir.empty() ? home_path("XDG_DATA_HOME", "/.local/share") + "/lockstep"
                                    : options.data_dir;
}

std::string with_scheme(const std::string& url) {
    if (url.empty() || url.find("://") != std::string::npos) {
        return url;
    }
    return (is_loopback(url) ? "http://" : "https://") + url;
}

Result<std::string> read_fingerprint(const std::string& path) {
    const auto text = read_file(path, limits::kSettingBytes);
    LOCKSTEP_TRY(text);
    return parse_fingerprint(*text);
}

bool is_loopback(std::string_view url) {
    const std::size_t scheme = url.find("://");
    if (scheme != std::string_view::npos) {
        url.remove_prefix(scheme + 3);
    }
    std::string_view host = url.substr(0, url.find('/'));
    const bool bracketed = host.substr(0, 1) == "[";
    host = bracketed ? host.substr(0, host.find(']') + 1) : host.substr(0, host.find(':'));
    // Names that only begin like an address (127.0.0.1.example) or hide one (a@b) are no loopback.
    const bool numeric = host.find_first_not_of("0123456789.") == std::string_view::npos;
    return host == "localhost" || host == "[::1]" || (numeric && host.substr(0, 4) == "127.");
}

std::string url_path(std::string_view url) {
    const auto scheme = url.find("://");
    url.remove_prefix(scheme == std::string_view::npos ? 0 : scheme + 3);
    const auto path = url.find('/');
    if (path == std::string_view::npos) {
        return {};
    }
    url = url.substr(path, url.find_first_of("?#") - path);
    while (url.ends_with('/')) {
        url.remove_suffix(1);
    }
    return std::string{url};
}

bool same_daemon(std::string_view one, std::string_view other) {
    const auto a = parse_endpoint(one);
    const auto b = parse_endpoint(other);
    return a && b && a->tls == b->tls && a->authority() == b->authority() &&
           url_path(one) == url_path(other);
}

std::string config_path(const Options& options) {
    return options.config.empty()
               ? home_path("XDG_CONFIG_HOME", "/.config") + "/lockstep/config.toml"
               : options.config;
}

Result<FileSettings> read_config(const Options& options) {
    FileSettings settings;
    const std::string path = config_path(options);
    std::error_code ec;
    const auto there = std::filesystem::status(path, ec);
    if (options.config.empty() && !std::filesystem::exists(there)) {
        return settings;  // also where this user may not look: nothing was set up for him there
    }
    if (there.type() == std::filesystem::file_type::none) {
        return fail(Errc::invalid, "settings file " + path + ": " + ec.message());
    }
    // The parser would take a folder for an empty file.
    if (!std::filesystem::exists(there) || std::filesystem::is_directory(there)) {
        return fail(Errc::invalid,
                    "settings file " + path +
                        (std::filesystem::exists(there) ? " is a folder" : " is not there"));
    }
    try {
        for (const CLI::ConfigItem& item : CLI::ConfigTOML().from_file(path)) {
            const std::string value = item.inputs.empty() ? "" : item.inputs.front();
            if (item.fullname() == "url") {
                settings.url = value;
            } else if (item.fullname() == "token-file") {
                settings.token_file = value;
            } else if (item.fullname() == "fingerprint") {
                settings.fingerprint = value;
            } else if (item.fullname() == "listener") {
                const auto user = read_user(value);
                if (!user) {
                    return fail(user.error().in(path));
                }
                settings.listener = *user;
            } else {
                return fail(Errc::invalid, path + ": unknown setting " + item.fullname());
            }
        }
    } catch (const CLI::Error& error) {
        return fail(Errc::invalid, path + ": " + error.what());
    }
    return settings;
}

Result<std::string> given_token(const Options& options) {
    if (!options.token_file.empty()) {
        return read_token(options.token_file);
    }
    return variable_of("LOCKSTEP_TOKEN");
}

Result<Access> find_access(const Options& options) {
    auto file = read_config(options);
    LOCKSTEP_TRY(file);
    const std::string data = data_directory(options);
    Access access;
    file->url = with_scheme(file->url);
    access.url = !options.url.empty() ? with_scheme(options.url) : file->url;
    bool own = is_loopback(access.url);
    bool kept = false;  // the address is the one that the data directory's lockstepd wrote there
    if (access.url.empty()) {
        const auto local = read_file(data + "/url", limits::kSettingBytes);
        access.url = local ? std::string(trim(*local)) : std::string(kDefaultUrl);
        kept = local.has_value();
        own = true;
    }
    if (!file->url.empty() && !same_daemon(file->url, access.url)) {
        *file = {};  // it speaks of another daemon
    }
    if (access.url.starts_with("https://")) {
        auto fingerprint = find_fingerprint(options, file->fingerprint, own);
        LOCKSTEP_TRY(fingerprint);
        access.fingerprint = std::move(*fingerprint);
        if (options.fingerprint.empty() && file->fingerprint.empty() &&
            !access.fingerprint.empty()) {
            access.fingerprint_file = data + "/fingerprint";
        }
    }
    auto token = given_token(options);
    std::error_code ec;
    access.token_from =
        options.token_file.empty() ? "LOCKSTEP_TOKEN" : "--token-file, " + options.token_file;
    if (token && token->empty() && !file->token_file.empty()) {
        token = read_token(file->token_file);
        access.token_from = file->token_file + ", as " + config_path(options) + " says";
    } else if (token && token->empty() && own && std::filesystem::exists(data + "/token", ec)) {
        const auto pin = read_file(data + "/fingerprint", limits::kSettingBytes);
        const auto own_pin = pin ? parse_fingerprint(*pin) : Result<std::string>{std::string{}};
        if (access.fingerprint.empty() || !own_pin || *own_pin != access.fingerprint) {
            LOCKSTEP_TRY(reach_own(data, access));
        }
        token = read_token(data + "/token");
        access.token_from = data + "/token";
    }
    LOCKSTEP_TRY(token);
    if (token->empty()) {
        access.token_from.clear();
    } else if (kept && access.socket.empty() && only_its_own(data, access)) {
        LOCKSTEP_TRY(reach_own(data, access));
    }
    access.listeners = service_users(data);
    if (const std::optional<uid_t> listener = file->listener) {
        access.listeners.push_back(*listener);
    }
    access.token = std::move(*token);
    return access;
}

}  // namespace lockstep::cli
