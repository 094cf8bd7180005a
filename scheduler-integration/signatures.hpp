// Where jobs run in their users' names because the users have signed them (job/model/
// signed_statement.hpp): what lockstepd keeps of signatures, and asks the service that checks them.
// Control thread, but for those that say otherwise.
#pragma once

#include "job/async/asio.hpp"
#include "job/base/ids.hpp"
#include "job/base/result.hpp"
#include "job/base/unique_fd.hpp"
#include "job/model/spec/signed_statement.hpp"

#include <cstdint>
#include <filesystem>
#include <string>

namespace lockstep {

class Signatures {
  public:
    virtual ~Signatures() = default;
    virtual const Signing& signing() const = 0;
    // Has the signature checked and keeps it, durably, with what it is for; its name. denied: it is
    // not `user`'s, signs something else, or is not taken. unavailable: it could not be checked.
    virtual Task<Result<std::string>> take(std::string user, Signature signature,
                                           std::string statement, std::string document) = 0;
    // The request's body that was signed. Blocking.
    virtual Result<std::string> document(const std::string& user,
                                         const std::string& name) const = 0;
    // A signature that no job needs any more. Blocking.
    virtual Status forget(const std::string& user, const std::string& name) = 0;
    // Where the agents of an attempt work: a folder of its user's, closed to lockstepd.
    virtual std::filesystem::path folder(const std::string& user, const JobId& job,
                                         std::int32_t attempt) const = 0;
    // A file in one of these folders, opened as its user. Blocking; any thread.
    virtual Result<UniqueFd> open(const std::filesystem::path& path) const = 0;
    // What all those folders are in.
    virtual const std::filesystem::path& runs() const = 0;
};

}  // namespace lockstep
