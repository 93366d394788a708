//! Fields of work and of replies: texts of bytes follow their `u32` length; numbers are little-endian.

use bytes::{Buf as _, BufMut as _, Bytes};

pub(crate) fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.put_u32_le(u32::try_from(bytes.len()).expect("values are shorter than 4 GiB"));
    out.put_slice(bytes);
}

pub(crate) fn put_option(out: &mut Vec<u8>, bytes: Option<&Bytes>) {
    out.put_u8(u8::from(bytes.is_some()));
    bytes.inspect(|bytes| put(out, bytes));
}

pub(crate) fn take(input: &mut Bytes) -> Option<Bytes> {
    let length = input.try_get_u32_le().ok()? as usize;
    (length <= input.len()).then(|| input.split_to(length))
}

pub(crate) fn take_option(input: &mut Bytes) -> Option<Option<Bytes>> {
    if input.try_get_u8().ok()? == 0 { Some(None) } else { take(input).map(Some) }
}
