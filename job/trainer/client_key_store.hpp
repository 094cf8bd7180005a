// The keys of a rank's agent, as a communicator wants them.
#pragma once

#include "job/collective/key_store.hpp"
#include "job/rank/client.hpp"

#include <chrono>
#include <string>
#include <string_view>

namespace lockstep {

// `client` must outlive it. Any thread, as the client. Errors as of RankClient.
class ClientKeyStore final : public KeyStore {
  public:
    explicit ClientKeyStore(RankClient& client) : client_(client) {}
    Status set(const std::string& key, std::string_view value) override {
        return client_.set(key, value);
    }
    Result<std::string> wait(const std::string& key, std::chrono::milliseconds timeout) override {
        if (const Status there = client_.wait({key}, timeout); !there) {
            return fail(there.error());
        }
        return client_.get(key);
    }

  private:
    RankClient& client_;
};

}  // namespace lockstep
