// The body of a request: read as it comes, counted, or dropped; the body of an answer as gzip.
#include "daemon/http/base/content_coding.hpp"
#include "daemon/http/server/session.hpp"
#include "job/async/on_thread.hpp"
#include "job/base/limits.hpp"

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

namespace lockstep {
namespace {

constexpr std::size_t kBodyStep = 16U << 10U;  // the least that a body's buffer grows by
constexpr std::size_t kKeepBody = 64U << 10U;  // a larger body's buffer is given back
// JSON from here on goes out as gzip, if the client takes it; up to the second it is packed in
// about 2 ms, more is packed beside the control thread.
constexpr std::size_t kPackedFrom = 2U << 10U;
constexpr std::size_t kPackedHere = 128U << 10U;

}  // namespace

void Session::consume(std::size_t bytes) {
    std::copy(in_.data() + bytes, in_.data() + in_size_, in_.data());
    in_size_ -= bytes;
}

bool Session::drop_body() {
    const auto length = request_.head.content_length;
    const bool all = in_size_ - head_size_ >= length;
    consume(all ? head_size_ + static_cast<std::size_t>(length) : in_size_);
    return all;
}

bool Session::grow_body(std::size_t length) {
    auto& body = request_.body;
    const std::size_t size = std::min(length, std::max(2 * body.size(), kBodyStep));
    const std::size_t more = size - body.size();
    if (!server_.charge_bodies(more)) {
        return false;
    }
    charged_ += more;
    body.resize(size);
    return true;
}

void Session::free_body() {
    server_.release_bodies(std::exchange(charged_, 0));
    if (request_.body.capacity() > kKeepBody) {
        request_.body = std::string{};
    }
}

Task<Session::BodyRead> Session::read_body() {
    auto& body = request_.body;
    const auto length = static_cast<std::size_t>(request_.head.content_length);
    const auto here = std::min(length, in_size_ - head_size_);
    body.assign(in_.data() + head_size_, here);
    consume(head_size_ + here);
    if (here == length) {
        co_return BodyRead::whole;
    }
    wait_at_most(server_.limits().body_timeout);
    if (request_.head.has("expect") && !request_.head.http_10) {
        out_.begin_continue();
        bool good = co_await write_all();
        if (!good) {
            co_return BodyRead::lost;
        }
        wait_at_most(server_.limits().body_timeout);
    }
    // What is announced takes no memory before it comes.
    std::size_t have = here;
    while (have < length) {
        if (have == body.size() && !grow_body(length)) {
            deadline_ = Instant::max();
            co_return BodyRead::no_room;
        }
        ErrorCode ec;
        have += co_await socket_.async_read_some(
            net::buffer(body.data() + have, body.size() - have), into(ec));
        if (ec) {
            co_return BodyRead::lost;
        }
    }
    deadline_ = Instant::max();
    co_return BodyRead::whole;
}

Task<void> Session::linger() {
    ErrorCode ec;
    socket_.socket().shutdown(tcp::socket::shutdown_send, ec);
    wait_at_most(server_.limits().linger_timeout);
    const std::span<char> waste = server_.waste_room();
    std::size_t dropped = 0;
    while (!ec && dropped < limits::kLingerBytes) {
        dropped +=
            co_await socket_.async_read_some(net::buffer(waste.data(), waste.size()), into(ec));
    }
}

bool Session::worth_packing(const HttpResponse& response) {
    const auto coded = [](const auto& header) { return header.first == "Content-Encoding"; };
    return response.status == 200 && !response.stream && !response.make &&
           response.own_type.empty() && response.content_type == content_type::kJson &&
           response.text().size() >= kPackedFrom &&
           std::none_of(response.headers.begin(), response.headers.end(), coded);
}

Task<void> Session::pack(HttpResponse& response) {
    Result<std::string> packed = fail(Errc::internal, "not packed");
    if (response.text().size() <= kPackedHere) {
        packed = gzip_bytes(response.text());
    } else {
        auto text = response.shared_body;
        if (!text) {
            text = std::make_shared<const std::string>(std::move(response.body));
            response.shared_body = text;
        }
        const std::function<Result<std::string>()> work = [text] { return gzip_bytes(*text); };
        packed = co_await on_thread<Result<std::string>>(server_.packers(), work);
    }
    if (packed) {
        response.shared_body.reset();
        response.body = std::move(*packed);
        response.headers.emplace_back("Content-Encoding", "gzip");
        response.headers.emplace_back("Vary", "Accept-Encoding");
    }
}

}  // namespace lockstep
