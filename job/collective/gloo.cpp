#include "job/collective/gloo.hpp"

#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/rendezvous/context.h>
#include <gloo/transport/tcp/device.h>
#include <signal.h>

#include <csignal>
#include <exception>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

// Operations carry a tag so that two of them never mix; they run one at a time here, so one tag
// per kind is enough.
constexpr std::uint32_t kReduceTag = 1;
constexpr std::uint32_t kBroadcastTag = 2;
constexpr std::uint32_t kBarrierTag = 3;

// Carries an Error through Gloo's code, which knows only exceptions; caught in guarded().
class StoreFailed final : public std::exception {
  public:
    explicit StoreFailed(Error error) : error_(std::move(error)) {}
    const char* what() const noexcept override { return error_.message.c_str(); }
    const Error& error() const { return error_; }

  private:
    Error error_;
};

// Runs Gloo code, whose failures are exceptions.
template <class Function>
Status guarded(const char* what, Function&& function) {
    try {
        std::forward<Function>(function)();
        return {};
    } catch (const StoreFailed& failed) {
        return fail(failed.error().in(what));
    } catch (const std::exception& failed) {
        const std::string text = failed.what();
        const bool late = text.find("imed out") != std::string::npos;
        return fail(late ? Errc::timed_out : Errc::unavailable, std::string{what} + ": " + text);
    }
}

class StoreAdapter final : public gloo::rendezvous::Store {
  public:
    StoreAdapter(KeyStore& store, const GlooOptions& options)
        : store_(store), prefix_(options.prefix + "/"), timeout_(options.connect_timeout) {}

    void set(const std::string& key, const std::vector<char>& data) override {
        const Status done = store_.set(prefix_ + key, {data.data(), data.size()});
        if (!done) {
            throw StoreFailed{done.error()};
        }
    }
    std::vector<char> get(const std::string& key) override {
        const Result<std::string> value = store_.wait(prefix_ + key, timeout_);
        if (!value) {
            throw StoreFailed{value.error()};
        }
        return {value->begin(), value->end()};
    }
    void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
    void wait(const std::vector<std::string>& keys,
              const std::chrono::milliseconds& timeout) override {
        for (const std::string& key : keys) {
            const Result<std::string> value = store_.wait(prefix_ + key, timeout);
            if (!value) {
                throw StoreFailed{value.error()};
            }
        }
    }

  private:
    KeyStore& store_;
    std::string prefix_;
    std::chrono::milliseconds timeout_;
};

class GlooCommunicator final : public Communicator {
  public:
    GlooCommunicator(std::shared_ptr<gloo::rendezvous::Context> context,
                     std::shared_ptr<gloo::transport::Device> device)
        : device_(std::move(device)), context_(std::move(context)) {}

    std::int32_t rank() const override { return context_->rank; }
    std::int32_t size() const override { return context_->size; }

    Status all_reduce_sum(std::span<float> values) override {
        if (values.empty()) {
            return {};
        }
        return guarded("all-reduce", [&] {
            gloo::AllreduceOptions options{context_};
            options.setOutput(values.data(), values.size());
            options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
            options.setTag(kReduceTag);
            options.setReduceFunction([](void* out, const void* a, const void* b, std::size_t n) {
                auto* sum = static_cast<float*>(out);
                const auto* left = static_cast<const float*>(a);
                const auto* right = static_cast<const float*>(b);
                for (std::size_t i = 0; i < n; ++i) {
                    sum[i] = left[i] + right[i];
                }
            });
            gloo::allreduce(options);
        });
    }

    Status broadcast(std::span<std::byte> bytes, std::int32_t root) override {
        if (bytes.empty()) {
            return {};
        }
        return guarded("broadcast", [&] {
            gloo::BroadcastOptions options{context_};
            options.setOutput(reinterpret_cast<char*>(bytes.data()), bytes.size());
            options.setRoot(root);
            options.setTag(kBroadcastTag);
            gloo::broadcast(options);
        });
    }

    Status barrier() override {
        return guarded("barrier", [&] {
            gloo::BarrierOptions options{context_};
            options.setTag(kBarrierTag);
            gloo::barrier(options);
        });
    }

  private:
    // The context's connections end before the device whose thread serves them.
    std::shared_ptr<gloo::transport::Device> device_;
    std::shared_ptr<gloo::rendezvous::Context> context_;
};

// Gloo writes without MSG_NOSIGNAL: the first write after a peer has left would kill this process
// before the failure could be reported. A handler of the program's own is left alone.
void outlive_lost_peers() {
    struct sigaction current = {};
    if (::sigaction(SIGPIPE, nullptr, &current) == 0 && (current.sa_flags & SA_SIGINFO) == 0 &&
        current.sa_handler == SIG_DFL) {
        ::signal(SIGPIPE, SIG_IGN);
    }
}

// One rank: every operation is already done. Gloo's connectFullMesh would wait for keys that
// nobody needs.
class AloneCommunicator final : public Communicator {
  public:
    std::int32_t rank() const override { return 0; }
    std::int32_t size() const override { return 1; }
    Status all_reduce_sum(std::span<float>) override { return {}; }
    Status broadcast(std::span<std::byte>, std::int32_t) override { return {}; }
    Status barrier() override { return {}; }
};

}  // namespace

Result<std::unique_ptr<Communicator>> make_gloo(const GlooOptions& options, KeyStore& store) {
    if (options.size < 1 || options.rank < 0 || options.rank >= options.size) {
        return fail(Errc::invalid, "gloo: rank " + std::to_string(options.rank) + " of " +
                                       std::to_string(options.size));
    }
    if (options.size == 1) {
        return std::make_unique<AloneCommunicator>();
    }
    outlive_lost_peers();
    std::unique_ptr<Communicator> out;
    const Status made = guarded("gloo: connect", [&] {
        gloo::transport::tcp::attr attributes;
        attributes.hostname = options.address.empty() ? "127.0.0.1" : options.address;
        std::shared_ptr<gloo::transport::Device> device =
            gloo::transport::tcp::CreateDevice(attributes);
        auto context = std::make_shared<gloo::rendezvous::Context>(options.rank, options.size);
        context->setTimeout(options.connect_timeout);
        StoreAdapter adapter{store, options};
        context->connectFullMesh(adapter, device);
        context->setTimeout(options.operation_timeout);
        out = std::make_unique<GlooCommunicator>(std::move(context), std::move(device));
    });
    if (!made) {
        return fail(made.error());
    }
    return out;
}

}  // namespace lockstep
