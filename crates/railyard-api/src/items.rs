//! A body of many items, each for itself: what one is answered, and how a body is taken apart.
//!
//! Three forms of body are known: a bare array, `{"items": […]}`, and the array under the noun of its endpoint.

use axum::http::StatusCode;
use railyard_core::OutboxId;
use railyard_core::job::FieldError;
use railyard_core::limits::BATCH_ITEMS_MAX;
use railyard_store::jobs::{Placed, Taken};
use serde::de::{Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use utoipa::openapi::schema::{AdditionalProperties, Type};
use utoipa::openapi::{ArrayBuilder, ObjectBuilder, OneOfBuilder, RefOr, Schema};

use crate::fields::{self, Fields};
use crate::problem::{FieldDocument, Problem, api_name};

/// What became of one item, in the words of an outbox processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum ItemStatus {
    /// It was stored.
    Success,
    /// It was stored before, with the same content.
    Skipped,
    /// It was refused, and will be again.
    BadRequest,
    /// It was not stored, and may be with the next call.
    Retry,
    /// We failed at it; the log of the node says why.
    InternalError,
}

/// The answer to one item.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ItemResult {
    /// The item's own `id` as it was sent; without one, the id that it was stored under.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<String>,
    pub(crate) status: ItemStatus,
    /// Why, in one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// Each field that is wrong.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(inline)]
    pub(crate) errors: Vec<FieldDocument>,
    /// What it was stored as, now or before.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Uuid>)]
    pub(crate) stored_id: Option<OutboxId>,
}

impl ItemResult {
    fn stored(id: Option<String>, stored_id: OutboxId, status: ItemStatus) -> Self {
        let id = id.or_else(|| Some(stored_id.to_string()));
        Self { id, status, error: None, errors: Vec::new(), stored_id: Some(stored_id) }
    }

    fn unstored(id: Option<String>, status: ItemStatus, error: impl Into<String>) -> Self {
        Self { id, status, error: Some(error.into()), errors: Vec::new(), stored_id: None }
    }

    /// A refusal that names its fields.
    fn refused(id: Option<String>, errors: Vec<FieldError>) -> Self {
        let said: Vec<String> = errors.iter().map(|one| format!("{}: {}", one.field, one.detail)).collect();
        let errors = errors.into_iter().map(FieldDocument::from).collect();
        Self { errors, ..Self::unstored(id, ItemStatus::BadRequest, said.join("; ")) }
    }

    /// A key that stands for other content.
    fn reused(id: Option<String>, field: &str, first: OutboxId) -> Self {
        let detail = format!("was used before for other content, by {first}");
        let errors = vec![FieldError { field: field.to_owned(), detail }];
        Self { stored_id: Some(first), ..Self::refused(id, errors) }
    }

    /// What became of an item that was good; `key_field` is where its key was given.
    pub(crate) fn of_placed(id: Option<String>, key_field: &str, placed: Placed) -> Self {
        match placed {
            Placed::Taken(made) => match made.taken {
                Taken::Created => Self::stored(id, made.outbox_id, ItemStatus::Success),
                Taken::Repeated => Self::stored(id, made.outbox_id, ItemStatus::Skipped),
                Taken::Conflict => Self::reused(id, key_field, made.outbox_id),
            },
            Placed::Refused { field, detail } => {
                Self::refused(id, vec![FieldError { field: api_name(&field), detail }])
            }
            Placed::Later { detail } => Self::unstored(id, ItemStatus::Retry, detail),
            Placed::Failed { detail } => {
                tracing::error!(detail, "an item of a batch could not be stored");
                Self::unstored(id, ItemStatus::InternalError, "could not be stored; the log of the node says why")
            }
        }
    }

    /// What was found wrong while an item was read.
    ///
    /// # Errors
    /// The problem itself if it is not the item's but ours: then no item of the body has an answer.
    pub(crate) fn of_problem(id: Option<String>, problem: Problem) -> Result<Self, Problem> {
        match problem.status() {
            StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE => {
                let detail = problem.detail().to_owned();
                let errors = problem.into_errors();
                match errors.is_empty() {
                    true => Ok(Self::unstored(id, ItemStatus::BadRequest, detail)),
                    false => Ok(Self::refused(id, errors)),
                }
            }
            _ => Err(problem),
        }
    }
}

/// The three forms of a body whose items look like this.
pub(crate) fn batch_of(item: &RefOr<Schema>, noun: &str) -> RefOr<Schema> {
    let list = || ArrayBuilder::new().items(item.clone()).max_items(Some(BATCH_ITEMS_MAX));
    let under = |name: &str| {
        let object = ObjectBuilder::new().schema_type(Type::Object).property(name, list()).required(name);
        object.additional_properties(Some(AdditionalProperties::FreeForm(false)))
    };
    OneOfBuilder::new().item(list()).item(under("items")).item(under(noun)).into()
}

/// The items of a body, as they stand there.
///
/// # Errors
/// 400 if the body has none of the three forms, 413 if it has more than [`BATCH_ITEMS_MAX`] items.
pub(crate) fn read<'a>(body: &'a [u8], noun: &str) -> Result<Vec<&'a RawValue>, Problem> {
    if body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[') {
        return list(fields::text(body)?, "");
    }
    let mut fields = Fields::parse(body)?;
    let given = [fields.raw("items").map(|found| ("items", found)), fields.raw(noun).map(|found| (noun, found))];
    let mut given = given.into_iter().flatten();
    match (given.next(), given.next()) {
        (Some((field, found)), None) => {
            fields.finish()?;
            list(found.get(), field)
        }
        (Some(_), Some(_)) => Err(Problem::field(noun, "stands beside items, which means the same")),
        (None, _) => {
            fields.error("items", "is missing; the body may be an array as well");
            fields.finish()?;
            Ok(Vec::new())
        }
    }
}

/// `field` is empty where the list is the whole body.
fn list<'a>(text: &'a str, field: &str) -> Result<Vec<&'a RawValue>, Problem> {
    match serde_json::from_str::<Bounded<'a>>(text) {
        Ok(Bounded(items)) if items.len() <= BATCH_ITEMS_MAX => Ok(items),
        Err(error) if !error.to_string().contains(TOO_MANY) => match field {
            "" => Err(fields::malformed(&error)),
            field => Err(Problem::field(field, format!("is not a list: {}", fields::said(&error)))),
        },
        Ok(_) | Err(_) => Err(Problem::too_large(format!("at most {BATCH_ITEMS_MAX} items are taken at once"))),
    }
}

const TOO_MANY: &str = "more items than are taken";

/// A list that is given up as soon as it is too long.
struct Bounded<'a>(Vec<&'a RawValue>);

impl<'de> Deserialize<'de> for Bounded<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Items;
        impl<'de> Visitor<'de> for Items {
            type Value = Bounded<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a list of objects")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = list.next_element::<&'de RawValue>()? {
                    if items.len() == BATCH_ITEMS_MAX {
                        return Err(serde::de::Error::custom(TOO_MANY));
                    }
                    items.push(item);
                }
                Ok(Bounded(items))
            }
        }
        deserializer.deserialize_seq(Items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn many(count: usize) -> String {
        format!("[{}]", vec!["{}"; count].join(","))
    }

    #[test]
    fn s3_39_three_forms_of_body() {
        for body in ["[{}, 1]", " {\"items\": [{}, 1]}", "{\"jobs\": [{}, 1], \"items\": null}"] {
            assert_eq!(read(body.as_bytes(), "jobs").unwrap().len(), 2, "{body}");
        }
        for body in
            ["", "1", "{}", "[", "{\"items\": {}}", "{\"items\": [], \"jobs\": []}", "{\"items\": [], \"x\": 1}"]
        {
            assert_eq!(read(body.as_bytes(), "jobs").unwrap_err().status(), StatusCode::BAD_REQUEST, "{body}");
        }
    }

    #[test]
    fn s3_39_a_thousand_and_no_more() {
        assert_eq!(read(many(1000).as_bytes(), "jobs").unwrap().len(), 1000);
        for body in [many(1001), format!("{{\"jobs\": {}}}", many(1001))] {
            assert_eq!(read(body.as_bytes(), "jobs").unwrap_err().status(), StatusCode::PAYLOAD_TOO_LARGE);
        }
    }
}
