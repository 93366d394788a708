//! Writes, evaluated by their partition's loop.

use super::messages::{
    CheckAndMutateRequest, CheckAndSetRequest, CheckResponse, IncrRequest, IncrResponse, MultiPutRequest,
    MultiRemoveRequest, MultiRemoveResponse, Mutation, UpdateResponse,
};
use super::{Response, Write};
use crate::conditions::{self, Check};
use crate::status::{INVALID_ARGUMENT, OK, TRY_AGAIN};
use crate::stored_key;
use crate::wire::Blob;
use tessera_store::Transaction;
use tessera_types::{Expiry, RequestError, ValueKind};

/// Operations of CHECK_AND_MUTATE.
const PUT: i32 = 0;
const DELETE: i32 = 1;

/// Carries out a write. What it wrote counts if the response says [`OK`].
///
/// # Errors
/// A limit, or what the store reports.
pub(crate) fn run(write: &Write, transaction: &mut Transaction<'_>) -> Result<Response, RequestError> {
    let invalid = || Response::write_failed(write, INVALID_ARGUMENT);
    match write {
        Write::Put(request) => {
            let Some((hash_key, sort_key)) = stored_key::split(&request.key.0) else { return Ok(invalid()) };
            put(transaction, hash_key, sort_key, &request.value.0, request.expire_ts)?;
            Ok(updated())
        }
        Write::Remove(key) => {
            let Some((hash_key, sort_key)) = stored_key::split(&key.0) else { return Ok(invalid()) };
            transaction.delete(hash_key, sort_key)?;
            Ok(updated())
        }
        Write::MultiPut(MultiPutRequest { hash_key: Blob(hash_key), records, expire_ts }) => {
            if hash_key.is_empty() || records.is_empty() {
                return Ok(invalid());
            }
            records
                .iter()
                .try_for_each(|record| put(transaction, hash_key, &record.key.0, &record.value.0, *expire_ts))?;
            Ok(updated())
        }
        Write::MultiRemove(MultiRemoveRequest { hash_key: Blob(hash_key), sort_keys, .. }) => {
            if hash_key.is_empty() || sort_keys.is_empty() {
                return Ok(invalid());
            }
            sort_keys.iter().try_for_each(|sort_key| transaction.delete(hash_key, &sort_key.0))?;
            let count = i64::try_from(sort_keys.len()).unwrap_or(i64::MAX);
            Ok(Response::MultiRemove(MultiRemoveResponse { error: OK, count, ..Default::default() }))
        }
        Write::Incr(request) => incr(request, transaction),
        Write::CheckAndSet(request) => check_and_set(request, transaction),
        Write::CheckAndMutate(request) => check_and_mutate(request, transaction),
    }
}

fn updated() -> Response {
    Response::Update(UpdateResponse { error: OK, ..Default::default() })
}

/// Puts a record; without an `expire_ts` it gets the table's default time to live.
fn put(
    transaction: &mut Transaction<'_>,
    hash_key: &[u8],
    sort_key: &[u8],
    value: &[u8],
    expire_ts: i32,
) -> Result<(), RequestError> {
    let expiry = match (expire_ts, transaction.default_expiry()) {
        (0, default) if sort_key.is_empty() => default,
        (0, default) => Expiry { key: None, record: default.key },
        (expire_ts, _) => stored_key::expiry(expire_ts, sort_key),
    };
    transaction.put(hash_key, sort_key, value, expiry, ValueKind::Plain)
}

fn incr(request: &IncrRequest, transaction: &mut Transaction<'_>) -> Result<Response, RequestError> {
    let answer = |error, new_value| Ok(Response::Incr(IncrResponse { error, new_value, ..Default::default() }));
    let Some((hash_key, sort_key)) = stored_key::split(&request.key.0) else { return answer(INVALID_ARGUMENT, 0) };
    let record = transaction.get(hash_key, sort_key)?;
    let old = match record.as_ref().map(|record| &record.value[..]) {
        None | Some([]) => 0,
        Some(text) => match conditions::integer(text) {
            Some(old) => old,
            None => return answer(INVALID_ARGUMENT, 0),
        },
    };
    let Some(new) = old.checked_add(request.increment) else { return answer(INVALID_ARGUMENT, old) };
    let kept = record.filter(|_| request.expire_ts == 0).map(|record| record.expiry);
    match kept {
        Some(expiry) if expiry != Expiry::NEVER => {
            transaction.put(hash_key, sort_key, new.to_string().as_bytes(), expiry, ValueKind::Plain)?;
        }
        _ if request.expire_ts < 0 => {
            transaction.put(hash_key, sort_key, new.to_string().as_bytes(), Expiry::NEVER, ValueKind::Plain)?;
        }
        _ => put(transaction, hash_key, sort_key, new.to_string().as_bytes(), request.expire_ts)?,
    }
    answer(OK, new)
}

/// Makes the check of a conditional write, and says what was under the checked key if that was asked.
fn check(
    transaction: &Transaction<'_>,
    hash_key: &[u8],
    sort_key: &[u8],
    (check_type, operand): (i32, &[u8]),
    wants_value: bool,
) -> Result<CheckResponse, RequestError> {
    let value = transaction.get(hash_key, sort_key)?.map(|record| record.value);
    let error = match conditions::check(check_type, value.as_deref(), operand) {
        Check::Passed => OK,
        Check::Failed => TRY_AGAIN,
        Check::Invalid => INVALID_ARGUMENT,
    };
    let mut response = CheckResponse { error, ..Default::default() };
    if wants_value {
        response.has_check_value = true;
        response.check_value_exists = value.is_some();
        response.check_value = Blob(value.unwrap_or_default().to_vec());
    }
    Ok(response)
}

fn check_and_set(request: &CheckAndSetRequest, transaction: &mut Transaction<'_>) -> Result<Response, RequestError> {
    let CheckAndSetRequest { hash_key: Blob(hash_key), check_sort_key, check_type, operand, .. } = request;
    if hash_key.is_empty() {
        return Ok(Response::Check(CheckResponse { error: INVALID_ARGUMENT, ..Default::default() }));
    }
    let condition = (*check_type, &operand.0[..]);
    let response = check(transaction, hash_key, &check_sort_key.0, condition, request.wants_check_value)?;
    if response.error == OK {
        let sort_key = if request.sets_other_sort_key { &request.set_sort_key } else { check_sort_key };
        put(transaction, hash_key, &sort_key.0, &request.set_value.0, request.set_expire_ts)?;
    }
    Ok(Response::Check(response))
}

fn check_and_mutate(
    request: &CheckAndMutateRequest,
    transaction: &mut Transaction<'_>,
) -> Result<Response, RequestError> {
    let CheckAndMutateRequest { hash_key: Blob(hash_key), check_sort_key, check_type, operand, mutations, .. } =
        request;
    let is_known = |mutation: &Mutation| matches!(mutation.operation, PUT | DELETE);
    if hash_key.is_empty() || mutations.is_empty() || !mutations.iter().all(is_known) {
        return Ok(Response::Check(CheckResponse { error: INVALID_ARGUMENT, ..Default::default() }));
    }
    let condition = (*check_type, &operand.0[..]);
    let response = check(transaction, hash_key, &check_sort_key.0, condition, request.wants_check_value)?;
    if response.error == OK {
        for Mutation { operation, sort_key: Blob(sort_key), value, expire_ts } in mutations {
            match *operation {
                PUT => put(transaction, hash_key, sort_key, &value.0, *expire_ts)?,
                _ => transaction.delete(hash_key, sort_key)?,
            }
        }
    }
    Ok(Response::Check(response))
}
