// A TCP connection that may speak TLS: what HTTP sessions, agent sockets and both clients read and
// write. Plain operations go straight to the socket; TLS lives behind the .cpp, so that no other
// file compiles it. Call from the io_context's thread; must outlive the operations in flight; at
// most one read and one write at a time.
#pragma once

#include "job/async/asio.hpp"
#include "job/base/result.hpp"

#include <boost/asio/dispatch.hpp>
#include <boost/beast/core/role.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep {

struct TlsContext;  // job/async/tls.hpp

class NetStream {
  public:
    using executor_type = tcp::socket::executor_type;

    explicit NetStream(tcp::socket socket);
    ~NetStream();
    NetStream(NetStream&& other) noexcept;
    NetStream& operator=(NetStream&& other) = delete;

    executor_type get_executor() { return plain_.get_executor(); }
    tcp::socket& socket() { return tls_ ? tls_socket() : plain_; }
    const tcp::socket& socket() const { return tls_ ? tls_socket() : plain_; }
    bool is_open() const { return socket().is_open(); }
    bool secure() const { return tls_ != nullptr; }

    // From here on TLS, with this end as the server. The handshake's arithmetic is done on
    // `workers`, whose threads run until this has ended; a peer that has hung up before its turn
    // there costs none. Ends with an error when close() is called, so the caller keeps the
    // deadline. invalid: plain HTTP came instead; unavailable: anything else.
    Task<Status> accept_tls(std::shared_ptr<TlsContext> context, net::io_context& workers);
    // The same as the client. `host` is what the certificate must name, unless `fingerprint`
    // ("sha256:…") is given: then the certificate must hash to it and its names and dates do not
    // matter. denied: not the certificate that is expected.
    Task<Status> connect_tls(std::shared_ptr<TlsContext> context, std::string host,
                             std::string fingerprint);
    // The handshake alone, with whomever is there, and the fingerprint of the certificate they
    // show. To be shown to a person: nothing may be sent afterwards.
    Task<Result<std::string>> look_tls(std::shared_ptr<TlsContext> context, std::string host);
    // Says that no more is sent: close_notify, then the end of the TCP stream. With TLS it waits
    // for the peer to say the same, until close().
    Task<void> finish();
    // At once; what waits on the stream ends.
    void close();

    // As much as goes without waiting; would_block with TLS, whose records have to be made first.
    template <class Buffers>
    std::size_t write_some_now(const Buffers& buffers, ErrorCode& ec) {
        if (tls_) {
            ec = net::error::would_block;
            return 0;
        }
        return plain_.write_some(buffers, ec);
    }

    template <class Buffers, class Token>
    auto async_read_some(const Buffers& buffers, Token&& token) {
        return net::async_initiate<Token, void(ErrorCode, std::size_t)>(Read{this}, token, buffers);
    }
    template <class Buffers, class Token>
    auto async_write_some(const Buffers& buffers, Token&& token) {
        return net::async_initiate<Token, void(ErrorCode, std::size_t)>(Write{this}, token,
                                                                        buffers);
    }

  private:
    // A handler of any type, called at most once.
    struct Done {
        virtual ~Done() = default;
        virtual void call(ErrorCode ec, std::size_t size) = 0;
    };
    template <class Handler, class Executor>
    struct DoneWith final : Done {
        DoneWith(Handler handler, const Executor& executor)
            : handler_(std::move(handler)),
              work_(net::get_associated_executor(handler_, executor)) {}
        void call(ErrorCode ec, std::size_t size) override {
            const auto target = work_.get_executor();
            net::dispatch(
                target, [handler = std::move(handler_), ec, size]() mutable { handler(ec, size); });
        }

      private:
        Handler handler_;
        net::executor_work_guard<net::associated_executor_t<Handler, Executor>> work_;
    };
    template <class Handler>
    std::unique_ptr<Done> done_with(Handler&& handler) {
        using Plain = std::decay_t<Handler>;
        return std::make_unique<DoneWith<Plain, executor_type>>(std::forward<Handler>(handler),
                                                                get_executor());
    }
    struct Read {
        NetStream* stream;
        template <class Handler, class Buffers>
        void operator()(Handler&& handler, const Buffers& buffers) const {
            if (!stream->tls_) {
                stream->plain_.async_read_some(buffers, std::forward<Handler>(handler));
                return;
            }
            stream->tls_read(first_of<net::mutable_buffer>(buffers),
                             stream->done_with(std::forward<Handler>(handler)));
        }
    };
    struct Write {
        NetStream* stream;
        template <class Handler, class Buffers>
        void operator()(Handler&& handler, const Buffers& buffers) const {
            if (!stream->tls_) {
                stream->plain_.async_write_some(buffers, std::forward<Handler>(handler));
                return;
            }
            stream->tls_write(stream->gathered(buffers),
                              stream->done_with(std::forward<Handler>(handler)));
        }
    };
    // The first one that is not empty.
    template <class Buffer, class Buffers>
    static Buffer first_of(const Buffers& buffers) {
        const auto end = net::buffer_sequence_end(buffers);
        for (auto at = net::buffer_sequence_begin(buffers); at != end; ++at) {
            const Buffer buffer{*at};
            if (buffer.size() > 0) {
                return buffer;
            }
        }
        return Buffer{};
    }
    // Small pieces become one TLS record: a head and its body are not worth two.
    template <class Buffers>
    net::const_buffer gathered(const Buffers& buffers) {
        const auto first = first_of<net::const_buffer>(buffers);
        if (first.size() >= kRecordBytes || first.size() == net::buffer_size(buffers)) {
            return first;
        }
        gather_.resize(kRecordBytes);
        return net::buffer(gather_.data(), net::buffer_copy(net::buffer(gather_), buffers));
    }

    static constexpr std::size_t kRecordBytes = 16U << 10U;  // RFC 8446 §5.1
    struct Tls;
    tcp::socket& tls_socket() const;
    Status start_tls(std::shared_ptr<TlsContext> context);
    void tls_read(net::mutable_buffer buffer, std::unique_ptr<Done> done);
    void tls_write(net::const_buffer buffer, std::unique_ptr<Done> done);

    tcp::socket plain_;         // moved into tls_ when TLS begins
    std::shared_ptr<Tls> tls_;  // operations in flight share it
    int shaken_fd_ = -1;        // while another thread uses the socket
    std::string gather_;
};

// Closes a stream at a point in time, so that what waits on it ends. The stream outlives it.
class StreamDeadline {
  public:
    explicit StreamDeadline(NetStream& stream);
    ~StreamDeadline() { cancel(); }
    StreamDeadline(const StreamDeadline&) = delete;
    StreamDeadline& operator=(const StreamDeadline&) = delete;

    void expires_at(std::chrono::steady_clock::time_point when);
    void cancel();
    bool passed() const { return state_->passed; }

  private:
    struct State {  // the timer's handler may be queued when the deadline goes
        State(NetStream& target, net::any_io_executor executor)
            : stream(&target), timer(std::move(executor)) {}
        NetStream* stream;
        net::steady_timer timer;
        bool passed = false;
    };
    std::shared_ptr<State> state_;
};

// What Beast's WebSocket asks of a stream of one's own.
inline void beast_close_socket(NetStream& stream) {
    stream.close();
}
inline void teardown(boost::beast::role_type, NetStream& stream, ErrorCode& ec) {
    ec = {};
    stream.close();
}
// The closing frames are exchanged: there is nothing left to wait for.
template <class Handler>
void async_teardown(boost::beast::role_type, NetStream& stream, Handler&& handler) {
    ErrorCode ignored;
    stream.socket().shutdown(tcp::socket::shutdown_both, ignored);
    net::post(stream.get_executor(),
              [handler = std::forward<Handler>(handler)]() mutable { handler(ErrorCode{}); });
}

}  // namespace lockstep
