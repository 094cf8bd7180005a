// A KeyStore as Gloo wants one, while its ranks meet. One thread.
#pragma once

#include "job/base/result.hpp"
#include "job/base/text.hpp"
#include "job/collective/gloo.hpp"
#include "job/collective/key_store.hpp"

#include <gloo/rendezvous/store.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

// Carries an Error of our own through code that knows only exceptions; gloo.cpp catches it.
class GlooFailed final : public std::exception {
  public:
    explicit GlooFailed(Error error) : error_(std::move(error)) {}
    const char* what() const noexcept override { return error_.message.c_str(); }
    const Error& error() const { return error_; }

  private:
    Error error_;
};

// Throws GlooFailed.
class GlooStore final : public gloo::rendezvous::Store {
  public:
    GlooStore(KeyStore& store, const GlooOptions& options)
        : store_(store), prefix_(options.prefix + "/"), options_(options) {}

    void set(const std::string& key, const std::vector<char>& data) override {
        const Status done = store_.set(prefix_ + key, {data.data(), data.size()});
        if (!done) {
            throw GlooFailed{done.error()};
        }
    }
    std::vector<char> get(const std::string& key) override {
        const std::string value = await(key, options_.connect_timeout);
        return {value.begin(), value.end()};
    }
    void wait(const std::vector<std::string>& keys) override {
        wait(keys, options_.connect_timeout);
    }
    void wait(const std::vector<std::string>& keys,
              const std::chrono::milliseconds& timeout) override {
        for (const std::string& key : keys) {
            await(key, timeout);
        }
    }

  private:
    // Gloo's keys for the addresses are the ranks' numbers; the words are those of which the job's
    // cause takes who is to blame (job/model/echo.cpp).
    std::string await(const std::string& key, std::chrono::milliseconds timeout) {
        Result<std::string> value = store_.wait(prefix_ + key, timeout);
        if (value) {
            return std::move(*value);
        }
        constexpr std::string_view kHost = "rank_";  // before the number, for the host's name
        const auto rank = to_int(key.starts_with(kHost) ? key.substr(kHost.size()) : key);
        if (value.error().code == Errc::timed_out && rank && *rank >= 0 && *rank < options_.size) {
            throw GlooFailed{
                {Errc::timed_out, "missing: rank " + std::to_string(options_.name_of(
                                                         static_cast<std::int32_t>(*rank)))}};
        }
        throw GlooFailed{value.error()};
    }

    KeyStore& store_;
    std::string prefix_;
    const GlooOptions& options_;
};

}  // namespace lockstep
