// A small decoder-only transformer over bytes, normalisation first (Radford et al.: Language models
// are unsupervised multitask learners, 2019): 4 blocks of width 128 with 4 heads, learned
// positions. One layer is one block, so that a pipeline cuts between blocks.
#include "job/trainer/attention.hpp"
#include "job/trainer/layers.hpp"
#include "job/trainer/models/models.hpp"

namespace lockstep {
namespace {

constexpr std::int64_t kGptBlocks = 4;
constexpr std::int64_t kGptWidth = 128;
constexpr std::int64_t kGptHeads = 4;
constexpr double kGptEpsilon = 1e-5;

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& gain, const at::Tensor& bias) {
    return at::layer_norm(x, {x.size(-1)}, gain, bias, kGptEpsilon);
}

// Every place looks at itself and at those before it.
at::Tensor attention(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
    return causal_attention(dense_rows(x, weight, bias), kGptHeads);
}

Layer embedding_layer(std::int64_t words, std::int64_t length) {
    Layer layer;
    layer.parameters = {{"embed.words", {words, kGptWidth}, Start::glorot},
                        {"embed.places", {length, kGptWidth}, Start::glorot}};
    layer.forward = [](const at::Tensor& x, std::span<const at::Tensor> p, const at::Tensor&,
                       const Pass&) { return at::embedding(p[0], x) + p[1]; };
    return layer;
}

Layer block_layer(const std::string& name) {
    constexpr std::int64_t kInner = 4 * kGptWidth;
    Layer layer;
    layer.parameters = {{name + ".norm_1.gain", {kGptWidth}, Start::ones},
                        {name + ".norm_1.bias", {kGptWidth}},
                        {name + ".attention.kernel", {3 * kGptWidth, kGptWidth}, Start::glorot},
                        {name + ".attention.bias", {3 * kGptWidth}},
                        {name + ".project.kernel", {kGptWidth, kGptWidth}, Start::glorot},
                        {name + ".project.bias", {kGptWidth}},
                        {name + ".norm_2.gain", {kGptWidth}, Start::ones},
                        {name + ".norm_2.bias", {kGptWidth}},
                        {name + ".up.kernel", {kInner, kGptWidth}, Start::glorot},
                        {name + ".up.bias", {kInner}},
                        {name + ".down.kernel", {kGptWidth, kInner}, Start::glorot},
                        {name + ".down.bias", {kGptWidth}}};
    layer.forward = [](const at::Tensor& x, std::span<const at::Tensor> p, const at::Tensor&,
                       const Pass&) {
        const at::Tensor seen = attention(layer_norm(x, p[0], p[1]), p[2], p[3]);
        const at::Tensor y = x + dense_rows(seen, p[4], p[5]);
        const at::Tensor inner = fused_gelu(dense_rows(layer_norm(y, p[6], p[7]), p[8], p[9]));
        return y + dense_rows(inner, p[10], p[11]);
    };
    return layer;
}

Layer head_layer(std::int64_t classes) {
    Layer layer;
    layer.parameters = {{"head.norm.gain", {kGptWidth}, Start::ones},
                        {"head.norm.bias", {kGptWidth}},
                        {"head.kernel", {classes, kGptWidth}, Start::glorot},
                        {"head.bias", {classes}}};
    layer.forward = [](const at::Tensor& x, std::span<const at::Tensor> p, const at::Tensor&,
                       const Pass&) { return dense_rows(layer_norm(x, p[0], p[1]), p[2], p[3]); };
    return layer;
}

}  // namespace

TextCosts gpt_costs(const ModelShape& shape) {
    const auto length = static_cast<double>(shape.sample[0]);
    constexpr double kWidth = kGptWidth;
    const double weights =
        kGptBlocks * 12.0 * kWidth * kWidth + static_cast<double>(shape.classes) * kWidth;
    const double scores = kGptBlocks * 2.0 * length * kWidth;  // products of places, for each one
    return {shape.sample[0], 6.0 * length * (weights + scores)};
}

std::vector<Layer> gpt_layers(const ModelShape& shape) {
    std::vector<Layer> out{embedding_layer(shape.classes, shape.sample[0])};
    for (std::int64_t i = 1; i <= kGptBlocks; ++i) {
        out.push_back(block_layer("block_" + std::to_string(i)));
    }
    out.push_back(head_layer(shape.classes));
    return out;
}

}  // namespace lockstep
