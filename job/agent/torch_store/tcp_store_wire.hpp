// The query stream of torch's TCPStore, bytes in, queries out. No I/O; one thread.
//
// A query is one byte of command and its arguments; numbers are of the host's order, keys and
// values have a length of 8 bytes before them. Nothing says which release the client is of, but how
// it begins:
//   from 2.2      VALIDATE (0) and a magic number, once; the codes below
//   2.1           no VALIDATE, so every code is one lower; up to CANCEL_WAIT
//   up to 2.0     as 2.1 up to GETNUMKEYS, then WATCH_KEY 7 and DELETE_KEY 8
//   in between    (one revision of main) as 2.1, the magic number before every query
// 2.1 and 2.0 use 7 and 8 for different commands. WATCH_KEY is sent on a connection that carries
// nothing else, so 7 is it if it comes first; after DELETE_KEY a client of 2.0 waits for the
// answer, so 8 is APPEND (2.1) if more follows the key at once: 2.1 sends both in one piece.
// Source: TCPStore.cpp, TCPStoreBackend.cpp and TCPStoreLibUvBackend.cpp of these releases.
#pragma once

#include "job/base/limits.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Codes as from torch 2.2; watch_key is of older ones only. LIST_KEYS and BARRIER are the newest.
enum class StoreOp : std::uint8_t {
    validate,
    set,
    compare_set,
    get,
    add,
    check,
    wait,
    count_keys,
    delete_key,
    append,
    multi_get,
    multi_set,
    cancel_wait,
    ping,
    queue_push,
    queue_pop,
    queue_length,
    list_keys,
    barrier,
    watch_key,
};
inline constexpr std::uint32_t kStoreMagic = 0x3C85F7CE;

struct StoreQuery {
    StoreOp op = StoreOp::validate;
    // Keys and values in the order in which they were sent: multi_set has key, value, key, …
    std::vector<std::string_view> parts;
    // add: what to add. barrier: how many arrive. ping: what to answer.
    std::int64_t number = 0;
};

class TcpStoreParser {
  public:
    enum class Step {
        query,  // one is complete
        more,   // the rest has not come yet
        bad,    // not this protocol, or past a limit; it stays so
    };

    // `bytes` are what came last and must stay until end(); between the two, next() until it is not
    // `query`. A query's parts point into the bytes and are good until end().
    void begin(std::string_view bytes);
    Step next(StoreQuery& query);
    void end();

    // Bytes of a query that is not complete; they are the memory this holds.
    std::size_t kept() const { return kept_.size(); }
    const char* problem() const { return problem_; }  // why it is bad

  private:
    enum class Dialect { unknown, validated, old, guarded };
    enum class Old { unknown, watching, appending };  // up to 2.0, 2.1
    struct Piece {
        std::size_t at;
        std::size_t size;
    };

    bool fail(const char* why);
    bool greet();
    bool open_query();
    bool choose(std::uint8_t code);
    bool read_fields();
    bool read_list(bool pairs);
    bool read_piece(std::size_t most);
    template <class Number>
    bool read_number(Number& number);
    std::string_view rest() const { return data_.substr(begun_); }

    std::string kept_;
    std::string_view data_;
    std::size_t begun_ = 0;  // of data_: where the query begins
    // The query that is being read; what was read of it is not read again when more has come.
    bool open_ = false;
    std::size_t read_ = 0;  // bytes of it
    StoreOp op_ = StoreOp::validate;
    std::string_view fields_;  // what is still to come
    bool counted_ = false;
    std::uint64_t left_ = 0;  // of a list
    std::int64_t number_ = 0;
    std::vector<Piece> pieces_;
    bool may_append_ = false;

    Dialect dialect_ = Dialect::unknown;
    Old old_ = Old::unknown;
    bool first_ = true;
    const char* problem_ = nullptr;
};

}  // namespace lockstep
