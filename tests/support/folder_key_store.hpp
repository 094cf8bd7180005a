// Keys that processes share: a file each.
#pragma once

#include "job/base/files.hpp"
#include "job/collective/key_store.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

namespace lockstep::test {

class FolderKeyStore final : public KeyStore {
  public:
    explicit FolderKeyStore(std::filesystem::path folder) : folder_(std::move(folder)) {}

    Status set(const std::string& key, std::string_view value) override {
        return replace_file(path_of(key), value);
    }
    Result<std::string> wait(const std::string& key, std::chrono::milliseconds timeout) override {
        const auto end = std::chrono::steady_clock::now() + timeout;
        for (;;) {
            Result<std::string> value = read_file(path_of(key), 1U << 20U);
            if (value || value.error().code != Errc::not_found) {
                return value;
            }
            if (std::chrono::steady_clock::now() >= end) {
                return fail(Errc::timed_out, "no " + key);
            }
            std::this_thread::sleep_for(std::chrono::milliseconds{1});  // another process writes it
        }
    }

  private:
    std::filesystem::path path_of(std::string key) const {
        std::replace(key.begin(), key.end(), '/', '-');
        return folder_ / key;
    }
    std::filesystem::path folder_;
};

}  // namespace lockstep::test
