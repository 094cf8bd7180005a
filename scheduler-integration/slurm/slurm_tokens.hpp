// The users' own Slurm tokens (auth/jwt, `scontrol token`), each in a file of its own with mode
// 0600, so that a restarted daemon can follow what it handed over. lockstepd never holds the key
// that makes tokens, nor a token of SlurmUser or root. Control thread.
#pragma once

#include "job/base/clock.hpp"
#include "scheduler-integration/identities.hpp"

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// What a token says of itself; only Slurm can tell whether it is true (slurm.schedmd.com/jwt.html).
struct SlurmTokenClaims {
    std::string user;          // "sun"; "" = it does not say
    std::int64_t expires = 0;  // "exp", Unix seconds; 0 = never
};
// The token alone, or as `scontrol token` prints it: SLURM_JWT=…. invalid: it is no JWT.
Result<SlurmTokenClaims> read_slurm_token(std::string_view text);

class SlurmTokens final : public Identities {
  public:
    // `folder` is made on the first put().
    SlurmTokens(const Clock& clock, std::filesystem::path folder);
    // What an earlier daemon kept; what does not read is left out, aloud.
    void load();

    Status put(const std::string& user, const std::string& credential) override;
    std::optional<UnixMillis> good_until(const std::string& user) const override;
    Status forget(const std::string& user) override;

    // The token to send, "" if there is none.
    std::string get(const std::string& user) const;
    // denied, in words that say what to do: there is none, or it has ended.
    Status usable(const std::string& user) const;
    std::vector<std::string> users() const;

  private:
    struct Kept {
        std::string text;
        std::int64_t expires = 0;
    };
    Result<Kept> check(const std::string& user, std::string_view text) const;

    const Clock& clock_;
    std::filesystem::path folder_;
    std::map<std::string, Kept> tokens_;
};

// A name that a Unix user may have and a file may bear: ^[a-z_][a-z0-9_.-]{0,31}$, not root.
bool is_slurm_user(std::string_view name);

}  // namespace lockstep
