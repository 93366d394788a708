//! Values as Thrift's binary protocol carries them. The protocol is the `thrift` crate's; what stands here are the types of
//! Pegasus' interface, some of which no generated code could read: they are declared as structs and written raw.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use thrift::TConfiguration;
use thrift::protocol::{
    TBinaryInputProtocol, TBinaryOutputProtocol, TFieldIdentifier, TInputProtocol, TListIdentifier, TMapIdentifier,
    TOutputProtocol, TSetIdentifier, TType,
};

pub(crate) type Input<'a> = TBinaryInputProtocol<&'a [u8]>;
pub(crate) type Output<'a> = TBinaryOutputProtocol<&'a mut Vec<u8>>;

/// Reads from `bytes`, believing no length that is larger than they are.
pub(crate) fn input(bytes: &[u8]) -> Input<'_> {
    let most = Some(bytes.len());
    let config = TConfiguration::builder().max_string_size(most).max_container_size(most).build();
    TBinaryInputProtocol::with_config(bytes, true, config.expect("these limits fit together"))
}

pub(crate) fn output(bytes: &mut Vec<u8>) -> Output<'_> {
    TBinaryOutputProtocol::new(bytes, true)
}

/// A value of a field, a list or a map.
pub(crate) trait Wire: Sized {
    const TYPE: TType;

    fn read(input: &mut Input<'_>) -> thrift::Result<Self>;

    /// Writing to memory does not fail.
    fn write(&self, output: &mut Output<'_>) -> thrift::Result<()>;

    /// Whether a field with this value is sent at all.
    fn is_present(&self) -> bool {
        true
    }
}

macro_rules! plain {
    ($type:ty, $wire:ident, $read:ident, $write:ident) => {
        impl Wire for $type {
            const TYPE: TType = TType::$wire;

            fn read(input: &mut Input<'_>) -> thrift::Result<Self> {
                input.$read()
            }

            fn write(&self, output: &mut Output<'_>) -> thrift::Result<()> {
                output.$write(*self)
            }
        }
    };
}

plain!(bool, Bool, read_bool, write_bool);
plain!(i8, I08, read_i8, write_i8);
plain!(i32, I32, read_i32, write_i32);
plain!(i64, I64, read_i64, write_i64);

impl Wire for String {
    const TYPE: TType = TType::String;

    fn read(input: &mut Input<'_>) -> thrift::Result<Self> {
        input.read_string()
    }

    fn write(&self, output: &mut Output<'_>) -> thrift::Result<()> {
        output.write_string(self)
    }
}

/// Text that many responses have.
pub(crate) type Shared = Arc<str>;

impl Wire for Shared {
    const TYPE: TType = TType::String;

    fn read(input: &mut Input<'_>) -> thrift::Result<Self> {
        input.read_string().map(Into::into)
    }

    fn write(&self, output: &mut Output<'_>) -> thrift::Result<()> {
        output.write_string(self)
    }
}

impl<T: Wire> Wire for Option<T> {
    const TYPE: TType = T::TYPE;

    fn read(input: &mut Input<'_>) -> thrift::Result<Self> {
        T::read(input).map(Some)
    }

    fn write(&self, output: &mut Output<'_>) -> thrift::Result<()> {
        self.as_ref().map_or(Ok(()), |value| value.write(output))
    }

    fn is_present(&self) -> bool {
        self.is_some()
    }
}

/// The elements of a list or a set, whose head was read.
fn read_elements<T: Wire, C: FromIterator<T>>(
    input: &mut Input<'_>,
    kind: &str,
    element_type: TType,
    size: i32,
) -> thrift::Result<C> {
    // Some clients write the type of an empty list as they like.
    if size > 0 && element_type != T::TYPE {
        return Err(format!("a {kind} of {element_type:?}, where {:?} belongs", T::TYPE).into());
    }
    (0..size).map(|_| T::read(input)).collect()
}

impl<T: Wire> Wire for Vec<T> {
    const TYPE: TType = TType::List;

    fn read(input: &mut Input<'_>) -> thrift::Result<Self> {
        let TListIdentifier { element_type, size } = input.read_list_begin()?;
        read_elements(input, "list", element_type, size)
    }

    fn write(&self, output: &mut Output<'_>) -> thrift::Result<()> {
        output.write_list_begin(&TListIdentifier::new(T::TYPE, size(self.len())?))?;
        self.iter().try_for_each(|value| value.write(output))
    }
}

impl<K: Wire + Ord, V: Wire> Wire for BTreeMap<K, V> {
    const TYPE: TType = TType::Map;

    fn read(input: &mut Input<'_>) -> thrift::Result<Self> {
        let TMapIdentifier { key_type, value_type, size } = input.read_map_begin()?;
        if size > 0 && (key_type, value_type) != (Some(K::TYPE), Some(V::TYPE)) {
            return Err(format!("a map of {key_type:?} to {value_type:?}, where another one belongs").into());
        }
        (0..size).map(|_| Ok((K::read(input)?, V::read(input)?))).collect()
    }

    fn write(&self, output: &mut Output<'_>) -> thrift::Result<()> {
        output.write_map_begin(&TMapIdentifier::new(K::TYPE, V::TYPE, size(self.len())?))?;
        self.iter().try_for_each(|(key, value)| {
            key.write(output)?;
            value.write(output)
        })
    }
}

impl<T: Wire + Ord> Wire for BTreeSet<T> {
    const TYPE: TType = TType::Set;

    fn read(input: &mut Input<'_>) -> thrift::Result<Self> {
        let TSetIdentifier { element_type, size } = input.read_set_begin()?;
        read_elements(input, "set", element_type, size)
    }

    fn write(&self, output: &mut Output<'_>) -> thrift::Result<()> {
        output.write_set_begin(&TSetIdentifier::new(T::TYPE, size(self.len())?))?;
        self.iter().try_for_each(|value| value.write(output))
    }
}

fn size(length: usize) -> thrift::Result<i32> {
    i32::try_from(length).map_err(|_| "more elements than a container can have".into())
}

/// A type that is declared as a struct and written as its only content.
macro_rules! raw {
    ($(#[$doc:meta])* $name:ident($content:ty), $read:ident, $write:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) struct $name(pub(crate) $content);

        impl Wire for $name {
            const TYPE: TType = TType::Struct;

            fn read(input: &mut Input<'_>) -> thrift::Result<Self> {
                input.$read().map(Self)
            }

            fn write(&self, output: &mut Output<'_>) -> thrift::Result<()> {
                output.$write(raw!(@borrow $write self.0))
            }
        }
    };
    (@borrow write_i64 $value:expr) => { $value };
    (@borrow $write:ident $value:expr) => { &$value };
}

raw!(
    /// Bytes.
    Blob(Vec<u8>), read_bytes, write_bytes
);
raw!(
    /// The name of an error, `ERR_OK` for none.
    ErrorCode(String), read_string, write_string
);
raw!(
    /// A partition: the table's number in the low half, the partition's in the high one.
    Gpid(i64), read_i64, write_i64
);
raw!(
    /// An IPv4 address and port; zero is none.
    Address(i64), read_i64, write_i64
);

impl Gpid {
    pub(crate) fn new(table: i32, partition: i32) -> Self {
        Self(i64::from(partition) << 32 | i64::from(table.cast_unsigned()))
    }

    /// The table's number and the partition's.
    pub(crate) fn parts(&self) -> (u32, u32) {
        let bits = self.0.cast_unsigned();
        // Each half is one of them.
        (bits as u32, (bits >> 32) as u32)
    }
}

impl Address {
    /// An address in the form `HOST:PORT`; none for a host that is no IPv4 address, since the type has no room for others.
    pub(crate) fn parse(address: &str) -> Self {
        let Ok(std::net::SocketAddr::V4(address)) = address.parse::<std::net::SocketAddr>() else {
            return Self::default();
        };
        Self(i64::from(u32::from(*address.ip())) << 32 | i64::from(address.port()) << 16 | 1)
    }
}

/// Reads the fields of a struct; `read` returns whether it knew the field.
pub(crate) fn read_fields(
    input: &mut Input<'_>,
    mut read: impl FnMut(&mut Input<'_>, i16, TType) -> thrift::Result<bool>,
) -> thrift::Result<()> {
    input.read_struct_begin()?;
    loop {
        let TFieldIdentifier { field_type, id, .. } = input.read_field_begin()?;
        if field_type == TType::Stop {
            return input.read_struct_end();
        }
        if !read(input, id.unwrap_or_default(), field_type)? {
            input.skip(field_type)?;
        }
    }
}

pub(crate) fn write_field<T: Wire>(output: &mut Output<'_>, id: i16, value: &T) -> thrift::Result<()> {
    if !value.is_present() {
        return Ok(());
    }
    output.write_field_begin(&TFieldIdentifier::new::<Option<String>, String, i16>(None, T::TYPE, id))?;
    value.write(output)
}

/// A struct of the interface: its fields with their numbers. Fields that do not come have their default, those that are
/// not known are skipped.
macro_rules! record {
    ($($(#[$doc:meta])* $name:ident { $($id:literal: $field:ident: $type:ty),* $(,)? })*) => { $(
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub(crate) struct $name { $(pub(crate) $field: $type),* }

        impl $crate::wire::Wire for $name {
            const TYPE: thrift::protocol::TType = thrift::protocol::TType::Struct;

            #[allow(unused_mut, unused_variables)] // of a struct without fields
            fn read(input: &mut $crate::wire::Input<'_>) -> thrift::Result<Self> {
                let mut record = Self::default();
                $crate::wire::read_fields(input, |input, id, field_type| {
                    $(if id == $id && field_type == <$type as $crate::wire::Wire>::TYPE {
                        record.$field = $crate::wire::Wire::read(input)?;
                        return Ok(true);
                    })*
                    Ok(false)
                })?;
                Ok(record)
            }

            fn write(&self, output: &mut $crate::wire::Output<'_>) -> thrift::Result<()> {
                $($crate::wire::write_field(output, $id, &self.$field)?;)*
                thrift::protocol::TOutputProtocol::write_field_stop(output)
            }
        }
    )* };
}
pub(crate) use record;

#[cfg(test)]
mod tests {
    use super::*;

    record! {
        Everything {
            1: flag: bool, 2: number: i32, 3: long: i64, 4: text: String, 5: bytes: Blob, 6: maybe: Option<Blob>,
            7: list: Vec<Blob>, 8: map: BTreeMap<String, String>, 9: inner: Inner, 10: whose: Gpid,
            11: sets: BTreeMap<i32, BTreeSet<Gpid>>,
        }
        Inner { 1: error: ErrorCode, 2: at: Address }
        Older { 2: number: i32, 11: newer: Option<i32> }
    }

    fn everything() -> Everything {
        Everything {
            flag: true,
            number: -5,
            long: i64::MIN,
            text: "text".into(),
            bytes: Blob(vec![0, 1, 2]),
            maybe: None,
            list: vec![Blob(b"a".to_vec()), Blob(Vec::new())],
            map: BTreeMap::from([("key".into(), "value".into())]),
            inner: Inner { error: ErrorCode("ERR_OK".into()), at: Address::parse("127.0.0.1:34801") },
            whose: Gpid::new(7, 3),
            sets: BTreeMap::from([(7, BTreeSet::from([Gpid::new(7, 0), Gpid::new(7, 1)])), (8, BTreeSet::new())]),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let mut bytes = Vec::new();
        everything().write(&mut output(&mut bytes)).unwrap();
        assert_eq!(Everything::read(&mut input(&bytes)).unwrap(), everything());
        for cut in 0..bytes.len() {
            assert!(Everything::read(&mut input(&bytes[..cut])).is_err(), "{cut} bytes");
        }
    }

    #[test]
    fn unknown_fields_are_skipped_and_missing_ones_are_default() {
        let mut bytes = Vec::new();
        let (mut plain, nothing) = (everything(), Everything::default());
        // Raw types cannot be skipped by those who do not know them.
        (plain.bytes, plain.list, plain.inner, plain.whose) = (nothing.bytes, Vec::new(), nothing.inner, nothing.whose);
        let mut out = output(&mut bytes);
        write_field(&mut out, 1, &plain.flag).unwrap();
        write_field(&mut out, 2, &plain.number).unwrap();
        write_field(&mut out, 8, &plain.map).unwrap();
        out.write_field_stop().unwrap();
        assert_eq!(Older::read(&mut input(&bytes)).unwrap(), Older { number: -5, newer: None });
    }

    #[test]
    fn addresses_and_partitions_have_the_layout_of_pegasus() {
        assert_eq!(Address::parse("127.0.0.1:34601").0, 0x7f00_0001_8729_0001);
        assert_eq!(Address::parse("[::1]:34601"), Address(0));
        assert_eq!(Gpid::new(2, 5).0, 0x5_0000_0002);
    }
}
