//! The API's own description, OpenAPI 3.1, made from the code.
//!
//! Each handler says what is its own (path, body, answers); this module adds what all have in common: who may ask, and
//! the refusals that every request of a kind can meet. Words and bounds come from the core's lists, so that document
//! and code cannot differ. `railyard openapi` prints the same bytes without a database.

pub(crate) mod alias;
mod refusals;
pub(crate) mod shape;
pub(crate) mod words;

use std::sync::OnceLock;

use utoipa::Modify;
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{Components, OpenApi};

pub(crate) use refusals::{Conflict, Unknown};

/// What stands in front of the list of operations.
#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Railyard",
        description = "Payment instructions and webhook jobs, each to its rail: in order within its group, signed, \
                       with intent and outcome of every attempt on record.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    tags(
        (name = "jobs", description = "Webhook jobs: create, read, follow."),
        (name = "payments", description = "Scheduled payments: accepted at once, executed when their time comes."),
        (name = "events", description = "What happened, and who wants to hear of it."),
        (name = "credentials", description = "The secrets that calls are signed with. They go in and never come out."),
        (name = "groups", description = "What stands where, and what an operator decides about it."),
        (name = "rate", description = "How many may start when: limits, slots, and what a plan would come to."),
        (name = "rails", description = "Where messages go out, and the switch of each."),
        (name = "pools", description = "How many calls may run at once, on all nodes together."),
        (name = "records", description = "What ended without success, and who decided what."),
        (name = "operation", description = "Health, metrics, this document."),
    ),
    security(("bearer" = [])),
    modifiers(&Bearer),
)]
struct Frame;

/// A token with a role: producer, viewer, admin.
struct Bearer;

impl Modify for Bearer {
    fn modify(&self, openapi: &mut OpenApi) {
        let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some(
            "A configured token. Its role says what it may do: producer makes and reads jobs, viewer reads \
             everything, admin decides as well. Without any configured token only this machine is served.",
        ));
        let components = openapi.components.get_or_insert_with(Components::new);
        components.add_security_scheme("bearer", SecurityScheme::Http(bearer.build()));
    }
}

/// The document before any operation.
pub(crate) fn frame() -> OpenApi {
    <Frame as utoipa::OpenApi>::openapi()
}

/// The document as JSON, the same bytes in every process of this version.
#[must_use]
pub fn openapi_json() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| {
        let mut openapi = crate::routes_in_turn().merge(crate::routes_at_once()).into_openapi();
        refusals::add(&mut openapi);
        let mut text = openapi.to_pretty_json().expect("the document is plain data");
        text.push('\n');
        text
    })
}

/// The operations of a path: those of the methods that we have handlers for.
fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [&mut item.get, &mut item.post, &mut item.put, &mut item.delete].into_iter().filter_map(Option::as_mut)
}

/// Whether an operation asks for no token, whatever the configuration says.
fn is_open(operation: &Operation) -> bool {
    operation.security.as_ref().is_some_and(|ways| ways == &[SecurityRequirement::default()])
}
