//! Turns the table of a Kafka message into a struct, its reader and its writer.
//!
//! One line of a table is one field: its type, then in brackets the versions that carry it and, where
//! they differ from the rule, what else is known about it:
//!
//! ```text
//! structure! {
//!     pub struct Example {
//!         partition_index: PartitionIndex [0..],
//!         leader_epoch: LeaderEpoch [7.., default LeaderEpoch::UNKNOWN],   // absent before 7: unknown
//!         operations: i32 [8..=10],                                        // only there
//!         topics: Option<Vec<Topic>> [0.., null 1..],                      // in version 0 never null
//!         endpoints: Vec<Endpoint> [10.., tag 0],                          // tagged field 0
//!     }
//! }
//! ```
//!
//! An `Option` is a field that may be null in every version that carries it, unless `null` says
//! otherwise; where null may not stand, `None` is written as the empty value. A field that a version
//! does not carry is not written and is read as its default. Tagged fields stand in the order of their
//! tags. [`message!`] adds to the same table the API, the versions spoken and the first flexible one.

use alloc::string::String;
use alloc::vec::Vec;

use crate::codec::{Reader, Writer};
use crate::error::{Fault, WireError};
use crate::ids::{
    BrokerId, LeaderEpoch, Offset, PartitionIndex, ProducerEpoch, ProducerId, TopicId,
};

/// How many elements of an array get their place in memory before they were read. Longer arrays grow.
const ELEMENTS_AHEAD_MAX: usize = 4096;

/// In which shape a field is read or written: the version of the message it stands in.
#[derive(Clone, Copy)]
pub(crate) struct Form {
    pub(crate) version: i16,
    pub(crate) flexible: bool,
}

/// What can stand as a field of a message or as an element of an array.
pub(crate) trait Field: Sized {
    fn read(reader: &mut Reader<'_>, form: Form) -> Result<Self, WireError>;
    fn write(&self, writer: &mut Writer, form: Form);
}

/// What can be null on the wire.
pub(crate) trait Nullable: Field + Default {
    fn read_nullable(reader: &mut Reader<'_>, form: Form) -> Result<Option<Self>, WireError>;
    fn write_nullable(value: Option<&Self>, writer: &mut Writer, form: Form);

    /// Writes a value where null may not stand.
    fn write_or_empty(value: Option<&Self>, writer: &mut Writer, form: Form) {
        match value {
            Some(value) => value.write(writer, form),
            None => Self::default().write(writer, form),
        }
    }
}

impl<T: Nullable> Field for Option<T> {
    fn read(reader: &mut Reader<'_>, form: Form) -> Result<Self, WireError> {
        T::read_nullable(reader, form)
    }

    fn write(&self, writer: &mut Writer, form: Form) {
        T::write_nullable(self.as_ref(), writer, form);
    }
}

/// Fields whose shape is the same in every version.
macro_rules! plain_fields {
    ($($type:ty: $method:ident;)*) => {$(
        impl Field for $type {
            fn read(reader: &mut Reader<'_>, _: Form) -> Result<Self, WireError> {
                reader.$method()
            }

            fn write(&self, writer: &mut Writer, _: Form) {
                writer.$method(*self);
            }
        }
    )*};
}

plain_fields! {
    bool: bool;
    i8: i8;
    i16: i16;
    u16: u16;
    i32: i32;
    i64: i64;
    TopicId: topic_id;
}

/// Numbers with a meaning, written as the number they hold.
macro_rules! number_fields {
    ($($type:ident: $method:ident;)*) => {$(
        impl $crate::message::Field for $type {
            fn read(
                reader: &mut $crate::codec::Reader<'_>,
                _: $crate::message::Form,
            ) -> Result<Self, $crate::error::WireError> {
                reader.$method().map(Self)
            }

            fn write(&self, writer: &mut $crate::codec::Writer, _: $crate::message::Form) {
                writer.$method(self.0);
            }
        }
    )*};
}
pub(crate) use number_fields;

number_fields! {
    Offset: i64;
    LeaderEpoch: i32;
    BrokerId: i32;
    PartitionIndex: i32;
    ProducerId: i64;
    ProducerEpoch: i16;
}

impl Field for String {
    fn read(reader: &mut Reader<'_>, form: Form) -> Result<Self, WireError> {
        reader.str(form.flexible).map(Self::from)
    }

    fn write(&self, writer: &mut Writer, form: Form) {
        writer.str(self, form.flexible);
    }
}

impl Nullable for String {
    fn read_nullable(reader: &mut Reader<'_>, form: Form) -> Result<Option<Self>, WireError> {
        Ok(reader.nullable_str(form.flexible)?.map(Self::from))
    }

    fn write_nullable(value: Option<&Self>, writer: &mut Writer, form: Form) {
        writer.nullable_str(value.map(Self::as_str), form.flexible);
    }
}

// `u8` is no `Field`, so that bytes are not mistaken for an array of numbers.
impl Field for Vec<u8> {
    fn read(reader: &mut Reader<'_>, form: Form) -> Result<Self, WireError> {
        let start = *reader;
        Self::read_nullable(reader, form)?.ok_or_else(|| start.error(Fault::UnexpectedNull))
    }

    fn write(&self, writer: &mut Writer, form: Form) {
        writer.nullable_bytes(Some(self), form.flexible);
    }
}

impl Nullable for Vec<u8> {
    fn read_nullable(reader: &mut Reader<'_>, form: Form) -> Result<Option<Self>, WireError> {
        Ok(reader.nullable_bytes(form.flexible)?.map(Self::from))
    }

    fn write_nullable(value: Option<&Self>, writer: &mut Writer, form: Form) {
        writer.nullable_bytes(value.map(Self::as_slice), form.flexible);
    }
}

impl<T: Field> Field for Vec<T> {
    fn read(reader: &mut Reader<'_>, form: Form) -> Result<Self, WireError> {
        let count = reader.count(form.flexible)?;
        read_elements(reader, count, form)
    }

    fn write(&self, writer: &mut Writer, form: Form) {
        writer.count(self.len(), form.flexible);
        for element in self {
            element.write(writer, form);
        }
    }
}

impl<T: Field> Nullable for Vec<T> {
    fn read_nullable(reader: &mut Reader<'_>, form: Form) -> Result<Option<Self>, WireError> {
        match reader.nullable_count(form.flexible)? {
            Some(count) => read_elements(reader, count, form).map(Some),
            None => Ok(None),
        }
    }

    fn write_nullable(value: Option<&Self>, writer: &mut Writer, form: Form) {
        match value {
            Some(elements) => elements.write(writer, form),
            None => writer.nullable_count(None, form.flexible),
        }
    }
}

fn read_elements<T: Field>(
    reader: &mut Reader<'_>,
    count: usize,
    form: Form,
) -> Result<Vec<T>, WireError> {
    let mut elements = Vec::with_capacity(count.min(ELEMENTS_AHEAD_MAX));
    for _ in 0..count {
        elements.push(T::read(reader, form)?);
    }
    Ok(elements)
}

/// The tagged fields of one structure while they are collected: their count goes before them.
#[derive(Default)]
pub(crate) struct TaggedFields {
    count: u32,
    fields: Writer,
}

impl TaggedFields {
    /// Adds a field unless it is at its default; tags must rise.
    pub(crate) fn add<T: Field + PartialEq>(
        &mut self,
        tag: u32,
        value: &T,
        default: &T,
        form: Form,
    ) {
        if value == default {
            return;
        }
        let mut field = Writer::new();
        value.write(&mut field, form);
        self.count += 1;
        self.fields.unsigned_varint(tag);
        self.fields.unsigned_varint(u32::try_from(field.len()).expect("a message is below 4 GiB"));
        self.fields.raw(field.bytes());
    }

    pub(crate) fn finish(self, writer: &mut Writer) {
        writer.unsigned_varint(self.count);
        writer.raw(self.fields.bytes());
    }
}

/// Declares a structure inside messages; see the head of this file.
macro_rules! structure {
    (
        $(#[$doc:meta])*
        pub struct $name:ident {
            $( $(#[$field_doc:meta])* $field:ident: $type:ty [$($rule:tt)*], )*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name {
            $( $(#[$field_doc])* pub $field: $type, )*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $( $field: $crate::message::field!(default; $($rule)*), )* }
            }
        }

        impl $crate::message::Field for $name {
            fn read(
                reader: &mut $crate::codec::Reader<'_>,
                form: $crate::message::Form,
            ) -> Result<Self, $crate::error::WireError> {
                let mut read = Self::default();
                $( $crate::message::field!(read (reader, form, read.$field); $($rule)*); )*
                if form.flexible {
                    reader.tagged_fields(|_tag, _field| {
                        $( $crate::message::field!(
                            read_tagged (_tag, _field, form, read.$field); $($rule)*
                        ); )*
                        Ok(())
                    })?;
                }
                Ok(read)
            }

            fn write(&self, writer: &mut $crate::codec::Writer, form: $crate::message::Form) {
                $( $crate::message::field!(write (writer, form, self.$field); $($rule)*); )*
                if form.flexible {
                    let mut _tagged = $crate::message::TaggedFields::default();
                    $( $crate::message::field!(
                        write_tagged (_tagged, form, self.$field); $($rule)*
                    ); )*
                    _tagged.finish(writer);
                }
            }
        }

        impl $crate::message::Nullable for $name {
            fn read_nullable(
                reader: &mut $crate::codec::Reader<'_>,
                form: $crate::message::Form,
            ) -> Result<Option<Self>, $crate::error::WireError> {
                if reader.i8()? < 0 {
                    return Ok(None);
                }
                <Self as $crate::message::Field>::read(reader, form).map(Some)
            }

            fn write_nullable(
                value: Option<&Self>,
                writer: &mut $crate::codec::Writer,
                form: $crate::message::Form,
            ) {
                writer.i8(if value.is_some() { 1 } else { -1 });
                if let Some(value) = value {
                    $crate::message::Field::write(value, writer, form);
                }
            }
        }
    };
}
pub(crate) use structure;

/// Declares a message: a [`structure!`] with its API, the versions spoken and the first flexible one.
macro_rules! message {
    (
        $(#[$doc:meta])*
        pub struct $name:ident: $key:ident $least:literal..=$most:literal, flexible $flexible:literal..
        { $($fields:tt)* }
    ) => {
        $crate::message::structure! { $(#[$doc])* pub struct $name { $($fields)* } }

        impl $name {
            /// The API this message belongs to.
            pub const API_KEY: $crate::api::ApiKey = $crate::api::ApiKey::$key;

            /// The versions read and written here.
            pub const VERSIONS: $crate::api::Versions =
                $crate::api::Versions { least: $least, most: $most };

            /// The first version with compact lengths and tagged fields.
            pub const FIRST_FLEXIBLE: i16 = $flexible;

            /// Reads the message from what follows its header; `reader` stops at its end.
            pub fn read(
                reader: &mut $crate::codec::Reader<'_>,
                version: i16,
            ) -> Result<Self, $crate::error::WireError> {
                if !Self::VERSIONS.contains(version) {
                    return Err(reader.error($crate::error::Fault::UnknownVersion(version)));
                }
                let form = $crate::message::Form { version, flexible: version >= $flexible };
                <Self as $crate::message::Field>::read(reader, form)
            }

            /// Writes the message as it follows its header. A version outside
            /// [`Self::VERSIONS`] is the caller's bug.
            pub fn write(&self, writer: &mut $crate::codec::Writer, version: i16) {
                assert!(
                    Self::VERSIONS.contains(version),
                    concat!(stringify!($name), " has no version {}"),
                    version
                );
                let form = $crate::message::Form { version, flexible: version >= $flexible };
                <Self as $crate::message::Field>::write(self, writer, form);
            }
        }
    };
}
pub(crate) use message;

/// What one line of a table means for the default, the reader and the writer.
macro_rules! field {
    (default; $versions:expr $(, null $null:expr)? $(, tag $tag:literal)?) => {
        Default::default()
    };
    (default; $versions:expr $(, null $null:expr)?, default $default:expr $(, tag $tag:literal)?) => {
        $default
    };

    // Tagged fields stand at the end, in a list of their own.
    (read $names:tt; $versions:expr $(, default $default:expr)?, tag $tag:literal) => {};
    (write $names:tt; $versions:expr $(, default $default:expr)?, tag $tag:literal) => {};
    (
        read_tagged ($read_tag:ident, $reader:ident, $form:ident, $place:expr);
        $versions:expr $(, default $default:expr)?, tag $tag:literal
    ) => {
        if $read_tag == $tag && ($versions).contains(&$form.version) {
            $place = $crate::message::Field::read($reader, $form)?;
            $reader.finish()?;
        }
    };
    (
        write_tagged ($tagged:ident, $form:ident, $place:expr);
        $versions:expr $(, default $default:expr)?, tag $tag:literal
    ) => {
        if ($versions).contains(&$form.version) {
            let default = $crate::message::field!(
                default; $versions $(, default $default)?, tag $tag
            );
            $tagged.add($tag, &$place, &default, $form);
        }
    };
    (read_tagged $names:tt; $($rule:tt)*) => {};
    (write_tagged $names:tt; $($rule:tt)*) => {};

    // Null may stand only in some versions.
    (
        read ($reader:ident, $form:ident, $place:expr);
        $versions:expr, null $null:expr $(, default $default:expr)?
    ) => {
        if ($null).contains(&$form.version) {
            $place = $crate::message::Field::read($reader, $form)?;
        } else if ($versions).contains(&$form.version) {
            $place = Some($crate::message::Field::read($reader, $form)?);
        }
    };
    (
        write ($writer:ident, $form:ident, $place:expr);
        $versions:expr, null $null:expr $(, default $default:expr)?
    ) => {
        if ($null).contains(&$form.version) {
            $crate::message::Field::write(&$place, $writer, $form);
        } else if ($versions).contains(&$form.version) {
            $crate::message::Nullable::write_or_empty($place.as_ref(), $writer, $form);
        }
    };

    (
        read ($reader:ident, $form:ident, $place:expr);
        $versions:expr $(, default $default:expr)?
    ) => {
        if ($versions).contains(&$form.version) {
            $place = $crate::message::Field::read($reader, $form)?;
        }
    };
    (
        write ($writer:ident, $form:ident, $place:expr);
        $versions:expr $(, default $default:expr)?
    ) => {
        if ($versions).contains(&$form.version) {
            $crate::message::Field::write(&$place, $writer, $form);
        }
    };
}
pub(crate) use field;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::produce::ProduceResponse;

    #[test]
    fn a_tagged_field_longer_than_its_content_is_refused() {
        // No topic, no throttle, one tagged field 0 of two bytes: no endpoint and a byte too much.
        let bytes = [1, 0, 0, 0, 0, 1, 0, 2, 1, 9];
        assert_eq!(
            ProduceResponse::read(&mut Reader::new(&bytes), 10),
            Err(WireError { fault: Fault::TrailingBytes(1), position: 9 })
        );
    }

    #[test]
    fn a_field_at_its_default_is_not_tagged() {
        let mut writer = Writer::new();
        ProduceResponse::default().write(&mut writer, 10);
        assert_eq!(writer.bytes(), [1, 0, 0, 0, 0, 0]);
    }
}
