// A client of the TCPStore may send anything: the same queries come out however it is cut (past the
// first one, which says which release it is of by what it sends in one piece).
#include "job/agent/torch_store/tcp_store_wire.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

using lockstep::StoreQuery;
using lockstep::TcpStoreParser;

std::vector<std::string> read(const std::string& bytes, std::size_t piece) {
    TcpStoreParser parser;
    std::vector<std::string> out;
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
        const std::string part = bytes.substr(at, piece);
        parser.begin(part);
        StoreQuery query;
        auto step = parser.next(query);
        for (; step == TcpStoreParser::Step::query; step = parser.next(query)) {
            std::string one =
                std::to_string(static_cast<int>(query.op)) + ' ' + std::to_string(query.number);
            for (const auto text : query.parts) {
                one += ' ';
                one += text;
            }
            out.push_back(std::move(one));
        }
        parser.end();
        if (step == TcpStoreParser::Step::bad) {
            return out;
        }
    }
    return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 2) {
        return 0;
    }
    std::string bytes{reinterpret_cast<const char*>(data) + 1, size - 1};
    const std::string hello{"\0\xce\xf7\x85\x3c", 5};  // VALIDATE: what follows has one meaning
    const bool known = (data[0] & 0x80U) == 0;
    if (known) {
        bytes.insert(0, hello);
    }
    const auto whole = read(bytes, bytes.size());
    const auto cut = read(bytes, std::max<std::size_t>(data[0] & 0x7fU, 1));
    if (known && cut != whole) {
        std::abort();
    }
    return 0;
}
