#include "daemon/backup/manifest.hpp"

#include "job/base/enum_table.hpp"
#include "job/base/json.hpp"
#include "job/base/text.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <vector>

namespace lockstep {
namespace {

constexpr std::int64_t kFormat = 1;
constexpr std::size_t kTextBytes = 8192;
constexpr std::array<std::string_view, 3> kRunsWords{"none", "logs", "all"};
static_assert(names_all_of<RunsCopied>(kRunsWords));

std::string escaped(std::string_view path) {
    std::string out;
    for (const char c : path) {
        if (c > 0x20 && c < 0x7f && c != '%') {
            out += c;
        } else {
            std::array<char, 4> hex{};
            std::snprintf(hex.data(), hex.size(), "%%%02X", static_cast<unsigned char>(c));
            out += hex.data();
        }
    }
    return out;
}

int digit(char c) {
    constexpr std::string_view kDigits = "0123456789ABCDEF";
    const auto at = kDigits.find(c);
    return at == std::string_view::npos ? -1 : static_cast<int>(at);
}

std::optional<std::string> unescaped(std::string_view text) {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '%') {
            out += text[i];
            continue;
        }
        const int high = i + 2 < text.size() ? digit(text[i + 1]) : -1;
        const int low = high >= 0 ? digit(text[i + 2]) : -1;
        if (low < 0) {
            return std::nullopt;
        }
        out += static_cast<char>(high * 16 + low);
        i += 2;
    }
    return out;
}

// Below the folder it is read for, whoever wrote the list.
bool stays_below(const std::string& path) {
    const auto parts = split(path, '/');
    return !path.empty() && path.find('\0') == std::string::npos &&
           std::none_of(parts.begin(), parts.end(), [](const std::string& part) {
               return part.empty() || part == "." || part == "..";
           });
}

}  // namespace

std::string_view to_string(RunsCopied runs) {
    return kRunsWords[static_cast<std::size_t>(runs)];
}

std::optional<RunsCopied> parse_runs_copied(std::string_view word) {
    const auto at = std::find(kRunsWords.begin(), kRunsWords.end(), word);
    return at == kRunsWords.end() ? std::nullopt
                                  : std::optional{static_cast<RunsCopied>(at - kRunsWords.begin())};
}

std::string encode_manifest(const Manifest& manifest) {
    Json out = Json::object();
    out["format"] = kFormat;
    out["lockstep"] = manifest.version;
    out["made_at"] = manifest.made_at;
    out["made_at_text"] = to_rfc3339(manifest.made_at);
    out["host"] = manifest.host;
    out["data_directory"] = manifest.data_directory;
    out["runs_directory"] = manifest.runs_directory;
    out["runs"] = to_string(manifest.runs);
    out["secrets"] = manifest.secrets;
    out["store"] = manifest.database.store;
    out["schema"] = manifest.database.schema;
    out["jobs"] = manifest.database.jobs;
    out["unfinished_jobs"] = manifest.database.unfinished;
    out["events"] = manifest.database.events;
    out["last_seq"] = manifest.database.last_seq;
    out["database_bytes"] = manifest.database_bytes;
    out["database_sha256"] = manifest.database_sha256;
    out["files"] = manifest.files;
    out["file_bytes"] = manifest.file_bytes;
    out["left_out"] = manifest.left_out;
    out["left_out_bytes"] = manifest.left_out_bytes;
    out["list_sha256"] = manifest.list_sha256;
    return dump_json_pretty(out) + "\n";
}

Result<Manifest> decode_manifest(std::string_view text) {
    const auto json = parse_json(text);
    if (!json || !json->is_object()) {
        return fail(Errc::corrupt, json ? "no object" : json.error().message);
    }
    Manifest out;
    std::vector<FieldError> errors;
    ObjectReader in{*json, "", errors};
    std::int64_t format = 0;
    std::string made_at_text;
    std::string runs;
    in.integer("format", format, 0, INT64_MAX);
    if (format != kFormat) {
        return fail(Errc::conflict,
                    "format " + std::to_string(format) + " is a newer lockstepd's: use that one");
    }
    in.string("lockstep", out.version, kTextBytes);
    in.integer("made_at", out.made_at, 0, INT64_MAX);
    in.string("made_at_text", made_at_text, kTextBytes);
    in.string("host", out.host, kTextBytes);
    in.string("data_directory", out.data_directory, kTextBytes);
    in.string("runs_directory", out.runs_directory, kTextBytes);
    in.string("runs", runs, kTextBytes);
    in.boolean("secrets", out.secrets);
    in.string("store", out.database.store, kTextBytes);
    in.integer("schema", out.database.schema, 0, INT32_MAX);
    in.integer("jobs", out.database.jobs, 0, INT64_MAX);
    in.integer("unfinished_jobs", out.database.unfinished, 0, INT64_MAX);
    in.integer("events", out.database.events, 0, INT64_MAX);
    in.integer("last_seq", out.database.last_seq, 0, INT64_MAX);
    in.integer("database_bytes", out.database_bytes, 0, INT64_MAX);
    in.string("database_sha256", out.database_sha256, kTextBytes);
    in.integer("files", out.files, 0, INT64_MAX);
    in.integer("file_bytes", out.file_bytes, 0, INT64_MAX);
    in.integer("left_out", out.left_out, 0, INT64_MAX);
    in.integer("left_out_bytes", out.left_out_bytes, 0, INT64_MAX);
    in.string("list_sha256", out.list_sha256, kTextBytes);
    in.finish();
    const auto word = parse_runs_copied(runs);
    if (!errors.empty() || !word || out.database_sha256.empty() || out.list_sha256.empty()) {
        return fail(Errc::corrupt, errors.empty() ? "something is missing"
                                                  : field_errors(std::move(errors)).message);
    }
    out.runs = *word;
    return out;
}

std::string encode_entry(const FileEntry& entry) {
    Json out = Json::object();
    out["path"] = escaped(entry.path);
    out["bytes"] = entry.bytes;
    if (!entry.left_out.empty()) {
        out["left_out"] = entry.left_out;
        return dump_json(out);
    }
    if (entry.sha256.empty()) {
        out["link"] = escaped(entry.link);
    } else {
        out["sha256"] = entry.sha256;
        out["mode"] = entry.mode;
        out["modified"] = entry.modified;
    }
    return dump_json(out);
}

Result<FileEntry> decode_entry(std::string_view line) {
    const auto json = parse_json(line);
    if (!json || !json->is_object()) {
        return fail(Errc::corrupt, json ? "no object" : json.error().message);
    }
    FileEntry out;
    std::vector<FieldError> errors;
    ObjectReader in{*json, "", errors};
    std::string path;
    std::string link;
    std::int64_t mode = 0;
    in.string("path", path, 4 * kTextBytes);
    in.integer("bytes", out.bytes, 0, INT64_MAX);
    in.string("left_out", out.left_out, kTextBytes);
    in.string("link", link, 4 * kTextBytes);
    in.string("sha256", out.sha256, kTextBytes);
    in.integer("mode", mode, 0, 0777);
    in.integer("modified", out.modified, INT64_MIN, INT64_MAX);
    in.finish();
    auto plain_path = unescaped(path);
    auto plain_link = unescaped(link);
    if (!errors.empty() || !plain_path || !plain_link || !stays_below(*plain_path) ||
        (out.left_out.empty() && out.sha256.empty() && link.empty())) {
        return fail(Errc::corrupt, errors.empty() ? "not a file of a backup: " + printable(path)
                                                  : field_errors(std::move(errors)).message);
    }
    out.path = std::move(*plain_path);
    out.link = std::move(*plain_link);
    out.mode = static_cast<std::uint32_t>(mode);
    return out;
}

}  // namespace lockstep
