#include "scheduler-integration/slurm/slurm_tokens.hpp"

#include "job/base/files.hpp"
#include "job/base/json.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/text.hpp"

#include <algorithm>

namespace lockstep {
namespace {

constexpr std::string_view kPrefix = "SLURM_JWT=";

// Base 64 of RFC 4648 §5 without padding, as JWTs have it (RFC 7515 §2).
Result<std::string> base64url_decode(std::string_view text) {
    std::string standard{text};
    std::replace(standard.begin(), standard.end(), '-', '+');
    std::replace(standard.begin(), standard.end(), '_', '/');
    standard.append((4 - standard.size() % 4) % 4, '=');
    return base64_decode(standard);
}

std::string_view bare(std::string_view text) {
    text = trim(text);
    if (text.starts_with(kPrefix)) {
        text.remove_prefix(kPrefix.size());
    }
    return text;
}

std::string how_to() {
    return "; run: scontrol token lifespan=86400 | lockstep slurm-token";
}

}  // namespace

bool is_slurm_user(std::string_view name) {
    const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; };
    return !name.empty() && name.size() <= 32 && name != "root" && letter(name.front()) &&
           std::all_of(name.begin(), name.end(), [&](char c) {
               return letter(c) || (c >= '0' && c <= '9') || c == '.' || c == '-';
           });
}

Result<SlurmTokenClaims> read_slurm_token(std::string_view text) {
    text = bare(text);
    const auto no_token = [] {
        return fail(Errc::invalid,
                    "this is no Slurm token: three parts of base 64 with dots "
                    "between them, as scontrol token prints it");
    };
    const std::vector<std::string> parts = split(text, '.');
    if (text.size() > limits::kSlurmTokenBytes || parts.size() != 3 || parts[0].empty() ||
        parts[2].empty()) {
        return no_token();
    }
    // It becomes a line of an HTTP request.
    const auto plain = [](char c) {
        return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
               c == '-' || c == '_' || c == '.';
    };
    const auto payload = base64url_decode(parts[1]);
    if (!payload || !std::all_of(text.begin(), text.end(), plain)) {
        return no_token();
    }
    const auto json = parse_json(*payload);
    if (!json || !json->is_object()) {
        return no_token();
    }
    SlurmTokenClaims out;
    if (const auto user = json->find("sun"); user != json->end() && user->is_string()) {
        out.user = user->get<std::string>();
    }
    if (const auto end = json->find("exp"); end != json->end() && end->is_number_integer()) {
        out.expires = end->get<std::int64_t>();
    }
    return out;
}

SlurmTokens::SlurmTokens(const Clock& clock, std::filesystem::path folder)
    : clock_(clock), folder_(std::move(folder)) {}

Result<SlurmTokens::Kept> SlurmTokens::check(const std::string& user, std::string_view text) const {
    if (!is_slurm_user(user)) {
        return fail(Errc::invalid, printable(user) + " cannot be a user of Slurm here");
    }
    auto claims = read_slurm_token(text);
    LOCKSTEP_TRY(claims);
    if (!claims->user.empty() && claims->user != user) {
        return fail(Errc::invalid,
                    "this token is of " + printable(claims->user) + ", not of " + user);
    }
    if (claims->expires != 0 && claims->expires <= clock_.wall() / 1000) {
        return fail(Errc::invalid, "this token has expired");
    }
    return Kept{std::string{bare(text)}, claims->expires};
}

void SlurmTokens::load() {
    std::error_code ec;
    for (const auto& entry : std::filesystem::directory_iterator{folder_, ec}) {
        const std::string user = entry.path().filename().string();
        const auto text = read_plain_file(entry.path(), limits::kSlurmTokenBytes);
        auto kept = text ? check(user, *text) : fail(text.error());
        if (kept) {
            tokens_[user] = std::move(*kept);
        } else {
            log::info("a Slurm token is not taken up",
                      {{"user", user}, {"what", kept.error().message}});
        }
    }
}

Status SlurmTokens::put(const std::string& user, const std::string& credential) {
    auto kept = check(user, credential);
    LOCKSTEP_TRY(kept);
    if (const Status made = make_private_directories(folder_); !made) {
        return made;
    }
    if (const Status written = write_file_atomic(folder_ / user, kept->text + "\n", 0600);
        !written) {
        return written;
    }
    tokens_[user] = std::move(*kept);
    return {};
}

std::optional<UnixMillis> SlurmTokens::good_until(const std::string& user) const {
    const auto found = tokens_.find(user);
    return found == tokens_.end() ? std::nullopt : std::optional{found->second.expires * 1000};
}

Status SlurmTokens::forget(const std::string& user) {
    if (tokens_.erase(user) != 0) {
        std::error_code ec;
        std::filesystem::remove(folder_ / user, ec);
        if (ec) {
            return fail(Errc::internal, "cannot remove the token's file: " + ec.message());
        }
    }
    return {};
}

std::string SlurmTokens::get(const std::string& user) const {
    const auto found = tokens_.find(user);
    return found == tokens_.end() ? "" : found->second.text;
}

Status SlurmTokens::usable(const std::string& user) const {
    const auto found = tokens_.find(user);
    if (found == tokens_.end()) {
        return fail(Errc::denied, "there is no Slurm token of " + user + how_to());
    }
    if (found->second.expires != 0 && found->second.expires <= clock_.wall() / 1000) {
        return fail(Errc::denied, "the Slurm token of " + user + " has expired" + how_to());
    }
    return {};
}

std::vector<std::string> SlurmTokens::users() const {
    std::vector<std::string> out;
    for (const auto& [user, kept] : tokens_) {
        out.push_back(user);
    }
    return out;
}

}  // namespace lockstep
