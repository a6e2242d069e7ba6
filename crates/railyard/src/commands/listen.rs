//! `railyard listen`: a receiver on this machine, to see what a delivery looks like and to try a receiver's checks.
//! It checks signatures as a receiver should, prints each delivery and answers it. It keeps nothing.

mod delivery;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use railyard_core::limits::PAYLOAD_BYTES_MAX;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use zeroize::Zeroizing;

use crate::cli::Listen;
use crate::now::now;
use crate::signals::Signals;
use crate::{files, output};
use delivery::Delivery;

struct Receiver {
    secret: Option<Zeroizing<String>>,
    tolerance: Duration,
    status: StatusCode,
    body: bool,
    json: bool,
    count: Option<u64>,
    received: AtomicU64,
    failed: AtomicU64,
    enough: Notify,
}

/// Receives until a signal, or until `--count` deliveries.
///
/// # Errors
/// The address is taken, or a file cannot be read.
pub(crate) async fn run(args: &Listen) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::listen()?;
    let receiver = Arc::new(Receiver {
        secret: files::secret_of(args.secret.as_ref(), args.secret_file.as_deref())?,
        tolerance: Duration::from_secs(args.tolerance_s.into()),
        status: StatusCode::from_u16(args.status)?,
        body: args.body,
        json: args.json,
        count: args.count,
        received: AtomicU64::new(0),
        failed: AtomicU64::new(0),
        enough: Notify::new(),
    });
    let listener = TcpListener::bind(args.address).await.with_context(|| format!("listen on {}", args.address))?;
    eprintln!("listening: http://{}", listener.local_addr()?);
    if receiver.secret.is_none() {
        eprintln!("signatures are not checked: no --secret");
    }
    let router = Router::new().fallback(receive).with_state(Arc::clone(&receiver));
    let until = Arc::clone(&receiver);
    axum::serve(listener, router)
        .with_graceful_shutdown(async move {
            tokio::select! {
                _ = signals.next() => {}
                () = until.enough.notified() => {}
            }
        })
        .await?;
    let (received, failed) = (receiver.received.load(Ordering::Relaxed), receiver.failed.load(Ordering::Relaxed));
    eprintln!("{received} received, {failed} with a signature that does not hold");
    Ok(if failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

async fn receive(State(receiver): State<Arc<Receiver>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let answer = match to_bytes(body, PAYLOAD_BYTES_MAX).await {
        Ok(body) => {
            let secret = receiver.secret.as_ref().map(|secret| secret.as_str());
            let delivery = Delivery::of(&head, &body, secret, now(), receiver.tolerance);
            receiver.show(&delivery, &body);
            receiver.status
        }
        Err(error) => {
            eprintln!("{} {}: the body broke off: {error}", head.method, output::printable(&head.uri.to_string()));
            StatusCode::BAD_REQUEST
        }
    };
    let mut response = Response::new(Body::empty());
    *response.status_mut() = answer;
    response
}

impl Receiver {
    fn show(&self, delivery: &Delivery, body: &[u8]) {
        if delivery.is_forged() {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
        let shown = if self.json { serde_json::to_string(delivery).unwrap_or_default() } else { delivery.to_string() };
        println!("{shown}");
        if self.body {
            println!("{}", output::printable(&String::from_utf8_lossy(body)));
        }
        let received = self.received.fetch_add(1, Ordering::Relaxed) + 1;
        if self.count.is_some_and(|count| received >= count) {
            self.enough.notify_one();
        }
    }
}
