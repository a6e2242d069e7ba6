//! The same operations under a second address.

use utoipa::openapi::path::{PathItem, Paths};
use utoipa_axum::router::UtoipaMethodRouter;

use super::operations;
use crate::state::ApiState;

/// These routes again, with `to` in place of `from` at the front of their paths.
pub(crate) fn alias(routes: UtoipaMethodRouter<ApiState>, from: &str, to: &str) -> UtoipaMethodRouter<ApiState> {
    let (schemas, paths, handlers) = routes;
    let mut renamed = Paths::new();
    for (path, mut item) in paths.paths {
        rename(&mut item, from);
        renamed.paths.insert(path.replacen(from, to, 1), item);
    }
    (schemas, renamed, handlers)
}

fn rename(item: &mut PathItem, of: &str) {
    for operation in operations(item) {
        if let Some(id) = &mut operation.operation_id {
            id.push_str("Alias");
        }
        operation.description = Some(format!("The same as under `{of}`."));
    }
}
