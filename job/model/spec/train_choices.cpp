#include "job/model/spec/train_choices.hpp"

#include "job/base/enum_table.hpp"
#include "job/model/spec/train_config.hpp"

#include <array>

namespace lockstep {
namespace {

constexpr std::array kModelChoices{
    TrainChoice{"mnist_convnet", true,
                "the convolutional network of the Keras guide, layer for layer, for images",
                "Keras: Distributed training with PyTorch", 10},
    TrainChoice{"mlp", true, "one hidden layer of 256, for images and tables", "", 4},
    TrainChoice{"alexnet_split", true,
                "AlexNet in the two halves that its authors put on two GPUs, for small images",
                "AlexNet 2012", 10},
    TrainChoice{
        "mobilenet_v2", true,
        "MobileNetV2 of width 1.0 as torchvision has it, whose weights fit; ImageNet's mean "
        "is taken out of its images, and those without colour are shown in all three",
        "torchvision.models.mobilenet_v2, tf.keras.applications.MobileNetV2", 22},
    TrainChoice{
        "seq2seq", true,
        "an encoder and a decoder of GRUs of width 128, with attention, that answer a text "
        "with another one, byte by byte; two stages of a pipeline are the one and the other",
        "PyTorch: Translation with a sequence to sequence network and attention", 4},
    TrainChoice{"gpt", true,
                "a transformer of 4 blocks of width 128 that continues text byte by byte", "GPT-2",
                6},
    TrainChoice{"linear", true,
                "one dense layer: linear regression of a table, softmax regression of images",
                "Paddle: the house price task; nn.Linear", 2},
};
constexpr std::array kDatasetChoices{
    TrainChoice{"digits", true, "28×28 images of the digits 0 to 9, drawn on the spot", ""},
    TrainChoice{"mnist", true, "the four IDX files in path, packed by gzip or not", "MNIST"},
    TrainChoice{"cifar10", true,
                "32×32 colour images: the five data_batch files and test_batch.bin in path",
                "CIFAR-10, binary version"},
    TrainChoice{
        "images", true,
        "JPEG and PNG files, path/train/CLASS/… and path/val/CLASS/…, decoded by "
        "loader_workers as they are needed; resize (224) is the side of what is cut out, at "
        "random while it trains unless augment is false",
        "ImageNet as PyTorch's example has it, torchvision.datasets.ImageFolder"},
    TrainChoice{"text", true,
                "the bytes of the file path, in samples of context bytes; the last tenth is the "
                "test set",
                ""},
    TrainChoice{"pairs", true,
                "the lines of the file path, source TAB target, both of at most context bytes; "
                "every tenth pair is for the test",
                "the pairs of sentences of manythings.org/anki"},
    TrainChoice{"table", true,
                "the numbers of the file path, columns between commas or blanks, with a line of "
                "names or without; the last column is asked for, every tenth row is for the test",
                "CSV; UCI's housing.data"},
};
constexpr std::array kLossChoices{
    TrainChoice{"cross_entropy", true, "of classes: all data sets but table",
                "torch.nn.CrossEntropyLoss, paddle.nn.functional.cross_entropy"},
    TrainChoice{"mse", true, "the square of the error of a number; table's, unless given",
                "torch.nn.MSELoss, paddle.nn.functional.square_error_cost"},
    TrainChoice{"huber", true,
                "the same, beyond one deviation of the column straight on: for tables in which "
                "some rows are far off",
                "torch.nn.HuberLoss"},
};
constexpr std::array kStrategyChoices{
    TrainChoice{"single", true, "one process", ""},
    TrainChoice{"data_parallel", true,
                "every rank has a copy of the model and a share of the batch; gradients are summed "
                "while backward runs",
                "DDP, paddle.DataParallel, MultiWorkerMirroredStrategy"},
    TrainChoice{"replicated", true,
                "one process with several devices: each batch is split over them, gradients and "
                "the step are on the first",
                "nn.DataParallel, MirroredStrategy"},
    TrainChoice{"central_storage", true,
                "one process with several devices: parameters and the step are in the host's "
                "memory, the devices copy them",
                "CentralStorageStrategy"},
    TrainChoice{"parameter_server", true,
                "the ranks of role ps hold the parameters and make the steps, those of role worker "
                "send them gradients",
                "ParameterServerStrategy, Paddle's PServer mode"},
    TrainChoice{"pipeline", true,
                "the layers are cut into stages of one rank each, a batch goes through them in "
                "micro-batches; with more ranks than stages the chains are data parallel",
                "model parallel, GPipe, encoder and decoder on two GPUs"},
};
constexpr std::array kAllReduceChoices{
    TrainChoice{"ring", true, "every rank sends to the next: 2 (n − 1) / n of the bytes",
                "Ring AllReduce, NcclAllReduce"},
    TrainChoice{"hierarchical", true, "to the first rank of each node, over those, and back",
                "HierarchicalCopyAllReduce"},
    TrainChoice{"reduce_to_one", true, "summed on one rank and sent back", "ReductionToOneDevice"},
};
constexpr std::array kUpdateChoices{
    TrainChoice{"sync", true, "a step waits for the gradients of all workers and takes their mean",
                "synchronous update"},
    TrainChoice{"async", true,
                "every worker's gradient makes a step as it comes; staleness is reported",
                "asynchronous update"},
};
constexpr std::array kOptimizerChoices{
    TrainChoice{"adam", true, "Adam; weight_decay is added to the gradient", "torch.optim.Adam"},
    TrainChoice{"sgd", true, "stochastic gradient descent with momentum", "torch.optim.SGD"},
    TrainChoice{"adamw", true, "Adam with decoupled weight decay", "torch.optim.AdamW"},
    TrainChoice{"lamb", true, "AdamW whose step is scaled to each layer, for large batches", ""},
};
constexpr std::array kPrecisionChoices{
    TrainChoice{"fp32", true, "32-bit floats", ""},
    TrainChoice{"fp16", true,
                "16-bit floats in convolutions and products, with dynamic loss scaling; on GPUs",
                "torch.autocast, GradScaler, Apex amp"},
    TrainChoice{"bf16", true,
                "bfloat16 in convolutions and products; weights and gradients stay 32-bit",
                "torch.autocast, bf16-mixed"},
};
constexpr std::array kScheduleChoices{
    TrainChoice{"constant", true, "learning_rate throughout, after the warm-up", ""},
    TrainChoice{"cosine", true, "half a cosine down to zero at the last step", "CosineAnnealingLR"},
    TrainChoice{"linear", true, "a line down to zero at the last step", "LinearLR"},
};

constexpr std::array kExportChoices{
    TrainChoice{"none", true, "nothing but the checkpoints", ""},
    TrainChoice{"safetensors", true,
                "model.safetensors beside the checkpoints: the parameters and moving averages by "
                "name, which Python's safetensors package and train.weights read",
                "Hugging Face's save_pretrained"},
};

static_assert(is_count_of<TrainModel, kModelChoices.size()>());
static_assert(is_count_of<TrainDataset, kDatasetChoices.size()>());
static_assert(is_count_of<TrainLoss, kLossChoices.size()>());
static_assert(is_count_of<TrainStrategy, kStrategyChoices.size()>());
static_assert(is_count_of<TrainAllReduce, kAllReduceChoices.size()>());
static_assert(is_count_of<TrainUpdate, kUpdateChoices.size()>());
static_assert(is_count_of<TrainOptimizer, kOptimizerChoices.size()>());
static_assert(is_count_of<TrainPrecision, kPrecisionChoices.size()>());
static_assert(is_count_of<TrainSchedule, kScheduleChoices.size()>());
static_assert(is_count_of<TrainExport, kExportChoices.size()>());

struct ChoiceField {
    const char* key;  // with a dot: inside another object
    const char* about;
    TrainChoices rows;
};

constexpr std::array kChoiceFields{
    ChoiceField{"strategy", "Who holds the parameters and who combines the gradients.",
                kStrategyChoices},
    ChoiceField{"all_reduce", "How gradients are summed over the ranks; data_parallel only.",
                kAllReduceChoices},
    ChoiceField{"update", "When servers use gradients; parameter_server only.", kUpdateChoices},
    ChoiceField{"model", "The network.", kModelChoices},
    ChoiceField{"dataset.name", "What it is trained on.", kDatasetChoices},
    ChoiceField{"loss", "What is made small; if not given cross_entropy, of a table mse.",
                kLossChoices},
    ChoiceField{"optimizer", "How a gradient becomes a step.", kOptimizerChoices},
    ChoiceField{"schedule", "How the rate changes from step to step.", kScheduleChoices},
    ChoiceField{"export", "What the end of the training leaves for other programs.",
                kExportChoices},
    ChoiceField{"precision", "Number format of forward and backward.", kPrecisionChoices},
};

Json* schema_property(Json& properties, std::string_view path) {
    const std::size_t dot = path.find('.');
    Json& first = properties[std::string{path.substr(0, dot)}];
    return dot == std::string_view::npos
               ? &first
               : schema_property(first["properties"], path.substr(dot + 1));
}

template <class Enum>
std::string_view word_of(TrainChoices rows, Enum value) {
    return rows[static_cast<std::size_t>(value)].word;
}

}  // namespace

TrainChoices train_models() {
    return kModelChoices;
}
TrainChoices train_datasets() {
    return kDatasetChoices;
}
TrainChoices train_strategies() {
    return kStrategyChoices;
}
TrainChoices train_all_reduces() {
    return kAllReduceChoices;
}
TrainChoices train_updates() {
    return kUpdateChoices;
}
TrainChoices train_optimizers() {
    return kOptimizerChoices;
}
TrainChoices train_precisions() {
    return kPrecisionChoices;
}
TrainChoices train_schedules() {
    return kScheduleChoices;
}
TrainChoices train_exports() {
    return kExportChoices;
}
TrainChoices train_losses() {
    return kLossChoices;
}

std::string_view to_string(TrainModel value) {
    return word_of(train_models(), value);
}
std::string_view to_string(TrainDataset value) {
    return word_of(train_datasets(), value);
}
std::string_view to_string(TrainLoss value) {
    return word_of(train_losses(), value);
}
std::string_view to_string(TrainStrategy value) {
    return word_of(train_strategies(), value);
}
std::string_view to_string(TrainAllReduce value) {
    return word_of(train_all_reduces(), value);
}
std::string_view to_string(TrainUpdate value) {
    return word_of(train_updates(), value);
}
std::string_view to_string(TrainOptimizer value) {
    return word_of(train_optimizers(), value);
}
std::string_view to_string(TrainPrecision value) {
    return word_of(train_precisions(), value);
}
std::string_view to_string(TrainSchedule value) {
    return word_of(train_schedules(), value);
}
std::string_view to_string(TrainExport value) {
    return word_of(train_exports(), value);
}

void describe_train_choices(Json& properties) {
    for (const ChoiceField& field : kChoiceFields) {
        std::string text = field.about;
        Json words = Json::array();
        for (const TrainChoice& row : field.rows) {
            if (row.built) {
                words.push_back(row.word);
                text += " " + std::string{row.word} + ": " + std::string{row.help} + ".";
            }
        }
        Json& schema = *schema_property(properties, field.key);
        schema["enum"] = std::move(words);
        schema["description"] = std::move(text);
    }
}

std::string train_choices_markdown() {
    std::string out;
    for (const ChoiceField& field : kChoiceFields) {
        out += "| `" + std::string{field.key} + "` | what it is | known as |\n|---|---|---|\n";
        for (const TrainChoice& row : field.rows) {
            if (row.built) {
                out += "| `" + std::string{row.word} + "` | " + std::string{row.help} + " | " +
                       std::string{row.known_as} + " |\n";
            }
        }
        out += "\n";
    }
    return out;
}

}  // namespace lockstep
