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
                                                          bool gpus_as_gres) {
    ExecOrder order;
    order.what = exec::What::about;
    const auto reply = client->call(order, limits::kSignerPatience);
    LOCKSTEP_TRY(reply);
    if (reply->status != exec::Status::done) {
        return fail(exec_error(*reply));
    }
    std::unique_ptr<SlurmSigners> out{new SlurmSigners{std::move(client), std::move(folder)}};
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
        newest_[user] = {signature.credential, statement};
        return Result<std::string>{std::move(name)};
    };
    co_return co_await on_thread<Result<std::string>>(files_, work);
}

Result<SlurmSigners::Kept> SlurmSigners::kept(const std::string& user,
                                              const std::string& name) const {
    if (!is_slurm_user(user) || !is_signature_name(name)) {
        return fail(Errc::not_found, "there is no such signature");
    }
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

Status SlurmSigners::forget(const std::string& user, const std::string& name) {
    std::error_code ec;
    if (is_slurm_user(user) && is_signature_name(name)) {
        std::filesystem::remove(folder_ / user / (name + ".json"), ec);
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

Result<SlurmSigners::Kept> SlurmSigners::any_of(const std::string& user) const {
    {
        const std::lock_guard lock{mutex_};
        if (const auto found = newest_.find(user); found != newest_.end()) {
            return found->second;
        }
    }
    std::error_code ec;
    for (const auto& entry : std::filesystem::directory_iterator{folder_ / user, ec}) {
        if (auto found = kept(user, entry.path().stem().string())) {
            const std::lock_guard lock{mutex_};
            newest_[user] = *found;
            return found;
        }
    }
    return fail(Errc::unavailable, "there is no signature of " + printable(user) + "'s");
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
    const auto signature = any_of(parts[0]);
    LOCKSTEP_TRY(signature);
    ExecOrder order;
    order.verb = exec::Verb::open_log;
    order.job = parts[1];
    order.attempt = static_cast<std::uint32_t>(*attempt);
    for (std::size_t i = 3; i < parts.size(); ++i) {
        order.file += (i > 3 ? "/" : "") + parts[i];
    }
    order.credential = signature->credential;
    order.statement = signature->statement;
    auto reply = client_->call(order, limits::kSignerPatience);
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
