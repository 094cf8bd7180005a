#include "daemon/http/routes/web_page.hpp"

#include "daemon/http/base/content_coding.hpp"
#include "daemon/http/base/problem.hpp"
#include "job/base/files.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace lockstep {
namespace {

constexpr std::size_t kWebFileBytes = 16U << 20U;  // the whole page is a hundredth of it
constexpr std::string_view kIndex = "index.html";
constexpr std::string_view kAssets = "assets/";

// Scripts, styles and connections of this daemon alone; nothing is made of text (Trusted Types).
constexpr std::string_view kPagePolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data: blob:; font-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

constexpr std::string_view kNoPage =
    "<!doctype html>\n<html lang=\"en\"><head><meta "
    "charset=\"utf-8\"><title>Lockstep</title></head>"
    "<body>\n<h1>Lockstep</h1>\n<p>This lockstepd was built without its web page: Node.js 18, npm "
    "or the page's packages were not at hand (-DLOCKSTEP_WEB=ON says at configure what is missing)."
    "</p>\n<p>Everything else works: <code>lockstep jobs</code>, <code>lockstep top ID</code>, and "
    "the API of <a href=\"openapi.json\">openapi.json</a>.</p>\n</body></html>\n";

std::string_view type_of(std::string_view name) {
    static constexpr std::array<std::pair<std::string_view, std::string_view>, 12> kTypes{{
        {".html", "text/html; charset=utf-8"},
        {".js", "text/javascript; charset=utf-8"},
        {".css", "text/css; charset=utf-8"},
        {".svg", "image/svg+xml"},
        {".png", "image/png"},
        {".webp", "image/webp"},
        {".ico", "image/x-icon"},
        {".woff2", "font/woff2"},
        {".json", "application/json"},
        {".webmanifest", "application/manifest+json"},
        {".map", "application/json"},
        {".txt", "text/plain; charset=utf-8"},
    }};
    for (const auto& [ending, type] : kTypes) {
        if (name.ends_with(ending)) {
            return type;
        }
    }
    return content_type::kBinary;
}

HttpResponse page_response(std::string_view name) {
    HttpResponse response;
    response.content_type = type_of(name);
    response.cache_control = "no-cache";
    if (name == kIndex) {
        response.security_policy = kPagePolicy;
        response.headers.emplace_back("Referrer-Policy", "no-referrer");
        response.headers.emplace_back("Cross-Origin-Opener-Policy", "same-origin");
    }
    return response;
}

// All that may become a path: one folder deep at most, nothing hidden, nothing above.
bool is_web_name(std::string_view name) {
    if (name.starts_with(kAssets)) {
        name.remove_prefix(kAssets.size());
    }
    return !name.empty() && name.front() != '.' &&
           std::all_of(name.begin(), name.end(), [](char c) {
               return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '.' || c == '-' || c == '_';
           });
}

HttpResponse no_such_file() {
    return protocol_problem(404, "there is no such path");
}

}  // namespace

WebPage::WebPage(BuiltInFiles files, std::filesystem::path folder) : folder_(std::move(folder)) {
    for (const BuiltInFile& file : files) {
        File& kept = files_[std::string{file.name}];
        kept.bytes = std::make_shared<const std::string>(file.bytes);
        kept.gzip = file.gzip;
        kept.tag = entity_tag(file.bytes);
        kept.plain_tag = entity_tag(file.bytes, "plain");
    }
}

HttpResponse WebPage::answer(const HttpRequest& request, std::string_view name) const {
    const auto found = files_.find(name);
    if (found == files_.end()) {
        if (name != kIndex || built_in()) {
            return no_such_file();
        }
        HttpResponse response = page_response(kIndex);
        response.body = kNoPage;
        return response;
    }
    const File& file = found->second;
    HttpResponse response = page_response(name);
    if (name != kIndex) {
        response.cache_control = "public, max-age=31536000, immutable";  // its name is its hash
    }
    const bool packed = file.gzip && accepts_gzip(request.header("accept-encoding"));
    const std::string& tag = file.gzip && !packed ? file.plain_tag : file.tag;
    response.headers.emplace_back("ETag", tag);
    if (file.gzip) {
        response.headers.emplace_back("Vary", "Accept-Encoding");
    }
    if (tag_matches(request.header("if-none-match"), tag)) {
        response.status = 304;
        return response;
    }
    if (!file.gzip || packed) {
        if (packed) {
            response.headers.emplace_back("Content-Encoding", "gzip");
        }
        response.shared_body = file.bytes;
        return response;
    }
    auto plain = gunzip_bytes(*file.bytes, kWebFileBytes);
    if (!plain) {
        return problem(plain.error());
    }
    response.body = std::move(*plain);
    return response;
}

HttpResponse WebPage::read(const std::filesystem::path& folder, const std::string& name) {
    auto text = is_web_name(name) ? read_plain_file(folder / name, kWebFileBytes)
                                  : Result<std::string>{fail(Errc::not_found, "")};
    if (!text) {
        return text.error().code == Errc::not_found
                   ? (name == kIndex
                          ? problem(Error{Errc::not_found, "--web-root has no index.html"})
                          : no_such_file())
                   : problem(text.error());
    }
    HttpResponse response = page_response(name);
    response.cache_control = "no-store";
    response.body = std::move(*text);
    return response;
}

}  // namespace lockstep
