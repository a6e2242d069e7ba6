//! What every request of a kind may be answered beside its handler's own answers.

use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::path::{Operation, ParameterIn};
use utoipa::openapi::schema::Type;
use utoipa::openapi::{
    Components, ContentBuilder, ObjectBuilder, OpenApi, Ref, RefOr, Response, ResponseBuilder, ResponsesBuilder,
};
use utoipa::{PartialSchema, ToSchema};

use super::{is_open, operations};
use crate::problem::Document;

/// A refusal that many operations share: its status, its name among the components, when it is given.
struct Refusal {
    status: &'static str,
    name: &'static str,
    when: &'static str,
    header: Option<(&'static str, Type)>,
}

const fn refusal(status: &'static str, name: &'static str, when: &'static str) -> Refusal {
    Refusal { status, name, when, header: None }
}

const RETRY_AFTER: &str = "Retry-After";

const INVALID: Refusal = refusal("400", "Invalid", "Something in the request is wrong; every wrong field is named.");
const UNAUTHORIZED: Refusal =
    Refusal { header: Some(("WWW-Authenticate", Type::String)), ..refusal("401", "Unauthorized", "No known token.") };
const FORBIDDEN: Refusal = refusal("403", "Forbidden", "The token's role does not allow it.");
const NOT_FOUND: Refusal = refusal("404", "NotFound", "Nothing has this name or id.");
const BODY_TIMEOUT: Refusal = refusal("408", "BodyTimeout", "The body did not arrive in time.");
const TOO_LARGE: Refusal = refusal("413", "TooLarge", "The body has more bytes or items than are taken.");
const MEDIA_TYPE: Refusal = refusal("415", "MediaType", "The body is not sent as JSON in UTF-8.");
const TOO_MANY: Refusal = Refusal {
    header: Some((RETRY_AFTER, Type::Integer)),
    ..refusal("429", "TooManyFailures", "Too many requests without a known token came from this address.")
};
const INTERNAL: Refusal = refusal("500", "Internal", "Our mistake; the node's log says what it was.");
const UNAVAILABLE: Refusal = Refusal {
    header: Some((RETRY_AFTER, Type::Integer)),
    ..refusal("503", "Unavailable", "The database is away or the node has too much to do. Nothing is known to be done.")
};

const ALL: [Refusal; 10] =
    [INVALID, UNAUTHORIZED, FORBIDDEN, NOT_FOUND, BODY_TIMEOUT, TOO_LARGE, MEDIA_TYPE, TOO_MANY, INTERNAL, UNAVAILABLE];

/// A problem document, for answers that handlers describe themselves.
pub(super) const PROBLEM_JSON: &str = "application/problem+json";

/// Adds to each operation what its kind can meet, and to the components what that is.
pub(super) fn add(openapi: &mut OpenApi) {
    let components = openapi.components.get_or_insert_with(Components::new);
    components.schemas.insert(Document::name().into_owned(), Document::schema());
    for refusal in ALL {
        components.responses.insert(refusal.name.to_owned(), response(&refusal).into());
    }
    for (path, item) in &mut openapi.paths.paths {
        for operation in operations(item) {
            for refusal in met_by(path, operation) {
                let own = &mut operation.responses.responses;
                own.entry(refusal.status.to_owned()).or_insert_with(|| Ref::from_response_name(refusal.name).into());
            }
        }
    }
}

fn met_by(path: &str, operation: &Operation) -> Vec<Refusal> {
    let mut met = Vec::new();
    let parameters = operation.parameters.iter().flatten();
    let asks = parameters.filter(|parameter| match parameter {
        RefOr::T(parameter) => parameter.parameter_in == ParameterIn::Query,
        RefOr::Ref(_) => false,
    });
    if operation.request_body.is_some() {
        met.extend([INVALID, BODY_TIMEOUT, TOO_LARGE, MEDIA_TYPE]);
    } else if asks.count() > 0 {
        met.push(INVALID);
    }
    if path.contains('{') {
        met.push(NOT_FOUND);
    }
    if !is_open(operation) {
        met.extend([UNAUTHORIZED, FORBIDDEN, TOO_MANY, INTERNAL, UNAVAILABLE]);
    }
    met
}

fn response(refusal: &Refusal) -> Response {
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name(Document::name()))).build();
    let mut response = ResponseBuilder::new().description(refusal.when).content(PROBLEM_JSON, content);
    if let Some((name, schema_type)) = &refusal.header {
        let schema = ObjectBuilder::new().schema_type(schema_type.clone()).build();
        response = response.header(*name, HeaderBuilder::new().schema(Some(schema)).build());
    }
    response.build()
}

/// 404, for handlers that are told a name elsewhere than in the path.
pub(crate) struct Unknown;

impl utoipa::IntoResponses for Unknown {
    fn responses() -> std::collections::BTreeMap<String, RefOr<Response>> {
        [(NOT_FOUND.status.to_owned(), Ref::from_response_name(NOT_FOUND.name).into())].into()
    }
}

/// 409, which the handlers that can meet it name in their answers.
pub(crate) struct Conflict;

impl utoipa::IntoResponses for Conflict {
    fn responses() -> std::collections::BTreeMap<String, RefOr<Response>> {
        let conflict = refusal("409", "Conflict", "It contradicts what stands in the database.");
        ResponsesBuilder::new().response(conflict.status, response(&conflict)).build().into()
    }
}
