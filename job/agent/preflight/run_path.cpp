// The dynamic section of an ELF file: elf(5), ld.so(8).
#include "job/agent/preflight/run_path.hpp"

#include "job/base/text.hpp"
#include "job/base/unique_fd.hpp"

#include <elf.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {
namespace {

constexpr std::size_t kRunPathBytes = 1U << 16U;  // of all folders of a run path
constexpr std::size_t kHeaders = 256;
constexpr std::size_t kEntries = 4096;  // of a dynamic section

// Of a file that another program wrote: nothing in it is taken to be in bounds.
class ElfFile {
  public:
    explicit ElfFile(const std::filesystem::path& file)
        : fd_(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}

    template <class Item>
    std::optional<Item> read(std::uint64_t offset) const {
        Item item{};
        const auto count = ::pread(fd_.get(), &item, sizeof(item), static_cast<off_t>(offset));
        return count == static_cast<ssize_t>(sizeof(item)) ? std::optional{item} : std::nullopt;
    }
    // Up to its end, a zero byte.
    std::string text(std::uint64_t offset) const {
        std::string out(kRunPathBytes, '\0');
        const auto count = ::pread(fd_.get(), out.data(), out.size(), static_cast<off_t>(offset));
        out.resize(count < 0 ? 0U : static_cast<std::size_t>(count));
        return out.substr(0, out.find('\0'));
    }

  private:
    UniqueFd fd_;
};

struct Dynamic {
    std::uint64_t strings = 0;  // an address
    std::optional<std::uint64_t> rpath;
    std::optional<std::uint64_t> run_path;
};

Dynamic read_dynamic(const ElfFile& elf, const Elf64_Phdr& section) {
    Dynamic out;
    const auto count = std::min<std::uint64_t>(section.p_filesz / sizeof(Elf64_Dyn), kEntries);
    for (std::uint64_t i = 0; i < count; ++i) {
        const auto entry = elf.read<Elf64_Dyn>(section.p_offset + i * sizeof(Elf64_Dyn));
        if (!entry || entry->d_tag == DT_NULL) {
            break;
        }
        if (entry->d_tag == DT_STRTAB) {
            out.strings = entry->d_un.d_ptr;
        } else if (entry->d_tag == DT_RPATH) {
            out.rpath = entry->d_un.d_val;
        } else if (entry->d_tag == DT_RUNPATH) {
            out.run_path = entry->d_un.d_val;
        }
    }
    return out;
}

std::filesystem::path with_origin(std::string folder, const std::filesystem::path& origin) {
    for (const std::string_view name : {"$ORIGIN", "${ORIGIN}"}) {
        if (const auto at = folder.find(name); at != std::string::npos) {
            folder.replace(at, name.size(), origin.string());
        }
    }
    std::filesystem::path out = std::filesystem::path{folder}.lexically_normal();
    return out.has_filename() ? out : out.parent_path();  // "/opt/lib/" is "/opt/lib"
}

}  // namespace

RunPath run_path_of(const std::filesystem::path& file) {
    RunPath out;
    const ElfFile elf{file};
    const auto head = elf.read<Elf64_Ehdr>(0);
    constexpr auto kOrder = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ELFDATA2LSB : ELFDATA2MSB;
    if (!head || std::memcmp(head->e_ident, ELFMAG, SELFMAG) != 0 ||
        head->e_ident[EI_CLASS] != ELFCLASS64 || head->e_ident[EI_DATA] != kOrder) {
        return out;
    }
    std::vector<Elf64_Phdr> loaded;
    Dynamic dynamic;
    for (std::size_t i = 0; i < std::min<std::size_t>(head->e_phnum, kHeaders); ++i) {
        const auto part = elf.read<Elf64_Phdr>(head->e_phoff + i * sizeof(Elf64_Phdr));
        if (part && part->p_type == PT_LOAD) {
            loaded.push_back(*part);
        } else if (part && part->p_type == PT_DYNAMIC) {
            dynamic = read_dynamic(elf, *part);
        }
    }
    // The loader leaves DT_RPATH out where there is DT_RUNPATH.
    const auto index = dynamic.run_path ? dynamic.run_path : dynamic.rpath;
    const auto at = std::find_if(loaded.begin(), loaded.end(), [&](const Elf64_Phdr& part) {
        return dynamic.strings >= part.p_vaddr && dynamic.strings - part.p_vaddr < part.p_filesz;
    });
    if (!index || at == loaded.end()) {
        return out;
    }
    out.before_environment = !dynamic.run_path;
    const std::filesystem::path origin = file.parent_path();
    for (const std::string& folder :
         split(elf.text(at->p_offset + (dynamic.strings - at->p_vaddr) + *index), ':')) {
        if (!folder.empty()) {
            out.folders.push_back(with_origin(folder, origin));
        }
    }
    return out;
}

}  // namespace lockstep
