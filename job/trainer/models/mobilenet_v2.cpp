// MobileNetV2 (Sandler et al.: MobileNetV2: inverted residuals and linear bottlenecks, 2018, table
// 2), width 1.0, with the names, constants and starting deviations of torchvision's, so that its
// weights fit: 3,504,872 parameters for 1000 classes.
// Source: torchvision/models/mobilenetv2.py. One layer is one of its `features`, so that a pipeline
// cuts between blocks.
#include "job/trainer/layers.hpp"
#include "job/trainer/models/models.hpp"

#include <array>

namespace lockstep {
namespace {

constexpr double kMobileEpsilon = 1e-5;
constexpr double kMobileMomentum = 0.1;  // PyTorch's: the weight of what is new
constexpr std::int64_t kColours = 3;
constexpr std::int64_t kFeatures = 1280;

struct MobileConv {
    std::int64_t in;
    std::int64_t out;
    std::int64_t side = 1;
    std::int64_t stride = 1;
    std::int64_t groups = 1;
    bool bounded = true;  // followed by relu6; a bottleneck's last one is not
};

// A convolution without bias and its normalisation; three parameters, two buffers.
void add_conv(Layer& layer, const std::string& conv, const std::string& norm,
              const MobileConv& what) {
    layer.parameters.push_back(
        {conv + ".weight", {what.out, what.in / what.groups, what.side, what.side}, Start::he});
    layer.parameters.push_back({norm + ".weight", {what.out}, Start::ones});
    layer.parameters.push_back({norm + ".bias", {what.out}});
    layer.buffers.push_back({norm + ".running_mean", what.out, 0.0F});
    layer.buffers.push_back({norm + ".running_var", what.out, 1.0F});
}

at::Tensor apply_conv(const at::Tensor& x, const MobileConv& what, std::span<const at::Tensor> p,
                      const at::Tensor& moments, const Pass& pass) {
    const at::Tensor y = at::conv2d(x, p[0], /*bias=*/{}, what.stride, what.side / 2,
                                    /*dilation=*/1, what.groups)
                             .to(at::kFloat);
    // One value of each channel has no variance: a last batch of one sample, maps of one pixel.
    const bool statistics = pass.batch_statistics && y.numel() > what.out;
    const at::Tensor z = at::batch_norm(y, p[1], p[2], moments.narrow(0, 0, what.out),
                                        moments.narrow(0, what.out, what.out), statistics,
                                        kMobileMomentum, kMobileEpsilon,
                                        /*cudnn_enabled=*/x.device().is_cuda());
    return what.bounded ? at::hardtanh(z, 0.0, 6.0) : z;
}

at::Tensor apply_convs(at::Tensor x, const std::vector<MobileConv>& convs,
                       std::span<const at::Tensor> p, const at::Tensor& moments, const Pass& pass) {
    std::int64_t offset = 0;
    for (const MobileConv& conv : convs) {
        x = apply_conv(x, conv, p.first(3), moments.narrow(0, offset, 2 * conv.out), pass);
        p = p.subspan(3);
        offset += 2 * conv.out;
    }
    return x;
}

// What torchvision's weights expect of their input: its mean and deviation over ImageNet taken
// out. Images without colour are shown in all three.
at::Tensor as_imagenet(const at::Tensor& x) {
    struct Colours {
        explicit Colours(at::Device device)
            : mean(of(device, 0.485F, 0.456F, 0.406F)),
              deviation(of(device, 0.229F, 0.224F, 0.225F)) {}
        static at::Tensor of(at::Device device, float red, float green, float blue) {
            return at::tensor({red, green, blue}).view({1, kColours, 1, 1}).to(device);
        }
        at::Tensor mean;
        at::Tensor deviation;
    };
    // A process computes on the CPU and on one GPU; what a graph captures is made before it.
    static const Colours on_cpu{at::kCPU};
    if (x.device().is_cpu()) {
        return (x - on_cpu.mean) / on_cpu.deviation;  // broadcasts one channel to three
    }
    static const Colours on_gpu{x.device()};
    return (x - on_gpu.mean) / on_gpu.deviation;
}

Layer first_layer(const std::string& name, std::int64_t out) {
    const MobileConv conv{kColours, out, 3, 2};
    Layer layer;
    add_conv(layer, name + ".0", name + ".1", conv);
    layer.forward = [conv](const at::Tensor& x, std::span<const at::Tensor> p,
                           const at::Tensor& moments, const Pass& pass) {
        return apply_conv(as_imagenet(x), conv, p, moments, pass);
    };
    return layer;
}

// 1 × 1 to `expand` times the channels, 3 × 3 within each, 1 × 1 to `out` channels; added to what
// came in if it has the same shape.
Layer bottleneck_layer(const std::string& name, std::int64_t in, std::int64_t out,
                       std::int64_t stride, std::int64_t expand) {
    const std::int64_t inner = in * expand;
    std::vector<MobileConv> convs;
    if (expand != 1) {
        convs.push_back({in, inner});
    }
    convs.push_back({inner, inner, 3, stride, inner});
    convs.push_back({inner, out, 1, 1, 1, /*bounded=*/false});
    Layer layer;
    for (std::size_t i = 0; i < convs.size(); ++i) {
        const std::string part = name + ".conv." + std::to_string(i);
        const bool last = i + 1 == convs.size();
        add_conv(layer, last ? part : part + ".0",
                 last ? name + ".conv." + std::to_string(i + 1) : part + ".1", convs[i]);
    }
    const bool residual = stride == 1 && in == out;
    layer.forward = [convs, residual](const at::Tensor& x, std::span<const at::Tensor> p,
                                      const at::Tensor& moments, const Pass& pass) {
        const at::Tensor y = apply_convs(x, convs, p, moments, pass);
        return residual ? x + y : y;
    };
    return layer;
}

Layer last_layer(const std::string& name, std::int64_t in) {
    const MobileConv conv{in, kFeatures};
    Layer layer;
    add_conv(layer, name + ".0", name + ".1", conv);
    layer.forward = [conv](const at::Tensor& x, std::span<const at::Tensor> p,
                           const at::Tensor& moments,
                           const Pass& pass) { return apply_conv(x, conv, p, moments, pass); };
    return layer;
}

}  // namespace

std::vector<Layer> mobilenet_v2_layers(const TrainConfig& config, const ModelShape& shape) {
    struct Row {
        std::int64_t expand;
        std::int64_t channels;
        std::int64_t blocks;
        std::int64_t stride;  // of the first block
    };
    constexpr std::array<Row, 7> kRows{{{1, 16, 1, 1},
                                        {6, 24, 2, 2},
                                        {6, 32, 3, 2},
                                        {6, 64, 4, 2},
                                        {6, 96, 3, 1},
                                        {6, 160, 3, 2},
                                        {6, 320, 1, 1}}};
    std::int64_t channels = 32;
    std::vector<Layer> out;
    const auto name = [&out] { return "features." + std::to_string(out.size()); };
    out.push_back(first_layer(name(), channels));
    for (const Row& row : kRows) {
        for (std::int64_t block = 0; block < row.blocks; ++block) {
            out.push_back(bottleneck_layer(name(), channels, row.channels,
                                           block == 0 ? row.stride : 1, row.expand));
            channels = row.channels;
        }
    }
    out.push_back(last_layer(name(), channels));
    out.push_back(average_layer());
    out.push_back(dropout_layer(config.dropout));
    Layer classifier = dense_layer("classifier.1", kFeatures, shape.classes, /*relu=*/false);
    classifier.parameters = {{"classifier.1.weight", {shape.classes, kFeatures}, Start::small},
                             {"classifier.1.bias", {shape.classes}}};
    out.push_back(std::move(classifier));
    return out;
}

}  // namespace lockstep
