#include "daemon/store/secret_store.hpp"

#include "job/async/on_thread.hpp"
#include "job/base/files.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/unique_fd.hpp"
#include "job/model/spec/spec_secrets.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <utility>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kHex = "0123456789ABCDEF";

bool stays(char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_' ||
           c == '@' || c == '-' || c == '.';
}

// Nothing: it is no name that secret_folder_name() makes.
std::optional<std::string> user_of_folder(const std::string& name) {
    std::string out;
    for (std::size_t i = 0; i < name.size(); ++i) {
        if (name[i] != '%') {
            out += name[i];
            continue;
        }
        const std::string digits = name.substr(i + 1, 2);
        if (digits.size() < 2 || kHex.find(digits[0]) == std::string_view::npos ||
            kHex.find(digits[1]) == std::string_view::npos) {
            return std::nullopt;
        }
        out += static_cast<char>(kHex.find(digits[0]) * kHex.size() + kHex.find(digits[1]));
        i += 2;
    }
    return secret_folder_name(out) == name ? std::optional{out} : std::nullopt;
}

Status sync_folder(const fs::path& folder) {
    const UniqueFd fd{::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    if (!fd || ::fsync(fd.get()) != 0) {
        return fail(errno_error("sync " + folder.string(), errno));
    }
    return {};
}

Result<UnixMillis> time_of(const fs::path& file) {
    struct stat info{};
    if (::stat(file.c_str(), &info) != 0) {
        return fail(errno_error("stat " + file.string(), errno));
    }
    return UnixMillis{info.st_mtim.tv_sec} * 1000 + info.st_mtim.tv_nsec / 1'000'000;
}

Result<UnixMillis> write_secret(const fs::path& file, const std::string& value) {
    LOCKSTEP_TRY(make_private_directories(file.parent_path()));
    LOCKSTEP_TRY(write_file_atomic(file, value, 0600));
    // Its folder may be new, and that of all.
    const fs::path all = file.parent_path().parent_path();
    for (const fs::path& folder : {all, all.parent_path()}) {
        LOCKSTEP_TRY(sync_folder(folder));
    }
    return time_of(file);
}

Status remove_secret(const fs::path& file) {
    if (::unlink(file.c_str()) != 0 && errno != ENOENT) {
        return fail(errno_error("remove " + file.string(), errno));
    }
    if (::rmdir(file.parent_path().c_str()) == 0) {  // with its last one
        return sync_folder(file.parent_path().parent_path());
    }
    return sync_folder(file.parent_path());
}

}  // namespace

std::string secret_folder_name(std::string_view user) {
    std::string out;
    for (const char c : user) {
        if (stays(c) && !(c == '.' && out.empty())) {
            out += c;
        } else {
            const auto byte = static_cast<unsigned char>(c);
            out += '%';
            out += kHex[byte >> 4U];
            out += kHex[byte & 0xFU];
        }
    }
    return out;
}

void SecretStore::load() {
    std::error_code ec;
    for (const auto& entry : fs::directory_iterator{folder_, ec}) {
        load_user(entry.path());
    }
    if (ec && ec != std::errc::no_such_file_or_directory) {
        log::error("cannot read the secrets", {{"what", ec.message()}});
    }
}

void SecretStore::load_user(const fs::path& folder) {
    const auto user = user_of_folder(folder.filename().string());
    std::error_code ec;
    if (!user || !fs::is_directory(fs::symlink_status(folder, ec))) {
        log::warn("not a user's secrets", {{"folder", folder.string()}});
        return;
    }
    for (const auto& entry : fs::directory_iterator{folder, ec}) {
        const std::string name = entry.path().filename().string();
        if (!check_secret_name(name)) {
            std::error_code ignored;
            if (name.find(".tmp.") != std::string::npos) {  // of a write that a crash has cut short
                fs::remove(entry.path(), ignored);
            }
            continue;
        }
        auto value = read_plain_file(entry.path(), limits::kSecretBytes);
        const auto set_at = time_of(entry.path());
        if (!value || !set_at) {
            log::error("a secret does not read",
                       {{"user", *user},
                        {"name", name},
                        {"what", !value ? value.error().message : set_at.error().message}});
            continue;
        }
        bytes_ += value->size();
        keep(*user, name, {std::move(*value), *set_at});
    }
}

const SecretStore::Kept* SecretStore::find(const std::string& user, const std::string& name) const {
    const auto of_user = users_.find(user);
    if (of_user == users_.end()) {
        return nullptr;
    }
    const auto found = of_user->second.find(name);
    return found == of_user->second.end() ? nullptr : &found->second;
}

void SecretStore::keep(const std::string& user, const std::string& name, Kept kept) {
    users_[user][name] = std::move(kept);
}

void SecretStore::drop(const std::string& user, const std::string& name) {
    const auto of_user = users_.find(user);
    const auto found = of_user->second.find(name);
    bytes_ -= found->second.value.size();
    of_user->second.erase(found);
    if (of_user->second.empty()) {
        users_.erase(of_user);
    }
}

Status SecretStore::room_for(const std::string& user, const std::string& name,
                             std::size_t bytes) const {
    std::size_t count = 0;
    std::size_t sum = 0;
    if (const auto of_user = users_.find(user); of_user != users_.end()) {
        for (const auto& [known, kept] : of_user->second) {
            count += known == name ? 0 : 1;
            sum += known == name ? 0 : kept.value.size();
        }
    }
    if (const auto now = writing_.find(user); now != writing_.end()) {
        count += now->second.secrets;
        sum += now->second.bytes;
    }
    if (count >= limits::kSecretsOfUser) {
        return fail(Errc::conflict, "limit: " + user + " has " + std::to_string(count) +
                                        " secrets; remove those that no job uses");
    }
    if (sum + bytes > limits::kSecretBytesOfUser) {
        return fail(Errc::conflict, "limit: the secrets of " + user + " would take more than " +
                                        std::to_string(limits::kSecretBytesOfUser >> 10U) + " KiB");
    }
    if (bytes_ + bytes > limits::kSecretBytesOfAll) {
        return fail(Errc::conflict, "limit: the secrets of all users would take more than " +
                                        std::to_string(limits::kSecretBytesOfAll >> 20U) + " MiB");
    }
    return {};
}

Task<Result<SecretStore::About>> SecretStore::put(std::string user, std::string name,
                                                  std::string value) {
    LOCKSTEP_CO_TRY(room_for(user, name, value.size()));
    const std::size_t size = value.size();
    Written& writing = writing_[user];
    ++writing.secrets;
    writing.bytes += size;
    bytes_ += size;
    const std::function<Result<UnixMillis>()> write = [file = folder_ / secret_folder_name(user) /
                                                              name,
                                                       value] { return write_secret(file, value); };
    const auto set_at = co_await on_thread<Result<UnixMillis>>(files_, write);
    const auto written = writing_.find(user);
    written->second.bytes -= size;
    if (--written->second.secrets == 0) {
        writing_.erase(written);
    }
    if (!set_at) {
        bytes_ -= size;
        co_return fail(set_at.error().in("the secret cannot be kept"));
    }
    if (const Kept* before = find(user, name)) {
        bytes_ -= before->value.size();
    }
    About out{name, *set_at};
    keep(user, name, {std::move(value), *set_at});
    co_return out;
}

Task<Status> SecretStore::remove(std::string user, std::string name) {
    if (find(user, name) == nullptr) {
        co_return fail(Errc::not_found, "you have no secret " + name);
    }
    const std::function<Status()> work = [file = folder_ / secret_folder_name(user) / name] {
        return remove_secret(file);
    };
    const Status removed = co_await on_thread<Status>(files_, work);
    if (removed && find(user, name) != nullptr) {
        drop(user, name);
    }
    co_return removed;
}

std::vector<SecretStore::About> SecretStore::list(const std::string& user) const {
    std::vector<About> out;
    if (const auto of_user = users_.find(user); of_user != users_.end()) {
        for (const auto& [name, kept] : of_user->second) {
            out.push_back({name, kept.set_at});
        }
    }
    return out;
}

std::vector<std::string> SecretStore::missing(const std::string& user,
                                              const std::vector<std::string>& names) const {
    std::vector<std::string> out;
    for (const std::string& name : names) {
        if (find(user, name) == nullptr) {
            out.push_back(name);
        }
    }
    return out;
}

SecretStore::Values SecretStore::values(const std::string& user,
                                        const std::vector<std::string>& names) const {
    Values out;
    for (const std::string& name : names) {
        if (const Kept* kept = find(user, name)) {
            out.emplace(name, kept->value);
        }
    }
    return out;
}

}  // namespace lockstep
