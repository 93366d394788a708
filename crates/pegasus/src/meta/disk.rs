//! The disk of a node, which has one data directory, in the words of Pegasus, whose servers may have several.

use super::messages::{DiskInfo, QueryDiskRequest, QueryDiskResponse};
use super::outcome::OK;
use super::replicas_here;
use crate::server::PegasusServer;
use crate::wire::{ErrorCode, Gpid};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// What operators call the disk.
const TAG: &str = "data";

const MEGABYTE: u64 = 1 << 20;

/// The space of a file system, in mebibytes.
#[derive(Clone, Copy)]
pub(super) struct Space {
    /// At least one: tools divide by it.
    pub(super) capacity: u64,
    /// For those who have no special rights.
    pub(super) available: u64,
}

pub(super) fn space(directory: &Path) -> std::io::Result<Space> {
    let found = rustix::fs::statvfs(directory)?;
    let megabytes = |blocks: u64| blocks.saturating_mul(found.f_frsize) / MEGABYTE;
    Ok(Space { capacity: megabytes(found.f_blocks).max(1), available: megabytes(found.f_bavail) })
}

/// Partitions by the number of their table.
type Partitions = BTreeMap<i32, BTreeSet<Gpid>>;

/// The disk, and the replicas on it: of a table if one is named, else all.
pub(super) async fn query(server: &PegasusServer, request: QueryDiskRequest) -> QueryDiskResponse {
    let failed = |error: &str| QueryDiskResponse { error: ErrorCode(error.into()), ..Default::default() };
    let name = Some(request.table).filter(|name| !name.is_empty());
    let number = match &name {
        Some(name) => match server.store.find_table(|store| store.table_named(name)).await {
            Some(table) => Some(table.number()),
            None => return failed("ERR_OBJECT_NOT_FOUND"),
        },
        None => None,
    };
    let directory = &server.config.data_directory;
    let space = match space(directory) {
        Ok(space) => space,
        Err(error) => {
            tracing::warn!(%error, directory = %directory.display(), "the space of the disk could not be asked for");
            return failed("ERR_FILE_OPERATION_FAILED");
        }
    };
    let (mut primaries, mut secondaries) = (Partitions::new(), Partitions::new());
    for replica in replicas_here::all(server) {
        let its_number = replica.table.number();
        if number.is_none_or(|number| number == its_number) {
            let kind = if replica.leads() { &mut primaries } else { &mut secondaries };
            kind.entry(super::routing::id(its_number.0)).or_default().insert(replica.gpid());
        }
    }
    let megabytes = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let (capacity, available) = (megabytes(space.capacity), megabytes(space.available));
    let (tag, directory) = (TAG.into(), directory.display().to_string());
    let disk = DiskInfo { tag, directory, capacity, available, primaries, secondaries };
    QueryDiskResponse { error: ErrorCode(OK.into()), capacity, available, disks: vec![disk] }
}
