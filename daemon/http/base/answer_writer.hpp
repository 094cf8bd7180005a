// The bytes of an answer: Beast's fields and chunks, our framing rules. Knows no socket: whoever
// writes takes what pending() shows and says how much of it went. Not thread-safe; what an answer
// and its pieces view must stay until it has gone.
#pragma once

#include "daemon/http/base/message.hpp"

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

class AnswerWriter {
  public:
    struct Frame {
        std::string_view date;   // as in the header
        bool keep = true;        // the connection goes on
        bool head_only = false;  // the answer to HEAD
        // Where the body comes by put(): in chunks, or up to the connection's end.
        bool chunked = false;
    };

    // Begins an answer; what was left of the one before is dropped. The body is response.text(),
    // unless the response has a stream or a maker.
    void begin(const HttpResponse& response, const Frame& frame);
    // 100 Continue.
    void begin_continue();
    // The next piece of such a body, not empty; only when nothing but the head is pending.
    void put(std::string_view piece);
    // No more pieces come; only when nothing but the head is pending.
    void end();

    // What is to be written next, in this order; empty when there is nothing. Good until the next
    // call of anything here.
    std::span<const net::const_buffer> pending();
    // So many bytes of it have been written.
    void consume(std::size_t bytes);

  private:
    std::string head_;
    std::string chunk_;  // what goes before a piece
    bool chunked_ = false;
    // What has not gone of the head, chunk_, body or piece, the end of a chunk.
    std::array<net::const_buffer, 4> rest_;
};

}  // namespace lockstep
