//! Where the next page of a scan begins: behind a key of the space that the scan reads. The space is told beside the key, since an index
//! of the same name may be another one by then, whose keys have another order.

use crate::tables::damaged;
use bytes::Bytes;
use tessera_reql::{Error, Position, Result, Scan, TableInfo};
use tessera_types::Space;

/// The position behind a key.
pub(crate) fn behind(space: Space, key: &[u8]) -> Position {
    Position([&space.0.to_le_bytes(), key].concat())
}

/// The key behind which a scan that reads this space goes on.
///
/// # Errors
/// If the pages before were of another space.
pub(crate) fn key_before(space: Space, info: &TableInfo, scan: &Scan) -> Result<Option<Bytes>> {
    let Some(Position(bytes)) = &scan.after else { return Ok(None) };
    let (number, key) = bytes.split_first_chunk::<4>().ok_or_else(damaged)?;
    check(Space(u32::from_le_bytes(*number)), space, info, scan)?;
    Ok(Some(Bytes::copy_from_slice(key)))
}

/// # Errors
/// If a scan that has read one space is to go on in another one.
pub(crate) fn check(before: Space, now: Space, info: &TableInfo, scan: &Scan) -> Result<()> {
    if before == now {
        return Ok(());
    }
    Err(Error::failed(format!(
        "Index `{}` on table `{}` was replaced by another one while it was read; run the query again.",
        scan.index.as_deref().unwrap_or_default(),
        info.full_name()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tessera_reql::{DatabaseInfo, KeyRange, Order, ReadMode};

    #[test]
    fn a_scan_does_not_go_on_in_another_index_of_the_same_name() {
        let database = DatabaseInfo { id: String::new(), name: "test".into() };
        let info = TableInfo { id: String::new(), name: "t".into(), database, primary_key: "id".into() };
        let mut scan = Scan {
            index: Some("a".into()),
            range: KeyRange::ALL,
            cells: None,
            order: Order::Ascending,
            after: None,
            limit: 1,
            reads: ReadMode::Single,
        };
        assert_eq!(key_before(Space(7), &info, &scan).unwrap(), None);
        scan.after = Some(behind(Space(7), b"key"));
        assert_eq!(key_before(Space(7), &info, &scan).unwrap().unwrap(), b"key"[..]);
        let error = key_before(Space(8), &info, &scan).unwrap_err();
        assert_eq!(error.kind(), tessera_reql::ErrorKind::OpFailed);
        assert!(error.message().contains("Index `a` on table `test.t` was replaced"), "{error}");
    }
}
