//! ractor_cluster's NodeServer as we use it, and its events as messages to the ClusterSupervisor.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef};
use ractor_cluster::node::{NodeConnectionMode, NodeServerSessionInformation};
use ractor_cluster::{IncomingEncryptionMode, NodeEventSubscription, NodeServer, NodeServerMessage};
use railyard_core::link::session_cookie;
use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use uuid::Uuid;

use super::{FRAME_BYTES_MAX, Links};
use crate::actors::cluster;

/// Starts it. It takes connections from [`NodeServerMessage::ConnectionOpenedExternal`] and from nobody else.
pub(crate) async fn start(
    links: &Links,
    name: &str,
    told: ActorRef<cluster::Msg>,
    parent: ActorCell,
) -> Result<ActorRef<NodeServerMessage>, ActorProcessingErr> {
    let server = NodeServer::new(
        0,
        session_cookie(links.options.cookie.bytes()),
        name.to_owned(),
        // Host and port make the string by which a server takes another one for itself; the port is a random one.
        links.me.process.to_string(),
        Some(IncomingEncryptionMode::Tls(nobody()?)),
        Some(NodeConnectionMode::Isolated),
    )
    // Its own listener cannot be left out. It listens where no other host reaches it, and lets nobody in.
    .with_listen_addr(IpAddr::V4(Ipv4Addr::LOCALHOST))
    .with_max_inbound_frame_size(FRAME_BYTES_MAX);
    let (server, _) = Actor::spawn_linked(None, server, (), parent).await?;
    let subscription = Box::new(Sessions(told));
    server.cast(NodeServerMessage::SubscribeToEvents { id: "railyard".to_owned(), subscription })?;
    Ok(server)
}

/// A TLS server without a certificate: every handshake fails.
fn nobody() -> Result<tokio_rustls::TlsAcceptor, rustls::Error> {
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(NoCertificate));
    Ok(Arc::new(config).into())
}

#[derive(Debug)]
struct NoCertificate;

impl ResolvesServerCert for NoCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        None
    }
}

/// How a session is known to ractor_cluster: the process at its other end and the link's serial number.
pub(crate) fn label(process: Uuid, serial: u64) -> String {
    format!("{process}/{serial}")
}

fn read_label(label: &str) -> Option<(Uuid, u64)> {
    let (process, serial) = label.split_once('/')?;
    Some((process.parse().ok()?, serial.parse().ok()?))
}

struct Sessions(ActorRef<cluster::Msg>);

impl NodeEventSubscription for Sessions {
    fn node_session_opened(&self, _: NodeServerSessionInformation) {}

    fn node_session_authenticated(&self, _: NodeServerSessionInformation) {}

    fn node_session_ready(&self, session: NodeServerSessionInformation) {
        if let Some((process, serial)) = read_label(&session.peer_addr) {
            // A supervisor that has ended needs no news.
            let _ = self.0.cast(cluster::Msg::Ready { process, serial, session: session.node_id });
        }
    }

    fn node_session_disconnected(&self, session: NodeServerSessionInformation) {
        if let Some((process, serial)) = read_label(&session.peer_addr) {
            let _ = self.0.cast(cluster::Msg::Gone { process, serial });
        }
    }
}
