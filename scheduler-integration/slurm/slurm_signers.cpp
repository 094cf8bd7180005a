#include "scheduler-integration/slurm/slurm_signers.hpp"

#include "job/base/digest.hpp"
#include "job/base/files.hpp"
#include "job/base/json.hpp"
#include "job/base/limits.hpp"
#include "job/base/text.hpp"
#include "scheduler-integration/slurm/slurm_tokens.hpp"

#include <algorithm>
#include <functional>

namespace lockstep {
namespace {

std::string text_of(const Json& json, const char* name) {
    const auto found = json.find(name);
    return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

constexpr const char* kSpare = "spare";
constexpr int kTries = 4;  // signatures for one question
// After an open that took all its patience. All attempts are on one file system: while it stands
// still each open would take as long, and hold a thread.
constexpr auto kOpenAgain = std::chrono::seconds{10};

bool is_signature_name(const std::string& name) {
    return name.size() == 64 && name.find_first_not_of("0123456789abcdef") == std::string::npos;
}

}  // namespace

Error exec_error(const ExecReply& reply) {
    const bool refused = reply.status == exec::Status::refused;
    return {refused ? Errc::denied : Errc::unavailable,
            std::string{"lockstep-exec "} + (refused ? "refuses: " : "could not: ") +
                printable(std::string_view{reply.message}.substr(0, limits::kTextBytes * 4))};
}

Result<std::unique_ptr<SlurmSigners>> SlurmSigners::begin(std::shared_ptr<ExecClient> client,
                                                          std::filesystem::path folder,
                                                          bool gpus_as_gres,
                                                          std::chrono::milliseconds open_patience) {
    ExecOrder order;
    order.what = exec::What::about;
    const auto reply = client->call(order, limits::kSignerPatience);
    LOCKSTEP_TRY(reply);
    if (reply->status != exec::Status::done) {
        return fail(exec_error(*reply));
    }
    std::unique_ptr<SlurmSigners> out{
        new SlurmSigners{std::move(client), std::move(folder), open_patience}};
    for (const std::string& line : split(reply->message, '\n')) {
        const auto blank = line.find(' ');
        const std::string key = line.substr(0, blank);
        const std::string value = blank == std::string::npos ? "" : line.substr(blank + 1);
        if (key == "audience") {
            out->signing_.audience = value;
        } else if (key == "runs") {
            out->runs_ = value;
        } else if (key == "agent") {
            out->agent_ = value;
        } else if (key == "slurm-bin") {
            out->slurm_bin_ = value;
        }
    }
    out->signing_.gpus_as_gres = gpus_as_gres;
    if (out->signing_.audience.empty() || out->runs_.empty() || out->agent_.empty()) {
        return fail(Errc::unavailable, "lockstep-exec does not say what it is for");
    }
    return out;
}

Task<Result<std::string>> SlurmSigners::take(std::string user, Signature signature,
                                             std::string statement, std::string document) {
    if (!is_slurm_user(user)) {
        co_return fail(Errc::denied, printable(user) + " cannot be a user of Slurm here");
    }
    const std::function<Result<std::string>()> work = [this, user, signature, statement, document] {
        ExecOrder order;
        order.what = exec::What::signature;
        order.credential = signature.credential;
        order.statement = statement;
        const auto reply = client_->call(order, limits::kSignerPatience);
        if (!reply) {
            return Result<std::string>{fail(Errc::unavailable, reply.error().message)};
        }
        if (reply->status != exec::Status::done) {
            return Result<std::string>{fail(exec_error(*reply))};
        }
        const std::string signer = reply->message.substr(0, reply->message.find(' '));
        if (signer != user) {
            return Result<std::string>{
                fail(Errc::denied, "this was signed by " + printable(signer) + ", not by " + user)};
        }
        std::string name = sha256_hex(statement);
        Json json = Json::object();
        json["credential"] = signature.credential;
        json["statement"] = statement;
        json["document"] = document;
        if (const Status made = make_private_directories(folder_ / user); !made) {
            return Result<std::string>{fail(made.error())};
        }
        const Status kept =
            write_file_atomic(folder_ / user / (name + ".json"), dump_json(json), 0600);
        if (!kept) {
            return Result<std::string>{fail(kept.error())};
        }
        const std::lock_guard lock{mutex_};
        newest_[user] = {name, {signature.credential, statement}};
        refused_[user].erase(name);
        return Result<std::string>{std::move(name)};
    };
    co_return co_await on_thread<Result<std::string>>(files_, work);
}

Result<SlurmSigners::Kept> SlurmSigners::kept(const std::string& user,
                                              const std::string& name) const {
    if (!is_slurm_user(user) || !is_signature_name(name)) {
        return fail(Errc::not_found, "there is no such signature");
    }
    return read(user, name);
}

Result<SlurmSigners::Kept> SlurmSigners::read(const std::string& user,
                                              const std::string& name) const {
    const auto text =
        read_plain_file(folder_ / user / (name + ".json"), limits::kSignatureFileBytes);
    const auto json = text ? parse_json(*text) : fail(text.error());
    LOCKSTEP_TRY(json);
    return Kept{text_of(*json, "credential"), text_of(*json, "statement")};
}

Result<std::string> SlurmSigners::document(const std::string& user, const std::string& name) const {
    if (!is_slurm_user(user) || !is_signature_name(name)) {
        return fail(Errc::not_found, "there is no such signature");
    }
    const auto text =
        read_plain_file(folder_ / user / (name + ".json"), limits::kSignatureFileBytes);
    const auto json = text ? parse_json(*text) : fail(text.error());
    LOCKSTEP_TRY(json);
    return text_of(*json, "document");
}

// The newest stays as the spare one: the user's jobs in Slurm are asked for, and what is left of
// removed ones is cancelled, also when the user has none here.
Status SlurmSigners::forget(const std::string& user, const std::string& name) {
    if (!is_slurm_user(user) || !is_signature_name(name)) {
        return {};
    }
    std::error_code ec;
    const auto newest = newest_of(user);
    const std::filesystem::path file = folder_ / user / (name + ".json");
    if (!newest || newest->name != name) {
        std::filesystem::remove(file, ec);
    } else {
        std::filesystem::rename(file, folder_ / user / (std::string{kSpare} + ".json"), ec);
        const std::lock_guard lock{mutex_};
        refused_[user].erase(kSpare);
        if (const auto found = newest_.find(user);
            found != newest_.end() && found->second.name == name) {
            found->second.name = kSpare;
        }
    }
    return ec ? Status{fail(Errc::internal, "cannot remove a signature: " + ec.message())}
              : Status{};
}

std::vector<std::string> SlurmSigners::users() const {
    std::vector<std::string> out;
    std::error_code ec;
    for (const auto& entry : std::filesystem::directory_iterator{folder_, ec}) {
        if (std::string user = entry.path().filename().string(); is_slurm_user(user)) {
            out.push_back(std::move(user));
        }
    }
    return out;
}

// Of those that have not been refused.
Result<SlurmSigners::Named> SlurmSigners::newest_of(const std::string& user) const {
    std::set<std::string> refused;
    {
        const std::lock_guard lock{mutex_};
        if (const auto found = newest_.find(user); found != newest_.end()) {
            return found->second;
        }
        if (const auto found = refused_.find(user); found != refused_.end()) {
            refused = found->second;
        }
    }
    std::vector<std::pair<std::filesystem::file_time_type, std::string>> files;
    std::error_code ec;
    for (const auto& entry : std::filesystem::directory_iterator{folder_ / user, ec}) {
        std::string name = entry.path().stem().string();
        const bool one = entry.path().extension() == ".json" && !refused.contains(name) &&
                         (name == kSpare || is_signature_name(name));
        if (const auto time = entry.last_write_time(ec); one && !ec) {
            files.emplace_back(time, std::move(name));
        }
    }
    std::sort(files.rbegin(), files.rend());
    for (const auto& [time, name] : files) {
        if (auto found = read(user, name)) {
            // Unless one has been taken meanwhile.
            const std::lock_guard lock{mutex_};
            return newest_.try_emplace(user, Named{name, std::move(*found)}).first->second;
        }
    }
    return fail(Errc::unavailable, "there is no signature of " + printable(user) + "'s");
}

// Whether it is not for the signature that something was refused.
bool SlurmSigners::is_taken(const std::string& user, const Kept& signature) const {
    ExecOrder order;
    order.what = exec::What::signature;
    order.credential = signature.credential;
    order.statement = signature.statement;
    const auto reply = client_->call(order, limits::kSignerPatience);
    return !reply || reply->status == exec::Status::failed ||
           (reply->status == exec::Status::done && reply->message.starts_with(user + " "));
}

void SlurmSigners::set_aside(const std::string& user, const std::string& name) const {
    const std::lock_guard lock{mutex_};
    refused_[user].insert(name);
    if (const auto found = newest_.find(user);
        found != newest_.end() && found->second.name == name) {
        newest_.erase(found);
    }
}

Result<ExecReply> SlurmSigners::ask(const std::string& user, ExecOrder order,
                                    std::chrono::milliseconds patience) const {
    Result<ExecReply> reply{fail(Errc::unavailable, "no signature was tried")};
    for (int tries = 0; tries < kTries; ++tries) {
        const auto newest = newest_of(user);
        if (!newest) {
            // Not for good: it may have been for lockstep-exec's configuration, or its clock.
            const std::lock_guard lock{mutex_};
            refused_.erase(user);
            return tries == 0 ? Result<ExecReply>{fail(newest.error())} : std::move(reply);
        }
        order.credential = newest->signature.credential;
        order.statement = newest->signature.statement;
        reply = client_->call(order, patience);
        if (!reply || reply->status != exec::Status::refused || is_taken(user, newest->signature)) {
            return reply;
        }
        set_aside(user, newest->name);
    }
    return reply;
}

std::filesystem::path SlurmSigners::folder(const std::string& user, const JobId& job,
                                           std::int32_t attempt) const {
    return runs_ / user / job.value / ("a" + std::to_string(attempt));
}

Result<UniqueFd> SlurmSigners::open(const std::filesystem::path& path) const {
    // <runs>/<user>/<job>/a<attempt>/<file>
    const auto below = path.lexically_normal().lexically_relative(runs_);
    auto part = below.begin();
    std::vector<std::string> parts(below.begin(), below.end());
    const auto attempt =
        parts.size() > 3 && parts[2].starts_with("a") ? to_int(parts[2].substr(1)) : std::nullopt;
    if (part == below.end() || !attempt || *attempt < 1) {
        return fail(Errc::denied, path.string() + ": no file of an attempt");
    }
    ExecOrder order;
    order.verb = exec::Verb::open_log;
    order.job = parts[1];
    order.attempt = static_cast<std::uint32_t>(*attempt);
    for (std::size_t i = 3; i < parts.size(); ++i) {
        order.file += (i > 3 ? "/" : "") + parts[i];
    }
    {
        const std::lock_guard lock{mutex_};
        if (std::chrono::steady_clock::now() < open_again_) {
            return fail(Errc::timed_out, path.string() + ": files there have just not been opened");
        }
    }
    auto reply = ask(parts[0], std::move(order), open_patience_);
    if (!reply && reply.error().code == Errc::timed_out) {
        const std::lock_guard lock{mutex_};
        open_again_ = std::chrono::steady_clock::now() + kOpenAgain;
    }
    LOCKSTEP_TRY(reply);
    if (reply->status == exec::Status::failed) {
        return fail(Errc::not_found, path.string() + ": " + printable(reply->message));
    }
    if (reply->status != exec::Status::done || !reply->descriptor) {
        return fail(exec_error(*reply));
    }
    return std::move(reply->descriptor);
}

}  // namespace lockstep
