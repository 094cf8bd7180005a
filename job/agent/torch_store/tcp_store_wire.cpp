#include "job/agent/torch_store/tcp_store_wire.hpp"

#include "job/base/enum_table.hpp"

#include <array>
#include <cstring>

namespace lockstep {
namespace {

// What each command is followed by. k: key, v: value, n: i64, u: u32, K: keys, P: pairs, the last
// two with a u64 count before them.
constexpr std::array<std::string_view, 20> kQueryFields{"u",  "kv", "kvv", "k", "kn", "K", "K",
                                                        "",   "k",  "kv",  "K", "P",  "",  "u",
                                                        "kv", "k",  "k",   "",  "kn", "k"};
static_assert(is_count_of<StoreOp, kQueryFields.size()>());

constexpr std::string_view fields_of(StoreOp op) {
    return kQueryFields[static_cast<std::size_t>(op)];
}

// A buffer that held one large query is not kept for the small ones after it.
constexpr std::size_t kQueryCapacity = 4096;

}  // namespace

void TcpStoreParser::begin(std::string_view bytes) {
    begun_ = 0;
    if (kept_.empty()) {
        data_ = bytes;
        return;
    }
    kept_.append(bytes);
    data_ = kept_;
}

void TcpStoreParser::end() {
    if (problem_ != nullptr || begun_ == data_.size()) {
        kept_.clear();
    } else if (data_.data() == kept_.data()) {
        kept_.erase(0, begun_);
    } else {
        kept_.assign(rest());
    }
    if (kept_.empty() && kept_.capacity() > kQueryCapacity) {
        std::string{}.swap(kept_);
    }
    data_ = {};
    begun_ = 0;
}

bool TcpStoreParser::fail(const char* why) {
    problem_ = why;
    return false;
}

template <class Number>
bool TcpStoreParser::read_number(Number& number) {
    const std::string_view bytes = rest();
    if (bytes.size() - read_ < sizeof(number)) {
        return false;
    }
    std::memcpy(&number, bytes.data() + read_, sizeof(number));
    read_ += sizeof(number);
    return true;
}

// The beginning of a connection; false: not enough of it.
bool TcpStoreParser::greet() {
    const std::string_view bytes = rest();
    const auto first = static_cast<std::uint8_t>(bytes.front());
    std::uint32_t magic = 0;
    if (first == (kStoreMagic & 0xFFU)) {  // no old code is as high
        dialect_ = Dialect::guarded;
        old_ = Old::appending;
        return true;
    }
    if (first != 0) {
        dialect_ = Dialect::old;
        return true;
    }
    if (bytes.size() < 1 + sizeof(magic)) {
        return false;
    }
    // The old SET: a key is shorter than the magic number.
    std::memcpy(&magic, bytes.data() + 1, sizeof(magic));
    if (magic != kStoreMagic) {
        dialect_ = Dialect::old;
        return true;
    }
    dialect_ = Dialect::validated;
    begun_ += 1 + sizeof(magic);
    return true;
}

bool TcpStoreParser::choose(std::uint8_t code) {
    may_append_ = false;
    if (dialect_ == Dialect::validated) {
        if (code == 0 || code > static_cast<std::uint8_t>(StoreOp::barrier)) {
            return fail("an unknown command");
        }
        op_ = static_cast<StoreOp>(code);
        return true;
    }
    if (code > static_cast<std::uint8_t>(StoreOp::cancel_wait) - 1 ||
        (old_ == Old::watching && code > 8)) {
        return fail("an unknown command");
    }
    op_ = static_cast<StoreOp>(code + 1);
    if (code < 7) {
        return true;
    }
    if (code == 7 && (old_ == Old::watching || (old_ == Old::unknown && first_))) {
        op_ = StoreOp::watch_key;
        old_ = Old::watching;
    } else if (code == 8 && old_ == Old::watching) {
        op_ = StoreOp::delete_key;
    } else if (code == 8 && old_ == Old::unknown) {
        op_ = StoreOp::delete_key;
        may_append_ = true;
    } else {
        old_ = Old::appending;
    }
    return true;
}

// Reads the command; false: it has not come yet, or it is bad.
bool TcpStoreParser::open_query() {
    if (dialect_ == Dialect::guarded) {
        std::uint32_t magic = 0;
        if (rest().size() < sizeof(magic) + 1 || !read_number(magic)) {
            read_ = 0;
            return false;
        }
        if (magic != kStoreMagic) {
            return fail("no magic number");
        }
    }
    std::uint8_t code = 0;
    if (!read_number(code) || !choose(code)) {
        return false;
    }
    first_ = false;
    open_ = true;
    fields_ = fields_of(op_);
    counted_ = false;
    return true;
}

bool TcpStoreParser::read_piece(std::size_t most) {
    const std::size_t start = read_;
    std::uint64_t size = 0;
    if (!read_number(size)) {
        return false;
    }
    if (size > most) {
        return fail(most == limits::kStoreKeyBytes ? "a key that is too long"
                                                   : "a value that is too long");
    }
    if (read_ + size > limits::kStoreQueryBytes) {
        return fail("a query that is too long");
    }
    if (rest().size() - read_ < size) {
        read_ = start;
        return false;
    }
    pieces_.push_back({read_, static_cast<std::size_t>(size)});
    read_ += static_cast<std::size_t>(size);
    return true;
}

bool TcpStoreParser::read_list(bool pairs) {
    if (!counted_) {
        if (!read_number(left_)) {
            return false;
        }
        if (left_ > limits::kStoreQueryKeys) {
            return fail("too many keys");
        }
        left_ *= pairs ? 2 : 1;
        counted_ = true;
    }
    for (; left_ > 0; --left_) {
        const bool value = pairs && left_ % 2 == 1;
        if (!read_piece(value ? limits::kStoreValueBytes : limits::kStoreKeyBytes)) {
            return false;
        }
    }
    counted_ = false;
    return true;
}

bool TcpStoreParser::read_fields() {
    while (!fields_.empty()) {
        std::uint32_t nonce = 0;
        bool complete = false;
        switch (fields_.front()) {
            case 'k':
                complete = read_piece(limits::kStoreKeyBytes);
                break;
            case 'v':
                complete = read_piece(limits::kStoreValueBytes);
                break;
            case 'n':
                complete = read_number(number_);
                break;
            case 'u':
                complete = read_number(nonce);
                number_ = nonce;
                break;
            default:
                complete = read_list(fields_.front() == 'P');
        }
        if (!complete) {
            return false;
        }
        fields_.remove_prefix(1);
        if (may_append_ && fields_.empty()) {
            may_append_ = false;
            old_ = rest().size() > read_ ? Old::appending : Old::watching;
            if (old_ == Old::appending) {
                op_ = StoreOp::append;
                fields_ = "v";
            }
        }
    }
    return true;
}

TcpStoreParser::Step TcpStoreParser::next(StoreQuery& query) {
    const auto waiting = [this] { return problem_ != nullptr ? Step::bad : Step::more; };
    if (problem_ != nullptr) {
        return Step::bad;
    }
    if (rest().empty() || (dialect_ == Dialect::unknown && !greet()) || rest().empty()) {
        return Step::more;
    }
    if ((!open_ && !open_query()) || !read_fields()) {
        return waiting();
    }
    query.op = op_;
    query.number = number_;
    query.parts.clear();
    for (const Piece& piece : pieces_) {
        query.parts.push_back(rest().substr(piece.at, piece.size));
    }
    pieces_.clear();
    begun_ += read_;
    read_ = 0;
    open_ = false;
    return Step::query;
}

}  // namespace lockstep
