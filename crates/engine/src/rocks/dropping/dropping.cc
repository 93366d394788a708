// What RocksDB does not offer by its C interface: to drop all files of a column family, those of level 0 too, although somebody has a
// handle of it. mod.rs beside this says what for.

#include <cstdint>
#include <memory>
#include <vector>

#include "db/column_family.h"
#include "db/db_impl/db_impl.h"
#include "db/job_context.h"
#include "db/version_edit.h"
#include "db/version_set.h"
#include "monitoring/instrumented_mutex.h"
#include "rocksdb/file_system.h"

// As RocksDB's db/c.cc has it.
struct rocksdb_column_family_handle_t {
  ROCKSDB_NAMESPACE::ColumnFamilyHandle* rep;
  bool immortal;
};

namespace {

using ROCKSDB_NAMESPACE::ColumnFamilyData;
using ROCKSDB_NAMESPACE::ColumnFamilyHandleImpl;
using ROCKSDB_NAMESPACE::DBImpl;
using ROCKSDB_NAMESPACE::FileMetaData;
using ROCKSDB_NAMESPACE::FSDirectory;
using ROCKSDB_NAMESPACE::InstrumentedMutexLock;
using ROCKSDB_NAMESPACE::IOOptions;
using ROCKSDB_NAMESPACE::JobContext;
using ROCKSDB_NAMESPACE::ReadOptions;
using ROCKSDB_NAMESPACE::Status;
using ROCKSDB_NAMESPACE::Version;
using ROCKSDB_NAMESPACE::VersionEdit;
using ROCKSDB_NAMESPACE::WriteOptions;

}  // namespace

// Drops all files of a column family by one edit of the manifest, as DeleteFilesInRange does, and deletes those that no iterator reads.
// Returns how many are left because compactions read them, or -1 if the manifest could not be written.
extern "C" int64_t tessera_drop_files(rocksdb_column_family_handle_t* handle) {
  auto* family = static_cast<ColumnFamilyHandleImpl*>(handle->rep);
  DBImpl* db = family->db();
  ColumnFamilyData* data = family->cfd();
  std::unique_ptr<FSDirectory> directory;
  if (!db->GetFileSystem()->NewDirectory(db->GetName(), IOOptions(), &directory, nullptr).ok()) return -1;
  JobContext job(0, true);  // RocksDB's own jobs have numbers from 1 on
  int64_t left = 0;
  {
    InstrumentedMutexLock lock(db->mutex());
    Version* version = data->current();
    VersionEdit edit;
    edit.SetColumnFamily(data->GetID());
    std::vector<FileMetaData*> dropped;
    for (int level = 0; level < data->NumberLevels(); level++) {
      for (FileMetaData* file : version->storage_info()->LevelFiles(level)) {
        if (file->being_compacted) {
          left++;
          continue;
        }
        edit.DeleteFile(level, file->fd.GetNumber());
        file->being_compacted = true;
        dropped.push_back(file);
      }
    }
    if (!dropped.empty()) {
      version->Ref();
      const Status status =
          db->GetVersionSet()->LogAndApply(data, ReadOptions(), WriteOptions(), &edit, db->mutex(), directory.get());
      if (status.ok()) data->InstallSuperVersion(job.superversion_contexts.data(), db->mutex());
      for (FileMetaData* file : dropped) file->being_compacted = false;
      version->Unref();
      if (!status.ok()) left = -1;
    }
    db->FindObsoleteFiles(&job, false);
  }
  if (job.HaveSomethingToDelete()) db->PurgeObsoleteFiles(job);
  job.Clean();
  return left;
}
