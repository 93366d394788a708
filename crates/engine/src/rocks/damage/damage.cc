// What RocksDB does not offer by its C interface: to go on after a compaction that met a damaged file, and to drop one file whatever
// its level. mod.rs beside this has the reasoning.

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "db/column_family.h"
#include "db/db_impl/db_impl.h"
#include "db/version_edit.h"
#include "db/version_set.h"
#include "monitoring/instrumented_mutex.h"
#include "rocksdb/file_system.h"
#include "rocksdb/listener.h"
#include "rocksdb/utilities/object_registry.h"

// As RocksDB's db/c.cc has it.
struct rocksdb_column_family_handle_t {
  ROCKSDB_NAMESPACE::ColumnFamilyHandle* rep;
  bool immortal;
};

// In mod.rs.
extern "C" void tessera_compaction_met_damage(uint64_t store, const char* text, size_t text_len, const uint64_t* inputs,
                                              size_t inputs_len);

namespace {

using ROCKSDB_NAMESPACE::BackgroundErrorReason;
using ROCKSDB_NAMESPACE::ColumnFamilyData;
using ROCKSDB_NAMESPACE::ColumnFamilyHandleImpl;
using ROCKSDB_NAMESPACE::CompactionJobInfo;
using ROCKSDB_NAMESPACE::DB;
using ROCKSDB_NAMESPACE::DBImpl;
using ROCKSDB_NAMESPACE::EventListener;
using ROCKSDB_NAMESPACE::FileMetaData;
using ROCKSDB_NAMESPACE::FSDirectory;
using ROCKSDB_NAMESPACE::InstrumentedMutexLock;
using ROCKSDB_NAMESPACE::IOOptions;
using ROCKSDB_NAMESPACE::ObjectLibrary;
using ROCKSDB_NAMESPACE::ReadOptions;
using ROCKSDB_NAMESPACE::Status;
using ROCKSDB_NAMESPACE::Version;
using ROCKSDB_NAMESPACE::VersionEdit;
using ROCKSDB_NAMESPACE::WriteOptions;

const char* const NAME = "tessera.DamageListener";
const char* const SEPARATOR = "#";

class DamageListener : public EventListener {
 public:
  explicit DamageListener(uint64_t store) : store_(store) {}

  void OnCompactionCompleted(DB*, const CompactionJobInfo& info) override {
    if (!info.status.IsCorruption()) return;
    std::vector<uint64_t> inputs;
    for (const auto& file : info.input_file_infos) inputs.push_back(file.file_number);
    const std::string text = info.status.ToString();
    tessera_compaction_met_damage(store_, text.data(), text.size(), inputs.data(), inputs.size());
  }

  // A compaction that fails has changed nothing. Whatever fails otherwise stops RocksDB as before: a flush reads no files, so what
  // is wrong then is in memory.
  void OnBackgroundError(BackgroundErrorReason reason, Status* status) override {
    if (reason == BackgroundErrorReason::kCompaction && status->IsCorruption()) *status = Status::OK();
  }

 private:
  const uint64_t store_;
};

}  // namespace

// Lets RocksDB's options name the listener of a store: its name, `#` and the store's number.
extern "C" void tessera_register_damage_listener() {
  ObjectLibrary::Default()->AddFactory<EventListener>(
      ObjectLibrary::PatternEntry(NAME, false).AddNumber(SEPARATOR),
      [](const std::string& uri, std::unique_ptr<EventListener>* made, std::string*) {
        made->reset(new DamageListener(std::stoull(uri.substr(strlen(NAME) + strlen(SEPARATOR)))));
        return made->get();
      });
}

// Drops a file of a column family, durably. Readers find it until the column family's options are set next, which makes RocksDB
// look at its files anew. Returns 0 if it is done, 1 if there is no such file, 2 if it is in use by a compaction, and 3 if the
// manifest could not be written.
extern "C" int tessera_drop_file(rocksdb_column_family_handle_t* handle, uint64_t number) {
  auto* family = static_cast<ColumnFamilyHandleImpl*>(handle->rep);
  DBImpl* db = family->db();
  ColumnFamilyData* data = family->cfd();
  std::unique_ptr<FSDirectory> directory;
  if (!db->GetFileSystem()->NewDirectory(db->GetName(), IOOptions(), &directory, nullptr).ok()) return 3;
  InstrumentedMutexLock lock(db->mutex());
  Version* version = data->current();
  FileMetaData* file = nullptr;
  int level = 0;
  for (int each = 0; each < data->NumberLevels() && file == nullptr; each++) {
    for (FileMetaData* candidate : version->storage_info()->LevelFiles(each)) {
      if (candidate->fd.GetNumber() == number) {
        file = candidate;
        level = each;
      }
    }
  }
  if (file == nullptr) return 1;
  if (file->being_compacted) return 2;
  VersionEdit edit;
  edit.SetColumnFamily(data->GetID());
  edit.DeleteFile(level, number);
  file->being_compacted = true;
  version->Ref();
  const Status status =
      db->GetVersionSet()->LogAndApply(data, ReadOptions(), WriteOptions(), &edit, db->mutex(), directory.get());
  file->being_compacted = false;
  version->Unref();
  return status.ok() ? 0 : 3;
}
