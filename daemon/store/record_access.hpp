// What each type that reads and writes a group of tables has: the connection of the Database it was
// made from. Such a type keeps nothing else: make one where it is used, `TokenRecords{db}.all()`.
// Its thread and its transaction are the Database's, and it must not outlive it. Errors: as
// database.hpp says.
#pragma once

namespace lockstep {

class Database;
struct StoreConnection;

class RecordAccess {
  public:
    explicit RecordAccess(Database& database);
    explicit RecordAccess(StoreConnection& connection) : connection_(connection) {}

  protected:
    StoreConnection& connection_;
};

}  // namespace lockstep
