// Products by oneDNN, LibTorch's own among them, and the layers of the models of texts made of
// them.
#include "job/trainer/products.hpp"

#include "job/trainer/attention.hpp"
#include "job/trainer/gru.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

bool is_near(const at::Tensor& a, const at::Tensor& b) {
    return at::allclose(a, b, 1e-4, 1e-5);
}

// In double precision, and as it is written in books.
at::Tensor exact(const at::Tensor& a, const at::Tensor& b) {
    return at::matmul(a.to(at::kDouble), b.to(at::kDouble)).to(at::kFloat);
}

TEST(Products, EveryWayToHoldTheFactorsGivesTheSame) {
    at::manual_seed(5);
    for (const ProductShape s : {ProductShape{1, 1, 1}, ProductShape{7, 5, 3},
                                 ProductShape{64, 64, 32}, ProductShape{33, 130, 65}}) {
        const at::Tensor left = at::randn({s.rows, s.inner});
        const at::Tensor right = at::randn({s.inner, s.columns});
        const at::Tensor want = exact(left, right) * 0.5;
        for (const bool turn_left : {false, true}) {
            for (const bool turn_right : {false, true}) {
                constexpr std::int64_t kMore = 3;  // each row lies in a longer one
                const auto held = [](const at::Tensor& x) {
                    return at::constant_pad_nd(x, {0, kMore}, 7.0).contiguous();
                };
                const at::Tensor a = held(turn_left ? left.t() : left);
                const at::Tensor b = held(turn_right ? right.t() : right);
                at::Tensor out =
                    at::full({s.rows, s.columns + kMore}, std::numeric_limits<float>::quiet_NaN());
                multiply(s, 0.5F, {a.data_ptr<float>(), a.size(1), turn_left},
                         {b.data_ptr<float>(), b.size(1), turn_right}, out.data_ptr<float>(),
                         out.size(1));
                EXPECT_TRUE(is_near(out.narrow(1, 0, s.columns), want))
                    << s.rows << " " << turn_left << turn_right;
                EXPECT_TRUE(out.narrow(1, s.columns, kMore).isnan().all().item<bool>());
            }
        }
    }
}

TEST(Products, TheFirstSgemmThatTheLinkerFindsIsTheProgramsOwn) {
    if (!products_are_onednn()) {
        GTEST_SKIP() << "built without oneDNN";
    }
    EXPECT_TRUE(products_by().starts_with("oneDNN ")) << products_by();
    // LibTorch binds to the first one that is found.
    void* found = ::dlsym(RTLD_DEFAULT, "sgemm_");
    Dl_info where{};
    ASSERT_NE(::dladdr(found, &where), 0);
    Dl_info here{};
    ASSERT_NE(::dladdr(reinterpret_cast<void*>(&multiply), &here), 0);
    EXPECT_EQ(where.dli_fbase, here.dli_fbase) << where.dli_fname;
}

TEST(Products, LibTorchsOwnAreRight) {
    at::manual_seed(6);
    const at::Tensor a = at::randn({40, 30});
    const at::Tensor b = at::randn({30, 20});
    const at::Tensor c = at::randn({40, 20});
    EXPECT_TRUE(is_near(at::mm(a, b), exact(a, b)));
    EXPECT_TRUE(is_near(at::mm(a.t().contiguous().t(), b.t().contiguous().t()), exact(a, b)));
    EXPECT_TRUE(is_near(at::addmm(c, a, b, 0.25, 2.0), c * 0.25 + exact(a, b) * 2.0));
    EXPECT_TRUE(is_near(at::bmm(a.expand({3, 40, 30}), b.expand({3, 30, 20}))[2], exact(a, b)));
    // Nothing to add up, and a target that counts for nothing.
    EXPECT_TRUE(at::equal(at::mm(a.narrow(1, 0, 0), b.narrow(0, 0, 0)), at::zeros({40, 20})));
    EXPECT_TRUE(is_near(at::addmm(c, a.narrow(1, 0, 0), b.narrow(0, 0, 0), 0.5), c * 0.5));
    at::Tensor nan = at::full({40, 20}, std::numeric_limits<float>::quiet_NaN());
    at::mm_out(nan, a, b);
    EXPECT_TRUE(is_near(nan, exact(a, b)));
}

// As the formula has it, by LibTorch.
at::Tensor written_out(const at::Tensor& all, std::int64_t heads) {
    const std::int64_t batch = all.size(0);
    const std::int64_t length = all.size(1);
    const std::int64_t width = all.size(2) / 3;
    const at::Tensor parts =
        all.view({batch, length, 3, heads, width / heads}).permute({2, 0, 3, 1, 4});
    const at::Tensor scores = at::matmul(parts[0], parts[1].transpose(-2, -1)) /
                              std::sqrt(static_cast<double>(width / heads));
    const at::Tensor later = at::ones({length, length}, at::kBool).triu(1);
    const at::Tensor weights =
        at::softmax(scores.masked_fill(later, -std::numeric_limits<float>::infinity()), -1);
    return at::matmul(weights, parts[2]).transpose(1, 2).reshape({batch, length, width});
}

TEST(CausalAttention, EqualsWhatIsWrittenOut) {
    struct Case {
        std::int64_t batch, length, heads, part;
    };
    at::manual_seed(7);
    for (const Case& c :
         {Case{1, 1, 1, 4}, Case{2, 5, 3, 8}, Case{3, 64, 4, 32}, Case{1, 37, 2, 16}}) {
        at::Tensor ours =
            (at::randn({c.batch, c.length, 3 * c.heads * c.part}) * 2).requires_grad_(true);
        at::Tensor theirs = ours.detach().clone().requires_grad_(true);
        const at::Tensor got = causal_attention(ours, c.heads);
        const at::Tensor want = written_out(theirs, c.heads);
        EXPECT_TRUE(is_near(got, want)) << c.length;
        const at::Tensor upstream = at::randn(want.sizes());
        got.backward(upstream);
        want.backward(upstream);
        EXPECT_TRUE(is_near(ours.grad(), theirs.grad())) << c.length;
    }
}

TEST(CausalAttention, NothingComesFromLaterPlacesNorFromOtherTexts) {
    at::manual_seed(8);
    const at::Tensor all = at::randn({2, 9, 24});
    at::Tensor other = all.clone();
    other.select(0, 0).narrow(0, 5, 4).fill_(100.0);
    const at::Tensor before = causal_attention(all, 2);
    const at::Tensor after = causal_attention(other, 2);
    EXPECT_TRUE(at::equal(before.select(0, 0).narrow(0, 0, 5), after.select(0, 0).narrow(0, 0, 5)));
    EXPECT_TRUE(at::equal(before.select(0, 1), after.select(0, 1)));
}

std::ptrdiff_t threads_of_this_process() {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

// A loop on one thread gives the same numbers, and has no second thread after it. Which head is
// whose changes nothing: each is one thread's.
TEST(CausalAttention, IsTheWorkOfAllThreadsAndTheSame) {
    at::manual_seed(9);
    const at::Tensor values = at::randn({3, 17, 3 * 4 * 8});
    const at::Tensor upstream = at::randn({3, 17, 4 * 8});
    const auto results = [&] {
        const at::Tensor all = values.clone().requires_grad_(true);
        const at::Tensor out = causal_attention(all, 4);
        out.backward(upstream);
        return std::pair{out.detach(), all.grad()};
    };
    const int before = at::get_num_threads();
    at::set_num_threads(1);
    const auto alone = results();
    // More than any test before has had: threads stay.
    const auto there = threads_of_this_process();
    at::set_num_threads(static_cast<int>(there) + 2);
    {
        const at::NoGradGuard no_gradients;
        causal_attention(values, 4);
    }
    EXPECT_GT(threads_of_this_process(), there);
    const auto together = results();
    at::set_num_threads(before);
    EXPECT_TRUE(at::equal(alone.first, together.first));
    EXPECT_TRUE(at::equal(alone.second, together.second));
}

TEST(FusedGelu, EqualsLibTorchs) {
    at::Tensor ours = at::linspace(-12, 12, 4801).requires_grad_(true);
    at::Tensor theirs = ours.detach().clone().requires_grad_(true);
    const at::Tensor got = fused_gelu(ours);
    const at::Tensor want = at::gelu(theirs);
    EXPECT_LT((got - want).abs().max().item<float>(), 1e-6F);
    got.sum().backward();
    want.sum().backward();
    EXPECT_LT((ours.grad() - theirs.grad()).abs().max().item<float>(), 1e-6F);
}

TEST(GruStates, EqualsLibTorchsGru) {
    at::manual_seed(9);
    struct Case {
        std::int64_t batch, length, width;
    };
    for (const Case& c : {Case{1, 1, 3}, Case{4, 6, 16}, Case{3, 5, 33}}) {
        const auto leaf = [](const at::Tensor& x) { return x.requires_grad_(true); };
        const at::Tensor x = leaf(at::randn({c.batch, c.length, c.width}));
        const at::Tensor state = leaf(at::randn({c.batch, c.width}));
        const std::vector<at::Tensor> p{leaf(at::randn({3 * c.width, c.width}) * 0.2),
                                        leaf(at::randn({3 * c.width, c.width}) * 0.2),
                                        leaf(at::randn({3 * c.width})),
                                        leaf(at::randn({3 * c.width}))};
        const at::Tensor upstream = at::randn({c.batch, c.length, c.width});
        const auto gradients = [&](const at::Tensor& y) {
            y.backward(upstream);
            std::vector<at::Tensor> out{y.detach()};
            for (const at::Tensor& each : {x, state, p[0], p[1], p[2], p[3]}) {
                out.push_back(each.grad().clone());
                each.mutable_grad() = at::Tensor{};
            }
            return out;
        };
        const auto got = gradients(gru_states(at::linear(x, p[0], p[2]), state, p[1], p[3]));
        const auto want = gradients(std::get<0>(
            at::gru(x, state.unsqueeze(0), p, true, 1, 0.0, true, false, /*batch_first=*/true)));
        for (std::size_t i = 0; i < want.size(); ++i) {
            EXPECT_TRUE(is_near(got[i], want[i])) << i << " of width " << c.width;
        }
    }
}

}  // namespace
}  // namespace lockstep
