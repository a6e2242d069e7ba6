//! Every bound that a job, a call or an answer meets. Defaults and bounds are part of the interface: the OpenAPI
//! document takes them from here.
//!
//! The way in of SQL counts characters, and takes a little more of what is only kept: names and content types up to 255
//! characters, where the API takes the bytes below. What both ways share (groups, keys, ids, headers, metadata, payloads)
//! is bounded alike in both.

use std::time::Duration;

/// Payload a job may carry unless the configuration says otherwise.
pub const PAYLOAD_BYTES_DEFAULT: usize = 1024 * 1024;
/// The most that the configuration may allow.
pub const PAYLOAD_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Items of one batch.
pub const BATCH_ITEMS_MAX: usize = 1000;
/// Bytes of one batch request.
pub const BATCH_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Headers that a job may set.
pub const HEADERS_MAX: usize = 50;
/// Names and values of a job's headers together.
pub const HEADERS_BYTES_MAX: usize = 8 * 1024;

/// Shortest deadline of a call.
pub const TIMEOUT_S_MIN: u32 = 1;
/// Deadline of a job that names none.
pub const TIMEOUT_S_DEFAULT: u32 = 30;
/// Longest deadline of a call.
pub const TIMEOUT_S_MAX: u32 = 90;
/// Longest wait for a connection, unless the call's own deadline is shorter.
pub const CONNECT_TIMEOUT_S_DEFAULT: u32 = 10;

/// Fewest deliveries that a job may ask for.
pub const ATTEMPTS_MIN: u32 = 1;
/// Most deliveries that a job may ask for.
pub const ATTEMPTS_MAX: u32 = 100;
/// Longest back-off cap that may be configured.
pub const BACKOFF_CAP_MAX: Duration = Duration::from_secs(24 * 3600);

/// Longest wait that a receiver may ask for (Retry-After, `delaySeconds`).
pub const DEFERRAL_CAP: Duration = Duration::from_secs(3600);
/// Wait after a deferral that names none.
pub const DEFERRAL_DEFAULT: Duration = Duration::from_secs(30);
/// Shortest wait after a deferral. A receiver that answers `Retry-After: 0` for ever must not be called in a loop:
/// deferrals spend no budget, so nothing else would end it.
pub const DEFERRAL_MIN: Duration = Duration::from_secs(1);

/// Bytes kept of an answer's body.
pub const RESPONSE_BODY_BYTES_MAX: usize = 16 * 1024;
/// Characters kept of the code in an answer.
pub const RAIL_CODE_CHARS_MAX: usize = 64;
/// Characters kept of the reference in an answer.
pub const RAIL_REFERENCE_CHARS_MAX: usize = 200;
/// Characters kept of a failure's description.
pub const ERROR_DETAIL_CHARS_MAX: usize = 1000;

/// Before a call that was not started is tried again, unless its reason says otherwise.
pub const NOT_STARTED_WAIT: Duration = Duration::from_secs(1);
/// Calls at once to one endpoint.
pub const ENDPOINT_CONCURRENCY_DEFAULT: u32 = 10;
/// The most that may be configured.
pub const ENDPOINT_CONCURRENCY_MAX: u32 = 1000;
/// The most calls at once of one rail that may be configured.
pub const RAIL_CALLS_MAX: u32 = 10_000;
/// Calls at once from one node.
pub const NODE_CALLS_DEFAULT: u32 = 256;

/// `externalId`, in characters (S3).
pub const EXTERNAL_ID_CHARS_MAX: usize = 32;
/// `source` and `type`.
pub const NAME_BYTES_MAX: usize = 200;
/// The source of the jobs that scheduled items are executed by: nobody else's.
pub const SOURCE_RESERVED: &str = "dispatch";
/// `groupId`, in characters, as in SQL: also a key of several indexes, which take about 2,700 bytes a row.
pub const GROUP_CHARS_MAX: usize = 255;
/// `railType` and the name of a pool.
pub const RAIL_NAME_BYTES_MAX: usize = 64;
/// `targetUrl`.
pub const TARGET_URL_BYTES_MAX: usize = 2048;
/// `payloadContentType`.
pub const CONTENT_TYPE_BYTES_MAX: usize = 200;
/// `idempotencyKey` and `instructionId`, in characters, as in SQL.
pub const KEY_CHARS_MAX: usize = 255;
/// Entries of a job's metadata.
pub const METADATA_MAX: usize = 50;
/// A metadata key.
pub const METADATA_KEY_BYTES_MAX: usize = 128;
/// A metadata value; key and value together fit one index row.
pub const METADATA_VALUE_BYTES_MAX: usize = 1024;
