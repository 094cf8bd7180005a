// Where the daemon is, who asks, and which certificate it has to show. Reads small files; the main
// thread.
#pragma once

#include "job/base/result.hpp"
#include "job/cli/options.hpp"

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::cli {

inline constexpr std::string_view kDefaultUrl = "http://127.0.0.1:8470";

// Where requests go and with which token.
struct Access {
    std::string url;
    std::string token;  // "" = none found
    // https: what the daemon's certificate must hash to; "" = the system's authorities decide.
    std::string fingerprint{};
    // The data directory's file that it is from, which its lockstepd writes anew when the
    // certificate is renewed; "" = somebody gave it.
    std::string fingerprint_file{};
    // Instead of the URL's host and port: the Unix socket of the lockstepd of this user whose
    // address the URL is; "" = none.
    std::string socket{};
    // Whose sockets may have the token over plain HTTP at a loopback address, beside this user's
    // and root's.
    std::vector<uid_t> listeners{};
    // For people: "LOCKSTEP_TOKEN", or the file and who named it; "" = none found.
    std::string token_from{};
};
// url: --url or LOCKSTEP_URL > configuration file > <data-dir>/url > kDefaultUrl; with_scheme().
// token: --token-file > LOCKSTEP_TOKEN > configuration file > <data-dir>/token.
// fingerprint, for https: --fingerprint or LOCKSTEP_FINGERPRINT > configuration file >
// <data-dir>/fingerprint.
// A configuration file with a url speaks of that daemon alone, the data directory of the daemon of
// this machine or the one that <data-dir>/url names: no token is shown to another host unasked. The
// token of the data directory goes to its lockstepd alone, and to that alone goes any token whose
// address is <data-dir>/url: through its Unix socket, or to the certificate that it has. A port of
// the loopback is anybody's who binds it first.
Result<Access> find_access(const Options& options);

// Where a lockstepd of this user keeps its token and address.
std::string data_directory(const Options& options);

struct FileSettings {
    std::string url;
    std::string token_file;
    std::string fingerprint;
    std::optional<uid_t> listener{};  // who listened at `url` when login was there
};
std::string config_path(const Options& options);
// All empty when there is no file and none was named.
Result<FileSettings> read_config(const Options& options);
// The path that a proxy has put before lockstepd's own, without the slash at its end; "" for none.
std::string url_path(std::string_view url);
// What a lockstepd has written to <data-dir>/fingerprint; invalid: something else.
Result<std::string> read_fingerprint(const std::string& path);
// Whether two URLs name the same host, port, scheme and path.
bool same_daemon(std::string_view one, std::string_view other);
// What has no scheme is https://, or http:// to a loopback address: no token crosses the network in
// clear unless http:// is asked for. "" stays "".
std::string with_scheme(const std::string& url);
// Whether a URL names this machine by a loopback address or as localhost.
bool is_loopback(std::string_view url);
// LOCKSTEP_TOKEN and --token-file in find_access()'s order; "" = neither.
Result<std::string> given_token(const Options& options);

}  // namespace lockstep::cli
