// The SQLite file: its connection and its transactions. What is in it is read and written by a type
// for each group of tables, made from the Database (record_access.hpp): job_records.hpp, and so on.
// Blocking and single-threaded: the store thread owns it (store.hpp); tests use it directly. WAL
// with synchronous=FULL: what commit() has returned for survives a power cut.
// Errors: exhausted = the disk is full, or a quota is used up: nothing of the transaction happened
// and later ones may work; corrupt or internal = the file cannot be trusted, stop the program.
#pragma once

#include "job/base/result.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

namespace lockstep {

struct StoreConnection;

class Database {
  public:
    // Opens or creates the file and migrates it. conflict: written by a newer version.
    static Result<std::unique_ptr<Database>> open(const std::filesystem::path& file);
    ~Database();
    Database(const Database&) = delete;
    Database& operator=(const Database&) = delete;

    Status begin();
    Status commit();
    void rollback();

    // Inside a transaction: writes a row that means nothing. Does writing work?
    Status touch();
    // A second connection that only reads, for another thread.
    Result<std::unique_ptr<Database>> reader();
    // The first error by which SQLite found the file damaged or could not read or write it: what is
    // on the disk is not known. Nothing: there was none. What does not decode is none.
    const std::optional<Error>& disk_error() const;
    // Tests: pages the file may have, so that a full disk can be had without one.
    Status limit_pages(std::int64_t pages);
    // For the types of this folder that read and write tables (record_access.hpp).
    StoreConnection& connection() { return *connection_; }

  private:
    explicit Database(std::unique_ptr<StoreConnection> connection);
    std::unique_ptr<StoreConnection> connection_;
};

// The version this program writes: the number of migrations it knows.
std::int32_t schema_version();
// What this program says of a file that a newer one has written.
Error newer_schema(const std::filesystem::path& file, std::int32_t version);

}  // namespace lockstep
