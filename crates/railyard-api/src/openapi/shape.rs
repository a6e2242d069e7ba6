//! Bodies that are read field by field (`Fields`), described field by field.
//!
//! A type stands for each such body: it has no values, only a schema.

use serde_json::Value;
use utoipa::openapi::schema::{AdditionalProperties, KnownFormat, SchemaType, Type};
use utoipa::openapi::{ArrayBuilder, Object, ObjectBuilder, RefOr, Schema, SchemaFormat};

/// An object whose fields are all known. A field that may be left out may be null as well: both mean the same.
pub(crate) struct Shape(ObjectBuilder);

impl Shape {
    /// An object; what it is, in a sentence.
    pub(crate) fn new(description: &str) -> Self {
        let closed = AdditionalProperties::<Schema>::FreeForm(false);
        Self(ObjectBuilder::new().description(Some(description)).additional_properties(Some(closed)))
    }

    /// A field that must be there.
    pub(crate) fn required(self, name: &str, schema: impl Into<Schema>) -> Self {
        Self(self.0.property(name, schema.into()).required(name))
    }

    /// A field that may be missing, or null.
    pub(crate) fn optional(self, name: &str, schema: impl Into<Schema>) -> Self {
        Self(self.0.property(name, nullable(schema.into())))
    }

    /// The schema.
    pub(crate) fn build(self) -> Object {
        self.0.build()
    }
}

impl From<Shape> for RefOr<Schema> {
    fn from(shape: Shape) -> Self {
        Schema::Object(shape.build()).into()
    }
}

/// No field has another kind of schema than these two.
fn nullable(mut schema: Schema) -> Schema {
    if let Schema::Object(object) = &mut schema {
        or_null(&mut object.schema_type);
        if let Some(words) = &mut object.enum_values {
            words.push(Value::Null);
        }
    } else if let Schema::Array(array) = &mut schema {
        or_null(&mut array.schema_type);
    }
    schema
}

fn or_null(schema_type: &mut SchemaType) {
    if let SchemaType::Type(only) = schema_type {
        *schema_type = SchemaType::Array(vec![only.clone(), Type::Null]);
    }
}

/// Text without NUL, of at most so many characters.
pub(crate) fn text(chars_max: usize) -> Object {
    string().max_length(Some(chars_max)).pattern(Some(r"^[^\u0000]*$")).build()
}

/// Text without NUL, of at least one character.
pub(crate) fn filled(chars_max: usize) -> Object {
    string().min_length(Some(1)).max_length(Some(chars_max)).pattern(Some(r"^[^\u0000]*$")).build()
}

/// Text that says something.
pub(crate) fn named(chars_max: usize) -> Object {
    string().min_length(Some(1)).max_length(Some(chars_max)).pattern(Some(r"^[^\u0000]*[^\u0000\s][^\u0000]*$")).build()
}

/// Text of a form, as a regular expression.
pub(crate) fn formed(pattern: &str, chars_max: usize) -> Object {
    string().max_length(Some(chars_max)).pattern(Some(pattern)).build()
}

/// A UUID.
pub(crate) fn uuid() -> Object {
    string().format(Some(SchemaFormat::KnownFormat(KnownFormat::Uuid))).build()
}

/// A time with an offset.
pub(crate) fn time() -> Object {
    string().format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime))).build()
}

/// A whole number within bounds.
pub(crate) fn whole(min: u32, max: u32) -> Object {
    let number = ObjectBuilder::new().schema_type(Type::Integer);
    number.minimum(Some(i64::from(min))).maximum(Some(i64::from(max))).build()
}

/// A whole number with however many digits.
pub(crate) fn whole_from(min: u32) -> Object {
    ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(i64::from(min))).build()
}

/// Yes or no.
pub(crate) fn flag() -> Object {
    ObjectBuilder::new().schema_type(Type::Boolean).build()
}

/// One of a closed list of words.
pub(crate) fn word<T: Copy>(all: &[T], name: fn(T) -> &'static str) -> Object {
    string().enum_values(Some(all.iter().map(|word| name(*word)))).build()
}

/// A list.
pub(crate) fn list(of: Object) -> ArrayBuilder {
    ArrayBuilder::new().items(RefOr::T(Schema::Object(of)))
}

/// An object of strings, each name of this form.
pub(crate) fn map(names: Object, values: Object, entries_max: usize) -> Object {
    let object = ObjectBuilder::new().schema_type(Type::Object).property_names(Some(names));
    object.additional_properties(Some(Schema::Object(values))).max_properties(Some(entries_max)).build()
}

fn string() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String)
}

/// Any text.
pub(crate) fn any_text() -> Object {
    string().build()
}

/// Anything.
pub(crate) fn anything() -> Object {
    ObjectBuilder::new().schema_type(SchemaType::AnyValue).build()
}

/// Text of a form that has a name: `uri`, `media-type`.
pub(crate) fn of_format(name: &str, chars_max: usize) -> Object {
    string().format(Some(SchemaFormat::Custom(name.to_owned()))).max_length(Some(chars_max)).build()
}
