#include "job/collective/communicator.hpp"

#include "job/base/enum_table.hpp"

#include <utility>

namespace lockstep {
namespace {

std::optional<Error> check_op(Dtype type, ReduceOp op) {
    const bool whole = type == Dtype::u8 || type == Dtype::i32 || type == Dtype::i64;
    if (op == ReduceOp::average && whole) {
        return Error{Errc::invalid, "no average of " + std::string{to_string(type)}};
    }
    return std::nullopt;
}

std::optional<Error> first_of(std::optional<Error> one, std::optional<Error> other) {
    return one ? std::move(one) : std::move(other);
}

}  // namespace

std::size_t size_of(Dtype type) {
    switch (type) {
        case Dtype::u8:
            return 1;
        case Dtype::f16:
        case Dtype::bf16:
            return 2;
        case Dtype::i32:
        case Dtype::f32:
            return 4;
        case Dtype::i64:
        case Dtype::f64:
            return 8;
    }
    return 1;
}

std::string_view to_string(Dtype type) {
    constexpr std::string_view kNames[] = {"u8", "i32", "i64", "f16", "bf16", "f32", "f64"};
    static_assert(is_count_of<Dtype, std::size(kNames)>());
    return kNames[static_cast<std::size_t>(type)];
}

std::string_view to_string(ReduceOp op) {
    constexpr std::string_view kNames[] = {"sum", "product", "min", "max", "average"};
    static_assert(is_count_of<ReduceOp, std::size(kNames)>());
    return kNames[static_cast<std::size_t>(op)];
}

std::string_view to_string(Device device) {
    return device == Device::cpu ? "cpu" : "cuda";
}

// The other end of an operation is checked with the values: the root, or whom they go to.
std::optional<Error> Communicator::check(ConstBuffer values, std::int32_t peer) const {
    if (values.device != device()) {
        return Error{Errc::invalid,
                     std::string{"the values are in the memory of "} +
                         (values.device == Device::cuda ? "a GPU, the ranks are joined by Gloo"
                                                        : "the host, the ranks are joined by "
                                                          "NCCL")};
    }
    if (values.data == nullptr && values.count > 0) {
        return Error{Errc::invalid, "no memory for " + std::to_string(values.count) + " values"};
    }
    if (peer < 0 || peer >= size()) {
        return Error{Errc::invalid,
                     "no rank " + std::to_string(peer) + " among " + std::to_string(size())};
    }
    return std::nullopt;
}

std::optional<Error> Communicator::check_share(ConstBuffer mine, ConstBuffer all) const {
    auto wrong = first_of(check(mine, rank()), check(all, rank()));
    if (wrong) {
        return wrong;
    }
    if (mine.type != all.type || mine.count * static_cast<std::size_t>(size()) != all.count) {
        return Error{Errc::invalid,
                     std::to_string(mine.count) + " " + std::string{to_string(mine.type)} +
                         " of each of " + std::to_string(size()) + " ranks are not " +
                         std::to_string(all.count) + " " + std::string{to_string(all.type)}};
    }
    return std::nullopt;
}

template <class Call>
Status Communicator::run(const char* what, std::optional<Error> wrong, std::size_t count,
                         Call&& call) {
    if (const auto broken = async_error()) {
        return fail(*broken);
    }
    if (wrong) {
        return fail(wrong->in(what));
    }
    if (count == 0) {
        return {};
    }
    Status done = std::forward<Call>(call)();
    if (!done) {
        return fail(keep(std::move(done.error()).in(what)));
    }
    return done;
}

Status Communicator::all_reduce(Buffer values, ReduceOp op, Stream stream) {
    return run("all-reduce", first_of(check(values, rank()), check_op(values.type, op)),
               values.count, [&] { return do_all_reduce(values, op, stream); });
}

Status Communicator::reduce(Buffer values, std::int32_t root, ReduceOp op, Stream stream) {
    return run("reduce", first_of(check(values, root), check_op(values.type, op)), values.count,
               [&] { return do_reduce(values, root, op, stream); });
}

Status Communicator::broadcast(Buffer values, std::int32_t root, Stream stream) {
    return run("broadcast", check(values, root), values.count,
               [&] { return do_broadcast(values, root, stream); });
}

Status Communicator::all_gather(ConstBuffer mine, Buffer all, Stream stream) {
    return run("all-gather", check_share(mine, all), mine.count,
               [&] { return do_all_gather(mine, all, stream); });
}

Status Communicator::reduce_scatter(ConstBuffer all, Buffer mine, ReduceOp op, Stream stream) {
    return run("reduce-scatter", first_of(check_share(mine, all), check_op(mine.type, op)),
               mine.count, [&] { return do_reduce_scatter(all, mine, op, stream); });
}

Status Communicator::send(ConstBuffer values, std::int32_t to, Stream stream) {
    auto wrong = check(values, to);
    if (!wrong && to == rank()) {
        wrong = Error{Errc::invalid, "a rank cannot send to itself"};
    }
    return run("send", std::move(wrong), values.count, [&] { return do_send(values, to, stream); });
}

Status Communicator::recv(Buffer values, std::int32_t from, Stream stream) {
    auto wrong = check(values, from);
    if (!wrong && from == rank()) {
        wrong = Error{Errc::invalid, "a rank cannot receive from itself"};
    }
    return run("recv", std::move(wrong), values.count,
               [&] { return do_recv(values, from, stream); });
}

Status Communicator::barrier(Stream stream) {
    return run("barrier", std::nullopt, 1, [&] { return do_barrier(stream); });
}

void Communicator::abort(std::string why) {
    keep(Error{Errc::cancelled, std::move(why)});
    do_abort();
}

std::optional<Error> Communicator::async_error() {
    {
        const std::lock_guard lock{mutex_};
        if (failure_) {
            return failure_;
        }
    }
    auto found = do_async_error();
    if (found) {
        return keep(*std::move(found));
    }
    return std::nullopt;
}

Error Communicator::keep(Error error) {
    const std::lock_guard lock{mutex_};
    if (!failure_) {
        failure_ = std::move(error);
    }
    return *failure_;
}

}  // namespace lockstep
